//! Service, ConfigMap, Secret and PodGroup: created, and kept as they should be. Pure.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Pass, build, hostfile};
use crate::action::{Action, ObjectKind, POD_GROUP_KEY, Plan, refusal_key};
use crate::api::{names, reasons};
use crate::facts::observed::{ChildFacts, PREDECESSOR, Refusal};

use super::status::Report;

/// A ConfigMap is not written more often than this, however fast workers come and go.
const CONFIG_DISTANCE: SignedDuration = SignedDuration::from_secs(1);

/// How long a look at the Secret holds: a first start does not look twice, a retry hours later does.
const SECRET_FRESH: SignedDuration = SignedDuration::from_secs(60);

/// Service, ConfigMap and Secret. `hosts`: worker indexes in the hostfile, and those that
/// `discover_hosts.sh` prints; None leaves the ConfigMap's content as it is.
/// `releasing`: the launcher may be let go by this pass. Returns the digest of the ConfigMap's
/// content, if that is what `hosts` asks for once the plan up to here is carried out.
pub fn ensure(
    pass: &Pass<'_>,
    hosts: Option<&(Vec<u32>, Vec<u32>)>,
    releasing: bool,
    plan: &mut Plan,
    report: &mut Report,
) -> Option<String> {
    service(pass, plan, report);
    let content = config_map(pass, hosts, plan, report);
    let context = pass.context();
    let name = names::secret(context.name);
    // Looked at before pods are made or let go, not for a job that runs: after a restart of the
    // operator that would be a call for each job.
    let needed = pass
        .launcher_job()
        .is_none_or(|job| job.held() && releasing)
        || (pass.job.workers > 0 && pass.worker_job().is_none());
    let fresh = pass
        .observed
        .secret_seen
        .is_some_and(|at| pass.now.duration_since(at) < SECRET_FRESH);
    if needed && !fresh && may_create(pass, &name, plan, report) {
        // Where a Service is there already, an earlier process got this far or further.
        let look_first = pass.observed.service.is_some();
        let shell = Box::new(build::secret::shell(&context));
        plan.actions.push(Action::CreateSecret {
            name,
            shell,
            look_first,
        });
    }
    content
}

fn service(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    let context = pass.context();
    let name = names::service(context.name);
    if let Some(service) = own(pass, pass.observed.service.as_deref()) {
        let wrong_run = service.run.as_deref() != Some(pass.run.as_str());
        if wrong_run || edited(pass, service) {
            let mut body = build::service::patch(&context);
            body["metadata"]["uid"] = json!(service.uid);
            plan.actions.push(Action::Patch {
                kind: ObjectKind::Service,
                name,
                body: Box::new(body),
            });
        }
    } else if may_create(pass, &name, plan, report) {
        let body = Box::new(build::service::service(&context));
        plan.actions.push(Action::Create {
            kind: ObjectKind::Service,
            name,
            body,
        });
    }
}

fn config_map(
    pass: &Pass<'_>,
    hosts: Option<&(Vec<u32>, Vec<u32>)>,
    plan: &mut Plan,
    report: &mut Report,
) -> Option<String> {
    let context = pass.context();
    let name = names::config_map(context.name);
    let present = own(pass, pass.observed.config_map.as_deref());
    let (hosts, live) = hosts?;
    let files = hostfile::files(&context, hosts, live, pass.addresses.as_ref());
    let content = build::config_map::digest(&files.0, &files.1);
    let body = build::config_map::config_map(&context, &files.0, &files.1);
    let Some(config) = present else {
        if !may_create(pass, &name, plan, report) {
            return None;
        }
        plan.actions.push(Action::Create {
            kind: ObjectKind::ConfigMap,
            name,
            body: Box::new(body),
        });
        return Some(content);
    };
    let edited = edited(pass, config);
    if !edited && config.content.as_ref() == Some(&content) {
        return Some(content);
    }
    if let Some(due) = pass
        .observed
        .memory
        .config_written
        .and_then(|at| at.checked_add(CONFIG_DISTANCE).ok())
        && due > pass.now
        && pass.launcher_job().is_some_and(|job| !job.held())
    {
        plan.look_at(due);
        return None;
    }
    if edited {
        plan.actions.push(Action::ReplaceConfigMap {
            name,
            uid: config.uid.clone(),
            data: Box::new(body["data"].clone()),
            content: content.clone(),
        });
    } else {
        let patch = json!({
            "metadata": {
                "uid": config.uid,
                "annotations": { names::CONTENT_ANNOTATION: content },
            },
            "data": body["data"],
        });
        plan.actions.push(Action::Patch {
            kind: ObjectKind::ConfigMap,
            name,
            body: Box::new(patch),
        });
    }
    Some(content)
}

/// The child if it is there and ours. For a foreign one a create is tried: its refusal is what
/// tells the user, and it touches nothing.
fn own<'a>(pass: &Pass<'_>, child: Option<&'a ChildFacts>) -> Option<&'a ChildFacts> {
    child.filter(|child| {
        !child.deleting && child.owner.as_deref() == Some(pass.observed.job.uid.as_str())
    })
}

/// Somebody else wrote the content, and that version was not answered yet.
fn edited(pass: &Pass<'_>, child: &ChildFacts) -> bool {
    child.edited
        && pass
            .observed
            .memory
            .answered
            .get(&child.uid)
            .is_none_or(|v| *v < child.version)
}

/// Whether object `name` may be created now: not if the server refused it a moment ago, or refused
/// its content and nothing changed since.
pub fn may_create(pass: &Pass<'_>, name: &str, plan: &mut Plan, report: &mut Report) -> bool {
    let Some(refusal) = pass.observed.memory.refused.get(name) else {
        return true;
    };
    let due = retry_at(pass, refusal);
    report.refused.push((name.to_owned(), refusal.clone()));
    if due > pass.now {
        plan.look_at(due);
    }
    due <= pass.now
}

fn retry_at(pass: &Pass<'_>, refusal: &Refusal) -> jiff::Timestamp {
    if refusal.generation != pass.observed.job.generation {
        return pass.now;
    }
    let distance = if refusal.code == PREDECESSOR {
        SignedDuration::from_secs(1)
    } else {
        super::back_off(5, refusal.count.saturating_sub(1), 300)
    };
    super::after(refusal.at, distance)
}

/// Creates or updates the PodGroup when its content differs from what this process wrote last.
/// `launcher_counts`: the launcher is part of the gang now.
pub fn pod_group(pass: &Pass<'_>, launcher_counts: bool, plan: &mut Plan, report: &mut Report) {
    if pass.options.settings.gang.is_none() {
        return;
    }
    let Some((launcher, worker)) = pass.observed.memory.priorities else {
        let class = |role: Option<&crate::api::validate::Role>| {
            role.and_then(|role| role.template["spec"]["priorityClassName"].as_str())
                .filter(|class| !class.is_empty())
                .map(str::to_owned)
        };
        let (launcher, worker) = (
            class(Some(&pass.job.launcher)),
            class(pass.job.worker.as_ref()),
        );
        if launcher.is_none() && worker.is_none() {
            return write_pod_group(pass, launcher_counts, (0, 0), plan, report);
        }
        plan.actions
            .push(Action::ReadPriorities { launcher, worker });
        return;
    };
    write_pod_group(pass, launcher_counts, (launcher, worker), plan, report);
}

fn write_pod_group(
    pass: &Pass<'_>,
    launcher_counts: bool,
    priorities: (i32, i32),
    plan: &mut Plan,
    report: &mut Report,
) {
    let context = pass.context();
    let params = build::pod_group::PodGroupParams {
        launcher_counts,
        launcher_priority: priorities.0,
        worker_priority: priorities.1,
        queue_annotation: pass
            .observed
            .job
            .annotations
            .get("scheduling.volcano.sh/queue-name")
            .map(String::as_str),
    };
    let Some(body) = build::pod_group::pod_group(&context, &params) else {
        return;
    };
    let digest = build::template_digest(&body);
    let key = refusal_key(ObjectKind::PodGroup, context.name);
    if pass.observed.memory.pod_group.as_deref() != Some(digest.as_str())
        && may_create(pass, &key, plan, report)
    {
        plan.pod_group = Some(digest);
        plan.actions.push(Action::Create {
            kind: ObjectKind::PodGroup,
            name: context.name.to_owned(),
            body: Box::new(body),
        });
    }
}

/// Removes the PodGroup.
pub fn remove_pod_group(pass: &Pass<'_>, plan: &mut Plan) {
    // An empty digest means removed: it is deleted once a run and process, not at each pass.
    if pass.observed.memory.pod_group.as_deref() == Some("") {
        return;
    }
    let Some(api_version) = pass
        .options
        .settings
        .gang
        .as_ref()
        .map(build::pod_group::api_version)
    else {
        return;
    };
    plan.pod_group = Some(String::new());
    plan.actions.push(Action::DeletePodGroup {
        api_version: api_version.to_owned(),
        name: pass.observed.job.name.clone(),
    });
}

/// What the condition and event say of a refused object.
#[must_use]
pub fn refusal_text(pass: &Pass<'_>, name: &str, refusal: &Refusal) -> (&'static str, String) {
    if matches!(refusal.code, 409 | PREDECESSOR) {
        return (
            reasons::RESOURCE_EXISTS,
            format!(
                "Resource \"{}\" of Kind \"{}\" already exists and is not managed by MPIJob",
                bare(name),
                kind_of(pass, name)
            ),
        );
    }
    let job = &pass.observed.job.name;
    if !is_job(job, name) {
        let message = format!(
            "creating {} {} failed: {}",
            kind_of(pass, name),
            bare(name),
            refusal.message
        );
        return (reasons::ADMISSION_REFUSED, message);
    }
    let what = if *name == names::launcher_job(job) {
        "launcher pod created failed".to_owned()
    } else {
        "worker pod created failed".to_owned()
    };
    (reasons::FAILED, format!("{what}: {}", refusal.message))
}

/// Whether `name` is that of one of the two Jobs of MPIJob `job`.
#[must_use]
pub fn is_job(job: &str, name: &str) -> bool {
    *name == names::launcher_job(job) || *name == names::worker_job(job)
}

/// The object's name in a [`refusal_key`].
fn bare(key: &str) -> &str {
    key.strip_prefix(POD_GROUP_KEY).unwrap_or(key)
}

fn kind_of(pass: &Pass<'_>, name: &str) -> &'static str {
    let job = &pass.observed.job.name;
    if *name == names::config_map(job) {
        "ConfigMap"
    } else if *name == names::secret(job) {
        "Secret"
    } else if is_job(job, name) {
        "Job"
    } else if name.starts_with(POD_GROUP_KEY) {
        "PodGroup"
    } else {
        "Service"
    }
}

/// A merge patch of `spec` and annotations of a Job, bound to what it was decided on.
#[must_use]
pub fn job_patch(uid: &str, version: &str, annotations: Value, spec: Value) -> Box<Value> {
    let mut metadata = json!({ "uid": uid, "resourceVersion": version });
    if annotations.as_object().is_some_and(|map| !map.is_empty()) {
        metadata["annotations"] = annotations;
    }
    Box::new(json!({ "metadata": metadata, "spec": spec }))
}
