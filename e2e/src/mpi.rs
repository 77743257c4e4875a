//! MPIJobs as users write them, and what a user can read from the objects.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

/// Open MPI 4, sshd on 2222, user mpiuser (1000), a pi program.
pub const IMAGE: &str = "mpi-operator/openmpi:dev";

/// The pi program of [`IMAGE`]: `pi [INTERVALS] [SECONDS]`.
pub const PI: &str = "/home/mpiuser/pi";

/// Label of the pods: which MPIJob.
pub const JOB_NAME: &str = "training.kubeflow.org/job-name";
/// Label of the pods: `launcher` or `worker`.
pub const JOB_ROLE: &str = "training.kubeflow.org/job-role";
/// Label of the pods: which operator.
pub const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
/// Annotation of worker pods that carries the index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Shell: waits for [`Namespace::tell`](crate::Namespace::tell), then goes on. Ends at once when
/// the pod is deleted, although it is PID 1.
pub const WAIT_FOR_GO: &str = "trap 'exit 143' TERM; until [ -e /tmp/go ]; do sleep 0.2; done; ";

/// Shell: host of worker 0, from the hostfile.
pub const WORKER_0: &str = "$(head -n1 /etc/mpi/hostfile | cut -d' ' -f1)";

/// How kube addresses MPIJobs.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("kubeflow.org", "v2beta1", "MPIJob"),
        "mpijobs",
    )
}

/// An MPIJob in the making.
#[derive(Debug, Clone)]
pub struct MpiJob(Value);

/// A job of one launcher that waits to be told to end (see
/// [`Namespace::tell`](crate::Namespace::tell)), and no workers yet.
#[must_use]
pub fn job(name: &str) -> MpiJob {
    MpiJob(json!({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [container("launcher")],
                }}},
            },
        },
    }))
    .program(&["sh", "-c", WAIT_FOR_GO])
}

/// The pi sample with `mpirun` over two ranks; add workers.
#[must_use]
pub fn pi(name: &str) -> MpiJob {
    job(name).program(&["mpirun", "-n", "2", PI])
}

/// A job that is one of the files in `samples/`.
pub fn sample(file: &str) -> Result<MpiJob> {
    let path = format!("{}/samples/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    Ok(MpiJob(serde_yaml_ng::from_str(&text)?))
}

fn container(name: &str) -> Value {
    json!({
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"runAsUser": 1000},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    })
}

impl MpiJob {
    /// Gives it workers that run sshd.
    #[must_use]
    pub fn workers(mut self, replicas: i32) -> Self {
        let worker = &mut self.0["spec"]["mpiReplicaSpecs"]["Worker"];
        if worker.is_null() {
            let mut main = container("worker");
            main["command"] = json!(["/usr/sbin/sshd"]);
            main["args"] = json!(["-De", "-f", "/home/mpiuser/.sshd_config"]);
            main["ports"] = json!([{"containerPort": 2222}]);
            *worker = json!({"template": {"spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [main],
            }}});
        }
        worker["replicas"] = json!(replicas);
        self
    }

    /// What the launcher runs.
    #[must_use]
    pub fn program(mut self, command: &[&str]) -> Self {
        self.launcher()["containers"][0]["command"] = json!(command);
        self
    }

    /// A shell script that the launcher runs.
    #[must_use]
    pub fn script(self, script: &str) -> Self {
        self.program(&["sh", "-c", script])
    }

    /// The launcher waits to be told, then runs `script`.
    #[must_use]
    pub fn when_told(self, script: &str) -> Self {
        self.script(&format!("{WAIT_FOR_GO}{script}"))
    }

    /// The launcher runs `first` at its first try and `later` at all others. What tells them apart
    /// is a file on worker 0, so worker 0 has to outlive the first try.
    #[must_use]
    pub fn tries(self, first: &str, later: &str) -> Self {
        self.script(&format!(
            "if ssh {WORKER_0} test -e /tmp/tried; then {later}; exit; fi; \
             ssh {WORKER_0} touch /tmp/tried; {first}"
        ))
    }

    /// Retries of the launcher.
    #[must_use]
    pub fn backoff_limit(self, limit: i32) -> Self {
        self.run_policy(json!({"backoffLimit": limit}))
    }

    /// Created suspended.
    #[must_use]
    pub fn suspended(self) -> Self {
        self.run_policy(json!({"suspend": true}))
    }

    /// Merges into `spec.runPolicy`.
    #[must_use]
    pub fn run_policy(self, policy: Value) -> Self {
        self.spec(json!({"runPolicy": policy}))
    }

    /// Merges into `spec`.
    #[must_use]
    pub fn spec(mut self, patch: Value) -> Self {
        merge(&mut self.0["spec"], patch);
        self
    }

    /// Merges into `metadata`.
    #[must_use]
    pub fn metadata(mut self, patch: Value) -> Self {
        merge(&mut self.0["metadata"], patch);
        self
    }

    /// Merges into the launcher's pod template.
    #[must_use]
    pub fn launcher_template(mut self, patch: Value) -> Self {
        merge(
            &mut self.0["spec"]["mpiReplicaSpecs"]["Launcher"]["template"],
            patch,
        );
        self
    }

    /// Merges into the workers' pod template.
    #[must_use]
    pub fn worker_template(mut self, patch: Value) -> Self {
        merge(
            &mut self.0["spec"]["mpiReplicaSpecs"]["Worker"]["template"],
            patch,
        );
        self
    }

    /// Merges into the workers' main container.
    #[must_use]
    pub fn worker_container(mut self, patch: Value) -> Self {
        let template = &mut self.0["spec"]["mpiReplicaSpecs"]["Worker"]["template"];
        merge(&mut template["spec"]["containers"][0], patch);
        self
    }

    /// Merges into the launcher's main container.
    #[must_use]
    pub fn launcher_container(mut self, patch: Value) -> Self {
        merge(&mut self.launcher()["containers"][0], patch);
        self
    }

    /// A worker is Ready while it has no file `/tmp/unready`.
    #[must_use]
    pub fn ready_by_file(self) -> Self {
        self.worker_container(json!({"readinessProbe": {
            "exec": {"command": ["test", "!", "-e", "/tmp/unready"]},
            "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10,
        }}))
    }

    /// The init container of worker `index` waits for a file `/tmp/go`.
    #[must_use]
    pub fn hold_worker(self, index: u32) -> Self {
        let script = format!("case $HOSTNAME in *-worker-{index}) {WAIT_FOR_GO};; esac");
        let script = script.replace("; ;;", " ;;");
        let mut init = container("hold");
        init["command"] = json!(["sh", "-c", script]);
        self.worker_template(json!({"spec": {"initContainers": [init]}}))
    }

    /// Workers run only on nodes with the label `key: "yes"`.
    #[must_use]
    pub fn worker_node_label(self, key: &str) -> Self {
        self.worker_template(json!({"spec": {"nodeSelector": {key: "yes"}}}))
    }

    /// Workers are spread evenly over the nodes.
    #[must_use]
    pub fn spread(self) -> Self {
        let name = self.name().to_owned();
        self.worker_template(json!({"spec": {"topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {JOB_NAME: name, JOB_ROLE: "worker"}},
        }]}}))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// As kube wants it.
    pub fn object(&self) -> Result<DynamicObject> {
        Ok(serde_json::from_value(self.0.clone())?)
    }

    fn launcher(&mut self) -> &mut Value {
        &mut self.0["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    }
}

/// RFC 7386 merge; unlike it, `null` stays as a value, because users write it too.
fn merge(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (key, value) in fields {
                merge(&mut target[key], value);
            }
        }
        other => *target = other,
    }
}

/// One condition of an MPIJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// When anything of it changed.
    pub last_update_time: String,
    /// When its status changed.
    pub last_transition_time: String,
}

impl Condition {
    /// Whether its status is True.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition `type_` of an MPIJob.
#[must_use]
pub fn condition(object: &DynamicObject, type_: &str) -> Option<Condition> {
    let all = object.data["status"]["conditions"].as_array()?;
    let one = all.iter().find(|c| c["type"] == type_)?;
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        last_update_time: text("lastUpdateTime"),
        last_transition_time: text("lastTransitionTime"),
    })
}

/// Active pods of a role (`Launcher`, `Worker`) by the MPIJob's status.
#[must_use]
pub fn active(object: &DynamicObject, role: &str) -> i64 {
    object.data["status"]["replicaStatuses"][role]["active"]
        .as_i64()
        .unwrap_or(0)
}

/// A number of `status.launcher`: `chargedTries`, `refundedTries`, `restarts`.
#[must_use]
pub fn tries(object: &DynamicObject, field: &str) -> i64 {
    object.data["status"]["launcher"][field]
        .as_i64()
        .unwrap_or(0)
}

/// Uid of an object.
pub fn uid<K: Resource>(object: &K) -> String {
    object.meta().uid.clone().unwrap_or_default()
}

/// Index of a worker pod.
#[must_use]
pub fn index(pod: &Pod) -> Option<u32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// Whether the pod's Ready condition is True.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    pod.status
        .as_ref()
        .and_then(|s| s.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// Whether the pod is marked for deletion.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Phase of a pod.
#[must_use]
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

/// Node of a pod.
#[must_use]
pub fn node(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.node_name.as_deref())
        .unwrap_or_default()
}

/// Whether the pod is one of MPIJob `job`.
#[must_use]
pub fn belongs_to(pod: &Pod, job: &str) -> bool {
    pod.labels().get(JOB_NAME).is_some_and(|name| name == job)
}

/// Whether the pod is a worker of MPIJob `job`.
#[must_use]
pub fn is_worker_of(pod: &Pod, job: &str) -> bool {
    belongs_to(pod, job) && pod.labels().get(JOB_ROLE).is_some_and(|r| r == "worker")
}

/// Whether the pod is a launcher of MPIJob `job`.
#[must_use]
pub fn is_launcher_of(pod: &Pod, job: &str) -> bool {
    belongs_to(pod, job) && pod.labels().get(JOB_ROLE).is_some_and(|r| r == "launcher")
}

/// The hosts in the lines `rank R of N on HOST` of a launcher's log.
#[must_use]
pub fn rank_hosts(log: &str) -> Vec<String> {
    let mut hosts: Vec<String> = log
        .lines()
        .filter(|line| line.starts_with("rank "))
        .filter_map(|line| line.rsplit(" on ").next())
        .map(|host| host.trim().to_owned())
        .collect();
    hosts.sort();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_replaces_scalars_and_keeps_the_rest() {
        let mut value = json!({"a": {"b": 1, "c": 2}});
        merge(&mut value, json!({"a": {"b": 3, "d": null}}));
        assert_eq!(value, json!({"a": {"b": 3, "c": 2, "d": null}}));
    }

    #[test]
    fn rank_hosts_come_sorted_from_the_log() {
        let log =
            "rank 1 of 2 on pi-worker-1\npi is approximately 3.1\nrank 0 of 2 on pi-worker-0\n";
        assert_eq!(rank_hosts(log), ["pi-worker-0", "pi-worker-1"]);
    }
}
