//! Which change of an MPIJob makes named workers leave, or why none does. Pure.
//!
//! `replicas` says how many workers there are, `elasticPolicy.removeFirst` who goes first when that
//! number falls. Both are set in one patch, bound to the version that was looked at, so that nobody
//! else leaves in between.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::mpijob::MpiJob;
use crate::pods::{self, Pods};
use crate::table::ranges;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The merge patch; None if every named worker leaves already.
    pub patch: Option<Value>,
    /// Workers before, as text.
    pub before: String,
    /// Wanted workers before and after.
    pub replicas: (u32, u32),
    /// Workers that leave by this change.
    pub leaving: Vec<u32>,
    /// Named workers that an earlier change removes already.
    pub already: Vec<u32>,
    /// UIDs of the pods of all named workers.
    pub pods: BTreeSet<String>,
    /// What the user should know besides.
    pub note: Option<String>,
}

/// The change that lets the workers `named` leave.
///
/// # Errors
/// One line that says why they cannot.
pub fn change(job: &MpiJob, all: &[Pod], named: &BTreeSet<u32>) -> Result<Change, String> {
    let name = job.name();
    if let Some(end) = job.ended() {
        return Err(format!(
            "MPIJob {name} has ended ({end}); its workers do not change any more"
        ));
    }
    if job.deleting() {
        return Err(format!("MPIJob {name} is being deleted"));
    }
    if job.suspended() {
        return Err(format!(
            "MPIJob {name} is suspended and has no workers; spec.mpiReplicaSpecs.Worker.replicas \
             says how many it gets when it is resumed"
        ));
    }
    let sorted = Pods::of(job, all);
    let live = sorted.live();
    let wanted = job.replicas();
    let missing = sorted.missing(wanted);
    let unknown = named
        .iter()
        .filter(|index| !live.contains_key(index) && !missing.contains(index));
    let unknown: Vec<u32> = unknown.copied().collect();
    if !unknown.is_empty() {
        let there: BTreeSet<u32> = live.keys().copied().chain(missing).collect();
        return Err(format!(
            "MPIJob {name} has no worker {}; its workers are {}",
            ranges(unknown),
            ranges(there)
        ));
    }
    let leaving = still_leaving(job, &sorted);
    let newly: Vec<u32> = named
        .iter()
        .copied()
        .filter(|index| !leaving.contains(index))
        .collect();
    let stays = wanted.saturating_sub(u32::try_from(newly.len()).unwrap_or(u32::MAX));
    if stays == 0 {
        return Err(format!(
            "MPIJob {name} has {wanted} workers and needs one at least; kubectl mpi suspend stops it"
        ));
    }
    let min = job
        .elastic_policy()
        .and_then(|policy| policy["minReplicas"].as_i64());
    if let Some(min) = min
        && i64::from(stays) < min
        && !newly.is_empty()
    {
        return Err(format!(
            "MPIJob {name} would have {stays} workers, and its elasticPolicy.minReplicas is {min}"
        ));
    }
    let mut list: Vec<u32> = leaving.iter().chain(&newly).copied().collect();
    let hostnames =
        |list: &[u32]| -> Vec<String> { list.iter().map(|index| job.hostname(*index)).collect() };
    // A name acts once under one list. For a worker that left, grew back and leaves again, the list
    // has to be another one; whoever would be next anyway stands behind it.
    let again = newly.iter().any(|index| job.handled().contains(index));
    if again && hostnames(&list) == job.remove_first() {
        let next = live.keys().rev().find(|index| !list.contains(index));
        list.extend(next);
    }
    let patch = json!({
        "metadata": {"uid": job.uid(), "resourceVersion": job.resource_version()},
        "spec": {
            "elasticPolicy": {"removeFirst": hostnames(&list)},
            "mpiReplicaSpecs": {"Worker": {"replicas": stays}},
        },
    });
    let note = job.elastic_policy().is_none().then(|| {
        format!(
            "MPIJob {name} had no elasticPolicy and is elastic from now on: what becomes of a try that \
             loses a worker is left to the program"
        )
    });
    Ok(Change {
        patch: (!newly.is_empty()).then_some(patch),
        before: crate::view::indexes(&sorted),
        replicas: (wanted, stays),
        already: named
            .iter()
            .copied()
            .filter(|index| leaving.contains(index))
            .collect(),
        leaving: newly,
        pods: named
            .iter()
            .filter_map(|index| live.get(index))
            .map(|pod| pods::uid(pod).to_owned())
            .collect(),
        note,
    })
}

/// Workers that an earlier change of `removeFirst` removes and that are not gone yet: names act in
/// the order of the list, as many as leave. They stay in the list, or others would go in their place.
fn still_leaving(job: &MpiJob, pods: &Pods<'_>) -> Vec<u32> {
    let live = pods.live();
    let surplus = live.len().saturating_sub(job.replicas() as usize);
    let handled = job.handled();
    let index = |hostname: &str| {
        let mut live = live.keys().copied();
        live.find(|index| job.hostname(*index) == hostname)
    };
    job.remove_first()
        .into_iter()
        .filter_map(index)
        .filter(|index| !handled.contains(index))
        .take(surplus)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn job(replicas: u32, patch: &Value) -> MpiJob {
        let mut object = json!({
            "metadata": {"name": "pi", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}},
        });
        for (key, value) in patch["spec"].as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object["status"] = patch["status"].clone();
        MpiJob::new(object)
    }

    fn pods(indexes: &[u32]) -> Vec<Pod> {
        let pod = |index: &u32| {
            serde_json::from_value(json!({
                "metadata": {
                    "name": format!("pi-worker-{index}-abcde"),
                    "uid": format!("uid-{index}"),
                    "creationTimestamp": "2030-01-01T00:00:01Z",
                    "labels": {pods::JOB_ROLE: "worker", pods::INDEX: index.to_string()},
                },
                "status": {"phase": "Running"},
            }))
            .unwrap()
        };
        indexes.iter().map(pod).collect()
    }

    fn decide(job: &MpiJob, live: &[u32], named: &[u32]) -> Result<Change, String> {
        change(job, &pods(live), &named.iter().copied().collect())
    }

    fn refused(job: &MpiJob, live: &[u32], named: &[u32], why: &str) {
        let error = decide(job, live, named).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn one_patch_names_the_workers_lowers_replicas_and_carries_the_version() {
        let elastic = json!({"spec": {"elasticPolicy": {"removeFirst": ["pi-worker-9"]}}});
        let change = decide(&job(5, &elastic), &[0, 1, 2, 3, 4], &[4, 1]).unwrap();
        assert_eq!(
            change.patch.unwrap(),
            json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {
                    "elasticPolicy": {"removeFirst": ["pi-worker-1", "pi-worker-4"]},
                    "mpiReplicaSpecs": {"Worker": {"replicas": 3}},
                },
            })
        );
        assert_eq!(change.before, "0-4 (5)");
        assert_eq!(change.replicas, (5, 3));
        assert_eq!(change.leaving, [1, 4]);
        assert_eq!(
            change.pods,
            BTreeSet::from(["uid-1".to_owned(), "uid-4".to_owned()])
        );
        assert_eq!(change.note, None);
    }

    #[test]
    fn a_job_that_becomes_elastic_by_it_is_told_about() {
        let change = decide(&job(2, &json!({})), &[0, 1], &[1]).unwrap();
        assert!(change.note.unwrap().contains("elasticPolicy"));
    }

    #[test]
    fn workers_that_do_not_exist_are_refused_by_name() {
        let job = job(3, &json!({}));
        // 1 left earlier.
        refused(
            &job,
            &[0, 2, 3],
            &[1, 3],
            "no worker 1; its workers are 0,2-3",
        );
        refused(&job, &[0, 2, 3], &[7, 8, 9], "no worker 7-9");
    }

    #[test]
    fn the_last_worker_is_refused_and_so_is_less_than_the_minimum() {
        refused(&job(1, &json!({})), &[0], &[0], "needs one at least");
        refused(&job(2, &json!({})), &[0, 1], &[0, 1], "needs one at least");
        let elastic = json!({"spec": {"elasticPolicy": {"minReplicas": 2}}});
        refused(&job(2, &elastic), &[0, 1], &[0], "minReplicas is 2");
        assert!(decide(&job(3, &elastic), &[0, 1, 2], &[0]).is_ok());
    }

    #[test]
    fn a_job_that_has_ended_or_is_suspended_is_refused() {
        let ended = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        refused(&job(2, &ended), &[0, 1], &[1], "has ended (Succeeded)");
        let held = json!({"spec": {"runPolicy": {"suspend": true}}});
        refused(&job(2, &held), &[], &[1], "is suspended");
    }

    #[test]
    fn a_worker_that_is_wanted_and_has_no_pod_can_be_named() {
        let job = job(4, &json!({}));
        refused(&job, &[0, 1, 3], &[4], "no worker 4; its workers are 0-3");
        let change = decide(&job, &[0, 1, 3], &[1, 2]).unwrap();
        assert_eq!(change.leaving, [1, 2]);
        assert_eq!(change.replicas, (4, 2));
        assert_eq!(change.pods, BTreeSet::from(["uid-1".to_owned()]));
    }

    #[test]
    fn workers_that_are_leaving_stay_in_the_list_and_are_not_counted_twice() {
        let elastic = json!({"spec": {"elasticPolicy": {"removeFirst": ["pi-worker-1"]}}});
        let shrinking = job(3, &elastic);
        let change = decide(&shrinking, &[0, 1, 2, 3], &[1, 2]).unwrap();
        let patch = change.patch.unwrap();
        assert_eq!(
            patch["spec"]["elasticPolicy"]["removeFirst"],
            json!(["pi-worker-1", "pi-worker-2"])
        );
        assert_eq!(change.replicas, (3, 2));
        assert_eq!((change.leaving, change.already), (vec![2], vec![1]));
        let again = decide(&shrinking, &[0, 1, 2, 3], &[1]).unwrap();
        assert_eq!((again.patch, again.already), (None, vec![1]));
    }

    #[test]
    fn names_act_in_the_order_of_the_list_as_many_as_leave() {
        let names = json!(["pi-worker-2", "pi-worker-9", "pi-worker-1"]);
        let elastic = json!({"spec": {"elasticPolicy": {"removeFirst": names}}});
        let change = decide(&job(3, &elastic), &[0, 1, 2, 3], &[3]).unwrap();
        let patch = change.patch.unwrap();
        assert_eq!(
            patch["spec"]["elasticPolicy"]["removeFirst"],
            json!(["pi-worker-2", "pi-worker-3"])
        );
    }

    #[test]
    fn a_worker_that_left_and_grew_back_leaves_again_by_another_list() {
        let mut patch = json!({"spec": {"elasticPolicy": {"removeFirst": ["pi-worker-1"]}}});
        let list = |patch: &Value| {
            let change = decide(&job(3, patch), &[0, 1, 2], &[1]).unwrap();
            assert_eq!(change.leaving, [1]);
            change.patch.unwrap()["spec"]["elasticPolicy"]["removeFirst"].clone()
        };
        assert_eq!(list(&patch), json!(["pi-worker-1"]));
        patch["status"] = json!({"scaleIn": {"handled": "1"}});
        assert_eq!(list(&patch), json!(["pi-worker-1", "pi-worker-2"]));
    }
}
