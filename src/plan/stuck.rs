//! Pods that do not finish terminating, and nodes that are gone. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Pass;
use super::status::Report;
use crate::action::{Action, Plan};
use crate::facts::observed::{NodeFacts, PodFacts};

/// After its grace period a pod on a healthy node is gone within moments; from this on its node is
/// asked for.
const ASK_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// A pod on a NotReady node is a husk this long after its grace period; any pod is reported.
const HUSK_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Distance between two looks at one node.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Whether `pod` no longer counts as active: it ended, or its node will not let it end.
#[must_use]
pub fn husk(pod: &PodFacts, nodes: &BTreeMap<String, NodeFacts>, now: Timestamp) -> bool {
    if pod.terminal() {
        return true;
    }
    let Some(due) = pod.deletion_due else {
        return false;
    };
    let Some(node) = pod.node.as_ref().and_then(|name| nodes.get(name)) else {
        return false;
    };
    node.gone || node.out_of_service || (!node.ready && now.duration_since(due) >= HUSK_AFTER)
}

/// Asks for nodes, reports what does not go away, and removes launcher husks, the one kind of pod
/// that would block a Job controller.
pub fn watch(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    let pods = pass.observed.workers.iter().chain(&pass.observed.launchers);
    let mut asked: Vec<&str> = Vec::new();
    for pod in pods {
        let Some(due) = pod.deletion_due else {
            continue;
        };
        let late = pass.now.duration_since(due);
        if late < ASK_AFTER {
            if pod.active() {
                plan.look_at(super::after(due, ASK_AFTER));
            }
            continue;
        }
        let node = pod
            .node
            .as_ref()
            .and_then(|name| pass.observed.nodes.get(name));
        if let Some(name) = pod.node.as_deref().filter(|_| pod.active()) {
            let fresh = node.is_some_and(|node| pass.now.duration_since(node.asked) < ASK_AGAIN);
            if !fresh && !asked.contains(&name) {
                asked.push(name);
                plan.background.push(Action::LookAtNode {
                    name: name.to_owned(),
                });
            }
            plan.look_at(super::after(pass.now, ASK_AGAIN));
        }
        if late >= HUSK_AFTER || node.is_some_and(|node| node.gone || node.out_of_service) {
            report.stuck.push(describe(pod, node));
        } else {
            plan.look_at(super::after(due, HUSK_AFTER));
        }
        let lost = node.is_some_and(|node| {
            node.gone
                || node.out_of_service
                || (pass.options.force_delete_unreachable && !node.ready && late >= HUSK_AFTER)
        });
        if pod.launcher && pod.active() && lost {
            if pod.tracked {
                plan.background.push(super::retire_pod(pod));
            }
            // What somebody else's finalizer holds would stay however often it is deleted.
            if pod.finalizers.is_empty() {
                plan.background.push(super::delete_pod(pod, true));
            }
        }
    }
}

fn describe(pod: &PodFacts, node: Option<&NodeFacts>) -> String {
    let on = pod.node.as_deref().map_or_else(String::new, |name| {
        let state = match node {
            Some(node) if node.gone => ", which is gone",
            Some(node) if node.out_of_service => ", which is out of service",
            Some(node) if !node.ready => ", which is not Ready",
            _ => "",
        };
        format!(" on node {name}{state}")
    });
    let since = pod
        .deleted
        .map_or_else(String::new, |at| format!(" since {at:.0}"));
    let held = if pod.finalizers.is_empty() {
        String::new()
    } else {
        format!(", held by finalizers {}", pod.finalizers.join(", "))
    };
    format!("pod {}{on} is Terminating{since}{held}", pod.name)
}
