//! The launcher Job: created held, released through the gate, held between tries, restarted or
//! refunded when a worker is lost. Pure.
//!
//! A try is one launcher pod. What has to survive a crash is in annotations of the Job, changed in
//! the same patch as the field that it speaks of.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::gate::{Gate, Held};
use super::status::Report;
use super::{Pass, back_off, build, children, indexes};
use crate::action::{Action, ObjectKind, Plan};
use crate::api::validate::WorkerLossPolicy;
use crate::api::{names, reasons};
use crate::facts::observed::{JobFacts, Phase, PodFacts};

/// Retries where the user set none, as in the Job API.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;

/// Tries that are given back at most: a bound for a job that loses workers for ever.
pub const MOST_REFUNDS: i64 = 100;

/// Restarts by `RestartLauncher` without a pause; then each waits longer.
const FREE_RESTARTS: i64 = 5;

/// What the annotations of the launcher Job say of its tries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tries {
    /// Failed tries that do not count.
    pub refunded: i64,
    /// A try during which a worker was lost: UID of its pod, failed tries before it.
    pub pending: Option<(String, i64)>,
    /// Restarts by `RestartLauncher`.
    pub restarts: i64,
    /// When it was last restarted.
    pub restarted: Option<Timestamp>,
}

impl Tries {
    /// Reads them from the Job.
    #[must_use]
    pub fn of(job: &JobFacts) -> Self {
        let get = |key: &str| job.annotations.get(key).map(String::as_str);
        let number = |key: &str| get(key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            refunded: number(names::REFUNDED_ANNOTATION).clamp(0, MOST_REFUNDS),
            pending: get(names::REFUND_PENDING_ANNOTATION).and_then(|text| {
                let (uid, failed) = text.split_once('/')?;
                Some((uid.to_owned(), failed.parse().ok()?))
            }),
            restarts: number(names::RESTARTS_ANNOTATION).max(0),
            restarted: get(names::RESTARTED_ANNOTATION).and_then(|text| text.parse().ok()),
        }
    }

    /// Whether the try that `pending` names was counted as failed.
    #[must_use]
    pub fn pending_counted(&self, job: &JobFacts, pods: &[&PodFacts]) -> bool {
        self.pending.as_ref().is_some_and(|(uid, before)| {
            // The count lags behind the pod; either is proof.
            (durable(job) && job.failed > *before)
                || pods
                    .iter()
                    .any(|pod| pod.uid == *uid && counts_as_failed(pod))
        })
    }

    /// The same with the pending try decided: refunded if it was counted, forgotten otherwise.
    fn settled(&self, job: &JobFacts, pods: &[&PodFacts]) -> Self {
        let counted = i64::from(self.pending_counted(job, pods));
        Self {
            refunded: self.refunded + counted,
            pending: None,
            ..self.clone()
        }
    }

    /// Tries of this Job that count against `backoffLimit`.
    #[must_use]
    pub fn charged(&self, job: &JobFacts, pods: &[&PodFacts]) -> i64 {
        let failed_pods = pods.iter().filter(|pod| counts_as_failed(pod));
        let failed_pods = i64::try_from(failed_pods.count()).unwrap_or(0);
        // The Job counts a failed pod about a second later; a pod object may be gone while the
        // count stays.
        let failed = if durable(job) {
            job.failed.max(failed_pods)
        } else {
            failed_pods
        };
        let pending = i64::from(self.pending_counted(job, pods));
        (failed - self.refunded - pending).max(0)
    }

    /// `backoffLimit` that gives the user's number of charged tries.
    fn backoff_limit(&self, base: i64) -> i64 {
        base + self.refunded + i64::from(self.pending.is_some())
    }

    fn annotations(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put(names::REFUNDED_ANNOTATION, json!(self.refunded.to_string()));
        put(
            names::REFUND_PENDING_ANNOTATION,
            self.pending
                .as_ref()
                .map_or(Value::Null, |(uid, n)| json!(format!("{uid}/{n}"))),
        );
        if self.restarts > 0 {
            put(names::RESTARTS_ANNOTATION, json!(self.restarts.to_string()));
            if let Some(at) = self.restarted {
                put(names::RESTARTED_ANNOTATION, json!(at.to_string()));
            }
        }
        map
    }
}

/// Whether `status.failed` keeps what it counted. The Job controller of servers that drop `suspend`
/// counts the Failed pods that are there, those that were deleted while they ran among them.
fn durable(job: &JobFacts) -> bool {
    job.kept.suspend
}

/// Whether the Job controller counts this pod as a failed try, or will. One that was deleted while
/// it ran, by a suspension say, passes through Failed as well; for those only the count tells.
fn counts_as_failed(pod: &PodFacts) -> bool {
    pod.phase == Phase::Failed && !pod.disrupted && pod.deleted.is_none()
}

/// `backoffLimit` less the tries that earlier launcher Jobs were charged.
#[must_use]
pub fn base_limit(pass: &Pass<'_>) -> i64 {
    let limit = pass
        .job
        .backoff_limit
        .map_or(DEFAULT_BACKOFF_LIMIT, i64::from);
    let earlier = pass
        .observed
        .job
        .status
        .launcher
        .as_ref()
        .map_or(0, |launcher| launcher.earlier_tries);
    (limit - earlier).max(0)
}

/// Whether a failure of the launcher Job is not the job's end: its last try lost a worker, and the
/// refund came too late for the Job controller.
#[must_use]
pub fn failure_is_refundable(pass: &Pass<'_>, job: &JobFacts, reason: &str) -> bool {
    if reason != reasons::BACKOFF_LIMIT_EXCEEDED || !pass.gated() || pass.job.suspend {
        return false;
    }
    let tries = Tries::of(job);
    let pods: Vec<&PodFacts> = pass.tries().collect();
    tries.refunded < MOST_REFUNDS
        && tries.pending_counted(job, &pods)
        && tries.charged(job, &pods) <= base_limit(pass)
}

/// Creates the launcher Job, or brings it in line. Returns whether the template is accepted, so
/// that workers may start.
pub fn ensure(pass: &Pass<'_>, gate: &Gate, plan: &mut Plan, report: &mut Report) -> bool {
    if pass
        .observed
        .launcher_job
        .as_ref()
        .is_some_and(|job| job.deleting)
    {
        return true;
    }
    let Some(job) = pass.launcher_job() else {
        return create(pass, plan, report);
    };
    // A Job that failed although the job goes on: its last try is refunded, in a new Job.
    let ended = job.annotations.contains_key(names::ENDED_ANNOTATION) || job.failure.is_some();
    let never_released = !job.annotations.contains_key(names::RELEASED_ANNOTATION) && !job.ran();
    let content = job.annotations.get(names::CONTENT_ANNOTATION);
    let edited = content != Some(&build::launcher_job::digest(&pass.context()));
    if (ended || (edited && never_released)) && job.labelled {
        rebuild(pass, job, plan, report);
        return true;
    }
    // One without a digest is the Go operator's; what it was made from is not known.
    if edited && content.is_some() {
        report.template_ignored.push("launcher");
    }
    steer(pass, job, gate, plan, report);
    true
}

/// Creates the launcher Job, held unless it may start at once.
pub fn create(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) -> bool {
    let name = names::launcher_job(&pass.observed.job.name);
    // At most one launcher pod: the Job controller of a new Job knows nothing of the pods of an
    // earlier one.
    if pass.left_over(&pass.observed.launchers, report).is_some() {
        return true;
    }
    if !children::may_create(pass, &name, plan, report) {
        return false;
    }
    let at_once = (!pass.gated() || report.legacy) && !pass.job.suspend;
    // Whether this server has Indexed Jobs shows in the answer to a Job. Without them the launcher
    // must not start at once, so as long as this is not known the worker Job goes first.
    let asks_first = pass.observed.kept.is_none() && pass.job.workers > 0 && !report.legacy;
    if at_once && asks_first {
        return true;
    }
    // Likewise for `suspend`: a Job whose server drops it would start. Parallelism 0 holds on every
    // server. Such a Job's clock runs at once, so its deadline is set when it is let go.
    let pause = !at_once && !pass.observed.kept.is_some_and(|kept| kept.suspend);
    let params = build::launcher_job::LauncherParams {
        suspend: !at_once,
        pause,
        backoff_limit: backoff_limit(pass, base_limit(pass)),
        active_deadline_seconds: pass.job.deadline_seconds.filter(|_| !pause),
    };
    let body = build::launcher_job::launcher_job(&pass.context(), &params);
    if pass.job.launcher.template["spec"]["restartPolicy"]
        .as_str()
        .is_some_and(|p| !p.is_empty())
    {
        report.template_restart_policy = true;
    }
    plan.actions.push(Action::Create {
        kind: ObjectKind::Job,
        name,
        body: Box::new(body),
    });
    true
}

/// None leaves the Job API's default where the user set nothing and nothing was charged.
fn backoff_limit(pass: &Pass<'_>, limit: i64) -> Option<i32> {
    if pass.job.backoff_limit.is_none() && limit == DEFAULT_BACKOFF_LIMIT {
        return None;
    }
    Some(i32::try_from(limit).unwrap_or(i32::MAX))
}

/// Puts the tries of a launcher Job on record, then deletes it; the next pass creates a new one.
pub fn rebuild(pass: &Pass<'_>, job: &JobFacts, plan: &mut Plan, report: &mut Report) {
    if put_on_record(pass, job, report) {
        plan.actions.push(super::delete_job(job));
    } else {
        plan.look_at(pass.now);
    }
}

/// Whether the charged tries of this Job are on record. If not, this pass reports them: once the Job
/// is gone, nothing else knows its tries.
pub fn put_on_record(pass: &Pass<'_>, job: &JobFacts, report: &mut Report) -> bool {
    let launcher = pass.observed.job.status.launcher.as_ref();
    let counted = launcher.and_then(|launcher| launcher.counted_job.as_deref());
    if counted == Some(job.uid.as_str()) {
        return true;
    }
    let pods: Vec<&PodFacts> = pass.tries().collect();
    report.count_job = Some((job.uid.clone(), Tries::of(job).charged(job, &pods)));
    false
}

/// Workers in the hostfile of the last release.
#[must_use]
pub fn released_hosts(job: &JobFacts) -> Option<Vec<u32>> {
    indexes::parse(job.annotations.get(names::HOSTS_ANNOTATION)?)
}

/// Workers leave: a launcher that runs is not said to have lost them. What it is said to run with is
/// changed before the first of them goes, and when they come back they are new to it.
pub fn give_up(pass: &Pass<'_>, victims: &[u32], plan: &mut Plan) {
    let Some(job) = pass.launcher_job().filter(|job| !job.held()) else {
        return;
    };
    let had = released_hosts(job);
    let mut hosts = had.clone().unwrap_or_else(|| pass.expected());
    hosts.retain(|index| !victims.contains(index));
    if had.as_ref() == Some(&hosts) {
        return;
    }
    let mut annotations = Map::new();
    let text = json!(indexes::format(&hosts));
    annotations.insert(names::HOSTS_ANNOTATION.to_owned(), text);
    patch(job, annotations, json!({}), plan);
}

/// Has the launcher's kubelet mount the files again, which say `content` now. By itself it looks for
/// a change each minute or so; a change of the pod makes it look at once.
pub fn refresh(pass: &Pass<'_>, content: &str, plan: &mut Plan) {
    let Some(job) = pass.launcher_job().filter(|job| !job.held()) else {
        return;
    };
    // Before it has a node, nothing is mounted.
    let attempt = pass.tries().filter(|pod| pod.live() && pod.node.is_some());
    let Some(pod) = attempt.last() else { return };
    let known = match &pod.files {
        Some(told) => told == content,
        None => mounted_at_start(pass, job).as_deref() == Some(content),
    };
    if !known {
        let annotations = json!({ names::FILES_ANNOTATION: content });
        plan.actions.push(Action::Patch {
            kind: ObjectKind::Pod,
            name: pod.name.clone(),
            body: Box::new(json!({ "metadata": { "uid": pod.uid, "annotations": annotations } })),
        });
    }
}

/// Digest of the files of the last release; None where the launcher waits for no worker, since they
/// change from its start on.
fn mounted_at_start(pass: &Pass<'_>, job: &JobFacts) -> Option<String> {
    let hosts = released_hosts(job).filter(|_| pass.gated())?;
    let (hostfile, discover) =
        super::hostfile::files(&pass.context(), &hosts, &hosts, pass.addresses.as_ref());
    Some(build::config_map::digest(&hostfile, &discover))
}

/// Indexes of workers that this try began with and that are no longer there. The pod that a try
/// began with is older than the try.
fn lost(pass: &Pass<'_>, job: &JobFacts, attempt: &PodFacts) -> Vec<u32> {
    let mut hosts = released_hosts(job).unwrap_or_else(|| pass.expected());
    hosts.retain(|index| !pass.scale_in.leaving().contains(index));
    let began = attempt.created.unwrap_or(pass.now);
    // Workers that the user gave up are no loss.
    let given_up = hosts.len().saturating_sub(pass.job.workers as usize);
    let lost: Vec<u32> = hosts
        .into_iter()
        .filter(|index| {
            let live = pass.workers.live.get(index);
            if !pass.gated() {
                // Such a try begins before its workers; only one that is seen going is lost.
                return live.is_none_or(|pod| !pod.ready)
                    && pass.observed.workers.iter().any(|pod| {
                        pod.index == Some(*index) && (pod.terminal() || pod.deleted.is_some())
                    });
            }
            live.is_none_or(|pod| {
                pod.created.is_none_or(|created| created > began)
                    || pod.main_started.is_some_and(|started| started > began)
                    // Not Ready since before the try began.
                    || (pass.workers.ready.binary_search(index).is_err()
                        && pod.ready_changed.is_none_or(|at| at <= began))
            })
        })
        .collect();
    if lost.len() > given_up {
        lost
    } else {
        Vec::new()
    }
}

/// Whether a worker was missing before the try began: the try slipped through, while the operator
/// was down or because the loss came at the same moment. Kubernetes writes times in whole seconds; in
/// the same second the loss counts as the earlier, since a try of that age has nothing to lose.
fn slipped(pass: &Pass<'_>, attempt: &PodFacts, lost: &[u32]) -> bool {
    let began = attempt.created.unwrap_or(pass.now);
    lost.iter().any(|index| {
        // A container that was started again in place was there when the try began.
        let replaced_before = pass.workers.live.get(index).is_some_and(|pod| {
            pod.created.is_some_and(|created| created <= began) && !pod.main_restarted
        });
        // Without indexes it cannot be said whose place a pod took that is going; the replacement,
        // which such a server creates at once, says it.
        let marked_before = pass.observed.workers.iter().any(|pod| {
            pod.index == Some(*index) && pod.deleted.is_some_and(|deleted| deleted < began)
        });
        replaced_before || marked_before
    })
}

fn steer(pass: &Pass<'_>, job: &JobFacts, gate: &Gate, plan: &mut Plan, report: &mut Report) {
    let tries = Tries::of(job);
    let pods: Vec<&PodFacts> = pass.tries().collect();
    let base = base_limit(pass);
    let present = pods.iter().copied().rfind(|pod| !pass.husk(pod));
    let gated = pass.gated() || tries.restarts > 0;

    if job.held() {
        if pass.left_over(&pass.observed.launchers, report).is_some() {
            return;
        }
        if gated && let Gate::Held(held) = gate {
            past_deadline(pass, job, plan);
            report.held = Some(held.clone());
            return;
        }
        if let Some(until) = restart_pause(&tries)
            && until > pass.now
        {
            plan.look_at(until);
            report.held = Some(Held {
                reason: reasons::BACK_OFF,
                message: format!(
                    "workers were lost {} times, the launcher is started again at {until:.0}",
                    tries.restarts
                ),
                look_again: Some(until),
            });
            past_deadline(pass, job, plan);
            return;
        }
        release(pass, job, &tries.settled(job, &pods), gate, plan, report);
        return;
    }

    let Some(attempt) = present else {
        // Let go past its deadline, to fail; holding it again would go on for ever.
        if job.deadline_seconds == Some(0) {
            return;
        }
        // Between two tries, or just released. A try that would start now must find all workers,
        // and the hostfile of the moment.
        let recorded = job.annotations.get(names::HOSTS_ANNOTATION);
        let stale = match gate {
            // A program that takes more hosts as they come need not wait for them.
            Gate::Open { hosts, .. } if pass.job.elastic => released_hosts(job)
                .is_some_and(|recorded| recorded.iter().any(|index| !hosts.contains(index))),
            Gate::Open { hosts, .. } => {
                recorded.is_some_and(|text| *text != indexes::format(hosts))
            }
            Gate::Held(held) => {
                report.held = Some(held.clone());
                true
            }
        };
        if gated && stale {
            let settled = tries.settled(job, &pods);
            hold(job, &settled, base, plan);
        }
        return;
    };

    if attempt.deleted.is_some() {
        return;
    }
    let lost = lost(pass, job, attempt);
    if lost.is_empty() || pass.job.workers == 0 {
        return;
    }
    let mut told = lost.clone();
    if pass.job.elastic {
        // Its program goes on without them, and with those that came back.
        told.retain(|index| pass.workers.ready.binary_search(index).is_err());
    }
    if !told.is_empty() {
        report.lost = Some((told, attempt.name.clone()));
    }
    let restart = pass.job.worker_loss == WorkerLossPolicy::RestartLauncher && !pass.job.elastic;
    let slipped = gated && slipped(pass, attempt, &lost);
    if pass.job.elastic && !slipped {
        return;
    }
    let known = tries
        .pending
        .as_ref()
        .is_some_and(|(uid, _)| *uid == attempt.uid);
    let mut next = if known {
        tries.clone()
    } else {
        tries.settled(job, &pods)
    };
    if (gated || restart) && next.refunded < MOST_REFUNDS && !known {
        next.pending = Some((attempt.uid.clone(), job.failed));
    }
    if restart && !slipped {
        next.restarts += 1;
        next.restarted = Some(pass.now);
    }
    if restart || slipped {
        hold(job, &next, base, plan);
    } else if next != tries {
        let spec = json!({ "backoffLimit": next.backoff_limit(base) });
        patch(job, next.annotations(), spec, plan);
    }
}

/// No restart before this time: a job that loses workers again and again slows down.
fn restart_pause(tries: &Tries) -> Option<Timestamp> {
    let over = u32::try_from(tries.restarts - FREE_RESTARTS)
        .ok()
        .filter(|over| *over > 0)?;
    tries.restarted?.checked_add(back_off(5, over, 300)).ok()
}

fn hold(job: &JobFacts, tries: &Tries, base: i64, plan: &mut Plan) {
    plan.held = true;
    let mut spec = closed(job);
    if spec["backoffLimit"].is_null() {
        spec["backoffLimit"] = json!(tries.backoff_limit(base));
    }
    patch(job, tries.annotations(), spec, plan);
}

/// What holds a launcher Job: `suspend`, or parallelism 0 where the server dropped that. Both end
/// its pod uncounted; but a Job controller of that age may see the pod as Failed on its way, and
/// must not take that for one failure too many. The release sets the limit again.
pub fn closed(job: &JobFacts) -> Value {
    if job.kept.suspend {
        json!({ "suspend": true })
    } else {
        json!({ "parallelism": 0, "backoffLimit": i32::MAX })
    }
}

fn release(
    pass: &Pass<'_>,
    job: &JobFacts,
    tries: &Tries,
    gate: &Gate,
    plan: &mut Plan,
    report: &mut Report,
) {
    // Kueue suspends child Jobs of a job that it has not admitted. Setting it back at once each
    // time would be a fight; once, and then with growing distance, is enough for a slip.
    if let Some((at, count)) = pass.observed.memory.released {
        let due = super::after(at, back_off(10, count.saturating_sub(1), 600));
        let taken_back = !job.annotations.contains_key(names::ENDED_ANNOTATION)
            && job.annotations.contains_key(names::RELEASED_ANNOTATION)
            && pass.tries().next().is_none();
        if taken_back && due > pass.now {
            plan.look_at(due);
            report.held = Some(Held {
                reason: reasons::BACK_OFF,
                message: format!(
                    "another controller suspends the launcher Job; it is released again at {due:.0}"
                ),
                look_again: Some(due),
            });
            return;
        }
    }
    let mut annotations = tries.annotations();
    if tries.refunded == 0 {
        annotations.remove(names::REFUNDED_ANNOTATION);
    }
    if !job
        .annotations
        .contains_key(names::REFUND_PENDING_ANNOTATION)
    {
        annotations.remove(names::REFUND_PENDING_ANNOTATION);
    }
    let hosts = match gate {
        Gate::Open { hosts, .. } if pass.gated() => hosts.clone(),
        _ => pass.expected(),
    };
    annotations.insert(
        names::HOSTS_ANNOTATION.to_owned(),
        json!(indexes::format(&hosts)),
    );
    let released = job
        .annotations
        .get(names::RELEASED_ANNOTATION)
        .and_then(|t| t.parse().ok());
    if released.is_none() {
        annotations.insert(
            names::RELEASED_ANNOTATION.to_owned(),
            json!(pass.now.to_string()),
        );
    }
    let mut spec = json!({});
    if job.suspend {
        spec["suspend"] = json!(false);
    }
    if job.parallelism == 0 {
        spec["parallelism"] = json!(1);
    }
    let limit = tries.backoff_limit(base_limit(pass));
    if limit != i64::from(job.backoff_limit) {
        spec["backoffLimit"] = json!(limit);
    }
    if let Some(deadline) = deadline(pass, job, released)
        && job.deadline_seconds != Some(deadline)
    {
        spec["activeDeadlineSeconds"] = json!(deadline);
    }
    patch(job, annotations, spec, plan);
    if let Gate::Open {
        since, bypassed, ..
    } = gate
    {
        plan.released = Some(*since);
        report.bypassed.clone_from(bypassed);
    }
}

/// `activeDeadlineSeconds` of a Job that is let go; None without a deadline. Its clock starts at the
/// first release and runs on while we hold the launcher.
fn deadline(pass: &Pass<'_>, job: &JobFacts, released: Option<Timestamp>) -> Option<i64> {
    let deadline = pass.job.deadline_seconds?;
    let since =
        |at: Option<Timestamp>| at.map_or(0, |at| pass.now.duration_since(at).as_secs().max(0));
    if job.suspend {
        // The Job controller's clock starts again.
        return Some((deadline - since(released)).max(0));
    }
    // Held by parallelism alone, the Job controller's clock has run since the Job was created, and
    // was given what it needs at the first release.
    if job.deadline_seconds.is_some() {
        return job.deadline_seconds;
    }
    Some(deadline.saturating_add(since(job.started)))
}

/// A held launcher whose deadline is over is released with 0 seconds: the Job controller checks the
/// deadline before it creates pods, so it fails without one.
fn past_deadline(pass: &Pass<'_>, job: &JobFacts, plan: &mut Plan) {
    let released: Option<Timestamp> = job
        .annotations
        .get(names::RELEASED_ANNOTATION)
        .and_then(|text| text.parse().ok());
    let (Some(released), Some(deadline)) = (released, pass.job.deadline_seconds) else {
        return;
    };
    // Held by parallelism alone, its clock runs on, and the Job controller ends it by itself.
    if !job.suspend {
        return;
    }
    let due = super::after(released, jiff::SignedDuration::from_secs(deadline));
    if due > pass.now {
        plan.look_at(due);
        return;
    }
    patch(
        job,
        Map::new(),
        json!({ "suspend": false, "activeDeadlineSeconds": 0 }),
        plan,
    );
}

fn patch(job: &JobFacts, annotations: Map<String, Value>, spec: Value, plan: &mut Plan) {
    plan.actions.push(Action::Patch {
        kind: ObjectKind::Job,
        name: job.name.clone(),
        body: children::job_patch(
            &job.uid,
            &job.resource_version,
            Value::Object(annotations),
            spec,
        ),
    });
}
