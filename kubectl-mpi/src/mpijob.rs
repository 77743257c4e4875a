//! What is read of an MPIJob, by name of its fields: one that another operator or version wrote is
//! shown as well, with what it has. Pure.

use jiff::Timestamp;
use serde_json::Value;

/// Retries where the user set none, as in the Job API.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;

/// An MPIJob as the API server sent it.
#[derive(Debug, Clone, Default)]
pub struct MpiJob(Value);

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition<'a> {
    /// As `WorkersReady`.
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// One word.
    pub reason: &'a str,
    /// One sentence.
    pub message: &'a str,
    /// When its status changed.
    pub since: Option<Timestamp>,
}

impl MpiJob {
    /// Wraps the object.
    #[must_use]
    pub fn new(object: Value) -> Self {
        Self(object)
    }

    /// The object itself.
    #[must_use]
    pub fn raw(&self) -> &Value {
        &self.0
    }

    fn meta(&self, field: &str) -> &str {
        self.0["metadata"][field].as_str().unwrap_or_default()
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta("name")
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.meta("resourceVersion")
    }

    /// `metadata.creationTimestamp`.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        self.meta("creationTimestamp").parse().ok()
    }

    /// `metadata.deletionTimestamp` is set.
    #[must_use]
    pub fn deleting(&self) -> bool {
        !self.meta("deletionTimestamp").is_empty()
    }

    /// Every condition, in stored order.
    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let all = self.0["status"]["conditions"].as_array();
        all.into_iter().flatten().map(|condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            Condition {
                type_: text("type"),
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
                since: text("lastTransitionTime").parse().ok(),
            }
        })
    }

    /// One condition.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<Condition<'_>> {
        self.conditions().find(|c| c.type_ == type_)
    }

    /// One condition, if its status is True.
    #[must_use]
    pub fn holds(&self, type_: &str) -> Option<Condition<'_>> {
        self.condition(type_).filter(|c| c.status == "True")
    }

    /// The end, `Succeeded` or `Failed`, if there was one.
    #[must_use]
    pub fn ended(&self) -> Option<&'static str> {
        ["Succeeded", "Failed"]
            .into_iter()
            .find(|type_| self.holds(type_).is_some())
    }

    /// Where the job stands, in one word. The Go operator writes no phase; its conditions say it.
    #[must_use]
    pub fn phase(&self) -> &str {
        if let Some(phase) = self.0["status"]["phase"].as_str() {
            return phase;
        }
        let by_condition = ["Suspended", "Running", "Created"]
            .into_iter()
            .find(|type_| self.holds(type_).is_some());
        self.ended().or(by_condition).unwrap_or("Unknown")
    }

    /// Wanted workers.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        let worker = &self.0["spec"]["mpiReplicaSpecs"]["Worker"];
        if worker.is_null() {
            return 0;
        }
        let unset_is_one = worker["replicas"].as_i64().unwrap_or(1);
        u32::try_from(unset_is_one).unwrap_or(0)
    }

    /// Workers Ready and wanted as the operator last wrote them, or as well as the status of the
    /// Go operator tells.
    #[must_use]
    pub fn workers_ready(&self) -> String {
        if let Some(text) = self.0["status"]["workersReady"].as_str() {
            return text.to_owned();
        }
        let active = self.0["status"]["replicaStatuses"]["Worker"]["active"].as_i64();
        format!("{}/{}", active.unwrap_or(0), self.replicas())
    }

    /// `spec.runPolicy.suspend`.
    #[must_use]
    pub fn suspended(&self) -> bool {
        self.0["spec"]["runPolicy"]["suspend"]
            .as_bool()
            .unwrap_or(false)
    }

    /// `spec.runPolicy.backoffLimit`.
    #[must_use]
    pub fn backoff_limit(&self) -> i64 {
        self.0["spec"]["runPolicy"]["backoffLimit"]
            .as_i64()
            .unwrap_or(DEFAULT_BACKOFF_LIMIT)
    }

    /// A number of `status.launcher`: `chargedTries`, `refundedTries`, `restarts`.
    #[must_use]
    pub fn tries(&self, field: &str) -> i64 {
        self.0["status"]["launcher"][field].as_i64().unwrap_or(0)
    }

    /// Whether the launcher starts without its workers.
    #[must_use]
    pub fn at_startup(&self) -> bool {
        self.0["spec"]["launcherCreationPolicy"] == "AtStartup"
    }

    /// `spec.elasticPolicy`, if there is one.
    #[must_use]
    pub fn elastic_policy(&self) -> Option<&Value> {
        Some(&self.0["spec"]["elasticPolicy"]).filter(|policy| policy.is_object())
    }

    /// `spec.elasticPolicy.removeFirst`.
    #[must_use]
    pub fn remove_first(&self) -> Vec<&str> {
        let list = self.0["spec"]["elasticPolicy"]["removeFirst"].as_array();
        list.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Workers that left because the present `removeFirst` names them. Under the same list these
    /// names do not act again.
    #[must_use]
    pub fn handled(&self) -> Vec<u32> {
        let text = self.0["status"]["scaleIn"]["handled"].as_str();
        crate::table::numbers(text.unwrap_or_default())
    }

    /// Whether the operator has not looked at the last edit yet.
    #[must_use]
    pub fn edit_unseen(&self) -> bool {
        let seen = self.0["status"]["observedGeneration"].as_i64();
        let is = self.0["metadata"]["generation"].as_i64();
        matches!((seen, is), (Some(seen), Some(is)) if seen < is)
    }

    /// Hostname of worker `index`.
    #[must_use]
    pub fn hostname(&self, index: u32) -> String {
        format!("{}-worker-{index}", self.name())
    }
}

/// Names of `known` that a person may have meant by `typed`, nearest first.
#[must_use]
pub fn near<'a>(typed: &str, known: &[&'a str]) -> Vec<&'a str> {
    let mut found: Vec<(usize, &str)> = known
        .iter()
        .filter_map(|name| {
            let distance = distance(typed, name);
            let part = typed.len() >= 2 && (name.contains(typed) || typed.contains(name));
            // Two slips in a short name are another name.
            let slip = distance <= 2 && distance * 2 <= name.len().max(typed.len());
            (slip || part).then_some((distance, *name))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, to) in b.iter().enumerate() {
            let (left, above) = (row[j], row[j + 1]);
            row[j + 1] = (diagonal + usize::from(from != *to)).min(left.min(above) + 1);
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_the_go_operator_has_a_phase_and_counts() {
        let job = MpiJob::new(json!({
            "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}},
            "status": {
                "conditions": [
                    {"type": "Created", "status": "True"},
                    {"type": "Running", "status": "True"},
                    {"type": "Suspended", "status": "False"},
                ],
                "replicaStatuses": {"Worker": {"active": 2}},
            },
        }));
        assert_eq!(job.phase(), "Running");
        assert_eq!(job.workers_ready(), "2/3");
        assert_eq!(job.backoff_limit(), 6);
        assert_eq!(job.ended(), None);
    }

    #[test]
    fn an_empty_object_is_read_without_a_surprise() {
        let job = MpiJob::default();
        assert_eq!(job.phase(), "Unknown");
        assert_eq!(job.replicas(), 0);
        assert!(!job.edit_unseen());
        let bare = MpiJob::new(json!({"spec": {"mpiReplicaSpecs": {"Worker": {}}}}));
        assert_eq!(bare.replicas(), 1);
    }

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let known = ["pi", "pi-2", "train", "trains-long"];
        assert_eq!(near("pii", &known), ["pi", "pi-2"]);
        assert_eq!(near("trian", &known), ["train"]);
        assert_eq!(near("train", &known), ["train", "trains-long"]);
        assert!(near("zz", &known).is_empty());
        assert!(near("nothing-like-it", &known).is_empty());
    }
}
