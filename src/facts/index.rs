//! Change -> facts by owner UID; answers which MPIJobs to look at again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::observed::{
    ChildFacts, JobFacts, JobObject, JobWarning, Kept, Memory, NodeFacts, Observed, PodFacts,
    Refusal, Removed,
};
use crate::api::names;

/// UID of an MPIJob; the key of the queue.
pub type Key = Arc<str>;

/// How many deleted UIDs are remembered, so that a late answer to one of our own writes does not
/// bring an object back. A write is answered within its deadline of seconds; this many deletions
/// of children within that time would be far beyond what one operator handles.
const TOMBSTONES: usize = 20_000;

/// Ends of one worker index that are remembered.
const ENDS: usize = 8;

/// Kind of a child with metadata only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKind {
    /// Service.
    Service,
    /// ConfigMap.
    ConfigMap,
}

/// Kind of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// MPIJobs.
    MpiJob,
    /// Jobs.
    Job,
    /// Pods.
    Pod,
    /// Services or ConfigMaps.
    Child(ChildKind),
}

/// One object, decoded and slim.
#[derive(Debug, Clone)]
pub enum Object {
    /// An MPIJob.
    MpiJob(JobObject),
    /// A Job: namespace, uid of its controller, facts.
    Job {
        /// Namespace.
        namespace: String,
        /// Uid of the controlling owner.
        owner: String,
        /// Facts.
        facts: JobFacts,
    },
    /// A pod.
    Pod(PodFacts),
    /// A Service or ConfigMap.
    Child {
        /// Which of them.
        kind: ChildKind,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Facts.
        facts: ChildFacts,
    },
}

impl Object {
    fn uid(&self) -> &str {
        match self {
            Self::MpiJob(job) => &job.uid,
            Self::Job { facts, .. } => &facts.uid,
            Self::Pod(pod) => &pod.uid,
            Self::Child { facts, .. } => &facts.uid,
        }
    }

    fn version(&self) -> u64 {
        match self {
            Self::MpiJob(job) => job.version,
            Self::Job { facts, .. } => facts.version,
            Self::Pod(pod) => pod.version,
            Self::Child { facts, .. } => facts.version,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::MpiJob(_) => Kind::MpiJob,
            Self::Job { .. } => Kind::Job,
            Self::Pod(_) => Kind::Pod,
            Self::Child { kind, .. } => Kind::Child(*kind),
        }
    }
}

/// What a watch, or the answer to a write, said.
#[derive(Debug, Clone)]
pub enum Change {
    /// The object is there, as it stands.
    Seen(Box<Object>),
    /// The object is gone.
    Gone {
        /// Its kind.
        kind: Kind,
        /// Its uid.
        uid: String,
        /// `metadata.resourceVersion` that it went with, as a number. A watch by label also says
        /// gone of an object that lost its label; with a newer version it may come back.
        version: u64,
    },
    /// A list of the whole kind begins; objects follow as `Seen`.
    ListBegins(Kind),
    /// The list is complete: what was not in it is gone.
    ListEnds(Kind),
}

#[derive(Debug, Clone)]
struct StoredJob {
    owner: String,
    namespace: String,
    facts: Arc<JobFacts>,
}

/// Whether a pod whose owner is unknown is what a Job of MPIJob `job` left behind. It is only ever
/// waited for, so a pod that somebody made up can do no more than delay that job's start.
fn is_left_over(pod: &PodFacts, job: &str) -> bool {
    let name = if pod.launcher {
        names::launcher_job(job)
    } else {
        names::worker_job(job)
    };
    pod.owner_name == name && pod.deleted.is_some()
}

/// All facts. One lock guards it; every method is short and does no I/O.
#[derive(Debug, Default)]
pub struct Index {
    jobs: HashMap<Key, Arc<JobObject>>,
    by_name: HashMap<(String, String), Key>,
    memory: HashMap<Key, Memory>,
    secrets: HashMap<Key, Timestamp>,
    batch: HashMap<String, StoredJob>,
    /// Jobs by MPIJob; a Job that is gone stays here while pods of it are left.
    batch_by_owner: HashMap<String, BTreeSet<String>>,
    /// The same, the other way round.
    job_owner: HashMap<String, String>,
    pods: HashMap<String, Arc<PodFacts>>,
    pods_by_owner: HashMap<String, BTreeMap<String, Arc<PodFacts>>>,
    /// Owners of pods by namespace and MPIJob name, so that pods of a Job that was gone before
    /// this process started are found.
    owners_by_job: HashMap<(String, String), BTreeSet<String>>,
    children: HashMap<(ChildKind, String, String), Arc<ChildFacts>>,
    child_names: HashMap<String, (ChildKind, String, String)>,
    nodes: BTreeMap<String, NodeFacts>,
    /// What the API server kept of the newest Job, and the version of that.
    kept: Option<(u64, Kept)>,
    /// Objects that are gone, and the version they went with.
    tombs: HashMap<String, u64>,
    tomb_order: VecDeque<String>,
    listing: HashMap<Kind, HashSet<String>>,
    listed: HashSet<Kind>,
}

impl Index {
    /// Takes one change; returns the MPIJobs that have to be looked at.
    pub fn apply(&mut self, change: Change, now: Timestamp) -> Vec<Key> {
        match change {
            Change::Seen(object) => {
                if let Some(seen) = self.listing.get_mut(&object.kind()) {
                    seen.insert(object.uid().to_owned());
                }
                self.store(*object, now)
            }
            Change::Gone { kind, uid, version } => {
                self.bury(uid.clone(), version);
                self.remove(kind, &uid)
            }
            Change::ListBegins(kind) => {
                self.listing.insert(kind, HashSet::new());
                Vec::new()
            }
            Change::ListEnds(kind) => self.finish_list(kind),
        }
    }

    /// All kinds in `kinds` have been listed once.
    #[must_use]
    pub fn synced(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.listed.contains(kind))
    }

    fn bury(&mut self, uid: String, version: u64) {
        if self.tombs.insert(uid.clone(), version).is_none() {
            self.tomb_order.push_back(uid);
            if self.tomb_order.len() > TOMBSTONES
                && let Some(oldest) = self.tomb_order.pop_front()
            {
                self.tombs.remove(&oldest);
            }
        }
    }

    /// Version of an object as it is known; 0 if it is not.
    fn version_of(&self, kind: Kind, uid: &str) -> u64 {
        match kind {
            Kind::MpiJob => self.jobs.get(uid).map(|job| job.version),
            Kind::Job => self.batch.get(uid).map(|job| job.facts.version),
            Kind::Pod => self.pods.get(uid).map(|pod| pod.version),
            Kind::Child(_) => self
                .child_names
                .get(uid)
                .and_then(|id| self.children.get(id))
                .map(|child| child.version),
        }
        .unwrap_or(0)
    }

    fn finish_list(&mut self, kind: Kind) -> Vec<Key> {
        let Some(seen) = self.listing.remove(&kind) else {
            return Vec::new();
        };
        self.listed.insert(kind);
        let known: Vec<String> = match kind {
            Kind::MpiJob => self.jobs.keys().map(|key| key.to_string()).collect(),
            Kind::Job => self.batch.keys().cloned().collect(),
            Kind::Pod => self.pods.keys().cloned().collect(),
            Kind::Child(child) => self
                .child_names
                .iter()
                .filter(|(_, id)| id.0 == child)
                .map(|(uid, _)| uid.clone())
                .collect(),
        };
        let mut dirty = Vec::new();
        for uid in known.into_iter().filter(|uid| !seen.contains(uid)) {
            let version = self.version_of(kind, &uid);
            self.bury(uid.clone(), version);
            dirty.extend(self.remove(kind, &uid));
        }
        dirty
    }

    fn store(&mut self, object: Object, now: Timestamp) -> Vec<Key> {
        let version = object.version();
        if self
            .tombs
            .get(object.uid())
            .is_some_and(|gone| version <= *gone)
        {
            return Vec::new();
        }
        match object {
            Object::MpiJob(job) => {
                let key: Key = Arc::from(job.uid.as_str());
                if self
                    .jobs
                    .get(&key)
                    .is_some_and(|old| old.version >= version && version > 0)
                {
                    return Vec::new();
                }
                let name = (job.namespace.clone(), job.name.clone());
                if let Some(old) = self.by_name.insert(name, key.clone())
                    && old != key
                {
                    // Another UID has its name: whatever is still said of it is late.
                    self.bury(old.to_string(), u64::MAX);
                    self.forget(&old);
                }
                let generation = self.jobs.get(&key).map(|old| old.generation);
                if generation != Some(job.generation) {
                    self.memory.entry(key.clone()).or_default().edited = Some(now);
                }
                self.jobs.insert(key.clone(), Arc::new(job));
                vec![key]
            }
            Object::Job {
                namespace,
                owner,
                facts,
            } => {
                // The newest, because an upgrade of the server may change the answer.
                if self.kept.is_none_or(|(newest, _)| newest <= version) {
                    self.kept = Some((version, facts.kept));
                }
                let uid = facts.uid.clone();
                if self
                    .batch
                    .get(&uid)
                    .is_some_and(|old| old.facts.version >= version)
                {
                    return Vec::new();
                }
                self.batch_by_owner
                    .entry(owner.clone())
                    .or_default()
                    .insert(uid.clone());
                self.job_owner.insert(uid.clone(), owner.clone());
                let stored = StoredJob {
                    owner: owner.clone(),
                    namespace,
                    facts: Arc::new(facts),
                };
                self.batch.insert(uid, stored);
                self.key_of(&owner).into_iter().collect()
            }
            Object::Pod(pod) => self.store_pod(pod, now),
            Object::Child {
                kind,
                namespace,
                name,
                facts,
            } => {
                let id = (kind, namespace, name);
                if self
                    .children
                    .get(&id)
                    .is_some_and(|old| old.uid == facts.uid && old.version >= version)
                {
                    return Vec::new();
                }
                let owner = facts.owner.clone();
                self.child_names.insert(facts.uid.clone(), id.clone());
                self.children.insert(id, Arc::new(facts));
                owner
                    .and_then(|owner| self.key_of(&owner))
                    .into_iter()
                    .collect()
            }
        }
    }

    fn store_pod(&mut self, mut pod: PodFacts, now: Timestamp) -> Vec<Key> {
        let old = self.pods.get(&pod.uid);
        if pod.owner.is_empty() {
            // Orphaned (kubectl delete job --cascade=orphan): it may still run, so it stays known
            // under the owner that it had. One that never had an owner is not ours.
            let Some(old) = old else { return Vec::new() };
            pod.owner.clone_from(&old.owner);
            pod.owner_name.clone_from(&old.owner_name);
        }
        if old.is_some_and(|old| old.version >= pod.version) {
            return Vec::new();
        }
        let key = self.key_of_pod(&pod);
        // A worker that ended although nobody asked for it: remembered, so that a worker that
        // crashes again and again is left to the Job controller's back-off.
        let ended_by_itself = pod.terminal()
            && pod.deleted.is_none()
            && !pod.disrupted
            && !pod.launcher
            && old.is_some_and(|old| !old.terminal());
        if ended_by_itself && let (Some(key), Some(index)) = (key.clone(), pod.index) {
            let ends = self
                .memory
                .entry(key)
                .or_default()
                .ends
                .entry(index)
                .or_default();
            ends.retain(|end| now.duration_since(*end) < SignedDuration::from_hours(1));
            ends.push(now);
            if ends.len() > ENDS {
                ends.remove(0);
            }
        }
        self.owners_by_job
            .entry((pod.namespace.clone(), pod.job_name.clone()))
            .or_default()
            .insert(pod.owner.clone());
        let pod = Arc::new(pod);
        self.pods_by_owner
            .entry(pod.owner.clone())
            .or_default()
            .insert(pod.uid.clone(), pod.clone());
        self.pods.insert(pod.uid.clone(), pod);
        key.into_iter().collect()
    }

    fn remove(&mut self, kind: Kind, uid: &str) -> Vec<Key> {
        match kind {
            Kind::MpiJob => {
                let key: Key = Arc::from(uid);
                if let Some(job) = self.jobs.get(&key) {
                    let name = (job.namespace.clone(), job.name.clone());
                    if self.by_name.get(&name) == Some(&key) {
                        self.by_name.remove(&name);
                    }
                }
                self.forget(&key);
                vec![key]
            }
            Kind::Job => {
                let Some(stored) = self.batch.remove(uid) else {
                    return Vec::new();
                };
                if !self.pods_by_owner.contains_key(uid) {
                    self.forget_batch(uid);
                }
                self.key_of(&stored.owner).into_iter().collect()
            }
            Kind::Pod => {
                let Some(pod) = self.pods.remove(uid) else {
                    return Vec::new();
                };
                let key = self.key_of_pod(&pod);
                if let Some(pods) = self.pods_by_owner.get_mut(&pod.owner) {
                    pods.remove(uid);
                    if pods.is_empty() {
                        self.pods_by_owner.remove(&pod.owner);
                        let id = (pod.namespace.clone(), pod.job_name.clone());
                        if let Some(owners) = self.owners_by_job.get_mut(&id) {
                            owners.remove(&pod.owner);
                            if owners.is_empty() {
                                self.owners_by_job.remove(&id);
                            }
                        }
                        if !self.batch.contains_key(&pod.owner) {
                            self.forget_batch(&pod.owner);
                        }
                    }
                }
                key.into_iter().collect()
            }
            Kind::Child(_) => {
                let Some(id) = self.child_names.remove(uid) else {
                    return Vec::new();
                };
                // The name may be taken by a newer object already.
                if self.children.get(&id).is_some_and(|facts| facts.uid == uid)
                    && let Some(facts) = self.children.remove(&id)
                {
                    return facts
                        .owner
                        .as_ref()
                        .and_then(|o| self.key_of(o))
                        .into_iter()
                        .collect();
                }
                Vec::new()
            }
        }
    }

    /// Drops what ties a Job to its MPIJob; called once neither the Job nor a pod of it is left.
    fn forget_batch(&mut self, uid: &str) {
        let Some(owner) = self.job_owner.remove(uid) else {
            return;
        };
        if let Some(jobs) = self.batch_by_owner.get_mut(&owner) {
            jobs.remove(uid);
            if jobs.is_empty() {
                self.batch_by_owner.remove(&owner);
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        self.jobs.remove(key);
        self.memory.remove(key);
        self.secrets.remove(key);
    }

    fn key_of(&self, owner: &str) -> Option<Key> {
        self.jobs.get_key_value(owner).map(|(key, _)| key.clone())
    }

    /// A pod's owner is a Job of an MPIJob, or (plain pods) the MPIJob itself, or a Job that is gone.
    fn key_of_pod(&self, pod: &PodFacts) -> Option<Key> {
        if let Some(job) = self.job_owner.get(&pod.owner) {
            return self.key_of(job);
        }
        self.key_of(&pod.owner).or_else(|| {
            let key = self
                .by_name
                .get(&(pod.namespace.clone(), pod.job_name.clone()))?;
            is_left_over(pod, &pod.job_name).then(|| key.clone())
        })
    }

    /// The snapshot of one MPIJob; None once it is gone.
    #[must_use]
    pub fn observe(&self, key: &Key) -> Option<Observed> {
        let job = self.jobs.get(key)?.clone();
        let child = |kind, name: String| {
            self.children
                .get(&(kind, job.namespace.clone(), name))
                .cloned()
        };
        let mut observed = Observed {
            service: child(ChildKind::Service, names::service(&job.name)),
            config_map: child(ChildKind::ConfigMap, names::config_map(&job.name)),
            secret_seen: self.secrets.get(key).copied(),
            memory: self.memory.get(key).cloned().unwrap_or_default(),
            kept: self.kept.map(|(_, kept)| kept),
            ..Observed::default()
        };
        let worker_name = names::worker_job(&job.name);
        let launcher_name = names::launcher_job(&job.name);
        for uid in self.batch_by_owner.get(&**key).into_iter().flatten() {
            if let Some(stored) = self.batch.get(uid)
                && stored.namespace == job.namespace
            {
                if stored.facts.name == worker_name {
                    observed.worker_job = Some(stored.facts.clone());
                } else if stored.facts.name == launcher_name {
                    observed.launcher_job = Some(stored.facts.clone());
                }
            }
            // Pods of a Job that is gone count too: they hold resources until they are gone as well.
            for pod in self
                .pods_by_owner
                .get(uid)
                .into_iter()
                .flat_map(BTreeMap::values)
            {
                if pod.launcher {
                    observed.launchers.push(pod.clone());
                } else {
                    observed.workers.push(pod.clone());
                }
            }
        }
        let id = (job.namespace.clone(), job.name.clone());
        for owner in self.owners_by_job.get(&id).into_iter().flatten() {
            if self.job_owner.contains_key(owner) || **owner == **key {
                continue;
            }
            let pods = self
                .pods_by_owner
                .get(owner)
                .into_iter()
                .flat_map(BTreeMap::values);
            for pod in pods.filter(|pod| is_left_over(pod, &job.name)) {
                if pod.launcher {
                    observed.launchers.push(pod.clone());
                } else {
                    observed.workers.push(pod.clone());
                }
            }
        }
        for pod in self
            .pods_by_owner
            .get(&**key)
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            if !pod.launcher {
                observed.plain_workers.push(pod.clone());
            }
        }
        observed
            .workers
            .sort_by(|a, b| (a.index, &a.created, &a.uid).cmp(&(b.index, &b.created, &b.uid)));
        observed
            .launchers
            .sort_by(|a, b| (&a.created, &a.uid).cmp(&(&b.created, &b.uid)));
        observed
            .plain_workers
            .sort_by(|a, b| (a.index, &a.uid).cmp(&(b.index, &b.uid)));
        let nodes: BTreeSet<&String> = observed
            .workers
            .iter()
            .chain(&observed.launchers)
            .filter_map(|pod| pod.node.as_ref())
            .collect();
        observed.nodes = nodes
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.nodes.get(name)?.clone())))
            .collect();
        observed.job = job;
        Some(observed)
    }

    /// Changes what is remembered of an MPIJob; does nothing once it is gone.
    pub fn remember(&mut self, key: &Key, change: impl FnOnce(&mut Memory)) {
        if self.jobs.contains_key(key) {
            change(self.memory.entry(key.clone()).or_default());
        }
    }

    /// The edits that others made to Service and ConfigMap, as they stand, were answered.
    pub fn answered(&mut self, key: &Key) {
        let Some(job) = self.jobs.get(key).cloned() else {
            return;
        };
        let ids = [
            (
                ChildKind::Service,
                job.namespace.clone(),
                names::service(&job.name),
            ),
            (
                ChildKind::ConfigMap,
                job.namespace.clone(),
                names::config_map(&job.name),
            ),
        ];
        for id in ids {
            if let Some(facts) = self.children.get(&id).cloned() {
                self.remember(key, |memory| {
                    memory.answered.insert(facts.uid.clone(), facts.version);
                });
            }
        }
    }

    /// The pod with this UID was deleted by this process.
    pub fn removed(&mut self, key: &Key, uid: &str, now: Timestamp) {
        let worker = self.pods.get(uid).filter(|pod| !pod.launcher);
        let Some(index) = worker.and_then(|pod| pod.index) else {
            return;
        };
        let uid = uid.to_owned();
        self.remember(key, |memory| {
            memory.removed = Some(Removed {
                uid,
                index,
                at: now,
            });
        });
    }

    /// The Secret of the MPIJob is there and its own.
    pub fn secret_seen(&mut self, key: &Key, now: Timestamp) {
        if self.jobs.contains_key(key) {
            self.secrets.insert(key.clone(), now);
        }
    }

    /// A create of object `name` was accepted. Returns whether it had been refused before.
    pub fn accepted(&mut self, key: &Key, name: &str) -> bool {
        let mut was_refused = false;
        self.remember(key, |memory| {
            was_refused = memory.refused.remove(name).is_some()
        });
        was_refused
    }

    /// A create of object `name` was refused.
    pub fn refused(&mut self, key: &Key, name: String, code: u16, message: String, now: Timestamp) {
        let generation = self.jobs.get(key).map_or(0, |job| job.generation);
        self.remember(key, |memory| {
            let count = memory.refused.get(&name).map_or(0, |old| old.count);
            let count = count.saturating_add(1);
            memory.refused.insert(
                name,
                Refusal {
                    generation,
                    code,
                    message,
                    at: now,
                    count,
                },
            );
        });
    }

    /// What the events of a Job said.
    pub fn job_warnings(&mut self, key: &Key, warnings: Vec<JobWarning>, now: Timestamp) {
        self.remember(key, |memory| {
            memory.job_warnings = warnings;
            memory.job_warnings_read = Some(now);
        });
    }

    /// What a look at a node said.
    pub fn node(&mut self, name: String, facts: NodeFacts) {
        // Only nodes of pods that do not finish terminating, and of a shrink, are asked for; what is
        // older than the planner would use is dropped, so the map stays as small as the trouble is.
        let now = facts.asked;
        self.nodes
            .retain(|_, node| now.duration_since(node.asked) < SignedDuration::from_mins(10));
        self.nodes.insert(name, facts);
    }
}
