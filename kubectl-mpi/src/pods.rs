//! Pods of an MPIJob by role and index: which one a user means, where it stands, and why. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};

use crate::mpijob::MpiJob;
use crate::table;

/// Label of the pods: name of the MPIJob.
pub const JOB_NAME: &str = "training.kubeflow.org/job-name";
/// Label of the pods: `launcher` or `worker`.
pub const JOB_ROLE: &str = "training.kubeflow.org/job-role";
/// Label of the pods: which operator. Other operators of Kubeflow use the other two as well.
pub const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
/// Annotation, and on newer clusters label, of worker pods: the index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Selector of everything that belongs to MPIJob `job`.
#[must_use]
pub fn selector(job: &str) -> String {
    format!("{OPERATOR_NAME}=mpi-operator,{JOB_NAME}={job}")
}

/// The pods of one MPIJob.
#[derive(Debug, Clone, Default)]
pub struct Pods<'a> {
    /// Pods of each worker: the one that counts first.
    pub workers: BTreeMap<u32, Vec<&'a Pod>>,
    /// Launcher pods, one a try, the newest first.
    pub launchers: Vec<&'a Pod>,
}

impl<'a> Pods<'a> {
    /// Sorts the pods that the selector found. Pods that are older than the MPIJob are of an
    /// earlier one of the same name, and on their way out.
    #[must_use]
    pub fn of(job: &MpiJob, pods: &'a [Pod]) -> Self {
        let mut sorted = Self::default();
        for pod in pods {
            let earlier = matches!(
                (created(pod), job.created()),
                (Some(pod), Some(job)) if pod < job
            );
            match label(pod, JOB_ROLE) {
                _ if earlier => {}
                Some("launcher") => sorted.launchers.push(pod),
                Some("worker") => {
                    if let Some(index) = index(job.name(), pod) {
                        sorted.workers.entry(index).or_default().push(pod);
                    }
                }
                _ => {}
            }
        }
        sorted
            .launchers
            .sort_by_key(|pod| std::cmp::Reverse((created(pod), name(pod))));
        for pods in sorted.workers.values_mut() {
            // One pod an index counts: a live one, a Ready one of several; else the newest.
            pods.sort_by_key(|pod| {
                std::cmp::Reverse((live(pod), ready(pod), !terminal(pod), created(pod)))
            });
        }
        sorted
    }

    /// The live pod of each worker that has one.
    #[must_use]
    pub fn live(&self) -> BTreeMap<u32, &'a Pod> {
        let first = |(index, pods): (&u32, &Vec<&'a Pod>)| {
            let pod = pods.first().copied().filter(|pod| live(pod))?;
            Some((*index, pod))
        };
        self.workers.iter().filter_map(first).collect()
    }

    /// Workers that are wanted and have no live pod. The Job controller fills the lowest free
    /// indexes, so these are the ones that come next.
    #[must_use]
    pub fn missing(&self, wanted: u32) -> Vec<u32> {
        let live = self.live();
        let count = (wanted as usize).saturating_sub(live.len());
        (0..)
            .filter(|index| !live.contains_key(index))
            .take(count)
            .collect()
    }
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// The index of a worker pod. Plain pods of the Go operator have it in their name alone.
fn index(job: &str, pod: &Pod) -> Option<u32> {
    let annotation = pod.metadata.annotations.as_ref().and_then(|a| a.get(INDEX));
    let told = annotation.map(String::as_str).or_else(|| label(pod, INDEX));
    let text = told.or_else(|| {
        let rest = name(pod).strip_prefix(job)?.strip_prefix("-worker-")?;
        rest.split('-').next()
    });
    text?.parse().ok()
}

/// Name of a pod.
#[must_use]
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// UID of a pod.
#[must_use]
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// When it was created.
#[must_use]
pub fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Its node, if it has one.
#[must_use]
pub fn node(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn status(pod: &Pod) -> Option<&PodStatus> {
    pod.status.as_ref()
}

fn phase(pod: &Pod) -> &str {
    status(pod)
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let all = status(pod)?.conditions.as_ref()?;
    all.iter().find(|condition| condition.type_ == type_)
}

/// It has ended.
#[must_use]
pub fn terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// It has not ended and nobody asked for its deletion.
#[must_use]
pub fn live(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !terminal(pod)
}

/// It runs.
#[must_use]
pub fn running(pod: &Pod) -> bool {
    phase(pod) == "Running"
}

/// It is live and its condition Ready is True.
#[must_use]
pub fn ready(pod: &Pod) -> bool {
    live(pod) && condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// Where a pod stands, in one word.
#[must_use]
pub fn state(pod: &Pod) -> &str {
    match phase(pod) {
        ended @ ("Succeeded" | "Failed") => ended,
        _ if pod.metadata.deletion_timestamp.is_some() => "Terminating",
        _ if ready(pod) => "Ready",
        "" => "Unknown",
        other => other,
    }
}

/// Why a pod is not Ready, or how it ended; empty if there is nothing to say.
#[must_use]
pub fn why(pod: &Pod, now: Timestamp) -> String {
    let text = if terminal(pod) {
        end(pod)
    } else if pod.metadata.deletion_timestamp.is_some() {
        terminating(pod, now)
    } else if ready(pod) {
        String::new()
    } else {
        trouble(pod)
    };
    table::one_line(&text)
}

fn sentence(reason: Option<&str>, message: Option<&str>) -> String {
    let parts = [reason, message].into_iter().flatten();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    status(pod)
        .into_iter()
        .flat_map(|s| {
            s.init_container_statuses
                .iter()
                .chain(&s.container_statuses)
        })
        .flatten()
}

fn end(pod: &Pod) -> String {
    let Some(status) = status(pod) else {
        return String::new();
    };
    let mut parts = Vec::new();
    // Evicted, NodeLost and the like.
    if status.reason.is_some() || status.message.is_some() {
        parts.push(sentence(
            status.reason.as_deref(),
            status.message.as_deref(),
        ));
    } else if let Some(target) = condition(pod, "DisruptionTarget").filter(|c| c.status == "True") {
        parts.push(sentence(
            target.reason.as_deref(),
            target.message.as_deref(),
        ));
    }
    for container in containers(pod) {
        let Some(end) = container.state.as_ref().and_then(|s| s.terminated.as_ref()) else {
            continue;
        };
        if end.exit_code != 0 {
            let reason = end.reason.as_deref().filter(|reason| *reason != "Error");
            let reason = reason.map(|r| format!(", {r}")).unwrap_or_default();
            parts.push(format!(
                "exit code {}, container {}{reason}",
                end.exit_code, container.name
            ));
        }
    }
    parts.join("; ")
}

fn terminating(pod: &Pod, now: Timestamp) -> String {
    // The timestamp is the end of the grace period.
    let Some(due) = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0) else {
        return String::new();
    };
    if now.duration_since(due) < SignedDuration::from_secs(5) {
        return String::new();
    }
    let mut text = format!("should be gone since {}", table::age(Some(due), now));
    let finalizers = pod.metadata.finalizers.iter().flatten();
    let finalizers: Vec<&str> = finalizers.map(String::as_str).collect();
    if !finalizers.is_empty() {
        text = format!("{text}; finalizers {}", finalizers.join(", "));
    }
    text
}

fn trouble(pod: &Pod) -> String {
    if let Some(scheduled) = condition(pod, "PodScheduled").filter(|c| c.status == "False") {
        return sentence(scheduled.reason.as_deref(), scheduled.message.as_deref());
    }
    for container in containers(pod) {
        let state = container.state.as_ref();
        let waiting = state.and_then(|s| s.waiting.as_ref());
        let reason = waiting.and_then(|w| w.reason.as_deref());
        let last = container
            .last_state
            .as_ref()
            .and_then(|s| s.terminated.as_ref());
        let normal = matches!(reason, None | Some("ContainerCreating" | "PodInitializing"));
        if !normal || (waiting.is_some() && last.is_some()) {
            let mut text = sentence(reason, None);
            text = format!("{text}, container {}", container.name);
            if let Some(last) = last {
                text = format!("{text}, last exit code {}", last.exit_code);
            }
            return sentence(Some(&text), waiting.and_then(|w| w.message.as_deref()));
        }
        let ended = state.and_then(|s| s.terminated.as_ref());
        if let Some(ended) = ended.filter(|ended| ended.exit_code != 0) {
            return format!(
                "exit code {}, container {}",
                ended.exit_code, container.name
            );
        }
    }
    let names = |wanted: &dyn Fn(&ContainerStatus) -> bool| -> Vec<String> {
        let found = containers(pod).filter(|container| wanted(container));
        found.map(|container| container.name.clone()).collect()
    };
    if running(pod) {
        let unready = names(&|c| !c.ready && c.state.as_ref().is_some_and(|s| s.running.is_some()));
        if unready.is_empty() {
            return String::new();
        }
        return format!("container {} is not Ready", unready.join(", "));
    }
    let starting = names(&|c| c.state.as_ref().is_some_and(|s| s.running.is_some()));
    if let Some(init) = starting.first() {
        return format!("init container {init} runs");
    }
    let waiting = containers(pod)
        .filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
        .next();
    waiting.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2030-01-01T00:10:00Z".parse().unwrap()
    }

    fn pod(name: &str, rest: &Value) -> Pod {
        let mut pod = json!({"metadata": {
            "name": name,
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {JOB_ROLE: if name.contains("launcher") { "launcher" } else { "worker" }},
        }});
        for (key, value) in rest.as_object().into_iter().flatten() {
            if key == "metadata" {
                for (key, value) in value.as_object().into_iter().flatten() {
                    pod["metadata"][key] = value.clone();
                }
            } else {
                pod[key] = value.clone();
            }
        }
        serde_json::from_value(pod).unwrap()
    }

    fn check(status: &Value, state_is: &str, why_is: &str) {
        let pod = pod("j-worker-0-abcde", &json!({"status": status}));
        assert_eq!((state(&pod), &*why(&pod, now())), (state_is, why_is));
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        check(
            &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            "Ready",
            "",
        );
        check(
            &json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available:\n 2 Insufficient cpu."}]}),
            "Pending",
            "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.",
        );
        let waiting = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [{
                "name": "worker", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                "state": {"waiting": {"reason": reason, "message": "text"}}}]})
        };
        check(
            &waiting("ImagePullBackOff"),
            "Pending",
            "ImagePullBackOff, container worker: text",
        );
        check(
            &waiting("ContainerCreating"),
            "Pending",
            "ContainerCreating",
        );
        check(
            &json!({"phase": "Running", "containerStatuses": [{
                "name": "worker", "ready": false, "restartCount": 3, "image": "", "imageID": "",
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 255}}}]}),
            "Running",
            "CrashLoopBackOff, container worker, last exit code 255",
        );
        check(
            &json!({"phase": "Running", "containerStatuses": [{
                "name": "worker", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                "state": {"running": {}}}]}),
            "Running",
            "container worker is not Ready",
        );
    }

    #[test]
    fn a_pod_says_how_it_ended() {
        let ended = |code: i32, reason: &str| {
            json!([{"name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                "state": {"terminated": {"exitCode": code, "reason": reason}}}])
        };
        check(
            &json!({"phase": "Failed", "containerStatuses": ended(1, "Error")}),
            "Failed",
            "exit code 1, container main",
        );
        check(
            &json!({"phase": "Failed", "containerStatuses": ended(137, "OOMKilled")}),
            "Failed",
            "exit code 137, container main, OOMKilled",
        );
        check(
            &json!({"phase": "Succeeded", "containerStatuses": ended(0, "Completed")}),
            "Succeeded",
            "",
        );
        check(
            &json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}),
            "Failed",
            "Evicted: low on disk",
        );
        check(
            &json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget",
                "status": "True", "reason": "DeletionByTaintManager"}]}),
            "Failed",
            "DeletionByTaintManager",
        );
    }

    #[test]
    fn a_pod_that_does_not_go_says_since_when_and_what_holds_it() {
        let pod = pod(
            "j-worker-0-abcde",
            &json!({
                "metadata": {"deletionTimestamp": "2030-01-01T00:07:00Z", "finalizers": ["a/b"]},
                "status": {"phase": "Running"},
            }),
        );
        assert_eq!(state(&pod), "Terminating");
        assert_eq!(why(&pod, now()), "should be gone since 3m; finalizers a/b");
    }

    #[test]
    fn workers_are_found_by_annotation_label_or_name() {
        let job = MpiJob::new(json!({"metadata": {"name": "j"}}));
        let labels = json!({JOB_ROLE: "worker", INDEX: "2"});
        let pods = [
            pod("x", &json!({"metadata": {"annotations": {INDEX: "1"}}})),
            pod("y", &json!({"metadata": {"labels": labels}})),
            pod("j-worker-3", &json!({})),
            pod("j-worker-4-abcde", &json!({})),
            pod("other", &json!({})),
        ];
        let found: Vec<u32> = Pods::of(&job, &pods).workers.into_keys().collect();
        assert_eq!(found, [1, 2, 3, 4]);
    }

    #[test]
    fn the_pod_that_counts_is_live_and_missing_are_the_lowest_free_indexes() {
        let job = MpiJob::new(json!({"metadata": {
            "name": "j", "creationTimestamp": "2029-12-31T00:00:00Z"}}));
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let later = "2030-01-01T00:05:00Z";
        let pods = [
            pod(
                "j-worker-0-old",
                &json!({"metadata": {"deletionTimestamp": later,
                "creationTimestamp": later}, "status": ready}),
            ),
            pod("j-worker-0-new", &json!({"status": ready})),
            pod("j-worker-2-end", &json!({"status": {"phase": "Failed"}})),
            pod("j-worker-3-run", &json!({"status": ready})),
            pod(
                "j-worker-1-before",
                &json!({"metadata": {
                "creationTimestamp": "2029-12-30T00:00:00Z"}, "status": ready}),
            ),
        ];
        let pods = Pods::of(&job, &pods);
        let live: Vec<(u32, &str)> = pods.live().iter().map(|(i, pod)| (*i, name(pod))).collect();
        assert_eq!(live, [(0, "j-worker-0-new"), (3, "j-worker-3-run")]);
        assert_eq!(pods.missing(4), [1, 2]);
        assert!(pods.missing(2).is_empty());
        assert_eq!(pods.workers[&0].len(), 2);
    }

    #[test]
    fn the_newest_try_comes_first() {
        let job = MpiJob::new(json!({"metadata": {"name": "j"}}));
        let pods = [
            pod("j-launcher-a", &json!({})),
            pod(
                "j-launcher-b",
                &json!({"metadata": {"creationTimestamp": "2030-01-01T00:01:00Z"}}),
            ),
        ];
        let names: Vec<&str> = Pods::of(&job, &pods)
            .launchers
            .into_iter()
            .map(name)
            .collect();
        assert_eq!(names, ["j-launcher-b", "j-launcher-a"]);
    }
}
