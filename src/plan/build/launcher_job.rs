//! The launcher Job `J-launcher`: runs mpirun, retries it, and is held by `suspend` while the gate is
//! closed.

use serde_json::{Value, json};

use super::pod::{self, Object};
use super::{BuildContext, metadata, object_labels, role_labels, template_digest};
use crate::api::names;
use crate::api::validate::{Implementation, RestartPolicy};

/// How long ssh tries to reach a worker whose DNS record or sshd is a moment late.
const SSH_ARGS: &str = "-o ConnectionAttempts=10";

/// Names that Open MPI 4 reads, with the name of the same setting in Open MPI 5, which reads none of
/// the former and would run every rank on the launcher, with success.
const OPEN_MPI_NAMES: [(&str, &str); 4] = [
    (
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "PRTE_MCA_prte_keep_fqdn_hostnames",
    ),
    (
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_default_hostfile",
    ),
    ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"),
    (
        "OMPI_MCA_orte_set_default_slots",
        "PRTE_MCA_prte_set_default_slots",
    ),
];

/// Mode 0444.
const MODE_READ: u32 = 0o444;
/// Mode 0555.
const MODE_READ_RUN: u32 = 0o555;

/// What the planner decides about a launcher Job at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LauncherParams {
    /// The gate is closed.
    pub suspend: bool,
    /// It is not known that the API server keeps `suspend`: parallelism 0 holds the Job as well.
    pub pause: bool,
    /// Tries that are left; None leaves it to the Job API.
    pub backoff_limit: Option<i32>,
    /// Seconds that are left.
    pub active_deadline_seconds: Option<i64>,
}

/// The launcher Job.
///
/// Its pods are restartPolicy Never whatever the user asked for: a retry is a new pod, which keeps the
/// log of each try and passes the gate. `podReplacementPolicy: Failed` keeps two launchers from running
/// side by side.
#[must_use]
pub fn launcher_job(ctx: &BuildContext, params: &LauncherParams) -> Value {
    let mut labels = object_labels(ctx);
    labels.extend(role_labels(ctx, names::ROLE_LAUNCHER));

    let mut spec = Object::new();
    spec.insert("suspend".to_owned(), json!(params.suspend));
    if params.pause {
        spec.insert("parallelism".to_owned(), json!(0));
        // The default of 1 is only given where neither is set.
        spec.insert("completions".to_owned(), json!(1));
    }
    if let Some(limit) = params.backoff_limit {
        spec.insert("backoffLimit".to_owned(), json!(limit));
    }
    if let Some(seconds) = params.active_deadline_seconds {
        spec.insert("activeDeadlineSeconds".to_owned(), json!(seconds));
    }
    // No ttlSecondsAfterFinished yet: a Job that is collected before its end is on record would run
    // again. It is set when the end is.
    spec.insert("podReplacementPolicy".to_owned(), json!("Failed"));
    // A drained or preempted launcher is not the program's fault.
    spec.insert(
        "podFailurePolicy".to_owned(),
        json!({
            "rules": [{
                "action": "Ignore",
                "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
            }],
        }),
    );
    spec.insert("template".to_owned(), template(ctx));

    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            ctx,
            &names::launcher_job(ctx.name),
            labels,
            Some(&digest(ctx)),
        ),
        "spec": spec,
    })
}

/// Present in every network namespace, whatever family its pods have.
const LOOPBACK: &str = "127.0.0.1";

/// What [`names::CONTENT_ANNOTATION`] says on a launcher Job that was built from this template and the
/// fields of the spec that its environment froze. Flags of the operator are not in it, as in
/// [`super::worker_job::digest`].
#[must_use]
pub fn digest(ctx: &BuildContext) -> String {
    template_digest(&json!([
        ctx.job.launcher.template,
        ctx.job.ssh_path,
        ctx.job.slots,
        ctx.job.launcher_as_worker,
        implementation_text(ctx.job.implementation),
    ]))
}

/// Its own line of the hostfile resolves in the launcher from the first moment on: the DNS record
/// follows the pod's address by a second or so, and a launcher that cannot resolve itself takes
/// itself for a remote host. Only the name of the hostfile is meant; the hostname stays what the
/// kubelet makes it.
fn add_own_host(ctx: &BuildContext, template: &mut Object) {
    let host = names::host(
        &names::launcher_job(ctx.name),
        ctx.name,
        ctx.namespace,
        &ctx.settings.cluster_domain,
    );
    if let Some(spec) = pod::object_at(template, "spec")
        && let Some(aliases) = pod::list_at(spec, "hostAliases")
        && !aliases.iter().any(|alias| alias["ip"] == LOOPBACK)
    {
        aliases.push(json!({ "ip": LOOPBACK, "hostnames": [host] }));
    }
}

/// The template of launcher pods. No search domain and no default command, as in the Go operator.
fn template(ctx: &BuildContext) -> Value {
    let mut template = pod::template_of(&ctx.job.launcher);
    let mut labels = role_labels(ctx, names::ROLE_LAUNCHER);
    if ctx.job.launcher_as_worker {
        labels.insert(names::REPLICA_INDEX_LABEL.to_owned(), json!("0"));
        labels.insert(names::RUN_LABEL.to_owned(), json!(ctx.run));
    }
    pod::set_labels(&mut template, labels);
    pod::set_common(ctx, &mut template, RestartPolicy::Never);
    if ctx.job.launcher_as_worker {
        add_own_host(ctx, &mut template);
    }

    if let Some(spec) = pod::object_at(&mut template, "spec") {
        spec.insert("hostname".to_owned(), json!(names::launcher_job(ctx.name)));
        if let Some(volumes) = pod::list_at(spec, "volumes") {
            volumes.push(config_volume(ctx));
        }
        if let Some(container) = pod::main_container(spec) {
            add_environment(ctx, container);
            pod::add_mount(container, names::CONFIG_VOLUME, names::CONFIG_MOUNT_PATH);
        }
    }
    Value::Object(template)
}

/// Whole volume, no subPath: new hosts have to reach a launcher that runs.
fn config_volume(ctx: &BuildContext) -> Value {
    json!({
        "name": names::CONFIG_VOLUME,
        "configMap": {
            "name": names::config_map(ctx.name),
            "items": [
                { "key": names::HOSTFILE, "path": names::HOSTFILE, "mode": MODE_READ },
                { "key": names::DISCOVER_HOSTS, "path": names::DISCOVER_HOSTS, "mode": MODE_READ_RUN },
            ],
        },
    })
}

/// Tells MPI where its hosts are; what the user set stands.
fn add_environment(ctx: &BuildContext, container: &mut Object) {
    let hostfile = format!("{}/{}", names::CONFIG_MOUNT_PATH, names::HOSTFILE);
    let slots = ctx.job.slots.to_string();
    pod::add_env(container, "K_MPI_JOB_ROLE", names::ROLE_LAUNCHER);
    match ctx.job.implementation {
        Implementation::OpenMpi => {
            add_open_mpi(container, ["true", &hostfile, SSH_ARGS, &slots]);
        }
        Implementation::Intel => {
            pod::add_env(container, "I_MPI_HYDRA_HOST_FILE", &hostfile);
            pod::add_env(container, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", SSH_ARGS);
            pod::add_env(container, "I_MPI_PERHOST", &slots);
        }
        Implementation::Mpich => {
            pod::add_env(container, "HYDRA_HOST_FILE", &hostfile);
            pod::add_env(container, "HYDRA_LAUNCH_EXTRA_ARGS", SSH_ARGS);
        }
    }
    // A launcher that computes nothing must not see the GPUs of its node.
    if !ctx.job.launcher_as_worker {
        pod::add_env(container, "NVIDIA_VISIBLE_DEVICES", "");
        pod::add_env(container, "NVIDIA_DRIVER_CAPABILITIES", "");
    }
}

/// Both names of each setting. A user who set one of a pair means the setting, not the version of
/// Open MPI, so the other name takes the same entry, reference or value.
fn add_open_mpi(container: &mut Object, values: [&str; 4]) {
    let Some(env) = pod::list_at(container, "env") else {
        return;
    };
    let given = env.clone();
    let older = OPEN_MPI_NAMES.iter().map(|&(old, new)| (old, new));
    let newer = OPEN_MPI_NAMES.iter().map(|&(old, new)| (new, old));
    for ((name, twin), value) in older.zip(values).chain(newer.zip(values)) {
        if pod::entry(&given, name).is_some() {
            continue;
        }
        let mut entry = pod::entry(&given, twin)
            .cloned()
            .unwrap_or_else(|| json!({ "name": name, "value": value }));
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("name".to_owned(), json!(name));
        }
        env.push(entry);
    }
}

fn implementation_text(implementation: Implementation) -> &'static str {
    match implementation {
        Implementation::OpenMpi => "OpenMPI",
        Implementation::Intel => "Intel",
        Implementation::Mpich => "MPICH",
    }
}
