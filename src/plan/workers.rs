//! The worker Job: created, grown, shrunk by name, built again when it cannot serve. Pure.

use jiff::SignedDuration;
use serde_json::json;

use super::status::Report;
use super::{Pass, back_off, build, children};
use crate::action::{Action, ObjectKind, Plan};
use crate::api::names;
use crate::facts::observed::{JobFacts, Phase, PodFacts};

/// A worker Job that ended is not replaced before it is this old, so that workers that end at once
/// do not become a hot loop.
const LEAST_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Creates the worker Job or brings it in line.
pub fn ensure(pass: &Pass<'_>, victims: &[u32], plan: &mut Plan, report: &mut Report) {
    let Some(job) = pass.observed.worker_job.as_deref() else {
        if pass.job.workers > 0 {
            create(pass, plan, report);
        }
        return;
    };
    if job.deleting {
        return;
    }
    if pass.job.workers == 0 {
        plan.actions.push(super::delete_job(job));
        return;
    }
    if job.complete || job.failure.is_some() {
        // Workers never end the job; only the launcher does.
        let due = job
            .created
            .and_then(|created| created.checked_add(LEAST_AGE).ok())
            .unwrap_or(pass.now);
        if due <= pass.now {
            plan.actions.push(super::delete_job(job));
        } else {
            plan.look_at(due);
        }
        return;
    }
    if job.suspend {
        unsuspend(pass, job, plan);
        return;
    }
    let digest = build::worker_job::digest(&pass.context());
    if job.annotations.get(names::CONTENT_ANNOTATION) != Some(&digest) {
        report.template_ignored.push("worker");
    }
    make_room(pass, job, plan);
    scale(pass, job, victims, plan, report);
}

/// Without indexes a worker that ended with 0 counts as one completion for as long as its pod is
/// there. Once no headroom is left, those pods go, so that others come in their place.
fn make_room(pass: &Pass<'_>, job: &JobFacts, plan: &mut Plan) {
    let room = job.completions.saturating_sub(job.parallelism);
    let done: Vec<&PodFacts> = pass
        .observed
        .workers
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| pod.owner == job.uid && pod.phase == Phase::Succeeded)
        .collect();
    if job.indexed || i64::from(room) >= done.len() as i64 {
        return;
    }
    for pod in done.into_iter().filter(|pod| pod.deleted.is_none()) {
        plan.background.push(super::delete_pod(pod, false));
    }
}

fn create(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    if pass.left_over(&pass.observed.workers, report).is_some() {
        return;
    }
    let name = names::worker_job(&pass.observed.job.name);
    if children::may_create(pass, &name, plan, report) {
        let body = build::worker_job::worker_job(&pass.context(), pass.job.workers);
        plan.actions.push(Action::Create {
            kind: ObjectKind::Job,
            name,
            body: Box::new(body),
        });
    }
}

/// Somebody (Kueue) suspended the worker Job of a job that runs: set back once, then with growing
/// distance.
fn unsuspend(pass: &Pass<'_>, job: &JobFacts, plan: &mut Plan) {
    if let Some((at, count)) = pass.observed.memory.unsuspended {
        let due = super::after(at, back_off(10, count.saturating_sub(1), 600));
        if due > pass.now {
            plan.look_at(due);
            return;
        }
    }
    patch(job, json!({ "suspend": false }), plan);
}

fn scale(pass: &Pass<'_>, job: &JobFacts, victims: &[u32], plan: &mut Plan, report: &mut Report) {
    let wanted = i32::try_from(pass.job.workers).unwrap_or(i32::MAX);
    if wanted == job.parallelism {
        return;
    }
    if wanted > job.parallelism {
        if wanted <= job.completions {
            patch(job, json!({ "parallelism": wanted }), plan);
        } else if pass.try_is_present() {
            report.growth_waits = true;
        } else {
            plan.actions.push(super::delete_job(job));
        }
        return;
    }
    // While a worker that stays is not Ready, the Job controller might remove that one instead.
    let unready: Vec<u32> = pass
        .workers
        .live
        .iter()
        .filter(|(index, pod)| !pod.ready && !victims.contains(index))
        .map(|(index, _)| *index)
        .collect();
    if !unready.is_empty() && !victims.is_empty() {
        report.shrink_waits = unready;
        return;
    }
    for index in victims {
        let Some(pod) = pass.workers.live.get(index) else {
            continue;
        };
        if pod.tracked {
            plan.actions.push(super::retire_pod(pod));
        }
        plan.actions.push(super::delete_pod(pod, false));
    }
    patch(job, json!({ "parallelism": wanted }), plan);
}

fn patch(job: &JobFacts, spec: serde_json::Value, plan: &mut Plan) {
    plan.actions.push(Action::Patch {
        kind: ObjectKind::Job,
        name: job.name.clone(),
        body: children::job_patch(&job.uid, &job.resource_version, json!({}), spec),
    });
}

/// The workers that leave when fewer are wanted than live: first those of `removeFirst`, then by
/// lower `pod-deletion-cost`, then those that are not Ready, then the highest index. Empty while
/// nothing has to shrink.
#[must_use]
pub fn victims(pass: &Pass<'_>) -> Vec<u32> {
    let Some(job) = pass.worker_job() else {
        return Vec::new();
    };
    let wanted = pass.job.workers as usize;
    let live = &pass.workers.live;
    if job.parallelism <= i32::try_from(wanted).unwrap_or(i32::MAX) || live.len() <= wanted {
        return Vec::new();
    }
    let name = &pass.observed.job.name;
    let mut order: Vec<u32> = live.keys().copied().collect();
    order.sort_by_key(|index| {
        let pod = live.get(index);
        let hostname = names::worker_hostname(name, *index);
        let named = !pass.unindexed() && pass.job.remove_first.contains(&hostname);
        let cost = pod.map_or(0, |pod| pod.deletion_cost);
        let ready = pod.is_some_and(|pod| pod.ready);
        (!named, cost, ready, std::cmp::Reverse(*index))
    });
    order.truncate(live.len() - wanted);
    order.sort_unstable();
    order
}
