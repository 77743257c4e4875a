//! Every derived name, label, annotation and path.

/// API group of the MPIJob.
pub const GROUP: &str = "kubeflow.org";
/// API version of the MPIJob.
pub const VERSION: &str = "v2beta1";
/// `apiVersion` of the MPIJob.
pub const API_VERSION: &str = "kubeflow.org/v2beta1";
/// Kind of the MPIJob.
pub const KIND: &str = "MPIJob";

/// Who set an object up; also the selector of our watches.
pub const OPERATOR_NAME_LABEL: &str = "training.kubeflow.org/operator-name";
/// Value of [`OPERATOR_NAME_LABEL`].
pub const OPERATOR_NAME: &str = "mpi-operator";
/// Name of the MPIJob that a pod belongs to.
pub const JOB_NAME_LABEL: &str = "training.kubeflow.org/job-name";
/// `launcher` or `worker`.
pub const JOB_ROLE_LABEL: &str = "training.kubeflow.org/job-role";
/// Index of a pod among its role; Kueue reads it as rank.
pub const REPLICA_INDEX_LABEL: &str = "training.kubeflow.org/replica-index";
/// Value of [`JOB_ROLE_LABEL`] on launcher pods.
pub const ROLE_LAUNCHER: &str = "launcher";
/// Value of [`JOB_ROLE_LABEL`] on worker pods.
pub const ROLE_WORKER: &str = "worker";
/// Label of the Go operator's child objects; people select on it.
pub const APP_LABEL: &str = "app";
/// Marks the pods of one run (start or resume); the Service selects on it, so that what is left of
/// an earlier run is not in DNS.
pub const RUN_LABEL: &str = "mpi-operator.kubeflow.org/run";
/// Digest of what we wrote into an object, to see at a glance whether it is still wanted.
pub const CONTENT_ANNOTATION: &str = "mpi-operator.kubeflow.org/content";
/// On the launcher Job: tries refunded so far.
pub const REFUNDED_ANNOTATION: &str = "mpi-operator.kubeflow.org/refunded-tries";
/// On the launcher Job: `<pod uid>/<failed tries before>` of a try that may have to be refunded.
pub const REFUND_PENDING_ANNOTATION: &str = "mpi-operator.kubeflow.org/refund-pending";
/// On the launcher Job: restarts by `workerLossPolicy: RestartLauncher`.
pub const RESTARTS_ANNOTATION: &str = "mpi-operator.kubeflow.org/restarts";
/// On the launcher Job: when it was first released, RFC 3339; the deadline counts from there.
pub const RELEASED_ANNOTATION: &str = "mpi-operator.kubeflow.org/first-released";
/// On the launcher Job: when it was last restarted, RFC 3339.
pub const RESTARTED_ANNOTATION: &str = "mpi-operator.kubeflow.org/restarted";
/// On the launcher Job: worker indexes in the hostfile of the last release, as `0-3,5`.
pub const HOSTS_ANNOTATION: &str = "mpi-operator.kubeflow.org/hosts";
/// On the launcher Job: the MPIJob was suspended after this Job had been released, so the Job is
/// not used again.
pub const ENDED_ANNOTATION: &str = "mpi-operator.kubeflow.org/run-ended";
/// On a launcher pod: digest of the files that its kubelet was last told to mount again. Any change
/// of a pod makes its kubelet look at the volumes; without one it looks each minute or so.
pub const FILES_ANNOTATION: &str = "mpi-operator.kubeflow.org/files";
/// On a pod: which one a shrink removes first, as a ReplicaSet does.
pub const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// On an MPIJob: `true` deletes it when its `ttlSecondsAfterFinished` is over.
pub const DELETE_AFTER_TTL_ANNOTATION: &str = "mpi-operator.kubeflow.org/delete-after-ttl";
/// On an MPIJob: `true` removes its launcher pods as well, where cleanPodPolicy is All. The launcher
/// Job stays as the record of its tries.
pub const CLEAN_LAUNCHER_ANNOTATION: &str = "mpi-operator.kubeflow.org/clean-launcher";
/// The finalizer by which the Job controller keeps a pod on its books.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation that carries a pod's completion index, on every version with Indexed Jobs.
pub const COMPLETION_INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";

/// `spec.runPolicy.managedBy` value that means this operator.
pub const MANAGED_BY_US: &str = "kubeflow.org/mpi-operator";
/// `spec.runPolicy.managedBy` value of Kueue's multi-cluster dispatch.
pub const MANAGED_BY_MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// Directory in the launcher that holds hostfile and discover_hosts.sh.
pub const CONFIG_MOUNT_PATH: &str = "/etc/mpi";
/// Volume name of the ConfigMap.
pub const CONFIG_VOLUME: &str = "mpi-job-config";
/// Key of the host list.
pub const HOSTFILE: &str = "hostfile";
/// Key of the script that prints live hosts.
pub const DISCOVER_HOSTS: &str = "discover_hosts.sh";
/// Volume name of the ssh key pair.
pub const SSH_VOLUME: &str = "ssh-auth";
/// Key of the private key in the Secret.
pub const SSH_PRIVATE_KEY: &str = "ssh-privatekey";
/// Key of the public key in the Secret.
pub const SSH_PUBLIC_KEY: &str = "ssh-publickey";

/// Longest hostname and label value.
pub const MAX_LABEL: usize = 63;

/// Name of the headless Service of MPIJob `job`.
#[must_use]
pub fn service(job: &str) -> String {
    job.to_owned()
}

/// Name of the ConfigMap of MPIJob `job`.
#[must_use]
pub fn config_map(job: &str) -> String {
    format!("{job}-config")
}

/// Name of the Secret of MPIJob `job`.
#[must_use]
pub fn secret(job: &str) -> String {
    format!("{job}-ssh")
}

/// Name of the worker Job of MPIJob `job`.
#[must_use]
pub fn worker_job(job: &str) -> String {
    format!("{job}-worker")
}

/// Name of the launcher Job of MPIJob `job`, and hostname of its pods.
#[must_use]
pub fn launcher_job(job: &str) -> String {
    format!("{job}-launcher")
}

/// Hostname of worker `index`.
#[must_use]
pub fn worker_hostname(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Host by which MPI reaches `hostname`: resolves without a search domain of the pod's namespace.
#[must_use]
pub fn host(hostname: &str, job: &str, namespace: &str, cluster_domain: &str) -> String {
    if cluster_domain.is_empty() {
        format!("{hostname}.{job}.{namespace}.svc")
    } else {
        format!("{hostname}.{job}.{namespace}.svc.{cluster_domain}")
    }
}
