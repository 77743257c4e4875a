//! Every condition type, condition reason and event reason.

/// Condition types.
pub mod condition {
    /// The job was accepted.
    pub const CREATED: &str = "Created";
    /// Launcher and workers run.
    pub const RUNNING: &str = "Running";
    /// The user holds the job.
    pub const SUSPENDED: &str = "Suspended";
    /// The launcher ended with success. Final.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The launcher failed for good. Final.
    pub const FAILED: &str = "Failed";
    /// Every wanted worker is Ready. Ours.
    pub const WORKERS_READY: &str = "WorkersReady";
    /// The spec cannot be run as it stands. Ours; not final.
    pub const INVALID: &str = "Invalid";
    /// The job goes on, but something is not as it should be. Ours; not final.
    pub const DEGRADED: &str = "Degraded";
}

/// Created, and its event.
pub const CREATED: &str = "MPIJobCreated";
/// Running, and its event.
pub const RUNNING: &str = "MPIJobRunning";
/// Suspended, and its event.
pub const SUSPENDED: &str = "MPIJobSuspended";
/// No longer suspended, and its event.
pub const RESUMED: &str = "MPIJobResumed";
/// Ended with success, and its event.
pub const SUCCEEDED: &str = "MPIJobSucceeded";
/// Failed without a reason from the launcher Job; also the event when a pod template is refused.
pub const FAILED: &str = "MPIJobFailed";
/// Reason of a Job whose tries are used up.
pub const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";
/// Reason of a Job that took too long.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// The spec breaks a rule.
pub const VALIDATION_ERROR: &str = "ValidationError";
/// The API server refused a pod template.
pub const TEMPLATE_REFUSED: &str = "TemplateRefused";
/// An object with a name that we need is not ours.
pub const RESOURCE_EXISTS: &str = "ErrResourceExists";
/// The launcher template's restartPolicy is not used.
pub const TEMPLATE_RESTART_POLICY: &str = "SetPodTemplateRestartPolicy";

/// Every wanted worker is Ready.
pub const ALL_READY: &str = "AllReady";
/// Not every wanted worker is Ready, but `minReplicas` of them are.
pub const ENOUGH_READY: &str = "EnoughReady";
/// Some workers are on their way.
pub const WAITING_FOR_WORKERS: &str = "WaitingForWorkers";
/// No node takes a worker.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// A worker's image cannot be pulled.
pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
/// A worker starts and ends again and again.
pub const CRASH_LOOPING: &str = "CrashLooping";
/// A worker runs but its readiness probe fails.
pub const PROBE_FAILING: &str = "ProbeFailing";
/// A quota keeps worker pods from being created.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// Admission refuses worker pods.
pub const ADMISSION_REFUSED: &str = "AdmissionRefused";
/// The Job controller waits before it creates a worker again.
pub const BACK_OFF: &str = "BackOff";

/// A worker was lost while the launcher ran.
pub const WORKER_LOST: &str = "WorkerLost";
/// A pod does not finish terminating.
pub const STUCK_TERMINATING: &str = "StuckTerminating";
/// This server has no Indexed Jobs with hostnames.
pub const INDEXED_JOB_UNAVAILABLE: &str = "IndexedJobUnavailable";
/// A plain worker pod of the Go operator is gone.
pub const LEGACY_WORKER_LOST: &str = "LegacyWorkerLost";
/// A template was edited, but pods of the old one run.
pub const TEMPLATE_CHANGE_IGNORED: &str = "TemplateChangeIgnored";
/// Fewer workers are wanted, but one that stays has to be Ready first.
pub const SHRINK_WAITS: &str = "ShrinkWaits";
/// More workers are wanted than the worker Job has room for.
pub const GROWTH_WAITS: &str = "GrowthWaits";
/// The launcher started although our own readiness probe did not pass.
pub const PROBE_BYPASSED: &str = "ProbeBypassed";
