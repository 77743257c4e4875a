//! Which worker pods are taken off the Job controller's books. Pure.
//!
//! A worker without the tracking finalizer may go in any way: nothing is counted, no index is
//! burned, and the same index is created again about a second later.

use jiff::SignedDuration;
use serde_json::json;

use super::Pass;
use super::gate::Gate;
use crate::action::{Action, ObjectKind, Plan};
use crate::api::names;
use crate::facts::observed::{Observed, PodFacts};

/// Ends of one index within an hour after which its pods stay on the books, so that the Job
/// controller's back-off slows it down.
pub const MOST_ENDS: usize = 3;

/// A Ready worker is retired after this long even though the launcher is held: the gate may wait
/// for days. Before it, no write is spent between submission and launcher start.
const HELD_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Plans the retirements of a running job, in the background.
pub fn retire(pass: &Pass<'_>, gate: &Gate, plan: &mut Plan) {
    let Some(job) = pass.worker_job() else { return };
    let was_released = pass
        .launcher_job()
        .is_some_and(|job| !job.held() || job.annotations.contains_key(names::RELEASED_ANNOTATION));
    let released = was_released || plan.released.is_some();
    for pod in pass
        .observed
        .workers
        .iter()
        .filter(|pod| pod.owner == job.uid)
    {
        if pass.job.launcher_as_worker && pod.deleted.is_some() && pod.run.is_some() {
            leave_dns(pod, plan);
        }
        if !pod.tracked {
            continue;
        }
        if pod.deleted.is_some() {
            plan.background.push(super::retire_pod(pod));
            continue;
        }
        let loops = pod.index.is_some_and(|index| {
            pass.observed
                .memory
                .ends
                .get(&index)
                .is_some_and(|ends| ends.len() >= MOST_ENDS)
        });
        if !pod.ready || pod.terminal() || loops {
            continue;
        }
        if released {
            plan.background.push(super::retire_pod(pod));
        } else if matches!(gate, Gate::Held(_)) {
            let due = pod
                .ready_changed
                .and_then(|at| at.checked_add(HELD_PATIENCE).ok())
                .unwrap_or(pass.now);
            if due <= pass.now {
                plan.background.push(super::retire_pod(pod));
            } else {
                plan.look_at(due);
            }
        }
    }
}

/// Worker pods that are deleted one by one although their Job is not, in a job that no longer runs:
/// with `backoffLimitPerIndex` the Job controller keeps the finalizer of a failed pod until it has
/// created its successor, which in a namespace that is being deleted it never can.
pub fn left_over(observed: &Observed, plan: &mut Plan) {
    let Some(job) = observed.worker_job.as_deref().filter(|job| !job.deleting) else {
        return;
    };
    let pods = observed.workers.iter().filter(|pod| pod.owner == job.uid);
    plan.background.extend(
        pods.filter(|pod| pod.tracked && pod.deleted.is_some() && pod.terminal())
            .map(|pod| super::retire_pod(pod)),
    );
}

/// With `publishNotReadyAddresses` a pod that does not finish terminating would stay in DNS beside
/// its replacement; without the run label the Service no longer selects it.
fn leave_dns(pod: &PodFacts, plan: &mut Plan) {
    plan.background.push(Action::Patch {
        kind: ObjectKind::Pod,
        name: pod.name.clone(),
        body: Box::new(json!({
            "metadata": { "uid": pod.uid, "labels": { names::RUN_LABEL: null } },
        })),
    });
}
