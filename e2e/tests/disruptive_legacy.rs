//! A running MPIJob of the Go operator 0.8.2, plain worker pods and a launcher Job of its own, is
//! finished as it is when this operator takes over. Not beside other tests: the operator is down
//! while such a job is laid out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::panic::AssertUnwindSafe;

use e2e::mpi::{IMAGE, PI, WAIT_FOR_GO, condition, is_ready, job, uid};
use e2e::{Namespace, SOON};
use futures::FutureExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

const WORKERS: u32 = 2;

/// The MPIJob `old`, its workers Ready and its launcher running, and the pods.
struct Old {
    job: DynamicObject,
    workers: Vec<Pod>,
    launcher: Pod,
}

/// Lays out what the Go operator would have made while no operator runs, then starts ours.
async fn taken_over(ns: &Namespace, policy: &str) -> anyhow::Result<Old> {
    // Keys that sshd takes: those of a job of our own.
    ns.create(&job("donor").suspended()).await?;
    ns.until_condition("donor", "Suspended", "True").await?;
    let keys = ns.api::<Secret>().get("donor-ssh").await?;
    ns.delete_mpijob("donor").await?;
    ns.cluster.scale_operator(0).await?;
    let laid_out = AssertUnwindSafe(lay_out(ns, &keys, policy))
        .catch_unwind()
        .await;
    ns.cluster.scale_operator(1).await?;
    ns.cluster.until_leads(None).await?;
    laid_out.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Labels of a pod of `old`.
fn labels(role: &str) -> Value {
    json!({
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "old",
        "training.kubeflow.org/job-role": role,
    })
}

/// The main container with what the Go operator adds to it.
fn container(role: &str, command: &Value, args: &Value) -> Value {
    let mut container = json!({
        "name": role,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"runAsUser": 1000},
        "command": command,
        "args": args,
        "env": [{"name": "K_MPI_JOB_ROLE", "value": role}],
        "volumeMounts": [{"name": "ssh-auth", "mountPath": "/home/mpiuser/.ssh"}],
    });
    if role == "launcher" {
        for (name, value) in [
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
            ("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
            ("OMPI_MCA_orte_set_default_slots", "1"),
        ] {
            let env = container["env"].as_array_mut().unwrap();
            env.push(json!({"name": name, "value": value}));
        }
        let mounts = container["volumeMounts"].as_array_mut().unwrap();
        mounts.push(json!({"name": "mpi-job-config", "mountPath": "/etc/mpi"}));
    }
    container
}

fn volumes(role: &str) -> Value {
    let mut volumes = vec![
        json!({"name": "ssh-auth", "secret": {"secretName": "old-ssh", "items": [
            {"key": "ssh-privatekey", "path": "id_rsa"},
            {"key": "ssh-publickey", "path": "id_rsa.pub"},
            {"key": "ssh-publickey", "path": "authorized_keys"},
        ]}}),
    ];
    if role == "launcher" {
        volumes.push(
            json!({"name": "mpi-job-config", "configMap": {"name": "old-config", "items": [
                {"key": "hostfile", "path": "hostfile", "mode": 0o444},
                {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
            ]}}),
        );
    }
    json!(volumes)
}

async fn create<K>(ns: &Namespace, object: Value) -> anyhow::Result<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let object: K = serde_json::from_value(object)?;
    Ok(ns
        .api::<K>()
        .create(&PostParams::default(), &object)
        .await?)
}

async fn lay_out(ns: &Namespace, keys: &Secret, policy: &str) -> anyhow::Result<Old> {
    let program = format!("{WAIT_FOR_GO} exec mpirun -n 2 {PI}");
    let spec = job("old")
        .workers(2)
        .script(&program)
        .spec(json!({"launcherCreationPolicy": "AtStartup", "slotsPerWorker": 1}))
        .run_policy(json!({"cleanPodPolicy": policy}));
    let made = ns.create(&spec).await?;
    let owners = json!([{
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "old", "uid": uid(&made),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let meta =
        |name: &str| json!({"name": name, "labels": {"app": "old"}, "ownerReferences": owners});
    let service = json!({"metadata": meta("old"), "spec": {"clusterIP": "None", "selector": {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "old",
    }}});
    create::<Service>(ns, service).await?;
    let host = |i: u32| format!("old-worker-{i}.old.{}.svc", ns.name);
    let lines =
        |each: &dyn Fn(String) -> String| (0..WORKERS).map(|i| each(host(i))).collect::<String>();
    let config = json!({"metadata": meta("old-config"), "data": {
        "hostfile": lines(&|host| format!("{host} slots=1\n")),
        "discover_hosts.sh": format!("#!/bin/sh\n{}", lines(&|host| format!("echo {host}\n"))),
    }});
    create::<ConfigMap>(ns, config).await?;
    let secret = json!({
        "metadata": meta("old-ssh"), "type": "kubernetes.io/ssh-auth", "data": keys.data,
    });
    create::<Secret>(ns, secret).await?;
    let sshd = container(
        "worker",
        &json!(["/usr/sbin/sshd"]),
        &json!(["-De", "-f", "/home/mpiuser/.sshd_config"]),
    );
    for index in 0..WORKERS {
        let name = format!("old-worker-{index}");
        let mut labels = labels("worker");
        labels["training.kubeflow.org/replica-index"] = json!(index.to_string());
        let pod = json!({
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": {
                "hostname": name, "subdomain": "old", "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "dnsConfig": {"searches": [format!("old.{}.svc.cluster.local", ns.name)]},
                "containers": [sshd], "volumes": volumes("worker"),
            },
        });
        create::<Pod>(ns, pod).await?;
    }
    let launcher = json!({"metadata": meta("old-launcher"), "spec": {
        "podReplacementPolicy": "Failed",
        "template": {
            "metadata": {"labels": labels("launcher"), "ownerReferences": owners},
            "spec": {
                "hostname": "old-launcher", "subdomain": "old", "restartPolicy": "OnFailure",
                "terminationGracePeriodSeconds": 5,
                "containers": [container("launcher", &json!(["sh", "-c", program]), &Value::Null)],
                "volumes": volumes("launcher"),
            },
        },
    }});
    create::<Job>(ns, launcher).await?;
    let launcher = ns.until_launcher_runs("old", &[]).await?;
    let workers = ns
        .pods
        .until_live("the plain workers", SOON, |all| {
            let plain = (0..WORKERS).map(|i| all.get(&format!("old-worker-{i}")).cloned());
            let ready: Option<Vec<Pod>> = plain.collect();
            Ok(ready.filter(|all| all.iter().all(is_ready)))
        })
        .await?;
    write_status(ns, &made).await?;
    Ok(Old {
        job: made,
        workers,
        launcher,
    })
}

/// The status as the Go operator writes it.
async fn write_status(ns: &Namespace, made: &DynamicObject) -> anyhow::Result<()> {
    let at = serde_json::to_value(&made.metadata.creation_timestamp)?;
    let name = format!("{}/old", ns.name);
    let condition = |type_: &str, reason: &str, message: String| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": at, "lastTransitionTime": at,
        })
    };
    let status = json!({"status": {
        "conditions": [
            condition("Created", "MPIJobCreated", format!("MPIJob {name} is created.")),
            condition("Running", "MPIJobRunning", format!("MPIJob {name} is running.")),
        ],
        "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2}},
        "startTime": at,
    }});
    ns.mpijob_api()
        .patch_status("old", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// The operator has taken a job that was made now to its end, so it has looked at `old` too.
async fn operator_has_been_round(ns: &Namespace, name: &str) -> anyhow::Result<()> {
    ns.create(&job(name).script("true")).await?;
    ns.until_succeeded(name).await?;
    Ok(())
}

async fn is_as_it_was(ns: &Namespace, old: &Old) -> anyhow::Result<()> {
    for before in old.workers.iter().chain([&old.launcher]) {
        let now = ns.api::<Pod>().get(&before.name_any()).await?;
        assert_eq!(uid(&now), uid(before));
        assert!(now.metadata.deletion_timestamp.is_none());
    }
    assert!(ns.api::<Job>().get_opt("old-worker").await?.is_none());
    assert_eq!(ns.launchers_ever("old").len(), 1);
    Ok(())
}

#[tokio::test]
async fn contract_07_41_a_running_job_of_the_go_operator_is_finished_as_it_is() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("legacy", async |ns| {
        let old = taken_over(ns, "Running").await?;
        operator_has_been_round(ns, "other").await?;
        is_as_it_was(ns, &old).await?;
        ns.tell(&old.launcher).await?;
        let end = ns.until_succeeded("old").await?;
        assert_eq!(uid(&end), uid(&old.job));
        let name = format!("{}/old", ns.name);
        let succeeded = condition(&end, "Succeeded").unwrap();
        assert_eq!(
            succeeded.message,
            format!("MPIJob {name} successfully completed.")
        );
        let running = condition(&end, "Running").unwrap();
        assert_eq!(
            (&*running.status, &*running.reason),
            ("False", "MPIJobRunning")
        );
        let created = old.job.metadata.creation_timestamp.as_ref();
        assert_eq!(
            json!(running.last_transition_time),
            serde_json::to_value(created)?,
            "the run began then"
        );
        assert!(end.data["status"]["completionTime"].is_string());
        let log = ns.log(&ns.launchers_ever("old")[0]).await?;
        assert!(log.contains("pi is approximately 3.14"), "{log}");
        // cleanPodPolicy holds for plain pods, too, and for nothing else.
        ns.pods
            .until_live("the plain workers gone", SOON, |all| {
                Ok((!all.keys().any(|n| n.starts_with("old-worker-"))).then_some(()))
            })
            .await?;
        assert_eq!(ns.launchers_ever("old").len(), 1);
        assert!(ns.api::<Job>().get_opt("old-worker").await?.is_none());
        assert_eq!(ns.event_count("old", "MPIJobCreated"), 0);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_41_a_lost_plain_worker_is_told_and_the_job_becomes_ours_when_resumed() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("legacy-lost", async |ns| {
        let old = taken_over(ns, "None").await?;
        operator_has_been_round(ns, "other").await?;
        ns.delete_pod(&old.workers[1]).await?;
        let told = ns.until_condition("old", "Degraded", "True").await?;
        assert_eq!(told.reason, "LegacyWorkerLost");
        assert!(told.message.contains('1'), "{told:?}");
        assert!(ns.api::<Job>().get_opt("old-worker").await?.is_none());
        assert_eq!(ns.launchers_ever("old").len(), 1);

        ns.suspend("old", true).await?;
        ns.until_condition("old", "Suspended", "True").await?;
        ns.until_no_pods("old").await?;
        ns.suspend("old", false).await?;
        let launcher = ns.until_launcher_runs("old", &[uid(&old.launcher)]).await?;
        ns.until_workers_ready("old", 2).await?;
        let workers = ns.api::<Job>().get("old-worker").await?;
        let mode = workers.spec.unwrap_or_default().completion_mode;
        assert_eq!(mode.as_deref(), Some("Indexed"));
        ns.tell(&launcher).await?;
        let end = ns.until_succeeded("old").await?;
        assert!(!condition(&end, "Degraded").is_some_and(|c| c.is_true()));
        Ok(())
    })
    .await;
}
