//! Decoders that keep only the fields that the planner needs.
//!
//! A full pod costs ten times the memory of these types, most of it `managedFields` and volumes.
//! Decoding is lenient: every field may be absent, and a field of an unexpected form in an MPIJob
//! is the planner's to report, so that one bad object never ends a watch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::taints;
use crate::api::depth;
use crate::api::mpijob::MpiJobStatus;
use crate::api::names;
use crate::facts::index::{ChildKind, Object};
use crate::facts::observed::{
    ChildFacts, JobFacts, JobObject, Kept, NodeFacts, Phase, PodFacts, Trouble, TroubleKind,
};

/// Name of this operator as field manager.
pub const FIELD_MANAGER: &str = "mpi-operator";

/// Default grace period of a pod, in seconds.
const DEFAULT_GRACE: i64 = 30;

macro_rules! slim {
    ($name:ident, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;
            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// Null or a wrong form counts as absent: one odd field must not cost the whole object.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + serde::de::DeserializeOwned,
{
    let value = depth::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Metadata without `managedFields`, which nest as deep as what somebody wrote into the object.
fn lean_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let lean = Lean::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        annotations: lean.annotations,
        ..ObjectMeta::default()
    })
}

/// An MPIJob with its spec raw.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SlimMpiJob {
    /// Metadata.
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "depth::deserialize")]
    spec: Value,
    #[serde(default, deserialize_with = "lenient")]
    status: MpiJobStatus,
}
slim!(SlimMpiJob, "kubeflow.org", "v2beta1", "MPIJob", "mpijobs");

/// A Job.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SlimJob {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimJobSpec,
    #[serde(default)]
    status: SlimJobStatus,
}
slim!(SlimJob, "batch", "v1", "Job", "jobs");

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimJobSpec {
    completion_mode: Option<String>,
    suspend: Option<bool>,
    parallelism: Option<i32>,
    completions: Option<i32>,
    backoff_limit: Option<i32>,
    active_deadline_seconds: Option<i64>,
    ttl_seconds_after_finished: Option<i32>,
    template: SlimTemplate,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimTemplate {
    metadata: SlimMeta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimMeta {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimJobStatus {
    failed: Option<i64>,
    start_time: Option<Time>,
    completion_time: Option<Time>,
    conditions: Option<Vec<SlimCondition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SlimPod {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimPodSpec,
    #[serde(default)]
    status: SlimPodStatus,
}
slim!(SlimPod, "", "v1", "Pod", "pods");

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodSpec {
    node_name: Option<String>,
    containers: Vec<SlimContainer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimContainer {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodStatus {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<SlimPodIp>>,
    conditions: Option<Vec<SlimCondition>>,
    init_container_statuses: Option<Vec<SlimContainerStatus>>,
    container_statuses: Option<Vec<SlimContainerStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimPodIp {
    ip: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimContainerStatus {
    name: String,
    ready: bool,
    restart_count: i32,
    state: SlimState,
    last_state: SlimState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimState {
    waiting: Option<SlimWaiting>,
    running: Option<SlimRunning>,
    terminated: Option<SlimTerminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimWaiting {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimRunning {
    started_at: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimTerminated {
    finished_at: Option<Time>,
    exit_code: i32,
    reason: Option<String>,
    message: Option<String>,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SlimNode {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimNodeSpec,
    #[serde(default)]
    status: SlimNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimNodeSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<SlimTaint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimTaint {
    key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimNodeStatus {
    conditions: Option<Vec<SlimCondition>>,
}

impl SlimNode {
    /// Facts of the node as seen at `asked`.
    #[must_use]
    pub fn facts(&self, asked: Timestamp) -> NodeFacts {
        let taints = self.spec.taints.as_deref().unwrap_or_default();
        NodeFacts {
            gone: false,
            ready: self
                .status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            out_of_service: taints
                .iter()
                .any(|t| t.key == "node.kubernetes.io/out-of-service"),
            leaving: self.spec.unschedulable == Some(true)
                || self.metadata.deletion_timestamp.is_some()
                || taints.iter().any(|t| taints::announces_end(&t.key)),
            asked,
        }
    }
}

fn version(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn controller(metadata: &ObjectMeta) -> Option<&str> {
    controller_reference(metadata).map(|(uid, _)| uid)
}

fn controller_reference(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some((&owner.uid, &owner.name))
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

impl SlimMpiJob {
    /// The facts of it.
    #[must_use]
    pub fn into_object(self) -> Option<Object> {
        let version = version(&self.metadata);
        Some(Object::MpiJob(JobObject {
            name: self.metadata.name?,
            namespace: self.metadata.namespace.unwrap_or_default(),
            uid: self.metadata.uid?,
            version,
            generation: self.metadata.generation.unwrap_or(0),
            created: self.metadata.creation_timestamp.map(|time| time.0),
            deleting: self.metadata.deletion_timestamp.is_some(),
            annotations: self.metadata.annotations.unwrap_or_default(),
            spec: self.spec,
            status: self.status,
        }))
    }
}

impl SlimJob {
    /// The facts of it; None for a Job that no object controls, which is never ours.
    #[must_use]
    pub fn into_object(self) -> Option<Object> {
        let owner = controller(&self.metadata)?.to_owned();
        let version = version(&self.metadata);
        let labelled =
            label(&self.metadata, names::OPERATOR_NAME_LABEL) == Some(names::OPERATOR_NAME);
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let is_true = |type_: &str| {
            conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == "True")
        };
        let complete = is_true("Complete").or_else(|| is_true("SuccessCriteriaMet"));
        // From 1.31 on the final conditions wait until all pods are gone, which on a lost node is
        // never; the earlier ones are the verdict already.
        let failure = is_true("Failed").or_else(|| is_true("FailureTarget"));
        let completion_time = self.status.completion_time.as_ref().map(|time| time.0);
        let facts = JobFacts {
            completion_time: completion_time.or_else(|| {
                complete
                    .and_then(|c| c.last_transition_time.as_ref())
                    .map(|time| time.0)
            }),
            complete: complete.is_some(),
            failure: failure.map(|c| {
                (
                    c.reason.clone().unwrap_or_default(),
                    c.message.clone().unwrap_or_default(),
                )
            }),
            name: self.metadata.name?,
            uid: self.metadata.uid?,
            resource_version: self.metadata.resource_version.unwrap_or_default(),
            version,
            created: self.metadata.creation_timestamp.map(|time| time.0),
            deleting: self.metadata.deletion_timestamp.is_some(),
            annotations: self
                .metadata
                .annotations
                .unwrap_or_default()
                .into_iter()
                .filter(|(key, _)| key.starts_with("mpi-operator.kubeflow.org/"))
                .collect(),
            labelled,
            run: self
                .spec
                .template
                .metadata
                .labels
                .and_then(|mut labels| labels.remove(names::RUN_LABEL)),
            kept: Kept {
                suspend: self.spec.suspend.is_some(),
                completion_mode: self.spec.completion_mode.is_some(),
            },
            indexed: self.spec.completion_mode.as_deref() == Some("Indexed"),
            suspend: self.spec.suspend.unwrap_or(false),
            parallelism: self.spec.parallelism.unwrap_or(1),
            completions: self.spec.completions.unwrap_or(1),
            backoff_limit: self.spec.backoff_limit.unwrap_or(6),
            deadline_seconds: self.spec.active_deadline_seconds,
            ttl_seconds: self.spec.ttl_seconds_after_finished,
            failed: self.status.failed.unwrap_or(0),
            started: self.status.start_time.map(|time| time.0),
        };
        Some(Object::Job {
            namespace: self.metadata.namespace.unwrap_or_default(),
            owner,
            facts,
        })
    }
}

impl SlimPod {
    /// The facts of it; the owner is empty for a pod that no object controls.
    #[must_use]
    pub fn into_object(self) -> Option<Object> {
        let metadata = &self.metadata;
        // Without a controller: see `Index`, which may remember one.
        let (owner, owner_name) = controller_reference(metadata).unwrap_or_default();
        let (owner, owner_name) = (owner.to_owned(), owner_name.to_owned());
        let launcher = label(metadata, names::JOB_ROLE_LABEL) == Some(names::ROLE_LAUNCHER);
        let index = annotation(metadata, names::COMPLETION_INDEX_ANNOTATION)
            .or_else(|| label(metadata, names::REPLICA_INDEX_LABEL))
            .and_then(|text| text.parse().ok());
        let (tracking, finalizers): (Vec<_>, Vec<_>) = metadata
            .finalizers
            .clone()
            .unwrap_or_default()
            .into_iter()
            .partition(|finalizer| finalizer == names::TRACKING_FINALIZER);
        let deletion_due = metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let grace = metadata
            .deletion_grace_period_seconds
            .unwrap_or(DEFAULT_GRACE);
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
        let ready = condition("Ready");
        let reason = self.status.reason.clone();
        let by_platform = matches!(
            reason.as_deref(),
            Some(
                "Evicted"
                    | "NodeLost"
                    | "Preempting"
                    | "Preempted"
                    | "Shutdown"
                    | "NodeShutdown"
                    | "Terminated"
                    | "NodeAffinity"
                    | "UnexpectedAdmissionError"
            )
        );
        let main = self
            .spec
            .containers
            .first()
            .map(|container| container.name.as_str());
        let statuses = self
            .status
            .container_statuses
            .as_deref()
            .unwrap_or_default();
        let main_status = statuses
            .iter()
            .find(|status| Some(status.name.as_str()) == main);
        let main_started = main_status
            .and_then(|status| status.state.running.as_ref()?.started_at.as_ref())
            .map(|time| time.0);
        let main_restarted = main_status.is_some_and(|status| status.restart_count > 0);
        let phase = match self.status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            Some("Unknown") => Phase::Unknown,
            _ => Phase::Pending,
        };
        Some(Object::Pod(PodFacts {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            version: version(metadata),
            owner,
            owner_name,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            job_name: label(metadata, names::JOB_NAME_LABEL)
                .unwrap_or_default()
                .to_owned(),
            index,
            ip: self.address(),
            ranked: label(metadata, names::REPLICA_INDEX_LABEL).is_some(),
            launcher,
            run: label(metadata, names::RUN_LABEL).map(str::to_owned),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleted: deletion_due.map(|due| {
                due.checked_sub(SignedDuration::from_secs(grace))
                    .unwrap_or(due)
            }),
            deletion_due,
            tracked: !tracking.is_empty(),
            finalizers,
            files: annotation(metadata, names::FILES_ANNOTATION).map(str::to_owned),
            deletion_cost: annotation(metadata, names::DELETION_COST_ANNOTATION)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            probe_ours: annotation(metadata, "mpi-operator.kubeflow.org/readiness-probe").is_some(),
            node: self.spec.node_name.clone(),
            phase,
            ready: ready.is_some_and(|c| c.status == "True"),
            ready_changed: ready
                .and_then(|c| c.last_transition_time.as_ref())
                .map(|t| t.0),
            main_started,
            main_restarted,
            ended: statuses
                .iter()
                .filter_map(|status| status.state.terminated.as_ref()?.finished_at.as_ref())
                .map(|time| time.0)
                .max(),
            failures: annotation(metadata, "batch.kubernetes.io/job-index-failure-count")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            disrupted: by_platform
                || condition("DisruptionTarget").is_some_and(|c| c.status == "True"),
            trouble: self.trouble(phase),
            reason,
            message: self.status.message.clone(),
        }))
    }

    /// An IPv6 address cannot stand in a hostfile whose lines end in `:<slots>`, so IPv4 goes first.
    fn address(&self) -> Option<IpAddr> {
        let all = self.status.pod_ips.as_deref().unwrap_or_default();
        let mut all = all.iter().filter_map(|entry| entry.ip.parse().ok());
        all.find(IpAddr::is_ipv4)
            .or_else(|| self.status.pod_ip.as_deref()?.parse().ok())
    }

    /// The first thing, in the order of a pod's start, that keeps it from being Ready.
    fn trouble(&self, phase: Phase) -> Option<Trouble> {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled");
        if let Some(condition) = scheduled.filter(|c| c.status == "False") {
            return Some(Trouble {
                kind: TroubleKind::Unschedulable,
                reason: condition.reason.clone().unwrap_or_default(),
                exit_code: None,
                container: String::new(),
                message: condition.message.clone().unwrap_or_default(),
            });
        }
        let inits = self
            .status
            .init_container_statuses
            .as_deref()
            .unwrap_or_default();
        let mains = self
            .status
            .container_statuses
            .as_deref()
            .unwrap_or_default();
        let of_containers = inits.iter().chain(mains).find_map(|status| {
            container_trouble(status, inits.iter().any(|i| i.name == status.name))
        });
        if of_containers.is_some() {
            return of_containers;
        }
        if phase == Phase::Failed {
            return Some(Trouble {
                kind: TroubleKind::Crash,
                reason: self
                    .status
                    .reason
                    .clone()
                    .unwrap_or_else(|| "Failed".to_owned()),
                exit_code: None,
                container: String::new(),
                message: self.status.message.clone().unwrap_or_default(),
            });
        }
        let not_ready = mains
            .iter()
            .find(|status| status.state.running.is_some() && !status.ready)?;
        Some(Trouble {
            kind: TroubleKind::NotReady,
            reason: "NotReady".to_owned(),
            exit_code: None,
            container: not_ready.name.clone(),
            message: String::new(),
        })
    }
}

fn container_trouble(status: &SlimContainerStatus, init: bool) -> Option<Trouble> {
    let crash = |ended: &SlimTerminated| Trouble {
        kind: TroubleKind::Crash,
        reason: ended.reason.clone().unwrap_or_default(),
        exit_code: Some(ended.exit_code),
        container: status.name.clone(),
        message: ended.message.clone().unwrap_or_default(),
    };
    if let Some(waiting) = &status.state.waiting {
        let reason = waiting.reason.clone().unwrap_or_default();
        let kind = match reason.as_str() {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError" => TroubleKind::ImagePull,
            "CrashLoopBackOff" => {
                return Some(match &status.last_state.terminated {
                    Some(ended) => crash(ended),
                    None => Trouble {
                        kind: TroubleKind::Crash,
                        reason,
                        exit_code: None,
                        container: status.name.clone(),
                        message: waiting.message.clone().unwrap_or_default(),
                    },
                });
            }
            "" | "ContainerCreating" | "PodInitializing" => return None,
            _ => TroubleKind::Create,
        };
        return Some(Trouble {
            kind,
            reason,
            exit_code: None,
            container: status.name.clone(),
            message: waiting.message.clone().unwrap_or_default(),
        });
    }
    match &status.state.terminated {
        // An init container that ended well is how pods start.
        Some(ended) if !(init && ended.exit_code == 0) => Some(crash(ended)),
        _ => None,
    }
}

/// The facts of a Service or ConfigMap, from its metadata alone.
#[must_use]
pub fn child_object(kind: ChildKind, metadata: ObjectMeta) -> Option<Object> {
    let content_field = match kind {
        ChildKind::Service => "f:spec",
        ChildKind::ConfigMap => "f:data",
    };
    // Who wrote the content is in managedFields, so an edit by hand shows without reading the
    // content, after a restart of the operator too.
    let edited = metadata
        .managed_fields
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|entry| {
            entry.manager.as_deref() != Some(FIELD_MANAGER)
                && entry.subresource.as_deref().unwrap_or_default().is_empty()
                && entry.fields_v1.as_ref().is_some_and(|fields| {
                    fields
                        .0
                        .as_object()
                        .is_some_and(|fields| fields.contains_key(content_field))
                })
        });
    let facts = ChildFacts {
        owner: controller(&metadata).map(str::to_owned),
        run: label(&metadata, names::RUN_LABEL).map(str::to_owned),
        content: annotation(&metadata, names::CONTENT_ANNOTATION).map(str::to_owned),
        edited,
        deleting: metadata.deletion_timestamp.is_some(),
        version: version(&metadata),
        uid: metadata.uid?,
    };
    Some(Object::Child {
        kind,
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name?,
        facts,
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first surprise"
    )]

    use serde_json::json;

    use super::*;

    fn job(spec: Value) -> JobFacts {
        let owner = json!({ "uid": "u", "name": "pi", "controller": true });
        let job = json!({
            "metadata": { "name": "pi-worker", "uid": "j", "ownerReferences": [owner] },
            "spec": spec,
        });
        match serde_json::from_value::<SlimJob>(job)
            .unwrap()
            .into_object()
        {
            Some(Object::Job { facts, .. }) => facts,
            other => panic!("{other:?}"),
        }
    }

    fn ip(status: Value) -> Option<String> {
        let pod = json!({ "metadata": { "name": "p", "uid": "p" }, "status": status });
        match serde_json::from_value::<SlimPod>(pod)
            .unwrap()
            .into_object()
        {
            Some(Object::Pod(pod)) => pod.ip.map(|ip| ip.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_tells_which_fields_its_server_kept() {
        let old = job(json!({ "parallelism": 0, "completions": 10 }));
        assert_eq!((old.kept, old.indexed), (Kept::default(), false));
        assert!(old.held());
        let both = Kept {
            suspend: true,
            completion_mode: true,
        };
        let plain = job(json!({ "suspend": false, "completionMode": "NonIndexed" }));
        assert_eq!((plain.kept, plain.indexed), (both, false));
        assert!(!plain.held());
        let indexed = job(json!({ "suspend": true, "completionMode": "Indexed" }));
        assert_eq!((indexed.kept, indexed.indexed), (both, true));
        assert!(indexed.held());
    }

    #[test]
    fn an_ipv4_address_of_a_pod_goes_before_its_ipv6_one() {
        let both = json!([{ "ip": "fd00::1" }, { "ip": "10.0.0.1" }]);
        assert_eq!(
            ip(json!({ "podIP": "fd00::1", "podIPs": both })).as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(
            ip(json!({ "podIP": "fd00::1" })).as_deref(),
            Some("fd00::1")
        );
        assert_eq!(ip(json!({ "podIP": "odd" })), None);
        assert_eq!(ip(json!({})), None);
    }
}
