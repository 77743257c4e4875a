//! `MPIJob` as it stands on the wire. Every field is optional here, because objects that another
//! operator stored must decode; [`super::validate`] decides what is acceptable.
//!
//! The doc comments of the fields are the texts of `kubectl explain`; [`super::crd`] makes the
//! CustomResourceDefinition from them. Bounds stand only on fields that the Go operator does not
//! know: it stored every other number, and a bound would refuse status updates of such objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The key of the launcher in `spec.mpiReplicaSpecs`.
pub const LAUNCHER: &str = "Launcher";
/// The key of the workers in `spec.mpiReplicaSpecs`.
pub const WORKER: &str = "Worker";

/// What the user asks for: the roles of one MPI program and how to run it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MpiJobSpec {
    /// MPI processes that one host may run: `slots=` in the hostfile. At least 0. Default 1.
    #[schemars(extend("default" = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_per_worker: Option<i32>,
    /// The launcher is a host for MPI processes too, and the first line of the hostfile.
    /// Default false.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_launcher_as_worker: Option<bool>,
    /// Clean-up at the end, time limits, retries, suspension, gang scheduling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,
    /// The roles, by name. `Launcher` is required and runs mpirun in one pod; `Worker` runs the
    /// hosts and may be left out. Other keys are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_replica_specs: Option<BTreeMap<String, Option<ReplicaSpec>>>,
    /// Directory in the first container of launcher and workers that the ssh key pair is mounted
    /// to, as `id_rsa`, `id_rsa.pub` and `authorized_keys`. Only for `/root/.ssh` the files are
    /// readable by root alone. Default `/root/.ssh`.
    #[schemars(extend("default" = "/root/.ssh"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_auth_mount_path: Option<String>,
    /// `WaitForWorkersReady`: the launcher starts only while every worker is Ready, on the first
    /// start, on each retry and on each resume. `AtStartup`: it starts at once. Any other text
    /// acts as `WaitForWorkersReady`, with a warning. Default `WaitForWorkersReady`.
    #[schemars(extend("default" = "WaitForWorkersReady"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_creation_policy: Option<String>,
    /// The MPI in the image, which decides the form of the hostfile and the environment of the
    /// launcher: `OpenMPI`, `Intel` or `MPICH`. Default `OpenMPI`.
    #[schemars(extend("default" = "OpenMPI", "enum" = ["OpenMPI", "Intel", "MPICH"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_implementation: Option<String>,
    /// Limits and wishes for growing and shrinking the workers of a running job. Unset: the job
    /// needs all its workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_policy: Option<ElasticPolicy>,
}

/// One role of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// Number of pods: exactly 1 for the launcher, 1 to 100000 for the workers. Default 1.
    /// Workers may be added and taken away while the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The pods of this role, with at least one container; the first one is the main container,
    /// which gets hostfile, keys and environment. Pod fields that this schema does not know are
    /// kept. The template's own restartPolicy is not used.
    // Raw JSON and not a type, so that pod fields newer than this operator survive.
    #[schemars(with = "Option<PodTemplateSpec>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Value>,
    /// What happens to a container that failed: `OnFailure` or `Never`. Default `OnFailure` for
    /// the launcher, where it means a new pod and counts as a retry; `Never` for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// Clean-up, time limits, retries, suspension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPolicy {
    /// Which worker pods go when the job has ended: `None`, `Running` (those that still run) or
    /// `All`. Default `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<String>,
    /// Seconds from the end until the launcher Job and its pods are removed. At least 0. Unset:
    /// they stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Seconds that the launcher may take, all tries and the waits between them together; then
    /// the job has failed. At least 0. Starts again at a resume. Unset: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Retries of a launcher that failed. A try during which a worker was lost does not count. At
    /// least 0. Unset: 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Wishes for gang scheduling. Does nothing unless the operator runs with
    /// `-gang-scheduling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// No pod of the job runs while this is true. Setting it on a running job stops it; setting
    /// it back starts the job again from the templates of that moment. Default false.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller that runs this job: `kubeflow.org/mpi-operator` (also when unset), or
    /// `kueue.x-k8s.io/multikueue`. Cannot be changed once set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// What happens when a worker is lost while the launcher runs. `WaitForLauncher`: the launcher
    /// goes on until it notices, and its retry waits for the workers. `RestartLauncher`: it is
    /// stopped, and started again when all workers are back; that is no retry. Default
    /// `WaitForLauncher`.
    #[schemars(extend("enum" = ["WaitForLauncher", "RestartLauncher"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_loss_policy: Option<String>,
}

/// Gang scheduling. Does nothing unless the operator runs with `-gang-scheduling`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicy {
    /// Pods that must fit at once: `minMember` of the PodGroup. Unset: all pods of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    /// Queue of the PodGroup. Volcano only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Resources that must be free at once: `minResources` of the PodGroup. Unset: the sum of the
    /// requests of minAvailable pods.
    #[schemars(with = "Option<BTreeMap<String, Quantity>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_resources: Option<Value>,
    /// Name of the priority class of the PodGroup. Volcano; Kueue reads it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Seconds that the scheduler tries to place all pods at once. scheduler-plugins only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_timeout_seconds: Option<i32>,
}

/// Limits and wishes for growing and shrinking a job while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElasticPolicy {
    /// The launcher starts with this many workers Ready. 1 up to the worker's `replicas`. Default
    /// `replicas`.
    #[schemars(range(min = 1, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Largest number of workers that the job may grow to without being built anew. At least the
    /// worker's `replicas`. Default `replicas`.
    #[schemars(range(min = 1, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Hostnames of the workers that leave first when `replicas` shrinks, as `pi-worker-3`, in this
    /// order. By itself it removes nothing. A name acts once: a worker that grew back under it does
    /// not leave because of the same list; it acts again once the list has changed. At most 1000,
    /// each of them once.
    #[schemars(length(max = 1000), inner(length(max = 63)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_first: Option<Vec<String>>,
}

/// What the operator reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MpiJobStatus {
    /// One entry a type: `Created`, `Running`, `Suspended`, `Succeeded`, `Failed` as in every
    /// version, and `WorkersReady`, `Invalid`, `Degraded` that say why a job does not run.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<JobCondition>>,
    /// Counts by role, keys `Launcher` and `Worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_statuses: Option<BTreeMap<String, ReplicaStatus>>,
    /// When the job first started, or last resumed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// When the job ended. Never changed afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub completion_time: Option<String>,
    /// Kept for compatibility; never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_reconcile_time: Option<String>,
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the job stands, in one word for people: `Created`, `Waiting`, `Running`, `Suspended`,
    /// `Succeeded`, `Failed` or `Invalid`. Programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Workers Ready and wanted, as `2/3`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_ready: Option<String>,
    /// Tries of the launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<LauncherStatus>,
    /// Workers that leave, and those that left because `elasticPolicy.removeFirst` names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_in: Option<ScaleInStatus>,
}

/// Who leaves when the number of workers shrinks. Written before the first of them goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleInStatus {
    /// Indexes of the workers that leave now, as `1,4-5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<String>,
    /// When the newest worker was created that was there when `leaving` was decided. One of
    /// `leaving` that is younger was removed and came back. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub newest_worker: Option<String>,
    /// Indexes of the workers that have left because `removeFirst` names them. They do not leave
    /// again because of the same list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<String>,
    /// Digest of the `removeFirst` that all this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
}

/// Tries of the launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// UID of the last launcher Job whose tries are in `earlierTries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_job: Option<String>,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

fn is_zero_32(n: &i32) -> bool {
    *n == 0
}

/// One condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// What the condition speaks of, as `WorkersReady`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// One word for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When anything of it last changed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_update_time: Option<String>,
    /// When `status` last changed. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: Option<String>,
}

/// Counts of one role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
