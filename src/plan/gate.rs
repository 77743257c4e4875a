//! May the launcher start: `Open`, or `Held` with the reason that a user reads. Pure.
//!
//! The same answer is used for the first start, each retry and each resume.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::Pass;
use crate::api::reasons;
use crate::facts::observed::{JobFacts, PodFacts, Trouble, TroubleKind};

/// How long our own readiness probe may be the only thing that is missing before the launcher is
/// started without it: the port that we read from the command may be wrong.
pub const PROBE_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// How long a missing worker pod is normal; after that the Job controller's warnings are read.
pub const MISSING_PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// How many workers a message names.
const NAMED: usize = 3;

/// Longest text of one pod in a message, in characters.
const POD_TEXT: usize = 200;

/// The gate's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// The launcher may start, with these workers (ascending indexes).
    Open {
        /// Workers in the hostfile.
        hosts: Vec<u32>,
        /// Workers that count although our own probe did not pass.
        bypassed: Vec<u32>,
        /// When the last of them became Ready.
        since: Option<Timestamp>,
    },
    /// The launcher has to wait.
    Held(Held),
}

/// Why the launcher has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// One of the False reasons of the condition WorkersReady.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
    /// When the answer may change though nothing else does.
    pub look_again: Option<Timestamp>,
}

/// The workers of the current worker Job.
#[derive(Debug, Clone, Default)]
pub struct Workers<'a> {
    /// The live pod of each index. One pod an index counts: the oldest Ready one. Pods of a Job that
    /// is not Indexed are numbered by age, so that a pod that takes another's place comes last.
    pub live: BTreeMap<u32, &'a PodFacts>,
    /// Indexes whose live pod counts as Ready, ascending.
    pub ready: Vec<u32>,
    /// Those of `ready` where our own probe was given up on.
    pub bypassed: Vec<u32>,
    /// When our patience with our own probe ends next.
    pub patience_ends: Option<Timestamp>,
}

impl<'a> Workers<'a> {
    /// The workers among `pods` that this worker Job controls.
    #[must_use]
    pub fn of(pods: impl Iterator<Item = &'a PodFacts>, job: &JobFacts, now: Timestamp) -> Self {
        let mut workers = Self::default();
        let mut pods: Vec<&PodFacts> = pods
            .filter(|pod| pod.owner == job.uid && pod.live())
            .collect();
        if !job.indexed {
            pods.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        }
        for (place, pod) in (0..).zip(pods) {
            let index = if job.indexed { pod.index } else { Some(place) };
            let Some(index) = index else { continue };
            let keep = workers
                .live
                .get(&index)
                .is_some_and(|old| old.ready || !pod.ready);
            if !keep {
                workers.live.insert(index, pod);
            }
        }
        for (index, pod) in &workers.live {
            // Without a hostname, only the address leads to it.
            if pod.ready && (job.indexed || pod.ip.is_some()) {
                workers.ready.push(*index);
                continue;
            }
            let only_probe = pod.probe_ours
                && pod
                    .trouble
                    .as_ref()
                    .is_some_and(|t| t.kind == TroubleKind::NotReady);
            if let (true, Some(started)) = (only_probe, pod.main_started) {
                let ends = super::after(started, PROBE_PATIENCE);
                if ends <= now {
                    workers.ready.push(*index);
                    workers.bypassed.push(*index);
                } else {
                    workers.patience_ends =
                        Some(workers.patience_ends.map_or(ends, |old| old.min(ends)));
                }
            }
        }
        workers
    }
}

impl Workers<'_> {
    /// The indexes that `count` workers have, or will have: the live ones, and the lowest free ones,
    /// by which the Job controller fills up; without those that leave.
    #[must_use]
    pub fn expected(&self, count: usize, leaving: &[u32]) -> Vec<u32> {
        let stays = |index: &u32| !leaving.contains(index);
        let mut indexes: Vec<u32> = self.live.keys().copied().filter(stays).collect();
        let missing = count.saturating_sub(indexes.len());
        let free = (0..).filter(|index| stays(index) && !self.live.contains_key(index));
        indexes.extend(free.take(missing));
        indexes.sort_unstable();
        indexes
    }
}

/// May the launcher start now?
#[must_use]
pub fn gate(pass: &Pass<'_>) -> Gate {
    let wanted = pass.job.workers;
    if wanted == 0 {
        return Gate::Open {
            hosts: Vec::new(),
            bypassed: Vec::new(),
            since: None,
        };
    }
    let ready = u32::try_from(pass.workers.ready.len()).unwrap_or(u32::MAX);
    if ready >= pass.job.min_ready {
        let since = pass
            .workers
            .live
            .values()
            .filter(|pod| pod.ready)
            .filter_map(|pod| pod.ready_changed)
            .max();
        return Gate::Open {
            hosts: pass.workers.ready.clone(),
            bypassed: pass.workers.bypassed.clone(),
            since,
        };
    }
    Gate::Held(held(pass, ready))
}

fn held(pass: &Pass<'_>, ready: u32) -> Held {
    let wanted = pass.job.workers;
    let mut look_again = pass.workers.patience_ends;
    let mut troubles: Vec<(u32, Option<&PodFacts>)> = Vec::new();
    for index in pass.expected() {
        match pass.workers.live.get(&index) {
            Some(_) if pass.workers.ready.binary_search(&index).is_ok() => {}
            Some(pod) => troubles.push((index, Some(pod))),
            None => troubles.push((index, None)),
        }
    }
    let mut reason = reasons::WAITING_FOR_WORKERS;
    let mut parts = Vec::new();
    for (index, pod) in &troubles {
        let (rank, text) = match pod {
            Some(pod) => {
                let trouble = pod.trouble.as_ref().filter(|trouble| {
                    // Not Ready for a moment after the start is no trouble.
                    trouble.kind != TroubleKind::NotReady
                        || pod.main_started.is_some_and(|started| {
                            pass.now.duration_since(started) > MISSING_PATIENCE
                        })
                });
                let reason = trouble.map_or(reasons::WAITING_FOR_WORKERS, |t| reason_of(t.kind));
                (reason, trouble.map(describe))
            }
            None => missing(pass, *index),
        };
        if severity(rank) > severity(reason) {
            reason = rank;
        }
        if parts.len() < NAMED
            && let Some(text) = text
        {
            let node = pod.and_then(|pod| pod.node.as_deref());
            let on = node
                .map(|node| format!(" on node {node}"))
                .unwrap_or_default();
            let who = pass.name_workers(&[*index]);
            parts.push(format!("{who}{on}: {}", cut(&text, POD_TEXT)));
        }
    }
    let mut message = format!("{ready}/{wanted} workers are Ready");
    if pass.job.min_ready < wanted {
        let _ = write!(message, " (at least {} needed)", pass.job.min_ready);
    }
    let indexes: Vec<u32> = troubles.iter().map(|(index, _)| *index).collect();
    let more = indexes.len() > NAMED * 4;
    let shown = if pass.unindexed() {
        pass.name_workers(&indexes)
    } else {
        super::indexes::format(&indexes[..indexes.len().min(NAMED * 4)])
    };
    let etc = if more && !pass.unindexed() {
        " and more"
    } else {
        ""
    };
    let _ = write!(message, ", waiting for {shown}{etc}");
    if !parts.is_empty() {
        let _ = write!(message, "; {}", parts.join("; "));
    }
    // After that the Job controller's warnings are read, at a distance of their own.
    let due = pass
        .worker_job()
        .and_then(|job| job.created?.checked_add(MISSING_PATIENCE).ok())
        .filter(|due| *due > pass.now);
    if let Some(due) = due
        && troubles.iter().any(|(_, pod)| pod.is_none())
    {
        look_again = Some(look_again.map_or(due, |old| old.min(due)));
    }
    Held {
        reason,
        message,
        look_again,
    }
}

/// What the Job controller says of pods that it did not create.
fn missing(pass: &Pass<'_>, index: u32) -> (&'static str, Option<String>) {
    if let Some(warning) = pass.observed.memory.job_warnings.last() {
        let text = format!("{}: {}", warning.reason, warning.message);
        let reason = if warning.message.contains("exceeded quota") {
            reasons::QUOTA_EXCEEDED
        } else {
            reasons::ADMISSION_REFUSED
        };
        return (reason, Some(text));
    }
    let unindexed = pass.unindexed();
    // Whatever ended before the newest pod came has been replaced.
    let newest = pass.workers.live.values().map(|pod| pod.created).max();
    let last = pass.worker_job().and_then(|job| {
        let pods = pass.observed.workers.iter().map(|pod| &**pod);
        pods.filter(|pod| pod.owner == job.uid && pod.terminal())
            .filter(|pod| {
                if unindexed {
                    newest.is_none_or(|newest| pod.ended.or(pod.created) >= newest)
                } else {
                    pod.index == Some(index)
                }
            })
            .max_by_key(|pod| pod.ended.or(pod.created))
    });
    let Some(pod) = last else {
        return (reasons::WAITING_FOR_WORKERS, None);
    };
    let why = pod
        .trouble
        .as_ref()
        .map_or_else(|| "ended".to_owned(), describe);
    if unindexed {
        // Which of the pods that ended this one stood for is not known, nor its count of failures.
        let text = format!("pod {}: {why}", pod.name);
        return (reasons::BACK_OFF, Some(text));
    }
    let until = back_off_ends(pod)
        .filter(|until| *until > pass.now)
        .map(|until| format!("; the Job controller creates the next pod at about {until:.0}"))
        .unwrap_or_default();
    let reason = if pod.failures > 0 {
        reasons::CRASH_LOOPING
    } else {
        reasons::BACK_OFF
    };
    let times = match pod.failures {
        0 => "once".to_owned(),
        before => format!("{} times", before + 1),
    };
    (reason, Some(format!("{why} (failed {times}){until}")))
}

/// When the Job controller's back-off for the index of this failed pod ends: 10 s, doubling with
/// each failure up to 10 min, counted from the pod's end (Kubernetes 1.28 and later).
fn back_off_ends(pod: &PodFacts) -> Option<Timestamp> {
    let distance = super::back_off(10, pod.failures, 600);
    pod.ended?.checked_add(distance).ok()
}

fn reason_of(kind: TroubleKind) -> &'static str {
    match kind {
        TroubleKind::Unschedulable => reasons::UNSCHEDULABLE,
        TroubleKind::ImagePull => reasons::IMAGE_PULL_FAILED,
        TroubleKind::Crash => reasons::CRASH_LOOPING,
        TroubleKind::NotReady => reasons::PROBE_FAILING,
        TroubleKind::Create => reasons::WAITING_FOR_WORKERS,
    }
}

/// Which reason speaks for a job whose workers have several.
fn severity(reason: &str) -> u8 {
    match reason {
        reasons::QUOTA_EXCEEDED | reasons::ADMISSION_REFUSED => 6,
        reasons::IMAGE_PULL_FAILED => 5,
        reasons::CRASH_LOOPING => 4,
        reasons::UNSCHEDULABLE => 3,
        reasons::BACK_OFF => 2,
        reasons::PROBE_FAILING => 1,
        _ => 0,
    }
}

/// A pod's trouble in one phrase: reason, exit code, container, the platform's sentence.
#[must_use]
pub fn describe(trouble: &Trouble) -> String {
    if trouble.kind == TroubleKind::NotReady {
        return format!(
            "container {} runs, but is not Ready: its readiness probe does not pass",
            trouble.container
        );
    }
    let mut text = if trouble.reason.is_empty() {
        "failed".to_owned()
    } else {
        trouble.reason.clone()
    };
    if let Some(code) = trouble.exit_code {
        let _ = write!(text, ", exit code {code}");
    }
    if !trouble.container.is_empty() {
        let _ = write!(text, ", container {}", trouble.container);
    }
    if !trouble.message.is_empty() {
        let _ = write!(text, ": {}", trouble.message.trim());
    }
    text
}

/// Some of `count` pods by name, for a sentence. Those that are not there have none.
#[must_use]
pub fn name_pods<'p>(names: impl Iterator<Item = &'p str>, count: usize) -> String {
    let names: Vec<&str> = names.take(NAMED).collect();
    match (names.as_slice(), count) {
        ([], 1) => "a worker pod".to_owned(),
        ([], count) => format!("{count} worker pods"),
        ([name], 1) => format!("worker pod {name}"),
        (names, count) if names.len() == count => format!("worker pods {}", names.join(", ")),
        (names, count) => format!("{count} worker pods, {} among them", names.join(", ")),
    }
}

/// The first `limit` characters, with an ellipsis if there were more.
#[must_use]
pub fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(3)).collect();
    short.push_str("...");
    short
}
