//! The end: verdict, clean-up, time to live. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::gate::describe;
use super::status::{Report, Verdict};
use super::{Pass, children, launcher, retire, stuck};
use crate::action::{Action, ObjectKind, Plan};
use crate::api::validate::{CleanPodPolicy, MAX_MESSAGE, cut_bytes};
use crate::api::{names, reasons};
use crate::facts::observed::Phase;

/// Whether the launcher Job has ended; puts the verdict into the report.
pub fn verdict(pass: &Pass<'_>, report: &mut Report) -> bool {
    let Some(job) = pass.observed.launcher_job.as_deref() else {
        return false;
    };
    if job.complete {
        report.verdict = Some(Verdict::Succeeded {
            at: job.completion_time.unwrap_or(pass.now),
        });
        return true;
    }
    let Some((reason, message)) = &job.failure else {
        return false;
    };
    if launcher::failure_is_refundable(pass, job, reason) {
        return false;
    }
    let mut reason = if reason.is_empty() {
        reasons::FAILED.to_owned()
    } else {
        reason.clone()
    };
    let mut message = if message.is_empty() {
        format!(
            "MPIJob {}/{} has failed",
            pass.observed.job.namespace, pass.observed.job.name
        )
    } else {
        message.clone()
    };
    let last = pass.tries().filter(|pod| pod.phase == Phase::Failed).last();
    if reason == reasons::BACKOFF_LIMIT_EXCEEDED
        && let Some(pod) = last
    {
        // The peer leaves an empty tail where the pod itself has no reason.
        if let Some(tail) = pod.reason.as_deref().filter(|tail| !tail.is_empty()) {
            reason = format!("{reason}/{tail}");
        }
        let own = pod.message.clone().filter(|text| !text.is_empty());
        let text = own.or_else(|| {
            let trouble = pod.trouble.as_ref()?;
            Some(format!("launcher pod {}: {}", pod.name, describe(trouble)))
        });
        if let Some(text) = text {
            message = format!("{message}: {text}");
        }
    }
    report.verdict = Some(Verdict::Failed {
        reason,
        message: cut_bytes(message, MAX_MESSAGE),
    });
    true
}

/// Clean-up of a job that has ended.
pub fn finished(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    report.finished = true;
    let policy = pass.job.clean_pod_policy;
    // The record of the end comes first: a clean-up that were seen without it would look like a
    // job that lost its workers.
    let recorded = report.verdict.is_none();
    if recorded {
        clean_up(pass, policy, plan);
    } else if policy != CleanPodPolicy::None || pass.job.ttl_seconds.is_some() {
        plan.look_at(pass.now);
    }
    retire::left_over(pass.observed, plan);
    stuck::watch(pass, plan, report);
}

fn clean_up(pass: &Pass<'_>, policy: CleanPodPolicy, plan: &mut Plan) {
    if let Some(job) = pass
        .observed
        .worker_job
        .as_deref()
        .filter(|job| !job.deleting)
    {
        match policy {
            CleanPodPolicy::None => {}
            CleanPodPolicy::All => {
                plan.actions.push(super::delete_job(job));
            }
            CleanPodPolicy::Running if job.parallelism != 0 => {
                plan.actions.push(Action::Patch {
                    kind: ObjectKind::Job,
                    name: job.name.clone(),
                    body: children::job_patch(
                        &job.uid,
                        &job.resource_version,
                        json!({}),
                        json!({ "parallelism": 0 }),
                    ),
                });
            }
            CleanPodPolicy::Running => {}
        }
    }
    for pod in pass
        .observed
        .plain_workers
        .iter()
        .filter(|pod| pod.deleted.is_none())
    {
        let goes = match policy {
            CleanPodPolicy::None => false,
            CleanPodPolicy::All => true,
            CleanPodPolicy::Running => pod.active(),
        };
        if goes {
            plan.actions.push(super::delete_pod(pod, false));
        }
    }
    if policy != CleanPodPolicy::None {
        children::remove_pod_group(pass, plan);
    }
    if policy == CleanPodPolicy::All && asks(pass, names::CLEAN_LAUNCHER_ANNOTATION) {
        let pods = pass.observed.launchers.iter();
        // Off the books first: a Job that has ended keeps no finalizer, but one that waits for its
        // last pod would.
        for pod in pods.filter(|pod| pod.terminal() && pod.deleted.is_none() && !pod.tracked) {
            plan.actions.push(super::delete_pod(pod, false));
        }
    }
    let Some(ttl) = pass.job.ttl_seconds else {
        return;
    };
    if let Some(job) = pass
        .launcher_job()
        .filter(|job| job.ttl_seconds != Some(ttl))
    {
        // Only now: a launcher Job that is collected before its end is on record would run again.
        plan.actions.push(Action::Patch {
            kind: ObjectKind::Job,
            name: job.name.clone(),
            body: children::job_patch(
                &job.uid,
                &job.resource_version,
                json!({}),
                json!({ "ttlSecondsAfterFinished": ttl }),
            ),
        });
    }
    if pass.options.delete_finished_jobs || asks(pass, names::DELETE_AFTER_TTL_ANNOTATION) {
        delete_when_due(pass, ttl, plan);
    }
}

/// Whether the MPIJob asks for something by an annotation of its own.
fn asks(pass: &Pass<'_>, annotation: &str) -> bool {
    let value = pass.observed.job.annotations.get(annotation);
    value.is_some_and(|text| text == "true")
}

fn delete_when_due(pass: &Pass<'_>, ttl: i32, plan: &mut Plan) {
    let completed: Option<Timestamp> = pass
        .observed
        .job
        .status
        .completion_time
        .as_deref()
        .and_then(|text| text.parse().ok());
    // `observedGeneration` is written by this operator alone: an end that the Go operator
    // recorded before the opt-in existed is not ours to delete.
    if pass.observed.job.status.observed_generation.is_none() {
        return;
    }
    let Some(due) = completed.and_then(|at| {
        at.checked_add(SignedDuration::from_secs(i64::from(ttl)))
            .ok()
    }) else {
        return;
    };
    if due <= pass.now {
        plan.actions.push(Action::DeleteMpiJob {
            uid: pass.observed.job.uid.clone(),
        });
    } else {
        plan.look_at(due);
    }
}
