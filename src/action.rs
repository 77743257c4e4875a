//! Step 4 of the flow: what the planner decided, as plain data with preconditions.
//!
//! The writer chooses nothing: names, UIDs, versions and bodies are complete here.

use jiff::Timestamp;
use serde_json::Value;

/// One write (or one look) that a plan asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create an object. A name that is taken by an object of this MPIJob counts as done.
    Create {
        /// What kind it is.
        kind: ObjectKind,
        /// `metadata.name`.
        name: String,
        /// The whole object.
        body: Box<Value>,
    },
    /// Create the Secret with a new key pair, unless it is there.
    CreateSecret {
        /// `metadata.name`.
        name: String,
        /// The Secret without its data.
        shell: Box<Value>,
        /// Look first: the Secret was probably made by an earlier process.
        look_first: bool,
    },
    /// Change an object.
    Patch {
        /// What kind it is.
        kind: ObjectKind,
        /// `metadata.name`.
        name: String,
        /// Merge patch, with the UID and, where it matters, the version it was decided on.
        body: Box<Value>,
    },
    /// Replace `data` and content annotation of a ConfigMap that somebody else edited.
    ReplaceConfigMap {
        /// `metadata.name`.
        name: String,
        /// UID it was decided on.
        uid: String,
        /// New `data`.
        data: Box<Value>,
        /// New content annotation.
        content: String,
    },
    /// Delete a Job with its pods in the background.
    DeleteJob {
        /// `metadata.name`.
        name: String,
        /// UID it was decided on.
        uid: String,
    },
    /// Take a pod off the Job controller's books.
    Retire {
        /// Pod name.
        pod: String,
        /// UID it was decided on.
        uid: String,
    },
    /// Delete a pod.
    DeletePod {
        /// Pod name.
        pod: String,
        /// UID it was decided on.
        uid: String,
        /// Without waiting for its node: only for pods whose node is gone or out of service.
        force: bool,
    },
    /// Delete a PodGroup.
    DeletePodGroup {
        /// Its `apiVersion`.
        api_version: String,
        /// `metadata.name`.
        name: String,
    },
    /// Ask for a node.
    LookAtNode {
        /// Node name.
        name: String,
    },
    /// Read the warning events of a Job.
    ReadJobEvents {
        /// UID of the Job.
        uid: String,
    },
    /// Look for a launcher Job that the Go operator made, and label it so that our watch sees it.
    SeekLauncher {
        /// `metadata.name`.
        name: String,
    },
    /// Read the values of the priority classes of launcher and worker.
    ReadPriorities {
        /// Class of the launcher.
        launcher: Option<String>,
        /// Class of the workers.
        worker: Option<String>,
    },
    /// Delete the MPIJob itself (opt-in, after its TTL).
    DeleteMpiJob {
        /// UID it was decided on.
        uid: String,
    },
}

/// Kinds of objects that actions name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// core/v1 Service.
    Service,
    /// core/v1 ConfigMap.
    ConfigMap,
    /// core/v1 Secret.
    Secret,
    /// batch/v1 Job.
    Job,
    /// core/v1 Pod.
    Pod,
    /// PodGroup of volcano or scheduler-plugins; the body says which.
    PodGroup,
}

impl ObjectKind {
    /// As in `kind`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
        }
    }
}

/// The name under which a refused create is remembered. A PodGroup has the name of the Service.
#[must_use]
pub fn refusal_key(kind: ObjectKind, name: &str) -> String {
    if kind == ObjectKind::PodGroup {
        format!("{POD_GROUP_KEY}{name}")
    } else {
        name.to_owned()
    }
}

/// Prefix of the [`refusal_key`] of PodGroups; no object name contains a slash.
pub const POD_GROUP_KEY: &str = "PodGroup/";

/// A new `status` for the MPIJob.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusPatch {
    /// Merge patch body of the status subresource.
    pub body: Value,
    /// Only counts or waiting text differ.
    pub soft: bool,
}

/// An event on the MPIJob, written after the status that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// Warning instead of Normal.
    pub warning: bool,
    /// See [`crate::api::reasons`].
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// The same note is there once, however often it is planned.
    pub once: bool,
}

/// A counter that a status transition moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// The job was accepted.
    Created,
    /// It ended with success.
    Succeeded,
    /// It failed.
    Failed,
}

/// What one pass does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes in order; the first that fails ends the pass.
    pub actions: Vec<Action>,
    /// Writes that nothing else of the pass waits for.
    pub background: Vec<Action>,
    /// The new status, if it differs.
    pub status: Option<StatusPatch>,
    /// Events, only after the status was written.
    pub events: Vec<EventNote>,
    /// Counters, only after the status was written.
    pub milestones: Vec<Milestone>,
    /// When to look again though nothing changed.
    pub look_again: Option<Timestamp>,
    /// The launcher is released by this plan: when the last worker became Ready.
    pub released: Option<Option<Timestamp>>,
    /// A launcher that could have started is held by this plan.
    pub held: bool,
    /// The name of the launcher Job, once there is one, for the info metric.
    pub launcher: Option<String>,
    /// Digest of the PodGroup that this plan writes.
    pub pod_group: Option<String>,
}

impl Plan {
    /// Asks for another look at `at`, or earlier if that was asked for already.
    pub fn look_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |old| old.min(at)));
    }
}
