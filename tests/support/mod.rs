//! A small world around the planner: one MPIJob, an API server, the Job controller, a kubelet and
//! an operator that observes and plans, all in one thread and on one virtual clock.
//!
//! Objects are JSON and reach the facts through the operator's own decoders, so decoding, index and
//! plan are under test together. A tick is one second: the kubelet goes first, then the operator,
//! then the Job controller, then the operator again. Nothing is random; the same steps lead to the
//! same world.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise, and each test uses a part of the world"
)]

pub mod cluster;
pub mod old;
pub mod operator;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use mpi_operator::action::{Action, EventNote};
use mpi_operator::api::names;
use mpi_operator::facts::index::{Change, Index, Key};
use mpi_operator::facts::observed::JobWarning;
use mpi_operator::plan::Options;
use serde_json::{Value, json};

/// `metadata.uid` of the MPIJob.
pub const UID: &str = "6f1c7c1e-0000-4000-8000-000000000001";

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// Its kubelet works.
    Ready,
    /// Its kubelet is silent.
    Lost,
    /// Silent, and tainted out-of-service.
    OutOfService,
    /// There is no such node.
    Gone,
}

/// What pods do.
#[derive(Debug, Clone)]
pub struct Script {
    /// Seconds and exit code of the coming tries.
    pub tries: VecDeque<(i64, i32)>,
    /// The same of every later try.
    pub then: (i64, i32),
    /// Seconds until the program fails after a worker that it began with is gone; None: it goes on.
    pub fails_on_loss: Option<i64>,
    /// Seconds from Running to Ready of a worker.
    pub ready_after: i64,
    /// Workers that never become Ready.
    pub unready: BTreeSet<u32>,
    /// Workers that exit with 1 this long after they started.
    pub crash: BTreeMap<u32, i64>,
    /// Workers that no node takes.
    pub unschedulable: BTreeSet<u32>,
    /// The Job controller cannot create more pods than this.
    pub quota: Option<usize>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tries: VecDeque::new(),
            then: (5, 0),
            fails_on_loss: Some(3),
            ready_after: 1,
            unready: BTreeSet::new(),
            crash: BTreeMap::new(),
            unschedulable: BTreeSet::new(),
            quota: None,
        }
    }
}

/// What the world knows of a launcher pod that no object says.
#[derive(Debug, Clone, Default)]
pub struct Try {
    /// Name of the pod.
    pub name: String,
    /// When it began to run.
    pub began: Option<Timestamp>,
    /// When and how the program ends.
    pub ends: Option<(Timestamp, i32)>,
    /// Worker pods at its begin.
    pub workers: BTreeSet<String>,
    /// A worker was missing at its begin, or lost while it ran, not by a scale-in.
    pub lossy: bool,
    /// It failed by itself or was deleted by somebody, and counts.
    pub failed: bool,
}

/// A write of the operator.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// In short.
    pub text: String,
    /// The action; None for a status patch.
    pub action: Option<Action>,
}

/// Where the operator is to die: after this many further writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash(pub usize);

/// The world.
pub struct World {
    /// Virtual clock, whole seconds.
    pub now: Timestamp,
    /// All objects by kind and name.
    pub objects: BTreeMap<(&'static str, String), Value>,
    /// Nodes, and since when they are so.
    pub nodes: BTreeMap<String, (Node, Timestamp)>,
    /// Nodes that take no new pods.
    pub cordoned: BTreeSet<String>,
    /// What pods do.
    pub script: Script,
    /// The operator's flags.
    pub options: Options,
    /// The operator runs.
    pub up: bool,
    /// Seconds by which watches lag behind; answers to writes do not.
    pub lag: i64,
    /// The Job controller acts before the operator in a tick.
    pub controller_first: bool,
    /// Fields of a Job's spec that the API server drops.
    pub drops: &'static [&'static str],
    /// The Job controller is that of Kubernetes 1.21: see [`old`].
    pub old_controller: bool,
    /// The Job controller hears of a deletion one tick late, as its view of pods may lag behind that
    /// of Jobs.
    pub late_controller: bool,
    /// Writes of the operator, oldest first.
    pub log: Vec<Entry>,
    /// Events of the operator, oldest first.
    pub events: Vec<EventNote>,
    /// Tries of the launcher by UID of the pod.
    pub tries: BTreeMap<String, Try>,
    /// Broken invariants.
    pub broken: Vec<String>,
    /// Looks of the operator at nodes.
    pub looks: usize,
    /// Passes of the operator.
    pub passes: usize,
    /// The operator dies after so many further writes.
    pub crash: Option<Crash>,
    index: Index,
    key: Key,
    dirty: bool,
    due: Option<Timestamp>,
    outbox: VecDeque<(Timestamp, Change)>,
    version: u64,
    created: u64,
    books: HashMap<String, cluster::Books>,
    started: HashMap<String, Timestamp>,
    places: HashMap<String, u32>,
    unheard: BTreeSet<String>,
    job_warnings: HashMap<String, Vec<JobWarning>>,
    ended: Option<(String, Option<String>)>,
    /// The operator was down, or its view late, at some time.
    pub blind: bool,
}

/// The spec of a job with `workers` workers, changed by a merge patch.
pub fn spec(workers: u32, patch: Value) -> Value {
    let template = |image: &str, command: Value| json!({ "spec": { "containers": [{ "name": "main", "image": image, "command": command }] } });
    let mut spec = json!({
        "slotsPerWorker": 1,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {},
        "mpiReplicaSpecs": {
            "Launcher": { "replicas": 1, "template": template("mpi", json!(["mpirun", "pi"])) },
        },
    });
    if workers > 0 {
        spec["mpiReplicaSpecs"]["Worker"] =
            json!({ "replicas": workers, "template": template("mpi", json!([])) });
    }
    merge(&mut spec, &patch);
    spec
}

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let object = target.as_object_mut().unwrap();
    for (key, value) in fields {
        if value.is_null() {
            object.shift_remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// RFC 3339, whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The reverse of [`time`].
pub fn parse(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// `at` and so many seconds.
pub fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

impl World {
    /// A world in which a user has just created this MPIJob.
    pub fn new(spec: Value) -> Self {
        let mut world = Self::empty();
        world.submit(spec);
        world
    }

    /// A world without an MPIJob.
    pub fn empty() -> Self {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let nodes = ["n1", "n2"].map(|name| (name.to_owned(), (Node::Ready, now)));
        let mut world = Self {
            now,
            objects: BTreeMap::new(),
            nodes: BTreeMap::from(nodes),
            cordoned: BTreeSet::new(),
            script: Script::default(),
            options: Options::default(),
            up: true,
            lag: 0,
            controller_first: false,
            drops: &[],
            old_controller: false,
            late_controller: true,
            log: Vec::new(),
            events: Vec::new(),
            tries: BTreeMap::new(),
            broken: Vec::new(),
            looks: 0,
            passes: 0,
            crash: None,
            index: Index::default(),
            key: Key::from(UID),
            dirty: false,
            due: None,
            outbox: VecDeque::new(),
            version: 100,
            created: 1,
            books: HashMap::new(),
            started: HashMap::new(),
            places: HashMap::new(),
            unheard: BTreeSet::new(),
            job_warnings: HashMap::new(),
            ended: None,
            blind: false,
        };
        world.restart_operator();
        world
    }

    /// From now on the cluster is Kubernetes 1.21 with default gates.
    pub fn make_old(&mut self) {
        self.drops = &old::DROPS;
        self.old_controller = true;
    }

    /// The user creates the MPIJob.
    pub fn submit(&mut self, spec: Value) {
        let body = json!({
            "apiVersion": names::API_VERSION,
            "kind": names::KIND,
            "metadata": { "name": "pi", "namespace": "default", "uid": UID },
            "spec": spec,
        });
        self.insert("MPIJob", body);
    }

    /// One second.
    pub fn tick(&mut self) {
        self.now = after(self.now, 1);
        self.kubelet();
        if self.controller_first {
            self.controller();
        }
        self.operate();
        self.controller();
        self.operate();
        self.observe_tries();
        self.check();
    }

    /// So many seconds.
    pub fn advance(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.tick();
        }
    }

    /// Until `reached` holds; fails after `most` seconds.
    #[track_caller]
    pub fn until(&mut self, what: &str, most: i64, reached: impl Fn(&Self) -> bool) {
        for _ in 0..most {
            if reached(self) {
                return;
            }
            self.tick();
        }
        assert!(
            reached(self),
            "not within {most} s: {what}\n{}",
            self.describe()
        );
    }

    /// Until nothing has changed for 320 s, which is longer than any pause of the operator.
    #[track_caller]
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..6000 {
            let before = self.version;
            self.tick();
            quiet = if before == self.version { quiet + 1 } else { 0 };
            if quiet >= 320 {
                return;
            }
            if quiet >= 25 {
                // What is due in the cluster meanwhile comes late, but it comes.
                let left = 320 - quiet;
                let due = self
                    .due
                    .map_or(left, |due| due.duration_since(self.now).as_secs() - 1);
                let jump = due.clamp(0, left);
                self.now = after(self.now, jump);
                quiet += jump;
            }
        }
        panic!("never at rest\n{}", self.describe());
    }

    /// The world with the last writes, for failure texts.
    pub fn describe(&self) -> String {
        let mut text = format!("at {}\n", self.now);
        for ((kind, name), object) in &self.objects {
            text.push_str(&match *kind {
                "Pod" => format!(
                    "  Pod {name}: {} ready {} index {} deleted {} finalizers {} reason {}\n",
                    object["status"]["phase"],
                    ready(object),
                    object["metadata"]["annotations"][names::COMPLETION_INDEX_ANNOTATION],
                    object["metadata"]["deletionTimestamp"],
                    object["metadata"]["finalizers"],
                    object["status"]["reason"],
                ),
                "Job" => format!(
                    "  Job {name}: suspend {} parallelism {} backoffLimit {} deadline {} annotations {} status {}\n",
                    object["spec"]["suspend"],
                    object["spec"]["parallelism"],
                    object["spec"]["backoffLimit"],
                    object["spec"]["activeDeadlineSeconds"],
                    object["metadata"]["annotations"],
                    object["status"],
                ),
                "MPIJob" => format!("  MPIJob {name}: {}\n", object["status"]),
                _ => format!("  {kind} {name}\n"),
            });
        }
        text.push_str("last writes:\n");
        for entry in self.log.iter().rev().take(30).rev() {
            text.push_str(&format!("  {} {}\n", entry.at, entry.text));
        }
        for broken in &self.broken {
            text.push_str(&format!("broken: {broken}\n"));
        }
        text
    }

    /// Fails if an invariant was broken.
    #[track_caller]
    pub fn sound(&self) {
        assert!(self.broken.is_empty(), "{}", self.describe());
    }

    /// The operator at rest: a further look writes nothing.
    #[track_caller]
    pub fn at_rest(&mut self) {
        self.sound();
        let writes = self.log.len();
        let events = self.events.len();
        self.dirty = true;
        self.operate();
        assert_eq!(
            (self.log.len(), self.events.len()),
            (writes, events),
            "a write at rest\n{}",
            self.describe()
        );
        let plan = self.plan();
        let idle = plan.actions.is_empty()
            && plan.background.iter().all(operator::only_reads)
            && plan.status.is_none();
        assert!(idle, "{plan:?}\n{}", self.describe());
    }

    // What the user does.

    /// Edits the spec by a merge patch.
    pub fn edit(&mut self, patch: Value) {
        self.change("MPIJob", "pi", |job| merge(&mut job["spec"], &patch));
        self.react();
    }

    /// Suspends or resumes.
    pub fn suspend(&mut self, suspend: bool) {
        self.edit(json!({ "runPolicy": { "suspend": suspend } }));
    }

    /// The operator's clock: a moment into the second, as its timers are a little late.
    pub fn operator_now(&self) -> Timestamp {
        self.now
            .checked_add(SignedDuration::from_millis(5))
            .unwrap()
    }

    /// Asks for another number of workers.
    pub fn scale(&mut self, workers: u32) {
        self.edit(json!({ "mpiReplicaSpecs": { "Worker": { "replicas": workers } } }));
    }

    /// `kubectl delete pod`.
    pub fn delete_pod(&mut self, name: &str) {
        self.mark_deleted(name, 30);
        self.react();
    }

    /// Deletes the worker pod of this index, if there is one.
    pub fn delete_worker(&mut self, index: u32) {
        if let Some(name) = self.worker(index) {
            self.delete_pod(&name);
        }
    }

    /// An eviction by the platform.
    pub fn evict(&mut self, name: &str) {
        if self.objects.contains_key(&("Pod", name.to_owned())) {
            self.disrupt(name);
            self.delete_pod(name);
        }
    }

    /// The whole MPIJob goes.
    pub fn delete_job(&mut self) {
        self.take_away("MPIJob", "pi");
        self.react();
    }

    /// A node falls silent; its pods are marked after a while.
    pub fn lose_node(&mut self, name: &str) {
        self.nodes.insert(name.to_owned(), (Node::Lost, self.now));
        for pod in self.pods() {
            if self.get("Pod", &pod)["spec"]["nodeName"] == name {
                self.set_ready(&pod, false);
            }
        }
        self.react();
    }

    // What is there.

    /// An object; null if there is none.
    pub fn get(&self, kind: &'static str, name: &str) -> &Value {
        static NULL: Value = Value::Null;
        self.objects.get(&(kind, name.to_owned())).unwrap_or(&NULL)
    }

    /// The MPIJob's status.
    pub fn status(&self) -> &Value {
        &self.get("MPIJob", "pi")["status"]
    }

    /// `<status>/<reason>` of a condition; empty if absent.
    pub fn condition(&self, type_: &str) -> String {
        self.condition_object(type_)
            .map(|c| {
                let text = |key: &str| c[key].as_str().unwrap_or_default();
                format!("{}/{}", text("status"), text("reason"))
            })
            .unwrap_or_default()
    }

    /// The message of a condition; empty if absent.
    pub fn message(&self, type_: &str) -> String {
        self.condition_object(type_)
            .and_then(|c| c["message"].as_str())
            .unwrap_or_default()
            .to_owned()
    }

    fn condition_object(&self, type_: &str) -> Option<&Value> {
        self.status()["conditions"]
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == type_)
    }

    /// Whether a condition is True.
    pub fn is(&self, type_: &str) -> bool {
        self.condition(type_).starts_with("True/")
    }

    /// Succeeded or Failed.
    pub fn ended(&self) -> bool {
        self.is("Succeeded") || self.is("Failed")
    }

    /// Names of all pods.
    pub fn pods(&self) -> Vec<String> {
        let kind = |(kind, name): &(&str, String)| (*kind == "Pod").then(|| name.clone());
        self.objects.keys().filter_map(kind).collect()
    }

    /// Names of the pods of a role.
    pub fn role(&self, role: &str) -> Vec<String> {
        let has = |name: &String| {
            self.get("Pod", name)["metadata"]["labels"][names::JOB_ROLE_LABEL] == role
        };
        self.pods().into_iter().filter(has).collect()
    }

    /// The launcher pods that have not ended.
    pub fn launchers(&self) -> Vec<String> {
        let mut pods = self.role("launcher");
        pods.retain(|name| !terminal(self.get("Pod", name)));
        pods
    }

    /// The worker pods that have not ended and are not being deleted.
    pub fn workers(&self) -> Vec<String> {
        let mut pods = self.role("worker");
        pods.retain(|name| live(self.get("Pod", name)));
        pods
    }

    /// Their indexes, ascending.
    pub fn worker_indexes(&self) -> Vec<u32> {
        let mut indexes: Vec<u32> = self
            .workers()
            .iter()
            .filter_map(|name| self.place(self.get("Pod", name)))
            .collect();
        indexes.sort_unstable();
        indexes
    }

    /// The live worker pod of an index.
    pub fn worker(&self, index: u32) -> Option<String> {
        self.workers()
            .into_iter()
            .find(|name| self.place(self.get("Pod", name)) == Some(index))
    }

    /// The completion index of a worker pod; on an old server the place that this world gave it, by
    /// which scripts and tests name it.
    pub fn place(&self, pod: &Value) -> Option<u32> {
        index_of(pod).or_else(|| self.places.get(&uid(pod)).copied())
    }

    /// UID of the live worker pod of each index.
    pub fn worker_uids(&self) -> BTreeMap<u32, String> {
        let pods = self.workers().into_iter();
        pods.filter_map(|name| {
            let pod = self.get("Pod", &name);
            Some((index_of(pod)?, uid(pod)))
        })
        .collect()
    }

    /// Workers that are Ready.
    pub fn ready_workers(&self) -> usize {
        let is_ready = |name: &&String| ready(self.get("Pod", name));
        self.workers().iter().filter(is_ready).count()
    }

    /// Wanted workers.
    pub fn wanted(&self) -> usize {
        let replicas = &self.get("MPIJob", "pi")["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"];
        usize::try_from(replicas.as_u64().unwrap_or(0)).unwrap()
    }

    /// A launcher pod runs.
    pub fn launched(&self) -> bool {
        let runs = |name: &String| self.get("Pod", name)["status"]["phase"] == "Running";
        self.launchers().iter().any(runs)
    }

    /// Writes whose text begins so.
    pub fn wrote(&self, text: &str) -> usize {
        let begins = |entry: &&Entry| entry.text.starts_with(text);
        self.log.iter().filter(begins).count()
    }

    /// Events of a reason.
    pub fn told(&self, reason: &str) -> usize {
        let same = |event: &&EventNote| event.reason == reason;
        self.events.iter().filter(same).count()
    }

    /// Tries that failed with all workers there.
    pub fn clean_failures(&self) -> usize {
        let clean = |attempt: &&Try| attempt.failed && !attempt.lossy;
        self.tries.values().filter(clean).count()
    }

    /// The number of tries that the status charges.
    pub fn charged(&self) -> i64 {
        self.status()["launcher"]["chargedTries"]
            .as_i64()
            .unwrap_or(0)
    }

    fn observe_tries(&mut self) {
        let live: BTreeSet<String> = self
            .workers()
            .iter()
            .map(|name| uid(self.get("Pod", name)))
            .collect();
        for name in self.role("launcher") {
            let pod = self.get("Pod", &name);
            let (id, ended) = (uid(pod), terminal(pod));
            let attempt = self.tries.entry(id).or_default();
            if attempt.began.is_some() && !ended && !attempt.workers.is_subset(&live) {
                attempt.lossy = true;
            }
        }
    }

    fn check(&mut self) {
        let reachable = |name: &&String| {
            let node = self.get("Pod", name)["spec"]["nodeName"].as_str();
            node.is_none_or(|node| self.nodes.get(node).is_none_or(|n| n.0 == Node::Ready))
        };
        let mut running = self.launchers();
        // Without podReplacementPolicy the Job controller itself puts one beside a pod that goes.
        running.retain(|name| !self.old_controller || live(self.get("Pod", name)));
        let count = running.iter().filter(reachable).count();
        if count > 1 {
            let text = format!("{} two launcher pods: {running:?}", self.now);
            self.broken.push(text);
        }
        let end = ["Succeeded", "Failed"].into_iter().find(|c| self.is(c));
        let completed = self.status()["completionTime"].as_str().map(str::to_owned);
        let end = end.map(|end| (end.to_owned(), completed));
        if self.ended.is_some() && self.ended != end && !self.get("MPIJob", "pi").is_null() {
            let text = format!("{} the end changed: {:?}, {end:?}", self.now, self.ended);
            self.broken.push(text);
        }
        if let Some((_, completed)) = &end
            && completed.is_none()
        {
            self.broken
                .push(format!("{} ended without completionTime", self.now));
        }
        if end.is_some() && self.ended.is_none() {
            self.ended = end;
        }
    }
}

/// All containers ended.
pub fn terminal(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

/// Runs or will run, and nobody asked for its deletion.
pub fn live(pod: &Value) -> bool {
    !terminal(pod) && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Condition Ready is True.
pub fn ready(pod: &Value) -> bool {
    has(pod, "Ready")
}

/// Whether a condition of an object is True.
pub fn has(object: &Value, type_: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let is = |c: &Value| c["type"] == type_ && c["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(is))
}

/// Completion index of a worker pod.
pub fn index_of(pod: &Value) -> Option<u32> {
    let text = pod["metadata"]["annotations"][names::COMPLETION_INDEX_ANNOTATION].as_str();
    text?.parse().ok()
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// UID of the controlling owner.
pub fn owner(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|o| o["controller"] == true)?["uid"].as_str()
}

/// A world whose program runs until it is told otherwise.
pub fn long_running(workers: u32, patch: Value) -> World {
    let mut world = World::new(spec(workers, patch));
    world.script.then = (100_000, 0);
    world
}

/// Waits until the launcher runs.
#[track_caller]
pub fn start(world: &mut World) {
    world.until("the launcher runs", 120, World::launched);
}

/// Waits until the job has ended and nothing more is written.
#[track_caller]
pub fn finish(world: &mut World) {
    world.until("the job ends", 3000, World::ended);
    world.settle();
    world.at_rest();
}

/// Lets the present try end with this code.
pub fn end_try(world: &mut World, code: i32) {
    let now = world.now;
    for attempt in world.tries.values_mut() {
        if let Some(ends) = &mut attempt.ends
            && ends.0 > now
        {
            *ends = (now, code);
        }
    }
}
