//! The operator's side of the world: one pass as the reconciler makes it, against the world's API
//! server. Preconditions hold here as on a real server, and the writer's answers are the same.

use mpi_operator::action::{Action, ObjectKind, Plan};
use mpi_operator::api::names;
use mpi_operator::facts::index::{Change, ChildKind, Index, Kind, Object};
use mpi_operator::facts::observed::{JobWarning, NodeFacts};
use mpi_operator::plan::plan;
use mpi_operator::watch::slim::{SlimJob, SlimMpiJob, SlimNode, SlimPod, child_object};
use serde_json::{Value, json};

use super::{Crash, Entry, Node, World, after, index_of, live, merge, owner, uid};

/// Background writes of one pass, as in the reconciler.
const MOST_BACKGROUND: usize = 64;

/// Passes at one moment; more would be a hot loop.
const MOST_PASSES: usize = 80;

/// All kinds that are watched.
const KINDS: [(&str, Kind); 5] = [
    ("MPIJob", Kind::MpiJob),
    ("Job", Kind::Job),
    ("Pod", Kind::Pod),
    ("Service", Kind::Child(ChildKind::Service)),
    ("ConfigMap", Kind::Child(ChildKind::ConfigMap)),
];

/// The answer to an action.
#[derive(Debug)]
enum Answer {
    Done(Option<Value>),
    SecretSeen,
    Node(NodeFacts),
    Warnings(Vec<JobWarning>),
    Stale,
    Denied(u16, String),
    Later,
}

/// Whether an action only reads.
pub fn only_reads(action: &Action) -> bool {
    matches!(
        action,
        Action::LookAtNode { .. }
            | Action::ReadJobEvents { .. }
            | Action::SeekLauncher { .. }
            | Action::ReadPriorities { .. }
    )
}

fn short(action: &Action) -> String {
    match action {
        Action::Create { kind, name, .. } => format!("create {} {name}", kind.as_str()),
        Action::CreateSecret { name, .. } => format!("create Secret {name}"),
        Action::Patch { kind, name, body } => {
            format!("patch {} {name} {}", kind.as_str(), body)
        }
        Action::ReplaceConfigMap { name, .. } => format!("replace ConfigMap {name}"),
        Action::DeleteJob { name, .. } => format!("delete Job {name}"),
        Action::Retire { pod, .. } => format!("retire {pod}"),
        Action::DeletePod { pod, force, .. } => format!("delete Pod {pod} force {force}"),
        other => format!("{other:?}"),
    }
}

/// The decoded form, if the watch of its kind selects it.
pub fn decode(kind: &str, value: &Value) -> Option<Object> {
    let labelled = value["metadata"]["labels"][names::OPERATOR_NAME_LABEL] == names::OPERATOR_NAME;
    if kind != "MPIJob" && !labelled {
        return None;
    }
    let value = value.clone();
    match kind {
        "MPIJob" => serde_json::from_value::<SlimMpiJob>(value)
            .unwrap()
            .into_object(),
        "Job" => serde_json::from_value::<SlimJob>(value)
            .unwrap()
            .into_object(),
        "Pod" => serde_json::from_value::<SlimPod>(value)
            .unwrap()
            .into_object(),
        "Service" | "ConfigMap" => {
            let child = if kind == "Service" {
                ChildKind::Service
            } else {
                ChildKind::ConfigMap
            };
            child_object(
                child,
                serde_json::from_value(value["metadata"].clone()).unwrap(),
            )
        }
        _ => None,
    }
}

impl World {
    /// A new process with an empty memory lists everything.
    pub fn restart_operator(&mut self) {
        self.index = Index::default();
        self.outbox.clear();
        self.due = None;
        for (name, kind) in KINDS {
            self.index.apply(Change::ListBegins(kind), self.now);
            let objects: Vec<Object> = self
                .objects
                .iter()
                .filter(|((of, _), _)| *of == name)
                .filter_map(|(_, value)| decode(name, value))
                .collect();
            for object in objects {
                self.index.apply(Change::Seen(Box::new(object)), self.now);
            }
            self.index.apply(Change::ListEnds(kind), self.now);
        }
        self.dirty = true;
    }

    /// The operator stops; watches go unheard.
    pub fn stop_operator(&mut self) {
        self.up = false;
        self.blind = true;
    }

    /// A new process starts.
    pub fn start_operator(&mut self) {
        self.up = true;
        self.restart_operator();
        self.operate();
    }

    /// A change by a user is seen at once if the operator runs and its watches do not lag.
    pub fn react(&mut self) {
        if !self.controller_first {
            self.operate();
        }
    }

    /// What watches say now.
    pub(super) fn send(&mut self, change: Change) {
        if self.up {
            self.outbox.push_back((after(self.now, self.lag), change));
        }
    }

    /// The plan of this moment.
    pub fn plan(&self) -> Plan {
        match self.index.observe(&self.key) {
            Some(observed) => plan(&observed, &self.options, self.operator_now()),
            None => Plan::default(),
        }
    }

    /// Passes until nothing is left to do at this moment.
    pub fn operate(&mut self) {
        if !self.up {
            return;
        }
        for _ in 0..MOST_PASSES {
            while self.outbox.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, change) = self.outbox.pop_front().unwrap();
                self.dirty |= !self.index.apply(change, self.operator_now()).is_empty();
            }
            if self.due.is_some_and(|due| due <= self.operator_now()) {
                self.due = None;
                self.dirty = true;
            }
            if !self.dirty {
                return;
            }
            self.dirty = false;
            self.pass();
        }
        panic!("a hot loop\n{}", self.describe());
    }

    fn pass(&mut self) {
        self.passes += 1;
        let Some(observed) = self.index.observe(&self.key) else {
            return;
        };
        let now = self.operator_now();
        let plan = plan(&observed, &self.options, now);
        let mut trouble = false;
        let mut carried_out = true;
        for action in &plan.actions {
            let answer = self.perform(action);
            let ok = !matches!(answer, Answer::Stale | Answer::Denied(..) | Answer::Later);
            if self.died() {
                return;
            }
            trouble |= self.take_in(action, answer);
            if !ok {
                carried_out = false;
                break;
            }
        }
        let key = self.key.clone();
        if carried_out {
            if plan.released.is_some() {
                self.index.remember(&key, |memory| {
                    let count = memory.released.map_or(0, |(_, count)| count);
                    memory.released = Some((now, count + 1));
                });
            }
            if plan.held {
                self.index.remember(&key, |memory| memory.released = None);
            }
            if let Some(digest) = plan.pod_group.clone() {
                self.index
                    .remember(&key, |memory| memory.pod_group = Some(digest));
            }
        }
        if let Some(patch) = &plan.status {
            let mut body = patch.body.clone();
            body["metadata"] = json!({
                "uid": observed.job.uid,
                "resourceVersion": observed.job.version.to_string(),
            });
            self.note(format!("status {}", patch.body["status"]), None);
            let answer = self.patch("MPIJob", "pi", &body);
            if self.died() {
                return;
            }
            match answer {
                Answer::Done(value) => {
                    let soft = patch.soft;
                    self.index.remember(&key, |memory| {
                        memory.status_written = Some(now);
                        memory.soft_writes = if soft { memory.soft_writes + 1 } else { 0 };
                    });
                    self.see("MPIJob", value);
                    self.events.extend(plan.events.clone());
                }
                _ => trouble = true,
            }
        } else {
            for note in &plan.events {
                if !note.once || !self.events.contains(note) {
                    self.events.push(note.clone());
                }
            }
        }
        for action in plan.background.iter().take(MOST_BACKGROUND) {
            let answer = self.perform(action);
            if self.died() {
                return;
            }
            if self.take_in(action, answer) {
                let again = after(now, 1);
                self.due = Some(self.due.map_or(again, |due| due.min(again)));
            }
        }
        self.dirty |= plan.background.len() > MOST_BACKGROUND;
        let again = if trouble {
            Some(after(now, 1))
        } else {
            plan.look_again
        };
        if let Some(again) = again {
            self.due = Some(self.due.map_or(again, |due| due.min(again)));
        }
    }

    /// The process dies where the test wants it, and a new one starts.
    fn died(&mut self) -> bool {
        if self.crash != Some(Crash(0)) {
            return false;
        }
        self.crash = None;
        self.restart_operator();
        true
    }

    fn note(&mut self, text: String, action: Option<Action>) {
        if let Some(Crash(left)) = &mut self.crash {
            *left = left.saturating_sub(1);
        }
        self.log.push(Entry {
            at: self.now,
            text,
            action,
        });
    }

    fn see(&mut self, kind: &str, value: Option<Value>) {
        if let Some(object) = value.and_then(|value| decode(kind, &value)) {
            let change = Change::Seen(Box::new(object));
            self.dirty |= !self.index.apply(change, self.operator_now()).is_empty();
        }
    }

    fn take_in(&mut self, action: &Action, answer: Answer) -> bool {
        let key = self.key.clone();
        let now = self.operator_now();
        match answer {
            Answer::Done(value) => {
                let kind = match action {
                    Action::Create { kind, .. } | Action::Patch { kind, .. } => kind.as_str(),
                    Action::ReplaceConfigMap { .. } => "ConfigMap",
                    Action::Retire { .. } => "Pod",
                    Action::SeekLauncher { .. } => "Job",
                    _ => "",
                };
                self.see(kind, value);
                match action {
                    Action::Create { name, .. } | Action::CreateSecret { name, .. } => {
                        self.index.remember(&key, |memory| {
                            memory.refused.remove(name);
                        });
                    }
                    Action::SeekLauncher { .. } => {
                        self.index
                            .remember(&key, |memory| memory.launcher_sought = true);
                        self.dirty = true;
                    }
                    _ => {}
                }
                self.remember_write(action);
                false
            }
            Answer::SecretSeen => {
                self.index.secret_seen(&key, now);
                self.dirty = true;
                false
            }
            Answer::Node(facts) => {
                if let Action::LookAtNode { name } = action {
                    self.index.node(name.clone(), facts);
                }
                self.dirty = true;
                false
            }
            Answer::Warnings(warnings) => {
                self.index.job_warnings(&key, warnings, now);
                self.dirty = true;
                false
            }
            Answer::Denied(code, message) => {
                if let Action::Create { name, .. } | Action::CreateSecret { name, .. } = action {
                    self.index.refused(&key, name.clone(), code, message, now);
                    self.dirty = true;
                    return false;
                }
                true
            }
            Answer::Stale | Answer::Later => true,
        }
    }

    fn remember_write(&mut self, action: &Action) {
        let (key, now) = (self.key.clone(), self.operator_now());
        let (kind, body) = match action {
            Action::Patch { kind, body, .. } => (*kind, Some(body)),
            Action::ReplaceConfigMap { .. } => (ObjectKind::ConfigMap, None),
            Action::DeletePod { uid, .. } => return self.index.removed(&key, uid, now),
            _ => return,
        };
        if kind == ObjectKind::ConfigMap {
            self.index
                .remember(&key, |memory| memory.config_written = Some(now));
        }
        if matches!(kind, ObjectKind::ConfigMap | ObjectKind::Service) {
            self.index.answered(&key);
        }
        let unsuspends = body.is_some_and(|body| body["spec"]["suspend"] == false);
        let annotated = body.is_some_and(|body| body["metadata"]["annotations"].is_object());
        if kind == ObjectKind::Job && unsuspends && !annotated {
            self.index.remember(&key, |memory| {
                let count = memory.unsuspended.map_or(0, |(_, count)| count);
                memory.unsuspended = Some((now, count + 1));
            });
        }
    }

    fn perform(&mut self, action: &Action) -> Answer {
        if !only_reads(action) {
            self.note(short(action), Some(action.clone()));
        }
        self.check_preconditions(action);
        self.check_scale_in(action);
        match action {
            Action::Create { kind, name, body } => self.create(kind.as_str(), name, body),
            Action::CreateSecret {
                name,
                shell,
                look_first,
            } => {
                if *look_first && !self.get("Secret", name).is_null() {
                    return self.own(self.get("Secret", name).clone(), true);
                }
                match self.create("Secret", name, shell) {
                    Answer::Done(_) => Answer::SecretSeen,
                    answer => answer,
                }
            }
            Action::Patch { kind, name, body } => self.patch(kind.as_str(), name, body),
            Action::ReplaceConfigMap {
                name,
                uid: of,
                data,
                content,
            } => {
                if uid(self.get("ConfigMap", name)) != *of {
                    return Answer::Stale;
                }
                self.change("ConfigMap", name, |config| {
                    config["data"] = (**data).clone();
                    config["metadata"]["annotations"][names::CONTENT_ANNOTATION] = json!(content);
                    config["metadata"]["managedFields"] = managed("mpi-operator", "f:data");
                });
                Answer::Done(Some(self.get("ConfigMap", name).clone()))
            }
            Action::DeleteJob { name, uid: of } => {
                if uid(self.get("Job", name)) == *of {
                    self.take_away("Job", name);
                }
                Answer::Done(None)
            }
            Action::Retire { pod, uid: of } => {
                if uid(self.get("Pod", pod)) != *of {
                    return Answer::Done(None);
                }
                self.strip(pod);
                Answer::Done(Some(self.get("Pod", pod).clone()))
            }
            Action::DeletePod {
                pod,
                uid: of,
                force,
            } => {
                if uid(self.get("Pod", pod)) == *of {
                    self.delete_by_operator(pod, *force);
                }
                Answer::Done(None)
            }
            Action::LookAtNode { name } => {
                self.looks += 1;
                let node = self.nodes.get(name).map_or(Node::Gone, |node| node.0);
                if node == Node::Gone {
                    return Answer::Node(NodeFacts {
                        gone: true,
                        ready: false,
                        out_of_service: false,
                        leaving: true,
                        asked: self.operator_now(),
                    });
                }
                let taints = match node {
                    Node::OutOfService => {
                        json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }])
                    }
                    _ => json!([]),
                };
                let status = if node == Node::Ready {
                    "True"
                } else {
                    "Unknown"
                };
                let cordoned = self.cordoned.contains(name);
                let slim: SlimNode = serde_json::from_value(json!({
                    "metadata": { "name": name },
                    "spec": { "taints": taints, "unschedulable": cordoned },
                    "status": { "conditions": [{ "type": "Ready", "status": status }] },
                }))
                .unwrap();
                Answer::Node(slim.facts(self.operator_now()))
            }
            Action::ReadJobEvents { uid } => {
                Answer::Warnings(self.job_warnings.get(uid).cloned().unwrap_or_default())
            }
            Action::SeekLauncher { name } => {
                let job = self.get("Job", name);
                if owner(job) != Some(super::UID) {
                    return Answer::Done(None);
                }
                self.change("Job", name, |job| {
                    job["metadata"]["labels"][names::OPERATOR_NAME_LABEL] =
                        json!(names::OPERATOR_NAME);
                });
                Answer::Done(Some(self.get("Job", name).clone()))
            }
            Action::DeleteMpiJob { uid: of } => {
                if uid(self.get("MPIJob", "pi")) == *of {
                    self.take_away("MPIJob", "pi");
                }
                Answer::Done(None)
            }
            _ => Answer::Done(None),
        }
    }

    /// A worker that a shrink takes away is on record, and no launcher is told of it any more.
    fn check_scale_in(&mut self, action: &Action) {
        let Action::DeletePod { pod, uid: of, .. } = action else {
            return;
        };
        let job = self.get("MPIJob", "pi");
        let suspended = job["spec"]["runPolicy"]["suspend"] == true;
        let worker = self.get("Pod", pod).clone();
        let is_worker = worker["metadata"]["labels"][names::JOB_ROLE_LABEL] == "worker";
        let (Some(index), false) = (index_of(&worker), suspended || self.ended()) else {
            return;
        };
        if !is_worker || uid(&worker) != *of || !live(&worker) {
            return;
        }
        if self.status()["scaleIn"]["leaving"].is_null() {
            let text = format!("{} {pod} is removed without a record", self.now);
            self.broken.push(text);
        }
        let line = format!("echo {}.", names::worker_hostname("pi", index));
        let files = &self.get("ConfigMap", "pi-config")["data"];
        let named = files["discover_hosts.sh"]
            .as_str()
            .is_some_and(|text| text.contains(&line));
        if named && self.launched() {
            let text = format!(
                "{} {pod} is removed while a launcher is told of it",
                self.now
            );
            self.broken.push(text);
        }
    }

    fn check_preconditions(&mut self, action: &Action) {
        let sound = match action {
            Action::Patch { kind, body, .. } => {
                let has = |key: &str| {
                    body["metadata"][key]
                        .as_str()
                        .is_some_and(|text| !text.is_empty())
                };
                has("uid") && (*kind != ObjectKind::Job || has("resourceVersion"))
            }
            Action::DeleteJob { uid, .. }
            | Action::Retire { uid, .. }
            | Action::DeletePod { uid, .. }
            | Action::ReplaceConfigMap { uid, .. }
            | Action::DeleteMpiJob { uid } => !uid.is_empty(),
            _ => true,
        };
        if !sound {
            self.broken
                .push(format!("{} without precondition: {action:?}", self.now));
        }
    }

    /// A name that is taken by an object of ours counts as done, as in the writer.
    fn own(&mut self, value: Value, secret: bool) -> Answer {
        if owner(&value) == Some(super::UID) {
            if secret {
                return Answer::SecretSeen;
            }
            return Answer::Done(Some(value));
        }
        Answer::Denied(409, "the name is taken".to_owned())
    }

    fn create(&mut self, kind: &'static str, name: &str, body: &Value) -> Answer {
        let present = self.get(kind, name).clone();
        if !present.is_null() {
            return self.own(present, false);
        }
        let containers = &body["spec"]["template"]["spec"]["containers"];
        if containers[0]["image"] == "refused" {
            return Answer::Denied(422, "spec.template: Invalid value: \"refused\"".to_owned());
        }
        let mut body = body.clone();
        match kind {
            "Service" => body["metadata"]["managedFields"] = managed("mpi-operator", "f:spec"),
            "ConfigMap" => body["metadata"]["managedFields"] = managed("mpi-operator", "f:data"),
            _ => {}
        }
        self.insert(kind, body);
        Answer::Done(Some(self.get(kind, name).clone()))
    }

    fn patch(&mut self, kind: &'static str, name: &str, body: &Value) -> Answer {
        let present = self.get(kind, name);
        if present.is_null() {
            return Answer::Stale;
        }
        for key in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][key];
            if !wanted.is_null() && *wanted != present["metadata"][key] {
                return Answer::Stale;
            }
        }
        let mut body = body.clone();
        if let Some(spec) = body.get_mut("spec").filter(|_| kind == "Job") {
            self.drop_fields(spec);
        }
        self.change(kind, name, |object| {
            merge(object, &body);
            let field = match kind {
                "Service" => "f:spec",
                "ConfigMap" => "f:data",
                _ => return,
            };
            object["metadata"]["managedFields"] = managed("mpi-operator", field);
        });
        Answer::Done(Some(self.get(kind, name).clone()))
    }
}

/// `managedFields` of an object whose content one manager owns.
pub fn managed(manager: &str, field: &str) -> Value {
    json!([{ "manager": manager, "operation": "Update", "fieldsV1": { field: {} } }])
}
