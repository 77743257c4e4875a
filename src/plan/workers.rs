//! The worker Job: created, grown, shrunk by name, built again when it cannot serve. Pure.

use jiff::SignedDuration;
use serde_json::json;

use super::scale_in::{ScaleIn, Step};
use super::status::Report;
use super::{Pass, back_off, build, children, launcher};
use crate::action::{Action, ObjectKind, Plan};
use crate::api::names;
use crate::facts::observed::{JobFacts, Phase, PodFacts};

/// A worker Job that ended is not replaced before it is this old, so that workers that end at once
/// do not become a hot loop.
const LEAST_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Creates the worker Job or brings it in line. `files_told`: hostfile and discover_hosts.sh no
/// longer name those that leave, once the plan up to here is carried out.
pub fn ensure(pass: &Pass<'_>, files_told: bool, plan: &mut Plan, report: &mut Report) {
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
    match &pass.scale_in {
        // Their numbers move when one of them goes, so the Job controller chooses.
        ScaleIn::Nobody if pass.unindexed() && wanted(pass) < job.parallelism => {
            patch(job, json!({ "parallelism": wanted(pass) }), plan);
        }
        ScaleIn::Nobody => grow(pass, job, plan, report),
        ScaleIn::Asks(nodes) => ask(pass, nodes, plan),
        // Once it is on record, the next pass acts.
        ScaleIn::Decided(_) => {}
        ScaleIn::Waits(unready) => report.shrink_waits.clone_from(unready),
        ScaleIn::Leaves { victims, step } => match step {
            Step::Delete(pods) if files_told => remove(pass, victims, pods, plan),
            // The files are written a moment later, and then the workers leave.
            Step::Delete(_) => {}
            Step::Fill(until) => plan.look_at(*until),
            Step::Wait(unready) => report.shrink_waits.clone_from(unready),
            Step::Lower => patch(job, json!({ "parallelism": wanted(pass) }), plan),
            Step::Settle => {}
        },
    }
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

fn grow(pass: &Pass<'_>, job: &JobFacts, plan: &mut Plan, report: &mut Report) {
    let wanted = wanted(pass);
    if wanted <= job.parallelism {
        return;
    }
    if wanted <= job.completions {
        patch(job, json!({ "parallelism": wanted }), plan);
    } else if pass.try_is_present() {
        report.growth_waits = true;
    } else {
        plan.actions.push(super::delete_job(job));
    }
}

fn ask(pass: &Pass<'_>, nodes: &[String], plan: &mut Plan) {
    for name in nodes {
        plan.background
            .push(Action::LookAtNode { name: name.clone() });
    }
    // An answer that got lost is asked for again.
    plan.look_at(super::after(pass.now, SignedDuration::from_secs(5)));
}

fn remove(pass: &Pass<'_>, victims: &[u32], pods: &[u32], plan: &mut Plan) {
    launcher::give_up(pass, victims, plan);
    for pod in pods.iter().filter_map(|i| pass.workers.live.get(i)) {
        if pod.tracked {
            plan.actions.push(super::retire_pod(pod));
        }
        plan.actions.push(super::delete_pod(pod, false));
    }
}

fn wanted(pass: &Pass<'_>) -> i32 {
    i32::try_from(pass.job.workers).unwrap_or(i32::MAX)
}

fn patch(job: &JobFacts, spec: serde_json::Value, plan: &mut Plan) {
    plan.actions.push(Action::Patch {
        kind: ObjectKind::Job,
        name: job.name.clone(),
        body: children::job_patch(&job.uid, &job.resource_version, json!({}), spec),
    });
}
