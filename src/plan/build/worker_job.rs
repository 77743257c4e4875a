//! The worker Job `J-worker`: one Indexed Job whose pods have the hostnames `J-worker-<i>`.

use serde_json::{Value, json};

use super::pod::{self, Object};
use super::{BuildContext, metadata, object_labels, role_labels, sshd, template_digest};
use crate::api::names;
use crate::api::validate::RestartPolicy;

/// On a worker pod (and in its template) when the readiness probe is this operator's, not the user's.
pub const PROBE_ANNOTATION: &str = "mpi-operator.kubeflow.org/readiness-probe";
/// Value of [`PROBE_ANNOTATION`].
const PROBE_ADDED: &str = "added";

/// What runs where the user names no program.
const DEFAULT_COMMAND: [&str; 2] = ["/usr/sbin/sshd", "-De"];

/// Workers leave and come back as often as the platform wants; only the launcher's tries are limited.
const NO_LIMIT: i32 = i32::MAX;

/// More headroom than this buys nothing: it is room for gaps, and a five digit suffix costs every job
/// one character of its name.
const MOST_HEADROOM_DIGITS: usize = 4;

/// Domain of a cluster whose operator was not told otherwise.
const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// Taint of a node that stopped to report.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The worker Job with `wanted` pods.
///
/// A launcher-only job wants none and has no template for it; what comes out then is refused by the API
/// server.
///
/// It has no TTL and no deadline: its end is the end of the MPIJob, which the launcher decides.
/// `podReplacementPolicy` stays at its default, so that a pod that never finishes terminating does not
/// hold its replacement. The selector is the Job API's own, a hand-made one is refused.
#[must_use]
pub fn worker_job(ctx: &BuildContext, wanted: u32) -> Value {
    let mut labels = object_labels(ctx);
    labels.extend(role_labels(ctx, names::ROLE_WORKER));

    let mut spec = Object::new();
    spec.insert("completionMode".to_owned(), json!("Indexed"));
    spec.insert("parallelism".to_owned(), json!(wanted));
    spec.insert(
        "completions".to_owned(),
        json!(headroom(ctx.name.len(), wanted, ctx.job.max_workers)),
    );
    spec.insert("backoffLimit".to_owned(), json!(NO_LIMIT));
    // One index's back-off then no longer holds the others. The API refuses it with OnFailure.
    if restart_policy(ctx) == RestartPolicy::Never {
        spec.insert("backoffLimitPerIndex".to_owned(), json!(NO_LIMIT));
    }
    spec.insert("template".to_owned(), template(ctx));

    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            ctx,
            &names::worker_job(ctx.name),
            labels,
            Some(&digest(ctx)),
        ),
        "spec": spec,
    })
}

/// `completions` of a worker Job for `wanted` workers, of which there may become `max_workers`.
///
/// With R the larger of the two, this is the largest power of ten up to 10^4 that is above R and whose
/// last hostname `J-worker-<C-1>` still is a DNS label. Above R, because a Job with completions equal
/// to parallelism becomes Complete as soon as each index has ended once, and because the indexes
/// beyond R are the room into which a worker moves whose own index is used up. A power of ten, because
/// up to the next one all hostnames have the same greatest length.
///
/// Where the name leaves no such room it is R, or `wanted` if not even R hostnames fit.
#[must_use]
pub fn headroom(name_len: usize, wanted: u32, max_workers: u32) -> u32 {
    let most = wanted.max(max_workers);
    let before_index = names::worker_hostname("", 0).len() - 1;
    let digits = names::MAX_LABEL.saturating_sub(name_len.saturating_add(before_index));
    let power = 10_u32.pow(u32::try_from(digits.min(MOST_HEADROOM_DIGITS)).unwrap_or(0));
    if digits > 0 && power > most {
        power
    } else if most.saturating_sub(1).to_string().len() <= digits {
        most
    } else {
        wanted
    }
}

/// What [`names::CONTENT_ANNOTATION`] says on a worker Job that was built from this template.
///
/// Only what a user can edit is in it. Flags of the operator are not: a new release or another flag
/// must not look like an edit of every running job.
#[must_use]
pub fn digest(ctx: &BuildContext) -> String {
    template_digest(&json!([
        ctx.job.worker.as_ref().map(|role| &role.template),
        pod::restart_text(restart_policy(ctx)),
        ctx.job.ssh_path,
    ]))
}

fn restart_policy(ctx: &BuildContext) -> RestartPolicy {
    ctx.job
        .worker
        .as_ref()
        .map_or(RestartPolicy::Never, |role| role.restart_policy)
}

/// Whether the readiness probe of this pod or pod template was added by the operator.
#[must_use]
pub fn probe_is_ours(pod: &Value) -> bool {
    pod.get("metadata")
        .and_then(|meta| meta.get("annotations"))
        .and_then(|annotations| annotations.get(PROBE_ANNOTATION))
        .and_then(Value::as_str)
        == Some(PROBE_ADDED)
}

/// The template of worker pods. It sets no hostname, the Job controller does, and no replica-index:
/// one template cannot carry a label per pod.
fn template(ctx: &BuildContext) -> Value {
    let role = ctx.job.worker.as_ref();
    let mut template = role.map(pod::template_of).unwrap_or_default();
    let mut labels = role_labels(ctx, names::ROLE_WORKER);
    labels.insert(names::RUN_LABEL.to_owned(), json!(ctx.run));
    pod::set_labels(&mut template, labels);
    pod::set_common(ctx, &mut template, restart_policy(ctx));

    let mut probe_added = false;
    if let Some(spec) = pod::object_at(&mut template, "spec") {
        spec.shift_remove("hostname");
        add_search_domain(ctx, spec);
        if let Some(seconds) = ctx.settings.unreachable_toleration_seconds {
            add_unreachable_toleration(spec, seconds);
        }
        // PID 1 in the container is sshd only where the container has a process space of its own.
        let own_pid_1 =
            !pod::is_true(spec, "hostPID") && !pod::is_true(spec, "shareProcessNamespace");
        if let Some(container) = pod::main_container(spec) {
            set_default_command(container);
            pod::add_env(container, "K_MPI_JOB_ROLE", names::ROLE_WORKER);
            if sshd::is_sshd(container) {
                probe_added = add_probe(container);
                if own_pid_1 {
                    add_pre_stop(container);
                }
            }
        }
    }
    if probe_added {
        pod::set_annotation(&mut template, PROBE_ANNOTATION, PROBE_ADDED);
    } else {
        // A template copied from a running pod may bring the mark along.
        pod::remove_annotation(&mut template, PROBE_ANNOTATION);
    }
    Value::Object(template)
}

/// sshd, where neither command nor args say anything. With args alone the image's entry point runs.
fn set_default_command(container: &mut Object) {
    let says_nothing = |key: &str| match container.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::Array(words)) => words.is_empty(),
        Some(_) => false,
    };
    if says_nothing("command") && says_nothing("args") {
        container.insert("command".to_owned(), json!(DEFAULT_COMMAND));
    }
}

/// Lets a worker resolve the bare hostnames of its job.
fn add_search_domain(ctx: &BuildContext, spec: &mut Object) {
    let domain = match ctx.settings.cluster_domain.as_str() {
        "" => DEFAULT_CLUSTER_DOMAIN,
        domain => domain,
    };
    let search = json!(format!("{}.{}.svc.{domain}", ctx.name, ctx.namespace));
    if let Some(searches) =
        pod::object_at(spec, "dnsConfig").and_then(|config| pod::list_at(config, "searches"))
        && !searches.contains(&search)
    {
        searches.push(search);
    }
}

/// "Ready" is to mean that sshd answers; without a probe it means that a process exists.
fn add_probe(container: &mut Object) -> bool {
    if !is_unset(container, "readinessProbe") {
        return false;
    }
    let Some(port) = sshd::known_port(container) else {
        return false;
    };
    let probe = |seconds: u32, failures: u32| {
        json!({
            "tcpSocket": { "port": port },
            "periodSeconds": seconds,
            "timeoutSeconds": 1,
            "failureThreshold": failures,
        })
    };
    // The startup probe looks each second until sshd answers, and the kubelet then asks the readiness
    // probe at once. That nudge is lost now and then, so the readiness probe must come soon by itself;
    // more often than it has to would only fill sshd's log. A startup probe that gives up would kill
    // the container, and the port may be wrong.
    if is_unset(container, "startupProbe") {
        container.insert("startupProbe".to_owned(), probe(1, i32::MAX.unsigned_abs()));
    }
    container.insert("readinessProbe".to_owned(), probe(2, 3));
    true
}

/// sshd ends with 0 on SIGTERM, which the Job controller would book as a completed index; on SIGQUIT
/// it ends with 255.
fn add_pre_stop(container: &mut Object) {
    if let Some(lifecycle) = pod::object_at(container, "lifecycle")
        && is_unset(lifecycle, "preStop")
    {
        lifecycle.insert(
            "preStop".to_owned(),
            json!({ "exec": { "command": ["/bin/sh", "-c", "kill -QUIT 1"] } }),
        );
    }
}

/// Shortens the wait for a node that stopped to report, unless a toleration of the user covers it.
fn add_unreachable_toleration(spec: &mut Object, seconds: i64) {
    let Some(tolerations) = pod::list_at(spec, "tolerations") else {
        return;
    };
    if !tolerations.iter().any(tolerates_unreachable) {
        tolerations.push(json!({
            "key": UNREACHABLE_TAINT,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }));
    }
}

/// A toleration without a key matches every taint, one without an effect every effect.
fn tolerates_unreachable(toleration: &Value) -> bool {
    let text = |key: &str| {
        toleration
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    ["", UNREACHABLE_TAINT].contains(&text("key")) && ["", "NoExecute"].contains(&text("effect"))
}

fn is_unset(object: &Object, key: &str) -> bool {
    object.get(key).is_none_or(Value::is_null)
}
