//! Spec -> [`ValidJob`], or every violation.
//!
//! What the planner works with is a [`ValidJob`]: all defaults filled in, all enums closed. A spec
//! that cannot become one is reported with the field paths and texts of the Go operator 0.8.2.

use serde_json::Value;

use super::mpijob::{MpiJobSpec, SchedulingPolicy};

/// A spec that can be run, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidJob {
    /// `slots=` of each hostfile line; at least 0.
    pub slots: i32,
    /// The launcher is a rank host too.
    pub launcher_as_worker: bool,
    /// Number of wanted workers; 0 for a launcher-only job.
    pub workers: u32,
    /// Form of hostfile and environment.
    pub implementation: Implementation,
    /// The launcher waits until workers are Ready, on each start.
    pub gated: bool,
    /// Directory of the key pair.
    pub ssh_path: String,
    /// Clean-up at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// Seconds; copied to the launcher Job.
    pub ttl_seconds: Option<i32>,
    /// Seconds that the launcher may take, all tries together.
    pub deadline_seconds: Option<i64>,
    /// Retries of the launcher; None is the Job API's default of 6.
    pub backoff_limit: Option<i32>,
    /// The user holds the job.
    pub suspend: bool,
    /// Gang scheduling wishes, as given.
    pub scheduling: SchedulingPolicy,
    /// What a lost worker does to a running launcher.
    pub worker_loss: WorkerLossPolicy,
    /// The launcher's pods.
    pub launcher: Role,
    /// The workers' pods; None for a launcher-only job.
    pub worker: Option<Role>,
    /// The gate opens with this many workers Ready; 1..=workers (0 for a launcher-only job).
    pub min_ready: u32,
    /// Room is left for this many workers; at least `workers`.
    pub max_workers: u32,
    /// The job has an `elasticPolicy`.
    pub elastic: bool,
    /// Hostnames of the workers that leave first.
    pub remove_first: Vec<String>,
    /// What is odd but does not stop the job, such as an unknown launcherCreationPolicy.
    pub warnings: Vec<Violation>,
}

/// The pods of one role.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// The pod template, raw: an object with at least one container.
    pub template: Value,
    /// For the pods; the template's own is overridden.
    pub restart_policy: RestartPolicy,
}

/// `spec.mpiImplementation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// Open MPI 4 and 5.
    OpenMpi,
    /// Intel MPI.
    Intel,
    /// MPICH.
    Mpich,
}

/// `spec.runPolicy.cleanPodPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanPodPolicy {
    /// Workers stay.
    None,
    /// Workers that have not ended go.
    Running,
    /// All workers go.
    All,
}

/// `spec.mpiReplicaSpecs[..].restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// A container that ended is not started again in its pod.
    Never,
    /// A container that failed is started again in its pod.
    OnFailure,
}

/// `spec.runPolicy.workerLossPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerLossPolicy {
    /// mpirun notices by itself and fails; the gate holds the retry.
    WaitForLauncher,
    /// The launcher is stopped, without costing a try, and started again when the workers are back.
    RestartLauncher,
}

/// Who runs an MPIJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Management {
    /// This operator.
    Ours,
    /// Another controller that the API knows (MultiKueue): nothing of the job is touched.
    Foreign,
    /// A text that the API does not know: nothing of the job is touched but for one event.
    Unknown(String),
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Field path, as `spec.mpiReplicaSpecs[Launcher].replicas`.
    pub path: String,
    /// What is wrong, as `Invalid value: 2: must be 1`.
    pub text: String,
}
