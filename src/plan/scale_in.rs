//! Who leaves when fewer workers are wanted, and in which step that is. Pure.
//!
//! Remember first, act in the next pass: who leaves is put on the MPIJob
//! ([`ScaleInStatus`]), and only a later pass, which sees that, touches anybody. A crash at any
//! moment therefore removes the same workers.
//!
//! The Job controller must not choose who goes. When parallelism is lowered it removes as many pods
//! as are too many *by its view*, which may lag behind: lowered right after the deletes, it was seen
//! to remove other workers, because it did not know of the deletes yet. So parallelism is lowered
//! when the Job controller has shown that it knows them, by creating a removed worker again, or
//! another one in its place (the lowest free index). Those are younger than the record, and the first
//! to go by its own rule: not Ready, or Ready since the shortest time. Deletes go from the highest
//! index down, so that the last of them is the first place to be filled; few pods are created in
//! vain, however many leave.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::status::rfc3339;
use super::{Pass, build, indexes};
use crate::api::mpijob::ScaleInStatus;
use crate::facts::observed::PodFacts;

/// Nodes that are asked for one shrink. Beyond that many, the workers that would leave first anyway
/// are looked at.
const MOST_NODES: usize = 100;

/// A Job controller that has not filled up for this long after the deletes cannot (a quota), and
/// knows of them by then.
const FILL_PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// A worker that may have to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its index.
    pub index: u32,
    /// Place in `removeFirst`, if it is named there and has not left because of that already.
    pub named: Option<usize>,
    /// A node was found for its pod.
    pub placed: bool,
    /// Its node is cordoned or about to be taken away.
    pub node_leaves: bool,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub cost: i32,
    /// It is Ready.
    pub ready: bool,
}

impl Candidate {
    /// Sorts who leaves first to the front: those of `removeFirst` in its order; those without a
    /// node, whose end costs nothing; those whose node leaves, which would go soon anyway; lower
    /// deletion cost; those that are not Ready; the highest index.
    #[must_use]
    pub fn key(&self) -> impl Ord + use<> {
        (
            self.named.unwrap_or(usize::MAX),
            self.placed,
            !self.node_leaves,
            self.cost,
            self.ready,
            Reverse(self.index),
        )
    }
}

/// Where a shrink stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScaleIn {
    /// Nobody has to leave.
    #[default]
    Nobody,
    /// Who leaves depends on these nodes, which have to be asked first.
    Asks(Vec<String>),
    /// These leave, but that is not on record yet.
    Decided(Vec<u32>),
    /// Nobody leaves before these workers, which stay, are Ready.
    Waits(Vec<u32>),
    /// These leave now.
    Leaves {
        /// Who leaves, and who came in place of one that left, ascending.
        victims: Vec<u32>,
        /// What is to be done about it.
        step: Step,
    },
}

/// One step on the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These are deleted, in this order.
    Delete(Vec<u32>),
    /// The Job controller is about to fill up; until then, at most, it is waited for.
    Fill(Timestamp),
    /// These workers, which stay, have to be Ready before parallelism is lowered.
    Wait(Vec<u32>),
    /// Parallelism is lowered.
    Lower,
    /// The Job controller removes what it filled up with.
    Settle,
}

impl ScaleIn {
    /// The workers that leave now.
    #[must_use]
    pub fn leaving(&self) -> &[u32] {
        match self {
            Self::Leaves { victims, .. } => victims,
            _ => &[],
        }
    }
}

/// What the status says, decoded.
#[derive(Debug, Default)]
struct Record {
    leaving: Vec<u32>,
    newest: Option<Timestamp>,
    handled: BTreeSet<u32>,
    /// It speaks of the present `removeFirst`.
    current: bool,
}

impl Record {
    fn of(pass: &Pass<'_>) -> Self {
        let Some(status) = &pass.observed.job.status.scale_in else {
            return Self::default();
        };
        let set =
            |text: &Option<String>| text.as_deref().and_then(indexes::parse).unwrap_or_default();
        Self {
            leaving: set(&status.leaving),
            newest: status
                .newest_worker
                .as_ref()
                .and_then(|text| text.parse().ok()),
            handled: set(&status.handled).into_iter().collect(),
            current: status.list == digest(pass),
        }
    }

    /// Whether this pod was not there when `leaving` was decided.
    fn younger(&self, pod: &PodFacts) -> bool {
        match (self.newest, pod.created) {
            (Some(newest), Some(created)) => created > newest,
            _ => false,
        }
    }

    /// Whether the pod that worker `index` had when `leaving` was decided is gone.
    fn went(&self, pass: &Pass<'_>, index: u32) -> bool {
        pass.workers
            .live
            .get(&index)
            .is_none_or(|pod| self.younger(pod))
    }

    /// Whether `leaving` still holds. Another `removeFirst` is another wish, but what has begun is
    /// brought to its end.
    fn holds(&self, pass: &Pass<'_>) -> bool {
        self.current || self.begun(pass)
    }

    /// Whether a worker of `leaving` is gone already.
    fn begun(&self, pass: &Pass<'_>) -> bool {
        self.leaving.iter().any(|index| self.went(pass, *index))
    }

    /// Place of worker `index` in `removeFirst`, unless that name has acted.
    fn named(&self, pass: &Pass<'_>, index: u32) -> Option<usize> {
        let acted = self.current && self.handled.contains(&index);
        let mut list = pass.job.remove_first.iter();
        list.position(|named| *named == index).filter(|_| !acted)
    }
}

/// Digest of `removeFirst`; None for an empty list.
fn digest(pass: &Pass<'_>) -> Option<String> {
    let list = &pass.job.remove_first;
    (!list.is_empty()).then(|| build::template_digest(&json!(list)))
}

/// Who leaves, and may they go now?
#[must_use]
pub fn decide(pass: &Pass<'_>) -> ScaleIn {
    let Some(job) = pass
        .worker_job()
        .filter(|job| !job.suspend && !pass.unindexed())
    else {
        return ScaleIn::Nobody;
    };
    let wanted = pass.job.workers as usize;
    let present = usize::try_from(job.parallelism).unwrap_or(0);
    let record = Record::of(pass);
    let holds = record.holds(pass) && !record.leaving.is_empty();
    let lowered = present == wanted && holds && pass.workers.live.len() > wanted;
    if wanted == 0 || job.complete || job.failure.is_some() || (present <= wanted && !lowered) {
        return ScaleIn::Nobody;
    }
    let there = pass.workers.expected(present, &[]);
    let leave = there.len() - wanted;
    let candidate = |index: u32| {
        let pod = pass.workers.live.get(&index);
        let node = pod.and_then(|pod| pod.node.as_ref());
        Candidate {
            index,
            named: record.named(pass, index),
            placed: node.is_some(),
            node_leaves: node
                .and_then(|name| pass.observed.nodes.get(name))
                .is_some_and(|node| node.leaving || node.gone),
            cost: pod.map_or(0, |pod| pod.deletion_cost),
            ready: pass.workers.ready.binary_search(&index).is_ok(),
        }
    };
    // Those on record first, then what came in place of one of them.
    let rank = |index: &u32| match holds {
        true if record.leaving.contains(index) => 0,
        true if record.went(pass, *index) => 1,
        _ => 2,
    };
    let mut order: Vec<(u8, Candidate)> = there
        .iter()
        .map(|index| (rank(index), candidate(*index)))
        .collect();
    order.sort_by_cached_key(|(rank, candidate)| (*rank, candidate.key()));
    let on_record = order.iter().take(leave).all(|(rank, _)| *rank < 2);
    if lowered {
        let mut victims: Vec<u32> = order.iter().take(leave).map(|(_, c)| c.index).collect();
        victims.sort_unstable();
        // Somebody else went, so all that is left stays.
        return match on_record {
            true => ScaleIn::Leaves {
                victims,
                step: Step::Settle,
            },
            false => ScaleIn::Nobody,
        };
    }
    let settled = order
        .iter()
        .take_while(|(rank, c)| *rank < 2 || c.named.is_some() || !c.placed)
        .count();
    if leave > settled {
        let ask = unknown_nodes(pass, order.iter().skip(settled).map(|(_, c)| c.index));
        if !ask.is_empty() {
            return ScaleIn::Asks(ask);
        }
    }
    let mut victims: Vec<u32> = order.iter().take(leave).map(|(_, c)| c.index).collect();
    victims.sort_unstable();
    if !on_record {
        return ScaleIn::Decided(victims);
    }
    let stay = there.into_iter().filter(|index| !victims.contains(index));
    let stay: Vec<u32> = stay.collect();
    let step = step(pass, &record, &victims, &stay);
    match step {
        Step::Wait(unready) if !record.begun(pass) => ScaleIn::Waits(unready),
        step => ScaleIn::Leaves { victims, step },
    }
}

/// What is to be done about workers whose leave is on record.
fn step(pass: &Pass<'_>, record: &Record, victims: &[u32], stay: &[u32]) -> Step {
    let live = &pass.workers.live;
    let there = victims.iter().rev().copied();
    let there: Vec<u32> = there.filter(|index| live.contains_key(index)).collect();
    let old = |index: &u32| live.get(index).is_some_and(|pod| !record.younger(pod));
    let old = there.iter().any(old);
    // While a worker that stays is not Ready, the Job controller would remove that one, or create a
    // removed one again instead.
    let unready = |index: &u32| pass.workers.ready.binary_search(index).is_err();
    let unready: Vec<u32> = stay.iter().copied().filter(unready).collect();
    if !unready.is_empty() && (old || live.len() > stay.len()) {
        return Step::Wait(unready);
    }
    if old || !goes_first(pass, &there, stay) {
        return Step::Delete(there);
    }
    fills_until(pass, victims).map_or(Step::Lower, Step::Fill)
}

/// Whether the Job controller would remove these before those that stay, if all those are Ready.
fn goes_first(pass: &Pass<'_>, victims: &[u32], stay: &[u32]) -> bool {
    let pod = |index: &u32| pass.workers.live.get(index).copied();
    let last = stay.iter().filter_map(pod).filter_map(|p| p.ready_changed);
    let last = last.max();
    let mut victims = victims.iter().filter_map(pod);
    victims.all(|pod| !pod.ready || pod.ready_changed >= last)
}

/// Until when the Job controller is given time to fill up; None once it has, as far as it takes to
/// know that it knows of all deletes, or once the time is over.
fn fills_until(pass: &Pass<'_>, victims: &[u32]) -> Option<Timestamp> {
    let live = &pass.workers.live;
    let last = pass.observed.memory.removed.as_ref();
    // Deletes reach the Job controller in their order.
    let answered = last.is_some_and(|last| {
        let again = live.get(&last.index).is_some_and(|pod| pod.uid != last.uid);
        again && victims.contains(&last.index)
    });
    if answered || victims.iter().all(|index| live.contains_key(index)) {
        return None;
    }
    let pods = pass.observed.workers.iter();
    let since = pods
        .filter_map(|pod| pod.deleted.or(pod.ended))
        .chain(last.map(|last| last.at))
        .chain(pass.observed.memory.edited)
        .max();
    let until = super::after(since.unwrap_or(pass.now), FILL_PATIENCE);
    (until > pass.now).then_some(until)
}

/// The nodes of these workers, in this order, that were not asked since the job was last edited:
/// a node may be cordoned a moment before the shrink that is meant for it.
fn unknown_nodes(pass: &Pass<'_>, workers: impl Iterator<Item = u32>) -> Vec<String> {
    let mut names: Vec<&String> = Vec::new();
    for index in workers {
        let node = pass.workers.live.get(&index).and_then(|p| p.node.as_ref());
        if let Some(name) = node
            && !names.contains(&name)
            && names.len() < MOST_NODES
        {
            names.push(name);
        }
    }
    let known = |name: &String| {
        let node = pass.observed.nodes.get(name);
        node.is_some_and(|node| {
            pass.observed
                .memory
                .edited
                .is_none_or(|at| node.asked >= at)
        })
    };
    names
        .into_iter()
        .filter(|name| !known(name))
        .cloned()
        .collect()
}

/// What the status is to say of it after this pass.
#[must_use]
pub fn record(pass: &Pass<'_>) -> Option<ScaleInStatus> {
    let record = Record::of(pass);
    let leaving: &[u32] = match &pass.scale_in {
        ScaleIn::Decided(victims) => victims,
        // It is over, or was called off, or the workers are no longer there.
        ScaleIn::Nobody => &[],
        _ => return pass.observed.job.status.scale_in.clone(),
    };
    let mut handled = BTreeSet::new();
    if record.current {
        handled.extend(record.handled.iter().copied());
        // A name has acted if its worker went. Without a worker Job they all did.
        if pass.worker_job().is_some() {
            let went = record.leaving.iter().filter(|i| record.went(pass, **i));
            handled.extend(went.filter(|i| pass.job.remove_first.contains(i)));
        }
    }
    if leaving.is_empty() && handled.is_empty() {
        return None;
    }
    let text = |set: &[u32]| (!set.is_empty()).then(|| indexes::format(set));
    let created = pass.workers.live.values().filter_map(|pod| pod.created);
    Some(ScaleInStatus {
        leaving: text(leaving),
        newest_worker: (!leaving.is_empty()).then(|| rfc3339(created.max().unwrap_or(pass.now))),
        handled: text(&handled.into_iter().collect::<Vec<_>>()),
        list: digest(pass),
    })
}
