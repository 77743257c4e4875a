//! The `replica-index` label of worker pods, for Kueue's topology-aware scheduling. Pure.
//!
//! One template cannot carry an index per pod, so each pod is labelled once: a write a worker, spent
//! only where the template asks for a topology. Kueue holds such pods back with a scheduling gate
//! until it has placed them, so the label is there in time. Without it Kueue places them too, but
//! not in the order of ranks.

use serde_json::json;

use super::Pass;
use crate::action::{Action, ObjectKind, Plan};
use crate::api::names;

/// Annotations of a pod template by which Kueue's users ask for a topology.
const ASKS: [&str; 3] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
];

/// Labels worker pods that have no index yet, in the background.
pub fn label(pass: &Pass<'_>, plan: &mut Plan) {
    let asked = pass.job.worker.as_ref().is_some_and(|role| {
        let annotations = &role.template["metadata"]["annotations"];
        ASKS.iter().any(|key| annotations[*key].is_string())
    });
    // Numbers by age would move from pod to pod.
    if !asked || pass.unindexed() {
        return;
    }
    // The launcher is 0 where it is a worker too.
    let shift = u32::from(pass.job.launcher_as_worker);
    for (index, pod) in pass.workers.live.iter().filter(|(_, pod)| !pod.ranked) {
        let rank = (index + shift).to_string();
        plan.background.push(Action::Patch {
            kind: ObjectKind::Pod,
            name: pod.name.clone(),
            body: Box::new(json!({
                "metadata": { "uid": pod.uid, "labels": { names::REPLICA_INDEX_LABEL: rank } },
            })),
        });
    }
}
