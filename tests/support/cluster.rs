//! The cluster's side of the world: object store, Job controller, garbage collector and kubelet.
//!
//! The Job controller keeps to what was seen on real clusters: a tracked pod that is deleted or
//! fails is counted and its index backs off 10, 20, 40 s and so on; an untracked one is created
//! again at once; a tracked worker that exits with 0 burns its index; lower parallelism removes
//! pods that are not Ready, then the newest; suspension deletes pods uncounted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mpi_operator::api::names;
use mpi_operator::facts::index::{Change, ChildKind, Kind};
use mpi_operator::facts::observed::JobWarning;
use serde_json::{Value, json};

use super::{Node, World, after, has, index_of, live, owner, parse, ready, terminal, time, uid};

/// What the Job controller keeps of a Job.
#[derive(Debug, Clone, Default)]
pub struct Books {
    failed: i64,
    completed: BTreeSet<u32>,
    failures: BTreeMap<u32, (u32, Timestamp)>,
    suspended: bool,
}

/// Pods that the Job controller creates in one second.
const CREATES: usize = 50;

/// Pause after the n-th failure.
fn back_off(count: u32) -> i64 {
    10_i64.saturating_mul(1 << (count - 1).min(6)).min(600)
}

/// One index stands for the launcher, which has none.
const LAUNCHER: u32 = u32::MAX;

fn watched(kind: &str) -> Option<Kind> {
    Some(match kind {
        "MPIJob" => Kind::MpiJob,
        "Job" => Kind::Job,
        "Pod" => Kind::Pod,
        "Service" => Kind::Child(ChildKind::Service),
        "ConfigMap" => Kind::Child(ChildKind::ConfigMap),
        _ => return None,
    })
}

impl World {
    /// Stores a new object.
    pub fn insert(&mut self, kind: &'static str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if object["metadata"]["uid"].is_null() {
            self.created += 1;
            let id = format!("6f1c7c1e-0000-4000-8000-{:012x}", self.created);
            object["metadata"]["uid"] = json!(id);
        }
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["creationTimestamp"] = json!(time(self.now));
        object["metadata"]["generation"] = json!(1);
        if kind == "Job" {
            default_job(&mut object["spec"]);
            self.drop_fields(&mut object["spec"]);
        }
        self.store(kind, name, object);
    }

    fn store(&mut self, kind: &'static str, name: String, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if let Some(decoded) = super::operator::decode(kind, &object) {
            self.send(Change::Seen(Box::new(decoded)));
        }
        self.objects.insert((kind, name), object);
    }

    /// What the API server does not store.
    pub(super) fn drop_fields(&self, spec: &mut Value) {
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| !self.drops.contains(&field.as_str()));
        }
    }

    /// Changes an object; what stays the same costs no version.
    pub fn change(&mut self, kind: &'static str, name: &str, change: impl FnOnce(&mut Value)) {
        let old = self.get(kind, name).clone();
        if old.is_null() {
            return;
        }
        let mut new = old.clone();
        change(&mut new);
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if new != old {
            self.store(kind, name.to_owned(), new);
        }
    }

    /// Removes an object at once.
    pub fn take_away(&mut self, kind: &'static str, name: &str) {
        if let Some(object) = self.objects.remove(&(kind, name.to_owned())) {
            self.version += 1;
            if let Some(watched) = watched(kind) {
                self.send(Change::Gone {
                    kind: watched,
                    uid: uid(&object),
                    version: self.version,
                });
            }
        }
    }

    /// Takes the tracking finalizer off a pod.
    pub fn strip(&mut self, name: &str) {
        self.change("Pod", name, |pod| {
            if let Some(finalizers) = pod["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|f| f != names::TRACKING_FINALIZER);
            }
        });
    }

    /// `deletionTimestamp` after the grace period; a pod without node and finalizer is gone.
    pub fn mark_deleted(&mut self, name: &str, grace: i64) {
        let due = time(after(self.now, grace));
        if self.old_controller && live(self.get("Pod", name)) {
            self.unheard.insert(name.to_owned());
        }
        self.change("Pod", name, |pod| {
            let metadata = &mut pod["metadata"];
            if metadata["deletionTimestamp"].is_null() || grace == 0 {
                metadata["deletionTimestamp"] = json!(due);
                metadata["deletionGracePeriodSeconds"] = json!(grace);
            }
        });
        let pod = self.get("Pod", name);
        if (pod["spec"]["nodeName"].is_null() || grace == 0) && !finalized(pod) {
            self.take_away("Pod", name);
        }
    }

    /// A delete by the operator is a scale-in or a clean-up: no loss of a worker.
    pub fn delete_by_operator(&mut self, name: &str, force: bool) {
        self.no_loss(name);
        self.mark_deleted(name, if force { 0 } else { 30 });
    }

    /// A worker that goes because fewer are wanted: programs go on without it.
    pub(super) fn no_loss(&mut self, name: &str) {
        let id = uid(self.get("Pod", name));
        for attempt in self.tries.values_mut() {
            attempt.workers.remove(&id);
        }
    }

    /// DisruptionTarget.
    pub fn disrupt(&mut self, name: &str) {
        self.change("Pod", name, |pod| {
            set_condition(pod, "DisruptionTarget", true, "");
        });
    }

    /// Sets the Ready condition.
    pub fn set_ready(&mut self, name: &str, value: bool) {
        let at = time(self.now);
        self.change("Pod", name, |pod| {
            if ready(pod) != value {
                set_condition(pod, "Ready", value, &at);
                if let Some(statuses) = pod["status"]["containerStatuses"].as_array_mut() {
                    for status in statuses {
                        status["ready"] = json!(value);
                    }
                }
            }
        });
    }

    // The Job controller.

    pub(super) fn controller(&mut self) {
        self.collect_garbage();
        let jobs: Vec<String> = self
            .objects
            .keys()
            .filter(|(kind, _)| *kind == "Job")
            .map(|(_, name)| name.clone())
            .collect();
        for name in jobs {
            self.sync(&name);
        }
        self.unheard.clear();
    }

    fn collect_garbage(&mut self) {
        let uids: BTreeSet<String> = self.objects.values().map(uid).collect();
        let orphans: Vec<(&'static str, String)> = self
            .objects
            .iter()
            .filter(|(_, object)| owner(object).is_some_and(|owner| !uids.contains(owner)))
            .map(|(key, _)| key.clone())
            .collect();
        for (kind, name) in orphans {
            if kind != "Pod" {
                self.take_away(kind, &name);
                continue;
            }
            if self.get("Pod", &name)["metadata"]["deletionTimestamp"].is_null() {
                self.mark_deleted(&name, 30);
            }
            self.strip(&name);
        }
    }

    fn sync(&mut self, name: &str) {
        let job = self.get("Job", name).clone();
        if self.old_controller {
            self.sync_old(name, &job);
            self.time_to_live(name);
            return;
        }
        let id = uid(&job);
        let mut books = self.books.remove(&id).unwrap_or_default();
        self.sync_with(name, &job, &mut books);
        self.books.insert(id, books);
    }

    fn sync_with(&mut self, name: &str, job: &Value, books: &mut Books) {
        let id = uid(job);
        let indexed = job["spec"]["completionMode"] == "Indexed";
        let suspended = job["spec"]["suspend"] == true;
        let pods: Vec<String> = self
            .pods()
            .into_iter()
            .filter(|pod| owner(self.get("Pod", pod)) == Some(&id))
            .collect();
        let over = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"]
            .into_iter()
            .any(|type_| has(job, type_));
        let mut succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0);
        for pod_name in &pods {
            let pod = self.get("Pod", pod_name).clone();
            if !tracked(&pod) {
                continue;
            }
            let deleted = !pod["metadata"]["deletionTimestamp"].is_null();
            let index = index_of(&pod).unwrap_or(LAUNCHER);
            let failed = pod["status"]["phase"] == "Failed";
            if pod["status"]["phase"] == "Succeeded" {
                if indexed {
                    books.completed.insert(index);
                } else if !over {
                    succeeded = 1;
                }
            } else if (suspended || over) && deleted {
                // Neither the pods of a suspension nor those of the end count.
            } else if failed || (deleted && indexed) {
                if indexed || !has(&pod, "DisruptionTarget") {
                    books.failed += 1;
                    if !indexed && let Some(attempt) = self.tries.get_mut(&uid(&pod)) {
                        attempt.failed = true;
                    }
                }
                let entry = books.failures.entry(index).or_insert((0, self.now));
                *entry = (entry.0 + 1, self.now);
            } else {
                continue;
            }
            self.strip(pod_name);
        }
        let mut status = job["status"].clone();
        if status.is_null() {
            status = json!({});
        }
        if !suspended && (status["startTime"].is_null() || books.suspended) {
            status["startTime"] = json!(time(self.now));
        }
        books.suspended = suspended;
        status["failed"] = json!(books.failed);
        status["succeeded"] = json!(succeeded);
        if indexed {
            let burned: Vec<u32> = books.completed.iter().copied().collect();
            status["completedIndexes"] = json!(mpi_operator::plan::indexes::format(&burned));
        }
        let late = !suspended && past_deadline(job, &status, self.now);
        let mut target = |type_: &str, reason: &str, message: &str| {
            let mut object = json!({ "status": status });
            set_condition(&mut object, type_, true, &time(self.now));
            let conditions = object["status"]["conditions"].as_array_mut().unwrap();
            let condition = conditions.iter_mut().find(|c| c["type"] == type_).unwrap();
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
            status = object["status"].clone();
        };
        let going: Vec<&String> = pods
            .iter()
            .filter(|pod| !terminal(self.get("Pod", pod)))
            .collect();
        if over {
            if going.is_empty() && !has(job, "Complete") && !has(job, "Failed") {
                let conditions = job["status"]["conditions"].as_array().unwrap();
                let text = |key: &str| {
                    let first = conditions.iter().find(|c| {
                        c["type"] == "FailureTarget" || c["type"] == "SuccessCriteriaMet"
                    });
                    first.and_then(|c| c[key].as_str()).unwrap_or_default()
                };
                let done = has(job, "SuccessCriteriaMet");
                let type_ = if done { "Complete" } else { "Failed" };
                target(type_, text("reason"), text("message"));
                if done {
                    status["completionTime"] = json!(time(self.now));
                }
            }
            for pod in pods.clone() {
                if live(self.get("Pod", &pod)) {
                    self.mark_deleted(&pod, 30);
                }
            }
        } else if !indexed && succeeded > 0 {
            target(
                "SuccessCriteriaMet",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            );
        } else if !indexed && books.failed > job["spec"]["backoffLimit"].as_i64().unwrap_or(6) {
            target(
                "FailureTarget",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            );
        } else if late {
            target(
                "FailureTarget",
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            );
        } else if suspended {
            for pod in pods.clone() {
                if live(self.get("Pod", &pod)) {
                    self.mark_deleted(&pod, 30);
                    self.strip(&pod);
                }
            }
        } else if indexed {
            self.scale_workers(name, job, books, &pods);
        } else if job["spec"]["parallelism"] == 0 {
            for pod in pods.clone() {
                if live(self.get("Pod", &pod)) {
                    self.mark_deleted(&pod, 30);
                    self.strip(&pod);
                }
            }
        } else {
            let blocked = books
                .failures
                .get(&LAUNCHER)
                .is_some_and(|(count, at)| after(*at, back_off(*count)) > self.now);
            if going.is_empty() && !blocked {
                self.create_launcher(job);
            }
        }
        let active = self
            .pods()
            .iter()
            .filter(|pod| {
                let pod = self.get("Pod", pod);
                owner(pod) == Some(&id) && live(pod)
            })
            .count();
        status["active"] = json!(active);
        self.change("Job", name, |job| job["status"] = status);
        self.time_to_live(name);
    }

    fn time_to_live(&mut self, name: &str) {
        let job = self.get("Job", name);
        let finished = job["status"]["conditions"].as_array().and_then(|all| {
            let end = all
                .iter()
                .find(|c| c["type"] == "Complete" || c["type"] == "Failed")?;
            parse(&end["lastTransitionTime"])
        });
        if let (Some(at), Some(ttl)) = (finished, job["spec"]["ttlSecondsAfterFinished"].as_i64())
            && after(at, ttl) <= self.now
        {
            self.take_away("Job", name);
        }
    }

    fn scale_workers(&mut self, name: &str, job: &Value, books: &Books, pods: &[String]) {
        let completions = u32::try_from(job["spec"]["completions"].as_u64().unwrap_or(1)).unwrap();
        let parallelism = job["spec"]["parallelism"].as_u64().unwrap_or(1);
        let left = u64::from(completions) - books.completed.len() as u64;
        let wanted = usize::try_from(parallelism.min(left)).unwrap();
        let seen = |pod: &&String| {
            let pod = self.get("Pod", pod);
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
            let marked = parse(&pod["metadata"]["deletionTimestamp"])
                .zip(grace)
                .map(|(due, grace)| after(due, -grace));
            live(pod) || (self.late_controller && !terminal(pod) && marked == Some(self.now))
        };
        let mut active: Vec<String> = pods.iter().filter(seen).cloned().collect();
        if active.len() > wanted {
            active.sort_by_key(|name| {
                let pod = self.get("Pod", name);
                let running = pod["status"]["phase"] == "Running";
                let since = condition_time(pod, "Ready").map(std::cmp::Reverse);
                let created = parse(&pod["metadata"]["creationTimestamp"]).unwrap();
                (running, ready(pod), since, std::cmp::Reverse(created))
            });
            for pod in active.iter().take(active.len() - wanted) {
                self.no_loss(pod);
                self.mark_deleted(pod, 30);
                self.strip(pod);
            }
            return;
        }
        let used: BTreeSet<u32> = active
            .iter()
            .filter_map(|pod| index_of(self.get("Pod", pod)))
            .collect();
        let free: Vec<u32> = (0..completions)
            .filter(|index| !used.contains(index) && !books.completed.contains(index))
            .take(wanted - active.len())
            .filter(|index| {
                let failure = books.failures.get(index);
                failure.is_none_or(|(count, at)| after(*at, back_off(*count)) <= self.now)
            })
            .take(CREATES)
            .collect();
        for index in free {
            if self
                .script
                .quota
                .is_some_and(|quota| self.pods().len() >= quota)
            {
                let warning = JobWarning {
                    reason: "FailedCreate".to_owned(),
                    message: "pods \"pi-worker\" is forbidden: exceeded quota: pods".to_owned(),
                };
                self.job_warnings.insert(uid(job), vec![warning]);
                return;
            }
            self.create_pod(name, job, Some(index));
        }
    }

    pub(super) fn create_launcher(&mut self, job: &Value) {
        let gated = self.get("MPIJob", "pi")["spec"]["launcherCreationPolicy"] != "AtStartup";
        let elastic = !self.get("MPIJob", "pi")["spec"]["elasticPolicy"].is_null();
        // The Job controller of 1.21 replaces a pod that somebody deletes at once, before anybody
        // can hold it.
        let replaces = self.old_controller
            && self
                .role("launcher")
                .iter()
                .any(|pod| !live(self.get("Pod", pod)))
            && !self.launchers().is_empty();
        if gated
            && !elastic
            && !self.blind
            && !replaces
            && owner(job) == Some(super::UID)
            && self.ready_workers() < self.wanted()
        {
            let text = format!("{} a launcher pod while a worker is missing", self.now);
            self.broken.push(text);
        }
        if self.ended.is_some() {
            self.broken
                .push(format!("{} a launcher pod after the end", self.now));
        }
        self.create_pod("pi-launcher", job, None);
    }

    pub(super) fn create_pod(&mut self, name: &str, job: &Value, index: Option<u32>) {
        self.created += 1;
        let suffix = format!("{:05x}", self.created);
        let pod_name = match index {
            Some(index) if !self.old_controller => format!("{name}-{index}-{suffix}"),
            _ => format!("{name}-{suffix}"),
        };
        let template = &job["spec"]["template"];
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": template["metadata"],
            "spec": template["spec"],
            "status": { "phase": "Pending" },
        });
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(pod_name);
        metadata["labels"]["job-name"] = json!(name);
        if !self.old_controller {
            metadata["finalizers"] = json!([names::TRACKING_FINALIZER]);
        }
        metadata["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid(job),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        if let Some(index) = index.filter(|_| !self.old_controller) {
            metadata["annotations"][names::COMPLETION_INDEX_ANNOTATION] = json!(index.to_string());
        }
        self.insert("Pod", pod);
        if let Some(index) = index {
            let id = uid(self.get("Pod", &pod_name));
            self.places.insert(id, index);
        } else {
            let id = uid(self.get("Pod", &pod_name));
            let attempt = self.tries.entry(id).or_default();
            attempt.name = pod_name;
        }
    }

    // The kubelet.

    pub(super) fn kubelet(&mut self) {
        let lost: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, (node, since))| *node != Node::Ready && after(*since, 5) <= self.now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in self.pods() {
            let pod = self.get("Pod", &name).clone();
            let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
            let answers = |node: &String| self.nodes.get(node).is_some_and(|n| n.0 == Node::Ready);
            match &node {
                Some(node) if !answers(node) => {
                    if lost.contains(node) && live(&pod) {
                        self.disrupt(&name);
                        self.mark_deleted(&name, 30);
                    }
                }
                _ => self.run_pod(&name, &pod, node.is_some()),
            }
        }
    }

    fn run_pod(&mut self, name: &str, pod: &Value, scheduled: bool) {
        let at = time(self.now);
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            // The Job controller hears of a delete long before the containers have ended, and on its
            // books of 1.21 that makes the difference.
            if self.unheard.contains(name) {
                return;
            }
            if !terminal(pod) {
                let code = if pod["status"]["phase"] == "Running" {
                    255
                } else {
                    137
                };
                self.end(name, "Failed", code);
            } else if !finalized(pod) {
                self.take_away("Pod", name);
            }
            return;
        }
        let index = self.place(pod).filter(|_| is_worker(pod));
        match pod["status"]["phase"].as_str() {
            Some("Pending") if !scheduled => {
                if index.is_some_and(|index| self.script.unschedulable.contains(&index)) {
                    self.change("Pod", name, |pod| {
                        if pod["status"]["conditions"].is_null() {
                            pod["status"]["conditions"] = json!([{
                                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                "message": "0/2 nodes are available",
                            }]);
                        }
                    });
                    return;
                }
                let nodes: Vec<&String> = self
                    .nodes
                    .iter()
                    .filter(|(name, node)| node.0 == Node::Ready && !self.cordoned.contains(*name))
                    .map(|(name, _)| name)
                    .collect();
                if nodes.is_empty() {
                    return;
                }
                let turn = index.unwrap_or(0) as usize % nodes.len();
                let node = nodes[turn].clone();
                self.change("Pod", name, |pod| {
                    pod["spec"]["nodeName"] = json!(node);
                    pod["status"]["conditions"] = json!([]);
                    set_condition(pod, "PodScheduled", true, &at);
                    set_condition(pod, "Ready", false, &at);
                });
            }
            Some("Pending") => {
                self.started.insert(uid(pod), self.now);
                let is_ready = index.is_none();
                let ip = address(&uid(pod));
                self.change("Pod", name, |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["podIP"] = json!(ip);
                    pod["status"]["containerStatuses"] = json!([{
                        "name": "main", "ready": is_ready,
                        "state": { "running": { "startedAt": at } },
                    }]);
                    set_condition(pod, "Ready", is_ready, &at);
                });
                if index.is_none() && !is_worker(pod) {
                    self.begin_try(name);
                }
            }
            Some("Running") => {
                let Some(since) = self.started.get(&uid(pod)).copied() else {
                    return;
                };
                let Some(index) = index else {
                    if !is_worker(pod) {
                        self.run_program(name, pod);
                    }
                    return;
                };
                if let Some(seconds) = self.script.crash.get(&index)
                    && after(since, *seconds) <= self.now
                {
                    self.end(name, "Failed", 1);
                } else if !self.script.unready.contains(&index)
                    && after(since, self.script.ready_after) <= self.now
                {
                    self.set_ready(name, true);
                }
            }
            _ => {}
        }
    }

    fn begin_try(&mut self, name: &str) {
        let id = uid(self.get("Pod", name));
        let mut workers = self.workers();
        if self.old_controller {
            // A retry that nobody could hold knows the workers of the hostfile alone.
            let data = &self.get("ConfigMap", "pi-config")["data"]["hostfile"];
            let hostfile = data.as_str().unwrap_or_default().to_owned();
            let known: Vec<&str> = hostfile.split_whitespace().collect();
            workers.retain(|name| {
                let ip = self.get("Pod", name)["status"]["podIP"].as_str();
                ip.is_some_and(|ip| known.contains(&ip))
            });
        }
        let workers: BTreeSet<String> = workers
            .iter()
            .map(|name| uid(self.get("Pod", name)))
            .collect();
        // A worker whose node is silent for a moment is not missing yet.
        let there = |name: &&String| {
            let pod = self.get("Pod", name);
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let silent = self
                .nodes
                .get(node)
                .is_some_and(|node| node.0 != Node::Ready);
            ready(pod) || silent
        };
        // More workers wanted since the release are none that this try began without.
        let hosts = self.get("Job", "pi-launcher")["metadata"]["annotations"]
            [names::HOSTS_ANNOTATION]
            .as_str()
            .and_then(mpi_operator::plan::indexes::parse);
        let wanted = hosts.map_or(self.wanted(), |hosts| hosts.len().min(self.wanted()));
        let missing = self.workers().iter().filter(there).count() < wanted;
        let gated = self.get("MPIJob", "pi")["spec"]["launcherCreationPolicy"] != "AtStartup";
        let (seconds, code) = self.script.tries.pop_front().unwrap_or(self.script.then);
        let now = self.now;
        let loss = self.script.fails_on_loss;
        let attempt = self.tries.entry(id).or_default();
        attempt.began = Some(now);
        attempt.workers = workers;
        attempt.lossy = missing && gated;
        attempt.ends = Some((after(now, seconds), code));
        if missing
            && gated
            && let Some(loss) = loss
        {
            attempt.ends = Some((after(now, loss), 1));
        }
    }

    fn run_program(&mut self, name: &str, pod: &Value) {
        let live: BTreeSet<String> = self
            .workers()
            .iter()
            .map(|name| uid(self.get("Pod", name)))
            .collect();
        let (now, loss) = (self.now, self.script.fails_on_loss);
        let Some(attempt) = self.tries.get_mut(&uid(pod)) else {
            return;
        };
        if let Some((at, code)) = attempt.ends
            && at <= now
        {
            let phase = if code == 0 { "Succeeded" } else { "Failed" };
            self.end(name, phase, code);
            return;
        }
        if !attempt.workers.is_subset(&live)
            && let Some(loss) = loss
        {
            let fails = after(now, loss);
            if attempt.ends.is_none_or(|(at, _)| fails < at) && !attempt.lossy {
                attempt.ends = Some((fails, 1));
            }
            attempt.lossy = true;
        }
    }

    fn end(&mut self, name: &str, phase: &str, code: i32) {
        let at = time(self.now);
        self.change("Pod", name, |pod| {
            pod["status"]["phase"] = json!(phase);
            pod["status"]["containerStatuses"] = json!([{
                "name": "main", "ready": false,
                "state": { "terminated": {
                    "exitCode": code,
                    "reason": if code == 0 { "Completed" } else { "Error" },
                } },
            }]);
            set_condition(pod, "Ready", false, &at);
        });
    }
}

pub(super) fn past_deadline(job: &Value, status: &Value, now: Timestamp) -> bool {
    let started = parse(&status["startTime"]);
    let deadline = job["spec"]["activeDeadlineSeconds"].as_i64();
    matches!((started, deadline), (Some(at), Some(seconds)) if after(at, seconds) <= now)
}

pub(super) fn is_worker(pod: &Value) -> bool {
    pod["metadata"]["labels"][names::JOB_ROLE_LABEL] == names::ROLE_WORKER
}

fn finalized(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn tracked(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|f| f == names::TRACKING_FINALIZER))
}

pub(super) fn condition_time(object: &Value, type_: &str) -> Option<Timestamp> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|c| c["type"] == type_)?;
    parse(&condition["lastTransitionTime"])
}

/// What every API server fills in since 1.22.
fn default_job(spec: &mut Value) {
    if spec["parallelism"].is_null() && spec["completions"].is_null() {
        spec["completions"] = json!(1);
    }
    let defaults = [
        ("parallelism", json!(1)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
    ];
    for (field, value) in defaults {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
}

/// An address that no other pod has.
fn address(uid: &str) -> String {
    let number = uid
        .get(24..)
        .and_then(|text| u32::from_str_radix(text, 16).ok());
    let number = number.unwrap_or(0);
    format!("10.0.{}.{}", number / 250, number % 250 + 1)
}

/// Sets a condition of an object's status.
pub fn set_condition(object: &mut Value, type_: &str, value: bool, at: &str) {
    let status = &mut object["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.retain(|c| c["type"] != type_);
    let mut condition = json!({
        "type": type_,
        "status": if value { "True" } else { "False" },
    });
    if !at.is_empty() {
        condition["lastTransitionTime"] = json!(at);
    }
    conditions.push(condition);
}
