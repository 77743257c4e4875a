//! Waiting, and the questions that tests ask of the history of a namespace.
//!
//! Nothing here retries into green: a wait ends at the first answer, and a job that has ended the
//! other way ends the wait at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::DynamicObject;

use crate::history::{Change, Seen, live};
use crate::mpi::{self, Condition, condition, is_ready, is_terminating};
use crate::{LATER, Namespace, SOON};

/// Asks `look` again and again until it has an answer. For what no watch shows.
pub async fn poll<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look()
            .await
            .with_context(|| format!("waiting for {what}"))?
        {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain for {what}", within.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Waiting for an MPIJob and its pods.
impl Namespace {
    /// The MPIJob when `look` is content with it.
    pub async fn until_mpijob(
        &self,
        job: &str,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&DynamicObject) -> Result<bool>,
    ) -> Result<DynamicObject> {
        let what = format!("MPIJob {job}: {what}");
        self.mpijobs
            .until_live(&what, within, |all| match all.get(job) {
                Some(object) if look(object)? => Ok(Some(object.clone())),
                _ => Ok(None),
            })
            .await
    }

    /// The condition `type_` of MPIJob `job` once it has `status`.
    pub async fn until_condition(&self, job: &str, type_: &str, status: &str) -> Result<Condition> {
        let object = self
            .until_mpijob(job, &format!("{type_}={status}"), SOON, |object| {
                Ok(condition(object, type_).is_some_and(|c| c.status == status))
            })
            .await?;
        condition(&object, type_).context("the condition was there a moment ago")
    }

    /// The MPIJob once it has Succeeded; an error at once if it Failed.
    pub async fn until_succeeded(&self, job: &str) -> Result<DynamicObject> {
        self.until_end(job, "Succeeded", "Failed", LATER).await
    }

    /// The MPIJob once it has Failed; an error at once if it Succeeded.
    pub async fn until_failed(&self, job: &str) -> Result<DynamicObject> {
        self.until_end(job, "Failed", "Succeeded", LATER).await
    }

    /// The MPIJob once condition `good` is True; an error at once if `bad` is.
    pub async fn until_end(
        &self,
        job: &str,
        good: &str,
        bad: &str,
        within: Duration,
    ) -> Result<DynamicObject> {
        self.until_mpijob(job, good, within, |object| {
            if let Some(end) = condition(object, bad).filter(Condition::is_true) {
                bail!("MPIJob {job} should end {good}, but is {bad}: {end:?}");
            }
            Ok(condition(object, good).is_some_and(|c| c.is_true()))
        })
        .await
    }

    /// The pods of the workers of `job` by index, once exactly `count` of them are live and Ready.
    pub async fn until_workers_ready(&self, job: &str, count: usize) -> Result<BTreeMap<u32, Pod>> {
        self.pods
            .until(&format!("{count} Ready workers of {job}"), SOON, |seen| {
                let workers = workers_at(seen, job);
                let ready = workers.values().filter(|p| is_ready(p)).count();
                Ok((workers.len() == count && ready == count).then_some(workers))
            })
            .await
    }

    /// Workers `0..count` of `job`, all Ready and on `node`.
    pub async fn until_new_workers_ready(
        &self,
        job: &str,
        count: usize,
        node: &str,
    ) -> Result<BTreeMap<u32, Pod>> {
        self.pods
            .until(
                &format!("{count} Ready workers of {job} on {node}"),
                SOON,
                |seen| {
                    let mut workers = workers_at(seen, job);
                    workers.retain(|_, p| is_ready(p) && mpi::node(p) == node);
                    Ok((workers.len() == count).then_some(workers))
                },
            )
            .await
    }

    /// Waits until `count` workers of `job` are off the Job controller's books.
    pub async fn until_retired(&self, job: &str, count: usize) -> Result<()> {
        self.pods
            .until(&format!("{count} retired workers of {job}"), SOON, |seen| {
                let retired = workers_at(seen, job)
                    .values()
                    .filter(|p| is_ready(p) && p.finalizers().is_empty())
                    .count();
                Ok((retired == count).then_some(()))
            })
            .await
    }

    /// Waits until the newest launcher pod of `job` has printed that `ranks` ranks run.
    pub async fn until_ranks(&self, job: &str, ranks: usize) -> Result<()> {
        self.until_launcher_runs(job, &[]).await?;
        poll(&format!("{ranks} ranks of {job}"), SOON, async || {
            let Some(launcher) = self.launchers_ever(job).pop() else {
                return Ok(None);
            };
            let log = self.log(&launcher).await?;
            Ok((mpi::rank_hosts(&log).len() >= ranks).then_some(()))
        })
        .await
    }

    /// The first launcher pod of `job` that runs and is not in `known` (uids), once the second in
    /// which it was created is over: Kubernetes writes times in whole seconds, and a worker that is
    /// lost in that same second counts as lost before the try.
    pub async fn until_launcher_runs(&self, job: &str, known: &[String]) -> Result<Pod> {
        let launcher = self
            .pods
            .until_live(&format!("a running launcher of {job}"), SOON, |all| {
                Ok(all
                    .values()
                    .find(|p| {
                        mpi::is_launcher_of(p, job)
                            && mpi::phase(p) == "Running"
                            && !is_terminating(p)
                            && !known.contains(&mpi::uid(*p))
                    })
                    .cloned())
            })
            .await?;
        let created = launcher.metadata.creation_timestamp.clone();
        let created = SystemTime::from(created.context("a pod of the server has a time")?.0);
        let next_second = created + Duration::from_secs(1);
        if let Ok(rest) = next_second.duration_since(SystemTime::now()) {
            tokio::time::sleep(rest).await;
        }
        Ok(launcher)
    }

    /// Waits until no pod of MPIJob `job` is left.
    pub async fn until_no_pods(&self, job: &str) -> Result<()> {
        self.pods
            .until_live(&format!("no pod of {job}"), SOON, |all| {
                Ok((!all.values().any(|p| mpi::belongs_to(p, job))).then_some(()))
            })
            .await
    }

    /// The batch Job `name` once `look` is content with it.
    pub async fn until_job(
        &self,
        name: &str,
        what: &str,
        mut look: impl FnMut(&Job) -> bool,
    ) -> Result<Job> {
        self.jobs
            .until_live(&format!("Job {name}: {what}"), SOON, |all| {
                Ok(all.get(name).filter(|job| look(job)).cloned())
            })
            .await
    }

    /// The first event about MPIJob `job` with this reason.
    pub async fn until_event(&self, job: &str, reason: &str) -> Result<Event> {
        self.events
            .until_live(&format!("event {reason} of {job}"), SOON, |all| {
                Ok(all.values().find(|e| is_about(e, job, reason)).cloned())
            })
            .await
    }

    /// How often an event with this reason was sent about MPIJob `job`, repeats counted.
    #[must_use]
    pub fn event_count(&self, job: &str, reason: &str) -> i32 {
        self.events
            .live()
            .values()
            .filter(|e| is_about(e, job, reason))
            .map(|e| {
                let series = e.series.as_ref().and_then(|s| s.count).unwrap_or(1);
                e.count.unwrap_or(1).max(series)
            })
            .sum()
    }

    /// Every launcher pod that `job` ever had, in order of creation, each as last seen.
    #[must_use]
    pub fn launchers_ever(&self, job: &str) -> Vec<Pod> {
        ever(&self.pods.all(), |p| mpi::is_launcher_of(p, job))
    }

    /// Every pod that worker `index` of `job` ever had, in order of creation, each as last seen.
    #[must_use]
    pub fn worker_ever(&self, job: &str, index: u32) -> Vec<Pod> {
        ever(&self.pods.all(), |p| {
            mpi::is_worker_of(p, job) && mpi::index(p) == Some(index)
        })
    }

    /// Deletes the pods and waits until the same indexes are Ready in other pods. How long each
    /// took, from its deletion mark.
    pub async fn lose_workers(
        &self,
        job: &str,
        victims: &[Pod],
        how: impl AsyncFn(&Pod) -> Result<()>,
    ) -> Result<Vec<Duration>> {
        let from = self.pods.mark();
        futures::future::try_join_all(victims.iter().map(|pod| how(pod))).await?;
        let mut took = Vec::new();
        for victim in victims {
            took.push(self.until_replaced(job, victim, from).await?);
        }
        Ok(took)
    }

    /// Waits until the index of `victim` is Ready in another pod; how long that took from the
    /// first sign of its end (deletion mark, end of the container, or gone) after mark `from`.
    pub async fn until_replaced(&self, job: &str, victim: &Pod, from: usize) -> Result<Duration> {
        let index = mpi::index(victim).context("the victim is a worker")?;
        let uid = mpi::uid(victim);
        let what = format!("worker {index} of {job} Ready in another pod than {uid}");
        self.pods
            .until(&what, SOON, |seen| {
                let Some(gone) = seen[from..].iter().find(|one| {
                    mpi::uid(&one.object) == uid
                        && (one.change == Change::Deleted
                            || is_terminating(&one.object)
                            || mpi::phase(&one.object) != "Running")
                }) else {
                    return Ok(None);
                };
                let back = seen[from..].iter().find(|one| {
                    one.change != Change::Deleted
                        && mpi::is_worker_of(&one.object, job)
                        && mpi::index(&one.object) == Some(index)
                        && mpi::uid(&one.object) != uid
                        && is_ready(&one.object)
                });
                Ok(back.map(|one| one.at.saturating_duration_since(gone.at)))
            })
            .await
    }

    /// [`check_gate`] on everything that happened up to now.
    pub fn assert_gate_was_kept(&self, job: &str, workers: u32) -> Result<()> {
        check_gate(&self.pods.all(), job, workers)
    }

    /// [`check_one_at_a_time`] on everything that happened up to now.
    pub fn assert_one_launcher_at_a_time(&self, job: &str) -> Result<()> {
        check_one_at_a_time(&self.pods.all(), job)
    }

    /// For `time`, no launcher pod of `job` is created.
    pub async fn no_launcher_for(&self, job: &str, time: Duration) -> Result<()> {
        let known = self.launchers_ever(job).len();
        tokio::time::sleep(time).await;
        let now = self.launchers_ever(job);
        ensure!(
            now.len() == known,
            "a launcher of {job} was created although it has to wait: {}",
            now[known].name_any()
        );
        Ok(())
    }

    /// Waits until `count` launcher pods of `job` have ended, and returns the last of them.
    pub async fn until_tries_ended(&self, job: &str, count: usize) -> Result<Pod> {
        self.pods
            .until(&format!("the end of try {count} of {job}"), SOON, |seen| {
                let ended: Vec<Pod> = ever(seen, |p| mpi::is_launcher_of(p, job))
                    .into_iter()
                    .filter(|p| matches!(mpi::phase(p), "Succeeded" | "Failed"))
                    .collect();
                Ok(ended.get(count - 1).cloned())
            })
            .await
    }

    /// The worker Job counted nothing: no failure, no success, no finished index.
    pub async fn assert_nothing_counted(&self, job: &str) -> Result<()> {
        let name = format!("{job}-worker");
        let status = self
            .api::<Job>()
            .get(&name)
            .await?
            .status
            .unwrap_or_default();
        ensure!(
            status.completed_indexes.as_deref().unwrap_or("").is_empty()
                && status.failed.unwrap_or(0) == 0
                && status.succeeded.unwrap_or(0) == 0,
            "Job {name} counted workers that were lost: {status:?}"
        );
        Ok(())
    }
}

/// Every launcher pod of `job` was created at a moment when `workers` workers were Ready.
///
/// This is exact: pods are one stream, so the workers' state at the creation of a launcher pod is
/// what the stream said before it.
pub fn check_gate(seen: &[Seen<Pod>], job: &str, workers: u32) -> Result<()> {
    for (at, one) in seen.iter().enumerate() {
        if one.change != Change::Added || !mpi::is_launcher_of(&one.object, job) {
            continue;
        }
        let before = workers_at(&seen[..at], job);
        let ready: BTreeSet<u32> = before
            .iter()
            .filter(|(_, pod)| is_ready(pod))
            .map(|(index, _)| *index)
            .collect();
        let wanted: BTreeSet<u32> = (0..workers).collect();
        ensure!(
            ready == wanted,
            "launcher pod {} was created while only workers {ready:?} of {wanted:?} were Ready",
            one.object.name_any()
        );
    }
    Ok(())
}

/// No launcher pod of `job` was created while an earlier one had not ended.
pub fn check_one_at_a_time(seen: &[Seen<Pod>], job: &str) -> Result<()> {
    for (at, one) in seen.iter().enumerate() {
        if one.change != Change::Added || !mpi::is_launcher_of(&one.object, job) {
            continue;
        }
        let running: Vec<String> = live(&seen[..at])
            .into_values()
            .filter(|p| {
                mpi::is_launcher_of(p, job) && !matches!(mpi::phase(p), "Succeeded" | "Failed")
            })
            .map(|p| p.name_any())
            .collect();
        ensure!(
            running.is_empty(),
            "launcher pod {} was created beside {running:?}",
            one.object.name_any()
        );
    }
    Ok(())
}

/// The live workers of `job` after the changes `seen`, by index: not Terminating, not ended.
pub fn workers_at(seen: &[Seen<Pod>], job: &str) -> BTreeMap<u32, Pod> {
    live(seen)
        .into_values()
        .filter(|p| {
            mpi::is_worker_of(p, job)
                && !is_terminating(p)
                && !matches!(mpi::phase(p), "Succeeded" | "Failed")
        })
        .filter_map(|p| Some((mpi::index(&p)?, p)))
        .collect()
}

fn ever(seen: &[Seen<Pod>], wanted: impl Fn(&Pod) -> bool) -> Vec<Pod> {
    let mut pods: Vec<Pod> = Vec::new();
    for one in seen.iter().filter(|one| wanted(&one.object)) {
        match pods
            .iter_mut()
            .find(|p| mpi::uid(*p) == mpi::uid(&one.object))
        {
            Some(known) => *known = one.object.clone(),
            None => pods.push(one.object.clone()),
        }
    }
    pods
}

fn is_about(event: &Event, job: &str, reason: &str) -> bool {
    event.reason.as_deref() == Some(reason)
        && event.involved_object.kind.as_deref() == Some("MPIJob")
        && event.involved_object.name.as_deref() == Some(job)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(change: Change, name: &str, role: &str, rest: Value) -> Seen<Pod> {
        let mut pod = json!({"metadata": {
            "name": name,
            "uid": name,
            "labels": {mpi::JOB_NAME: "j", mpi::JOB_ROLE: role},
            "annotations": {mpi::INDEX: name.rsplit('-').next().unwrap_or_default()},
        }});
        if let (Some(pod), Value::Object(rest)) = (pod.as_object_mut(), rest) {
            pod.extend(rest);
        }
        Seen {
            at: Instant::now(),
            change,
            object: serde_json::from_value(pod).unwrap_or_default(),
        }
    }

    fn worker(name: &str, ready: &str) -> Seen<Pod> {
        let status =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        seen(Change::Modified, name, "worker", json!({"status": status}))
    }

    fn launcher(change: Change, name: &str, phase: &str) -> Seen<Pod> {
        seen(
            change,
            name,
            "launcher",
            json!({"status": {"phase": phase}}),
        )
    }

    #[test]
    fn the_gate_check_passes_when_all_workers_were_ready_before_the_launcher_was_created() {
        let story = [
            worker("w-0", "True"),
            worker("w-1", "True"),
            launcher(Change::Added, "l", "Pending"),
            worker("w-1", "False"),
        ];
        assert!(check_gate(&story, "j", 2).is_ok());
    }

    #[test]
    fn the_gate_check_fails_for_a_worker_that_is_missing_or_not_ready_or_gone() {
        let launched = || launcher(Change::Added, "l", "Pending");
        let gone = seen(Change::Deleted, "w-1", "worker", json!({}));
        for story in [
            vec![worker("w-0", "True"), launched()],
            vec![worker("w-0", "True"), worker("w-1", "False"), launched()],
            vec![
                worker("w-0", "True"),
                worker("w-1", "True"),
                gone,
                launched(),
            ],
            vec![worker("w-0", "True"), launched(), worker("w-1", "True")],
        ] {
            assert!(check_gate(&story, "j", 2).is_err());
        }
    }

    #[test]
    fn a_launcher_beside_one_that_runs_is_found_and_one_after_an_ended_one_is_not() {
        let first = || launcher(Change::Added, "a", "Pending");
        let second = || launcher(Change::Added, "b", "Pending");
        let ended = launcher(Change::Modified, "a", "Failed");
        assert!(check_one_at_a_time(&[first(), second()], "j").is_err());
        assert!(check_one_at_a_time(&[first(), ended, second()], "j").is_ok());
    }
}
