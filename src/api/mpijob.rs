//! `MPIJob` as it stands on the wire. Every field is optional here, because objects that another
//! operator stored must decode; [`super::validate`] decides what is acceptable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The key of the launcher in `spec.mpiReplicaSpecs`.
pub const LAUNCHER: &str = "Launcher";
/// The key of the workers in `spec.mpiReplicaSpecs`.
pub const WORKER: &str = "Worker";

/// What the user asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpiJobSpec {
    /// Number of MPI processes that one worker may run. At least 0; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_per_worker: Option<i32>,
    /// The launcher is a host for ranks too. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_launcher_as_worker: Option<bool>,
    /// Clean-up, time limits, retries, suspension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,
    /// The roles: `Launcher` is required, `Worker` may be left out; other keys are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_replica_specs: Option<BTreeMap<String, Option<ReplicaSpec>>>,
    /// Directory that the ssh key pair is mounted to. Default `/root/.ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_auth_mount_path: Option<String>,
    /// `WaitForWorkersReady` (what the CRD fills in) or `AtStartup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_creation_policy: Option<String>,
    /// `OpenMPI` (default), `Intel` or `MPICH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_implementation: Option<String>,
    /// Limits and wishes for growing and shrinking. Ours; absent in the Go operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_policy: Option<ElasticPolicy>,
}

/// One role of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// Number of pods. The launcher has exactly 1; workers at least 1, default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The pod template. Kept as raw JSON, so that pod fields newer than this operator survive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Value>,
    /// `Never` or `OnFailure`. Default `OnFailure` for the launcher, `Never` for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// Clean-up, time limits, retries, suspension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPolicy {
    /// Which workers go at the end: `None` (default), `Running` or `All`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<String>,
    /// Seconds after the end until the launcher Job is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Seconds that the launcher may take, all tries together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Number of retries of the launcher. Unset: 6, as in the Job API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Gang scheduling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// No pod runs while this is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller that runs this job; unset or `kubeflow.org/mpi-operator` is this operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// What happens to a running launcher when a worker is lost: `WaitForLauncher` (default) or
    /// `RestartLauncher`. Ours; absent in the Go operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_loss_policy: Option<String>,
}

/// Gang scheduling. Does nothing unless the operator runs with `-gang-scheduling`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicy {
    /// `minMember` of the PodGroup; unset: all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    /// Queue (volcano only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `minResources` of the PodGroup; unset: computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_resources: Option<Value>,
    /// Priority class (volcano; Kueue reads it too).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Seconds that the scheduler tries to place the gang (scheduler-plugins only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_timeout_seconds: Option<i32>,
}

/// Limits and wishes for growing and shrinking a job while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticPolicy {
    /// The gate opens with this many workers Ready. Default: `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Largest number of workers that the worker Job leaves room for. Default from `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Hostnames of the workers that leave first when `replicas` shrinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_first: Option<Vec<String>>,
}

/// What the operator reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpiJobStatus {
    /// One entry a type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<JobCondition>>,
    /// Counts by role, keys `Launcher` and `Worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_statuses: Option<BTreeMap<String, ReplicaStatus>>,
    /// When the job first started, or last resumed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When the job ended. Never changed afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// In the type for compatibility; never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<String>,
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Workers Ready and wanted, as `2/3`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_ready: Option<String>,
    /// Tries of the launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<LauncherStatus>,
}

/// Tries of the launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LauncherStatus {
    /// Tries that ended in failure and count against `backoffLimit`, over suspensions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub charged_tries: i64,
    /// Failed tries that do not count, because a worker was lost meanwhile. At most 100.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refunded_tries: i64,
    /// Restarts by `workerLossPolicy: RestartLauncher`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i64,
    /// Charged tries of earlier launcher Jobs of this MPIJob (one Job per resume).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_tries: i64,
    /// When the running time that `activeDeadlineSeconds` limits began. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_start: Option<String>,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

fn is_zero_32(n: &i32) -> bool {
    *n == 0
}

/// One condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// See [`super::reasons::condition`].
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When anything of it last changed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When `status` last changed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// Counts of one role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Pods that hold resources or will: pending, running and terminating ones.
    #[serde(default, skip_serializing_if = "is_zero_32")]
    pub active: i32,
    /// Pods that ended with success.
    #[serde(default, skip_serializing_if = "is_zero_32")]
    pub succeeded: i32,
    /// Pods that ended in failure (launcher: failed tries).
    #[serde(default, skip_serializing_if = "is_zero_32")]
    pub failed: i32,
    /// Label selector of the pods, for the `scale` subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}
