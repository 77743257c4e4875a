//! What an unset field means. Applied in memory only, never written back into a spec.
//!
//! The Go operator reads an empty text as unset everywhere but in `cleanPodPolicy`, where it is a
//! broken rule; the same holds here.

use super::mpijob::{MpiJobSpec, ReplicaSpec};

/// `cleanPodPolicy` (1): nothing is removed at the end.
pub const CLEAN_POD_POLICY: &str = "None";
/// `slotsPerWorker` (2).
pub const SLOTS_PER_WORKER: i32 = 1;
/// `sshAuthMountPath` (3).
pub const SSH_AUTH_MOUNT_PATH: &str = "/root/.ssh";
/// `mpiImplementation` (4).
pub const MPI_IMPLEMENTATION: &str = "OpenMPI";
/// `launcherCreationPolicy` (5) of a gated launcher. The Go operator's default is [`AT_STARTUP`].
pub const WAIT_FOR_WORKERS_READY: &str = "WaitForWorkersReady";
/// `launcherCreationPolicy` of a launcher that starts at once.
pub const AT_STARTUP: &str = "AtStartup";
/// `restartPolicy` of the launcher (6).
pub const LAUNCHER_RESTART_POLICY: &str = "OnFailure";
/// `restartPolicy` of workers (7).
pub const WORKER_RESTART_POLICY: &str = "Never";
/// `replicas` of either role (6 and 7). The Go operator takes 0 for workers and then refuses it.
pub const REPLICAS: i32 = 1;
/// `workerLossPolicy`.
pub const WORKER_LOSS_POLICY: &str = "WaitForLauncher";

/// The text that is set, or `default`.
fn text_or<'a>(text: Option<&'a str>, default: &'a str) -> &'a str {
    text.filter(|text| !text.is_empty()).unwrap_or(default)
}

/// (1) `runPolicy.cleanPodPolicy`. An explicit `""` stays and is refused later.
#[must_use]
pub fn clean_pod_policy(spec: &MpiJobSpec) -> &str {
    spec.run_policy
        .as_ref()
        .and_then(|policy| policy.clean_pod_policy.as_deref())
        .unwrap_or(CLEAN_POD_POLICY)
}

/// (2) `slotsPerWorker`.
#[must_use]
pub fn slots_per_worker(spec: &MpiJobSpec) -> i32 {
    spec.slots_per_worker.unwrap_or(SLOTS_PER_WORKER)
}

/// (3) `sshAuthMountPath`.
#[must_use]
pub fn ssh_auth_mount_path(spec: &MpiJobSpec) -> &str {
    text_or(spec.ssh_auth_mount_path.as_deref(), SSH_AUTH_MOUNT_PATH)
}

/// (4) `mpiImplementation`.
#[must_use]
pub fn mpi_implementation(spec: &MpiJobSpec) -> &str {
    text_or(spec.mpi_implementation.as_deref(), MPI_IMPLEMENTATION)
}

/// (5) `launcherCreationPolicy`.
#[must_use]
pub fn launcher_creation_policy(spec: &MpiJobSpec) -> &str {
    text_or(
        spec.launcher_creation_policy.as_deref(),
        WAIT_FOR_WORKERS_READY,
    )
}

/// (6, 7) `restartPolicy` of a role whose default is `default`.
#[must_use]
pub fn restart_policy<'a>(role: &'a ReplicaSpec, default: &'a str) -> &'a str {
    text_or(role.restart_policy.as_deref(), default)
}

/// (6, 7) `replicas` of a role.
#[must_use]
pub fn replicas(role: &ReplicaSpec) -> i32 {
    role.replicas.unwrap_or(REPLICAS)
}

/// `runPolicy.workerLossPolicy`.
#[must_use]
pub fn worker_loss_policy(spec: &MpiJobSpec) -> &str {
    let set = spec
        .run_policy
        .as_ref()
        .and_then(|policy| policy.worker_loss_policy.as_deref());
    text_or(set, WORKER_LOSS_POLICY)
}
