//! An elastic program, and jobs that shrink and grow by name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use crate::history::{Change, History};
use crate::mpi::{self, MpiJob, job};
use crate::wait::poll;
use crate::{Namespace, SOON};

/// Reads `discover_hosts.sh` each round and runs mpirun over the hosts that it prints, until it is
/// told to end. Each round prints `round N: HOST...`, the hostname of each rank; a round whose hosts
/// went meanwhile prints `round N broken`. Beside it, each change of the script prints
/// `files TIME HOST...`, in nanoseconds since 1970.
const PROGRAM: &str = r#"
trap 'exit 143' TERM
hosts() { /etc/mpi/discover_hosts.sh | cut -d. -f1 | tr '\n' ' '; }
(
  last=
  while :; do
    now=$(hosts)
    if [ "$now" != "$last" ]; then echo "files $(date +%s%N) $now"; last=$now; fi
    sleep 0.05
  done
) &
watcher=$!
round=0
until [ -e /tmp/go ]; do
  round=$((round + 1))
  /etc/mpi/discover_hosts.sh | sed 's/$/ slots=1/' > /tmp/hosts
  ranks=$(grep -c . /tmp/hosts)
  if [ "$ranks" -gt 0 ] &&
     timeout 60 mpirun --hostfile /tmp/hosts -n "$ranks" hostname > /tmp/ranks 2> /tmp/errors; then
    echo "round $round: $(sort -V /tmp/ranks | tr '\n' ' ')"
  else
    echo "round $round broken: $(tail -n 1 /tmp/errors)"
  fi
  sleep 0.3
done
kill $watcher
"#;

/// A job with an elastic program that starts with `min` of its `workers`.
#[must_use]
pub fn elastic(name: &str, workers: i32, min: i32) -> MpiJob {
    job(name)
        .workers(workers)
        .script(PROGRAM)
        .spec(json!({"elasticPolicy": {"minReplicas": min}}))
}

/// A patch to another number of workers.
#[must_use]
pub fn replicas(count: usize) -> Value {
    json!({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})
}

/// A patch of `removeFirst` and of the number of workers, in one.
#[must_use]
pub fn remove_first(job: &str, indexes: &[u32], count: usize) -> Value {
    let names: Vec<String> = indexes
        .iter()
        .map(|i| format!("{job}-worker-{i}"))
        .collect();
    let mut patch = replicas(count);
    patch["spec"]["elasticPolicy"] = json!({"removeFirst": names});
    patch
}

/// Uid and address of each worker.
#[must_use]
pub fn identities(workers: &BTreeMap<u32, Pod>) -> BTreeMap<u32, (String, String)> {
    let address = |pod: &Pod| pod.status.as_ref().and_then(|s| s.pod_ip.clone());
    workers
        .iter()
        .map(|(index, pod)| (*index, (mpi::uid(pod), address(pod).unwrap_or_default())))
        .collect()
}

/// Only workers `indexes` are others than before, or gone, or new; all else of them is the same.
pub fn ensure_only_changed(
    before: &BTreeMap<u32, Pod>,
    after: &BTreeMap<u32, Pod>,
    indexes: &[u32],
) -> Result<()> {
    let (before, after) = (identities(before), identities(after));
    let all: BTreeSet<&u32> = before.keys().chain(after.keys()).collect();
    let changed: Vec<u32> = all
        .into_iter()
        .filter(|index| before.get(index) != after.get(index))
        .copied()
        .collect();
    ensure!(
        changed == indexes,
        "workers {changed:?} changed, not {indexes:?}: {before:?} to {after:?}"
    );
    Ok(())
}

impl Namespace {
    /// Waits until a round of the elastic program ran over exactly these workers; which round.
    pub async fn until_round(&self, launcher: &Pod, indexes: &[u32]) -> Result<u32> {
        let job = launcher
            .metadata
            .labels
            .as_ref()
            .and_then(|l| l.get(mpi::JOB_NAME));
        let job = job.context("a launcher has the label")?;
        let wanted: Vec<String> = indexes
            .iter()
            .map(|i| format!("{job}-worker-{i}"))
            .collect();
        let wanted = wanted.join(" ");
        poll(&format!("a round over {wanted}"), SOON, async || {
            let log = self.log(launcher).await?;
            // The line of a later round may be half written.
            let last = log.lines().rev().find_map(|line| {
                let (round, hosts) = line.strip_prefix("round ")?.split_once(": ")?;
                Some((round.parse().ok()?, hosts.trim() == wanted))
            });
            Ok(last.filter(|(_, same)| *same).map(|(round, _)| round))
        })
        .await
    }

    /// How long each change of `discover_hosts.sh` took from the ConfigMap into the running
    /// launcher, by the log of the elastic program. Both clocks are this machine's.
    pub async fn refresh_times(
        &self,
        job: &str,
        launcher: &Pod,
        files: &History<ConfigMap>,
    ) -> Result<Vec<Duration>> {
        let log = self.log(launcher).await?;
        let inside: Vec<(u128, String)> = log
            .lines()
            .filter_map(|line| {
                let (at, hosts) = line.strip_prefix("files ")?.split_once(' ')?;
                Some((at.parse().ok()?, hosts.trim().to_owned()))
            })
            .collect();
        let (now, instant) = (SystemTime::now(), Instant::now());
        let mut times = Vec::new();
        let mut last = String::new();
        for one in files.all() {
            let name = one.object.metadata.name.as_deref();
            if name != Some(&format!("{job}-config")) || one.change == Change::Deleted {
                continue;
            }
            let data = one.object.data.unwrap_or_default();
            let script = data.get("discover_hosts.sh").cloned().unwrap_or_default();
            let lines = script.lines().filter_map(|line| line.strip_prefix("echo "));
            let hosts: Vec<&str> = lines.filter_map(|host| host.split('.').next()).collect();
            let hosts = hosts.join(" ");
            if std::mem::replace(&mut last, hosts.clone()) == hosts {
                continue;
            }
            let written = (now - instant.saturating_duration_since(one.at))
                .duration_since(UNIX_EPOCH)?
                .as_nanos();
            // What was there when the launcher began to run it has read by itself.
            if inside.first().is_none_or(|(began, _)| written <= *began) {
                continue;
            }
            // Watched from here, the change may seem a moment later than inside.
            let seen = inside
                .iter()
                .find(|(at, inside)| *inside == hosts && at + 1_000_000_000 > written);
            if let Some((at, _)) = seen {
                let took = u64::try_from(at.saturating_sub(written))?;
                times.push(Duration::from_nanos(took));
            }
        }
        Ok(times)
    }
}
