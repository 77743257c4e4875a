//! Kubernetes 1.21 with default gates: what its API server drops, and its Job controller, as in
//! `syncJob` and `manageJob` of v1.21.14.
//!
//! It keeps no books. Pods carry no finalizer and no index; what ended is counted for as long as its
//! pod is there, and what is being deleted is replaced at once. Its back-off only delays the sync
//! that a failure leads to, which any other event of the Job brings forward, so here there is none.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use mpi_operator::api::names;
use serde_json::{Value, json};

use super::cluster::{condition_time, is_worker, past_deadline, set_condition};
use super::{World, has, live, owner, parse, ready, time, uid};

/// Fields of a Job's spec that are cleared (behind a gate that is off) or unknown.
pub const DROPS: [&str; 5] = [
    "suspend",
    "completionMode",
    "backoffLimitPerIndex",
    "podFailurePolicy",
    "podReplacementPolicy",
];

impl World {
    /// One sync of a Job.
    pub(super) fn sync_old(&mut self, name: &str, job: &Value) {
        if has(job, "Complete") || has(job, "Failed") {
            return;
        }
        let id = uid(job);
        let mut pods = self.pods();
        pods.retain(|pod| owner(self.get("Pod", pod)) == Some(&id));
        let count = |phase: &str| {
            let is = |pod: &&String| self.get("Pod", pod)["status"]["phase"] == phase;
            i64::try_from(pods.iter().filter(is).count()).unwrap()
        };
        let (succeeded, failed) = (count("Succeeded"), count("Failed"));
        self.charge(&pods);
        let mut active = pods.clone();
        active.retain(|pod| live(self.get("Pod", pod)));
        let number = |field: &str, default| job["spec"][field].as_i64().unwrap_or(default);
        let parallelism = number("parallelism", 1);
        let running = i64::try_from(active.len()).unwrap();
        let mut status = job["status"].clone();
        if status.is_null() {
            status = json!({});
        }
        if status["startTime"].is_null() {
            status["startTime"] = json!(time(self.now));
        }
        let news = failed > status["failed"].as_i64().unwrap_or(0);
        let failure = if news && running != parallelism && failed > number("backoffLimit", 6) {
            Some((
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ))
        } else if past_deadline(job, &status, self.now) {
            Some((
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            ))
        } else {
            None
        };
        let end = if let Some((reason, message)) = failure {
            self.remove_old(&active);
            Some(("Failed", reason, message))
        } else {
            self.manage_old(name, job, active, parallelism, succeeded);
            let done = job["spec"]["completions"].as_i64();
            done.is_some_and(|completions| succeeded >= completions)
                .then_some(("Complete", "", ""))
        };
        if let Some((type_, reason, message)) = end {
            let mut object = json!({ "status": status });
            set_condition(&mut object, type_, true, &time(self.now));
            let condition = &mut object["status"]["conditions"][0];
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
            if type_ == "Complete" {
                object["status"]["completionTime"] = json!(time(self.now));
            }
            status = object["status"].clone();
        }
        let active = self.pods().into_iter().filter(|pod| {
            let pod = self.get("Pod", pod);
            owner(pod) == Some(&id) && live(pod)
        });
        status["active"] = json!(active.count());
        status["succeeded"] = json!(succeeded);
        status["failed"] = json!(failed);
        self.change("Job", name, |job| job["status"] = status);
    }

    fn manage_old(
        &mut self,
        name: &str,
        job: &Value,
        mut active: Vec<String>,
        parallelism: i64,
        succeeded: i64,
    ) {
        let wanted = usize::try_from(parallelism).unwrap();
        if active.len() > wanted {
            active.sort_by_key(|name| {
                let pod = self.get("Pod", name);
                let running = pod["status"]["phase"] == "Running";
                let since = condition_time(pod, "Ready").map(Reverse);
                let created = parse(&pod["metadata"]["creationTimestamp"]).unwrap();
                (running, ready(pod), since, Reverse(created))
            });
            active.truncate(active.len() - wanted);
            self.remove_old(&active);
            return;
        }
        let left = job["spec"]["completions"].as_i64().unwrap_or(i64::MAX) - succeeded;
        let wanted = usize::try_from(parallelism.min(left).max(0)).unwrap();
        let worker = job["metadata"]["labels"][names::JOB_ROLE_LABEL] == names::ROLE_WORKER;
        let used: BTreeSet<u32> = active
            .iter()
            .filter_map(|pod| self.place(self.get("Pod", pod)))
            .collect();
        let mut places = (0..).filter(|place| !used.contains(place));
        for _ in active.len()..wanted {
            if worker {
                self.create_pod(name, job, places.next());
            } else {
                self.create_launcher(job);
            }
        }
    }

    fn remove_old(&mut self, pods: &[String]) {
        for pod in pods {
            self.no_loss(pod);
            self.mark_deleted(pod, 30);
        }
    }

    /// The tries that count: those that failed by themselves.
    fn charge(&mut self, pods: &[String]) {
        for name in pods {
            let pod = self.get("Pod", name);
            let ended = pod["status"]["phase"] == "Failed";
            if ended && pod["metadata"]["deletionTimestamp"].is_null() && !is_worker(pod) {
                let id = uid(pod);
                if let Some(attempt) = self.tries.get_mut(&id) {
                    attempt.failed = true;
                }
            }
        }
    }
}
