//! The immutable snapshot of one MPIJob that the planner gets. It may be old or incomplete.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::mpijob::MpiJobStatus;

/// Everything known about one MPIJob and its children.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The MPIJob.
    pub job: Arc<JobObject>,
    /// Service with our name, if a watch showed it.
    pub service: Option<Arc<ChildFacts>>,
    /// ConfigMap with our name, if a watch showed it.
    pub config_map: Option<Arc<ChildFacts>>,
    /// When this process created the Secret or last looked at it.
    pub secret_seen: Option<Timestamp>,
    /// Worker Job that this MPIJob controls.
    pub worker_job: Option<Arc<JobFacts>>,
    /// Launcher Job that this MPIJob controls.
    pub launcher_job: Option<Arc<JobFacts>>,
    /// Worker pods of any Job this MPIJob controls or controlled, earlier runs included.
    pub workers: Vec<Arc<PodFacts>>,
    /// Launcher pods, earlier tries and runs included.
    pub launchers: Vec<Arc<PodFacts>>,
    /// Plain worker pods that the MPIJob itself controls, as the Go operator 0.8.2 made them.
    pub plain_workers: Vec<Arc<PodFacts>>,
    /// What this process remembers and no object says.
    pub memory: Memory,
    /// Nodes that were asked for, by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// What the API server made of the Job that was written last, of any MPIJob; None while this
    /// process has not seen one.
    pub kept: Option<Kept>,
}

/// Which fields of a Job the API server keeps. Kubernetes 1.21 drops both without an error; every
/// later version fills them in where they are left out, so any Job as it was answered tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.completionMode`.
    pub completion_mode: bool,
}

/// What one process remembers of an MPIJob. Losing it costs a repeated call, never a wrong step.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Creates that the API server refused, by object name.
    pub refused: BTreeMap<String, Refusal>,
    /// When status was last written, and how often in a row only counts or waiting text changed.
    pub status_written: Option<Timestamp>,
    /// See `status_written`.
    pub soft_writes: u32,
    /// Ends that workers caused themselves within the last hour, by completion index.
    pub ends: BTreeMap<u32, Vec<Timestamp>>,
    /// When the launcher Job was last released, and how often in a row without a pod.
    pub released: Option<(Timestamp, u32)>,
    /// When the worker Job, which another controller had suspended, was last set back; how often.
    pub unsuspended: Option<(Timestamp, u32)>,
    /// When the ConfigMap was last written.
    pub config_written: Option<Timestamp>,
    /// Warnings of the Job controller about pods it cannot create, newest last.
    pub job_warnings: Vec<JobWarning>,
    /// When those were last read.
    pub job_warnings_read: Option<Timestamp>,
    /// Digest of the PodGroup that was last written.
    pub pod_group: Option<String>,
    /// The legacy launcher was looked for.
    pub launcher_sought: bool,
    /// Values of the priority classes of launcher and worker, once read.
    pub priorities: Option<(i32, i32)>,
    /// When this process first saw the present `metadata.generation` of the MPIJob.
    pub edited: Option<Timestamp>,
    /// The worker pod that was deleted last.
    pub removed: Option<Removed>,
    /// Versions of Services and ConfigMaps, by UID, whose edits by others were answered.
    pub answered: BTreeMap<String, u64>,
}

/// A worker pod that this process deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its UID.
    pub uid: String,
    /// Its completion index.
    pub index: u32,
    /// When.
    pub at: Timestamp,
}

/// [`Refusal::code`] of a name that a child of an earlier MPIJob of the same name still has. Garbage
/// collection is about to free it (423 Locked is no answer of the Kubernetes API itself).
pub const PREDECESSOR: u16 = 423;

/// A create that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `metadata.generation` of the MPIJob at that time.
    pub generation: i64,
    /// HTTP status.
    pub code: u16,
    /// The server's sentence.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// Refusals in a row.
    pub count: u32,
}

/// A warning event of the Job controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobWarning {
    /// Event reason, as `FailedCreate`.
    pub reason: String,
    /// Event message.
    pub message: String,
}

/// The MPIJob itself.
#[derive(Debug, Clone, Default)]
pub struct JobObject {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number; 0 if it is none.
    pub version: u64,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec`, raw; null if absent.
    pub spec: Value,
    /// `status`; empty if absent or not decodable.
    pub status: MpiJobStatus,
}

/// Metadata of a Service or ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildFacts {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// Uid of the controlling owner.
    pub owner: Option<String>,
    /// Run label.
    pub run: Option<String>,
    /// Content annotation.
    pub content: Option<String>,
    /// Another field manager than this operator owns part of the content.
    pub edited: bool,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// A Job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, as sent in preconditions.
    pub resource_version: String,
    /// The same as a number.
    pub version: u64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Our annotations.
    pub annotations: BTreeMap<String, String>,
    /// Has the label that our watches select on.
    pub labelled: bool,
    /// Run label of the pod template.
    pub run: Option<String>,
    /// Which fields of it the API server kept.
    pub kept: Kept,
    /// `spec.completionMode` is Indexed: its pods have an index and a hostname.
    pub indexed: bool,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// `spec.completions`.
    pub completions: i32,
    /// `spec.backoffLimit`.
    pub backoff_limit: i32,
    /// `spec.activeDeadlineSeconds`.
    pub deadline_seconds: Option<i64>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl_seconds: Option<i32>,
    /// `status.failed`.
    pub failed: i64,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// `status.completionTime`.
    pub completion_time: Option<Timestamp>,
    /// Complete or, earlier, SuccessCriteriaMet is True.
    pub complete: bool,
    /// Failed or, earlier, FailureTarget is True: reason and message.
    pub failure: Option<(String, String)>,
}

impl JobFacts {
    /// A launcher Job that creates no pod as it stands. Parallelism 0 holds it too, and on a server
    /// that drops `suspend` nothing else does.
    #[must_use]
    pub fn held(&self) -> bool {
        self.suspend || self.parallelism == 0
    }

    /// The Job controller may have created a pod for it. One that is held by parallelism 0 alone has
    /// a start time all the same.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.failed > 0 || (self.started.is_some() && self.parallelism > 0)
    }
}

/// Phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers run yet.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// All containers ended, one of them not with 0, or the platform ended it.
    Failed,
    /// The node does not answer.
    Unknown,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// Uid of the controlling owner.
    pub owner: String,
    /// Name of the controlling owner.
    pub owner_name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Name of the MPIJob, by label.
    pub job_name: String,
    /// Completion index (worker pods of a Job); for plain pods the replica index.
    pub index: Option<u32>,
    /// `status.podIP`, or the IPv4 address of the pod where it has one of each family.
    pub ip: Option<IpAddr>,
    /// Has the `replica-index` label.
    pub ranked: bool,
    /// `job-role` label is launcher.
    pub launcher: bool,
    /// Run label.
    pub run: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// When the deletion was asked for: `deletionTimestamp` less the grace period.
    pub deleted: Option<Timestamp>,
    /// End of the grace period.
    pub deletion_due: Option<Timestamp>,
    /// The Job controller has the pod on its books.
    pub tracked: bool,
    /// Finalizers other than the Job controller's.
    pub finalizers: Vec<String>,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// Digest of the files of which its kubelet was told last (launcher pods).
    pub files: Option<String>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `status.phase`.
    pub phase: Phase,
    /// Condition Ready is True.
    pub ready: bool,
    /// When Ready last changed.
    pub ready_changed: Option<Timestamp>,
    /// When the main container (re)started.
    pub main_started: Option<Timestamp>,
    /// When the last container ended, of a pod that has ended.
    pub ended: Option<Timestamp>,
    /// Failures of the same index before this pod, as the Job controller counts them.
    pub failures: u32,
    /// The main container was started again in place.
    pub main_restarted: bool,
    /// Condition DisruptionTarget is True, or the reason is one of the platform's.
    pub disrupted: bool,
    /// `status.reason`, as `Evicted`.
    pub reason: Option<String>,
    /// `status.message`.
    pub message: Option<String>,
    /// What keeps it from being Ready, in the pod's own words.
    pub trouble: Option<Trouble>,
    /// Our own readiness probe was added to its template.
    pub probe_ours: bool,
}

impl PodFacts {
    /// All containers ended.
    #[must_use]
    pub fn terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Runs or will run, and nobody asked for its deletion.
    #[must_use]
    pub fn live(&self) -> bool {
        !self.terminal() && self.deleted.is_none()
    }

    /// Holds resources of a node or waits for some.
    #[must_use]
    pub fn active(&self) -> bool {
        !self.terminal()
    }
}

/// What keeps a pod from being Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which kind of it.
    pub kind: TroubleKind,
    /// Reason of the pod or container, as `OOMKilled`.
    pub reason: String,
    /// Exit code of a container that ended.
    pub exit_code: Option<i32>,
    /// The container's name; empty for the pod as a whole.
    pub container: String,
    /// The platform's sentence.
    pub message: String,
}

/// Kinds of [`Trouble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// No node takes it.
    Unschedulable,
    /// The image cannot be pulled.
    ImagePull,
    /// A container ended.
    Crash,
    /// The container cannot be created (a missing Secret, a bad command).
    Create,
    /// It runs, but is not Ready.
    NotReady,
}

/// A node that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// There is no such node any more.
    pub gone: bool,
    /// Condition Ready is True.
    pub ready: bool,
    /// Tainted `node.kubernetes.io/out-of-service`.
    pub out_of_service: bool,
    /// Cordoned, or about to be taken away.
    pub leaving: bool,
    /// When it was asked.
    pub asked: Timestamp,
}
