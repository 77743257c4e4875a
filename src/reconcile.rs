//! The arrows: observe -> plan -> write -> what was answered goes back into the facts -> requeue.
//! Nothing is decided here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;

use crate::action::{Action, Milestone, ObjectKind, Plan, refusal_key};
use crate::facts::index::{Change, Index, Key};
use crate::facts::observed::Observed;
use crate::metrics::Metrics;
use crate::plan::{Options, plan};
use crate::watch::Sink;
use crate::write::outcome::Outcome;
use crate::write::{Writer, actions};

/// Background writes of one pass that are in flight at once.
const IN_FLIGHT: usize = 8;

/// Background writes of one pass; more wait for the next one, so that a pass over a job with
/// thousands of workers does not keep others waiting.
const MOST_BACKGROUND: usize = 64;

/// First pause after a pass that did not work out; it doubles up to [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause between two tries of a pass.
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// What all passes share.
#[derive(Debug)]
pub struct Reconciler {
    /// Facts, queue and clock.
    pub sink: Sink,
    /// Sends writes.
    pub writer: Writer,
    /// From the flags.
    pub options: Options,
    /// Counters.
    pub metrics: Metrics,
    /// Passes that did not work out in a row, by key.
    failures: Mutex<HashMap<Key, u32>>,
    /// Passes in a row of which a background write failed, by key, and the end of the pause.
    background_failures: Mutex<HashMap<Key, (u32, tokio::time::Instant)>>,
    /// Launcher Jobs in the info metric: namespace and name by key.
    infos: Mutex<HashMap<Key, (String, String)>>,
}

impl Reconciler {
    /// A reconciler with no history.
    #[must_use]
    pub fn new(sink: Sink, writer: Writer, options: Options, metrics: Metrics) -> Self {
        Self {
            sink,
            writer,
            options,
            metrics,
            failures: Mutex::default(),
            background_failures: Mutex::default(),
            infos: Mutex::default(),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.sink.index)
    }

    /// Takes keys from the queue for ever, one at a time.
    pub async fn work(self: Arc<Self>) {
        loop {
            let key = self.sink.queue.pop().await;
            self.metrics.set_queue_depth(self.sink.queue.depth());
            #[expect(
                clippy::disallowed_methods,
                reason = "measures the pass for its metric"
            )]
            let begun = Instant::now();
            self.pass(&key).await;
            self.metrics
                .observe_reconcile(begun.elapsed().as_secs_f64());
            self.sink.queue.done(&key);
        }
    }

    /// One pass over one MPIJob.
    pub async fn pass(&self, key: &Key) {
        let now = (self.sink.clock)();
        let observed = self.index().observe(key);
        let Some(observed) = observed else {
            self.forget(key);
            return;
        };
        let plan = plan(&observed, &self.options, now);
        let job = observed.job.clone();
        self.tell(&observed, &plan);
        let mut trouble = None;
        let mut carried_out = true;
        for action in &plan.actions {
            let outcome = self.perform(&observed, action).await;
            let ok = outcome.ok();
            if let Some(pause) = self.take_in(key, action, outcome, now) {
                trouble = Some(pause);
            }
            if !ok {
                carried_out = false;
                break;
            }
        }
        if carried_out {
            self.record(key, &plan, now);
        }
        if let Some(patch) = &plan.status {
            match self.writer.write_status(&job, patch).await {
                Outcome::Done(object) => {
                    let soft = patch.soft;
                    self.index().remember(key, |memory| {
                        memory.status_written = Some(now);
                        memory.soft_writes = if soft {
                            memory.soft_writes.saturating_add(1)
                        } else {
                            0
                        };
                    });
                    if let Some(object) = object {
                        self.sink.take(Change::Seen(object));
                    }
                    self.count(&plan);
                    self.events(&observed, &plan, now).await;
                }
                outcome => trouble = trouble.or(self.explain(key, "write the status", outcome)),
            }
        } else {
            self.events(&observed, &plan, now).await;
        }
        self.background(key, &observed, &plan, now).await;
        self.requeue(key, &plan, trouble);
    }

    async fn perform(&self, observed: &Observed, action: &Action) -> Outcome {
        let job = &observed.job;
        tracing::debug!(namespace = %job.namespace, mpijob = %job.name, action = %name_of(action), "write");
        self.writer
            .perform(&job.namespace, &job.name, &job.uid, action)
            .await
    }

    /// Puts the answer to an action into the facts. Returns the pause if the pass has to come again.
    fn take_in(
        &self,
        key: &Key,
        action: &Action,
        outcome: Outcome,
        now: Timestamp,
    ) -> Option<Option<Duration>> {
        match outcome {
            Outcome::Done(object) => {
                if let Some(object) = object {
                    self.sink.take(Change::Seen(object));
                }
                let mut index = self.index();
                match action {
                    // A PodGroup is not watched; nothing else would wake its job.
                    Action::Create { kind, name, .. }
                        if index.accepted(key, &refusal_key(*kind, name)) =>
                    {
                        self.sink.queue.push(key.clone());
                    }
                    Action::SeekLauncher { .. } => {
                        index.remember(key, |memory| memory.launcher_sought = true);
                    }
                    _ => {}
                }
                note_write(&mut index, key, action, now);
                None
            }
            Outcome::SecretSeen => {
                let mut index = self.index();
                if let Action::CreateSecret { name, .. } = action {
                    index.accepted(key, name);
                }
                index.secret_seen(key, now);
                drop(index);
                self.sink.queue.push(key.clone());
                None
            }
            Outcome::Node(facts) => {
                if let Action::LookAtNode { name } = action {
                    let facts = facts.map_or_else(
                        || actions::no_node(now),
                        |mut facts| {
                            facts.asked = now;
                            facts
                        },
                    );
                    self.index().node(name.clone(), facts);
                    self.sink.queue.push(key.clone());
                }
                None
            }
            Outcome::Warnings(warnings) => {
                self.index().job_warnings(key, warnings, now);
                self.sink.queue.push(key.clone());
                None
            }
            Outcome::Priorities(launcher, worker) => {
                self.index()
                    .remember(key, |memory| memory.priorities = Some((launcher, worker)));
                self.sink.queue.push(key.clone());
                None
            }
            Outcome::Denied { code, message } if matches!(action, Action::LookAtNode { .. }) => {
                tracing::warn!(code, message = %message, "nodes cannot be read; pods on lost nodes are waited for");
                if let Action::LookAtNode { name } = action {
                    self.index().node(name.clone(), actions::unknown_node(now));
                }
                None
            }
            Outcome::Denied { code, message } if matches!(action, Action::ReadJobEvents { .. }) => {
                tracing::warn!(code, message = %message, "events of Jobs cannot be read");
                self.index().job_warnings(key, Vec::new(), now);
                None
            }
            Outcome::Denied { code, message } => {
                let object = match action {
                    Action::Create { kind, name, .. } => Some(refusal_key(*kind, name)),
                    Action::CreateSecret { name, .. } => Some(name.clone()),
                    _ => None,
                };
                if let Some(object) = object {
                    tracing::warn!(%object, code, message = %message, "the API server refused a create");
                    self.index().refused(key, object, code, message, now);
                    // The next plan tells the user, and when to try again.
                    self.sink.queue.push(key.clone());
                    return None;
                }
                self.explain(key, name_of(action), Outcome::Denied { code, message })
            }
            outcome => self.explain(key, name_of(action), outcome),
        }
    }

    /// Logs what did not work out. Returns the pause before the pass comes again.
    fn explain(&self, key: &Key, what: &str, outcome: Outcome) -> Option<Option<Duration>> {
        match outcome {
            Outcome::Stale(message) => {
                tracing::debug!(key = %key, what, message = %message, "the object changed meanwhile");
                Some(None)
            }
            Outcome::Denied { code, message } => {
                tracing::warn!(key = %key, what, code, message = %message, "refused");
                Some(None)
            }
            Outcome::Later { message, after } => {
                tracing::info!(key = %key, what, message = %message, "did not work out, trying again");
                Some(after)
            }
            _ => None,
        }
    }

    /// What only this process remembers of a plan whose actions were carried out.
    fn record(&self, key: &Key, plan: &Plan, now: Timestamp) {
        if let Some(ready) = &plan.released {
            let latency = ready.map(|ready| now.duration_since(ready).as_secs_f64().max(0.0));
            self.metrics.gate_opened(latency);
            self.index().remember(key, |memory| {
                let count = memory.released.map_or(0, |(_, count)| count);
                memory.released = Some((now, count.saturating_add(1)));
            });
        }
        if plan.held {
            self.metrics.gate_held();
            // What we hold ourselves is not taken back by another controller.
            self.index().remember(key, |memory| memory.released = None);
        }
        if let Some(digest) = &plan.pod_group {
            self.index()
                .remember(key, |memory| memory.pod_group = Some(digest.clone()));
        }
    }

    fn count(&self, plan: &Plan) {
        for milestone in &plan.milestones {
            match milestone {
                Milestone::Created => self.metrics.job_created(),
                Milestone::Succeeded => self.metrics.job_succeeded(),
                Milestone::Failed => self.metrics.job_failed(),
            }
        }
    }

    async fn events(&self, observed: &Observed, plan: &Plan, now: Timestamp) {
        for note in &plan.events {
            if let Outcome::Later { message, .. } =
                self.writer.write_event(&observed.job, note, now).await
            {
                tracing::debug!(reason = %note.reason, message = %message, "event not written");
            }
        }
    }

    async fn background(&self, key: &Key, observed: &Observed, plan: &Plan, now: Timestamp) {
        let pause_ends = lock(&self.background_failures)
            .get(key)
            .map(|(_, ends)| *ends);
        let left = pause_ends.map(|ends| ends.duration_since(tokio::time::Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero() && !plan.background.is_empty()) {
            self.sink.queue.push_after(key.clone(), left);
            return;
        }
        let mut calls = futures::stream::FuturesUnordered::new();
        let mut failed = false;
        for action in plan.background.iter().take(MOST_BACKGROUND) {
            calls.push(async move {
                let outcome = self.perform(observed, action).await;
                self.take_in(key, action, outcome, now).is_some()
            });
            if calls.len() >= IN_FLIGHT {
                failed |= calls.next().await.unwrap_or(false);
            }
        }
        while let Some(this) = calls.next().await {
            failed |= this;
        }
        let mut failures = lock(&self.background_failures);
        if failed {
            let count = failures.get(key).map_or(0, |(count, _)| *count);
            let pause = Duration::from_secs(1 << count.min(8));
            failures.insert(
                key.clone(),
                (count + 1, tokio::time::Instant::now() + pause),
            );
            drop(failures);
            self.sink.queue.push_after(key.clone(), pause);
            return;
        }
        if !plan.background.is_empty() {
            failures.remove(key);
        }
        drop(failures);
        if plan.background.len() > MOST_BACKGROUND {
            self.sink.queue.push(key.clone());
        }
    }

    fn requeue(&self, key: &Key, plan: &Plan, trouble: Option<Option<Duration>>) {
        let mut failures = lock(&self.failures);
        let Some(after) = trouble else {
            failures.remove(key);
            drop(failures);
            if let Some(at) = plan.look_again {
                let distance = at.duration_since((self.sink.clock)());
                // A little late rather than a little early, which would only come again.
                let delay =
                    Duration::try_from(distance).unwrap_or_default() + Duration::from_millis(5);
                self.sink.queue.push_after(key.clone(), delay);
            }
            return;
        };
        let count = failures.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE
            .saturating_mul(1 << (*count).min(10))
            .min(MOST_PAUSE);
        *count += 1;
        drop(failures);
        self.sink.queue.push_after(
            key.clone(),
            after.unwrap_or(pause).min(MOST_PAUSE).max(pause),
        );
    }

    fn tell(&self, observed: &Observed, plan: &Plan) {
        let key: Key = Arc::from(observed.job.uid.as_str());
        if let Some(launcher) = &plan.launcher {
            let info = (observed.job.namespace.clone(), launcher.clone());
            self.metrics.set_job_info(&info.0, &info.1);
            lock(&self.infos).insert(key, info);
        }
    }

    fn forget(&self, key: &Key) {
        lock(&self.failures).remove(key);
        lock(&self.background_failures).remove(key);
        if let Some((namespace, launcher)) = lock(&self.infos).remove(key) {
            self.metrics.remove_job_info(&namespace, &launcher);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers writes whose repetition is limited.
fn note_write(index: &mut Index, key: &Key, action: &Action, now: Timestamp) {
    let (kind, body) = match action {
        Action::Patch { kind, body, .. } => (*kind, Some(body)),
        Action::ReplaceConfigMap { .. } => (ObjectKind::ConfigMap, None),
        Action::DeletePod { uid, .. } => return index.removed(key, uid, now),
        _ => return,
    };
    if kind == ObjectKind::ConfigMap {
        index.remember(key, |memory| memory.config_written = Some(now));
    }
    if matches!(kind, ObjectKind::ConfigMap | ObjectKind::Service) {
        index.answered(key);
    }
    let unsuspends = body.is_some_and(|body| body["spec"]["suspend"] == false);
    let annotated = body.is_some_and(|body| body["metadata"]["annotations"].is_object());
    if kind == ObjectKind::Job && unsuspends && !annotated {
        index.remember(key, |memory| {
            let count = memory.unsuspended.map_or(0, |(_, count)| count);
            memory.unsuspended = Some((now, count.saturating_add(1)));
        });
    }
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Create {
            kind: ObjectKind::Service,
            ..
        } => "create the Service",
        Action::Create {
            kind: ObjectKind::ConfigMap,
            ..
        } => "create the ConfigMap",
        Action::Create {
            kind: ObjectKind::PodGroup,
            ..
        } => "write the PodGroup",
        Action::Create { .. } => "create a Job",
        Action::CreateSecret { .. } => "create the Secret",
        Action::Patch {
            kind: ObjectKind::Job,
            ..
        } => "patch a Job",
        Action::Patch { .. } => "patch a child",
        Action::ReplaceConfigMap { .. } => "replace the ConfigMap's data",
        Action::DeleteJob { .. } => "delete a Job",
        Action::Retire { .. } => "retire a worker",
        Action::DeletePod { .. } => "delete a pod",
        Action::DeletePodGroup { .. } => "delete the PodGroup",
        Action::LookAtNode { .. } => "look at a node",
        Action::ReadJobEvents { .. } => "read the events of a Job",
        Action::SeekLauncher { .. } => "look for a launcher Job",
        Action::ReadPriorities { .. } => "read priority classes",
        Action::DeleteMpiJob { .. } => "delete the MPIJob",
    }
}
