//! Conditions, counts, times: from what the steps reported to one status patch and its events.
//! Pure.
//!
//! A condition whose type, status and reason stay is not touched. Only for the conditions that the
//! Go operator does not have, a new message is written too, and that at a growing distance: counts
//! and waiting text must not cost a write a worker.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::gate::{self, Held, cut};
use super::launcher::Tries;
use super::{Pass, back_off, children, scale_in};
use crate::action::{EventNote, Milestone, Plan, StatusPatch};
use crate::api::mpijob::{JobCondition, LAUNCHER, MpiJobStatus, ReplicaStatus, WORKER};
use crate::api::names;
use crate::api::reasons::{self, condition};
use crate::api::validate::{self, Violation};
use crate::facts::observed::{Observed, PREDECESSOR, Phase, PodFacts, Refusal};

/// First distance between two writes of which only counts or waiting text differ, in seconds; it
/// doubles each time.
const SOFT_SECONDS: i64 = 10;

/// Largest such distance, in seconds.
const MOST_SOFT_SECONDS: i64 = 300;

/// A worker may be lost this long before the job says so, where mpirun is expected to notice.
const LOSS_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// How long the children of an earlier MPIJob of the same name are waited for in silence.
const PREDECESSOR_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// What a server without Indexed Jobs means for the user.
const UNINDEXED: &str = "this API server has no Indexed Jobs (Kubernetes 1.22 and newer have): workers have no index and no hostname of their own, hostfile and discover_hosts.sh name them by pod IP and follow when a worker is replaced, the launcher waits for all workers under AtStartup too, and who leaves in a shrink is chosen by the Job controller, whatever removeFirst says";

/// How the launcher Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// With success.
    Succeeded {
        /// Completion time.
        at: Timestamp,
    },
    /// In failure.
    Failed {
        /// Reason for the condition.
        reason: String,
        /// Message for the condition.
        message: String,
    },
}

/// What the steps of a pass found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The launcher has to wait.
    pub held: Option<Held>,
    /// Workers that the running try lost, and the name of its pod.
    pub lost: Option<(Vec<u32>, String)>,
    /// Workers counted as Ready although our own probe did not pass.
    pub bypassed: Vec<u32>,
    /// Objects that the server refused.
    pub refused: Vec<(String, Refusal)>,
    /// Launcher Job whose charged tries go on record.
    pub count_job: Option<(String, i64)>,
    /// A pod of an earlier run or try, and its node, that has to be gone first.
    pub waits_for_pod: Option<(String, Option<String>)>,
    /// Roles whose edited template is not used.
    pub template_ignored: Vec<&'static str>,
    /// The launcher template has a restartPolicy, which is not used.
    pub template_restart_policy: bool,
    /// A shrink waits until these workers, which stay, are Ready.
    pub shrink_waits: Vec<u32>,
    /// Growth waits until the launcher has ended.
    pub growth_waits: bool,
    /// The launcher Job has ended, and this is not on record yet.
    pub verdict: Option<Verdict>,
    /// The job has ended.
    pub finished: bool,
    /// The user holds the job.
    pub suspended: bool,
    /// Plain worker pods of the Go operator.
    pub legacy: bool,
    /// Plain workers that are gone.
    pub legacy_lost: Vec<u32>,
    /// Pods that do not finish terminating, one sentence each.
    pub stuck: Vec<String>,
}

/// Whether the end of the job is on record.
#[must_use]
pub fn ended(status: &MpiJobStatus) -> bool {
    status.completion_time.is_some()
        && [condition::SUCCEEDED, condition::FAILED]
            .iter()
            .any(|type_| is_true(status, type_))
}

fn is_true(status: &MpiJobStatus, type_: &str) -> bool {
    find(status, type_).is_some_and(|condition| condition.status == "True")
}

fn find<'a>(status: &'a MpiJobStatus, type_: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
}

/// Time as the API writes it: RFC 3339, whole seconds.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a condition's message alone is worth a write.
fn ours(type_: &str) -> bool {
    matches!(
        type_,
        condition::WORKERS_READY | condition::INVALID | condition::DEGRADED
    )
}

/// Sets a condition by the rules above; returns whether its status changed.
fn set(
    status: &mut MpiJobStatus,
    type_: &str,
    value: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let value = if value { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_with(Vec::new);
    let old = conditions
        .iter()
        .position(|condition| condition.type_ == type_);
    let mut changed = true;
    let mut transition = rfc3339(now);
    if let Some(at) = old
        && let Some(condition) = conditions.get_mut(at)
    {
        if condition.status == value {
            changed = false;
            if condition.reason.as_deref() == Some(reason) {
                if ours(type_) && condition.message.as_deref() != Some(message) {
                    condition.message = Some(message.to_owned());
                    condition.last_update_time = Some(rfc3339(now));
                }
                return false;
            }
            transition = condition.last_transition_time.clone().unwrap_or(transition);
        }
        conditions.remove(at);
    }
    conditions.push(JobCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(rfc3339(now)),
        last_transition_time: Some(transition),
    });
    changed
}

/// Clears a condition of ours that is set; one that never was stays absent.
fn clear(status: &mut MpiJobStatus, type_: &str, reason: &str, message: &str, now: Timestamp) {
    if find(status, type_).is_some() {
        set(status, type_, false, reason, message, now);
    }
}

fn created(observed: &Observed, status: &mut MpiJobStatus, now: Timestamp, plan: &mut Plan) {
    if status
        .conditions
        .as_ref()
        .is_some_and(|conditions| !conditions.is_empty())
    {
        return;
    }
    let job = &observed.job;
    let message = format!("MPIJob {}/{} is created.", job.namespace, job.name);
    set(
        status,
        condition::CREATED,
        true,
        reasons::CREATED,
        &message,
        now,
    );
    note(plan, false, reasons::CREATED, message);
    plan.milestones.push(Milestone::Created);
}

fn note(plan: &mut Plan, warning: bool, reason: &str, message: String) {
    plan.events.push(EventNote {
        warning,
        reason: reason.to_owned(),
        message,
        once: false,
    });
}

/// A job whose spec cannot be run: its objects are left as they are, condition and event say why.
pub fn invalid(
    observed: &Observed,
    reason: &str,
    violations: &[Violation],
    now: Timestamp,
    plan: &mut Plan,
) {
    let old = &observed.job.status;
    let mut status = old.clone();
    created(observed, &mut status, now, plan);
    let message = validate::validation_message(violations);
    let known = find(old, condition::INVALID)
        .is_some_and(|c| c.status == "True" && c.message.as_deref() == Some(message.as_str()));
    if !known {
        set(&mut status, condition::INVALID, true, reason, &message, now);
        note(plan, true, reason, message);
    }
    status.observed_generation = Some(observed.job.generation);
    status.phase = Some("Invalid".to_owned());
    patch(old, &status, false, plan);
}

/// The status after this pass: one patch if it differs, and the events of what changed.
pub fn finish(pass: &Pass<'_>, report: Report, plan: &mut Plan) {
    let old = &pass.observed.job.status;
    let mut status = old.clone();
    created(pass.observed, &mut status, pass.now, plan);
    // An end that the Go operator recorded stays without it: only ends that this operator recorded
    // may lead to the deletion of the MPIJob.
    if report.verdict.is_some() || !report.finished || old.observed_generation.is_some() {
        status.observed_generation = Some(pass.observed.job.generation);
    }
    if !report.suspended && !report.finished && status.start_time.is_none() {
        status.start_time = Some(rfc3339(pass.now));
    }
    replica_statuses(pass, &report, &mut status);
    status.scale_in = scale_in::record(pass);
    tries(pass, &report, &mut status);
    refusals(pass, &report, &mut status, plan);
    degraded(pass, &report, &mut status, plan);
    if report.finished {
        end(pass, &report, &mut status, plan);
    } else if report.suspended {
        suspended(pass, &mut status, plan);
    } else {
        resumed(pass, &mut status, plan);
        workers_ready(pass, &report, &mut status, plan);
        running(pass, &report, &mut status, plan);
    }
    if report.template_restart_policy {
        note(
            plan,
            true,
            reasons::TEMPLATE_RESTART_POLICY,
            "Restart policy in pod template overridden by restart policy in replica spec"
                .to_owned(),
        );
    }
    status.phase = Some(phase(&status, &report).to_owned());
    let soft = soft(old, &status);
    if soft && status != *old {
        let due = pass
            .observed
            .memory
            .status_written
            .or(pass.observed.job.created)
            .map_or(pass.now, |at| {
                let count = pass.observed.memory.soft_writes;
                super::after(at, back_off(SOFT_SECONDS, count, MOST_SOFT_SECONDS))
            });
        // What holds a quota or a resume back is told at once.
        let released =
            active(old) > 0 && active(&status) == 0 && (report.finished || report.suspended);
        if due > pass.now && !released {
            plan.look_at(due);
            plan.events.clear();
            return;
        }
    }
    patch(old, &status, soft, plan);
}

fn active(status: &MpiJobStatus) -> i32 {
    status
        .replica_statuses
        .iter()
        .flat_map(BTreeMap::values)
        .map(|counts| counts.active)
        .sum()
}

/// Whether only counts or waiting text differ.
fn soft(old: &MpiJobStatus, new: &MpiJobStatus) -> bool {
    let hard = |status: &MpiJobStatus| {
        let conditions: BTreeMap<String, (String, Option<String>)> = status
            .conditions
            .iter()
            .flatten()
            .filter(|condition| condition.type_ != condition::WORKERS_READY)
            .map(|condition| {
                let reason = if ours(&condition.type_) {
                    None
                } else {
                    condition.reason.clone()
                };
                (condition.type_.clone(), (condition.status.clone(), reason))
            })
            .collect();
        (
            conditions,
            status.start_time.clone(),
            status.completion_time.clone(),
            status.observed_generation,
            status.launcher.clone(),
            status.scale_in.clone(),
        )
    };
    hard(old) == hard(new)
}

fn patch(old: &MpiJobStatus, new: &MpiJobStatus, soft: bool, plan: &mut Plan) {
    if old == new {
        return;
    }
    plan.status = Some(StatusPatch {
        body: json!({ "status": difference(old, new) }),
        soft,
    });
}

/// A merge patch from `old` to `new`: top level fields that differ, null for those that are gone.
fn difference(old: &MpiJobStatus, new: &MpiJobStatus) -> Value {
    let (old, new) = (json!(old), json!(new));
    let mut patch = serde_json::Map::new();
    for (key, value) in new.as_object().into_iter().flatten() {
        if old.get(key) != Some(value) {
            patch.insert(key.clone(), merge(old.get(key), value));
        }
    }
    for key in old.as_object().into_iter().flatten().map(|(key, _)| key) {
        if new.get(key).is_none() {
            patch.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

/// Objects merge, so a key that is gone from `new` has to be null; anything else replaces.
fn merge(old: Option<&Value>, new: &Value) -> Value {
    let (Some(Value::Object(old)), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch: serde_json::Map<String, Value> = new
        .iter()
        .map(|(key, value)| (key.clone(), merge(old.get(key), value)))
        .collect();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn replica_statuses(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus) {
    let observed = pass.observed;
    let mut map = BTreeMap::new();
    let pods = observed.launchers.iter();
    let launcher_active = count(pods.filter(|pod| pod.active() && !pass.husk(pod)).count());
    if let Some(job) = &observed.launcher_job {
        map.insert(
            LAUNCHER.to_owned(),
            ReplicaStatus {
                active: launcher_active,
                succeeded: i32::from(job.complete),
                failed: i32::try_from(job.failed).unwrap_or(i32::MAX),
                selector: None,
            },
        );
    } else if let Some(old) = status
        .replica_statuses
        .as_ref()
        .and_then(|map| map.get(LAUNCHER))
        .filter(|_| report.finished)
    {
        // Collected by its TTL: what it counted stays on record.
        map.insert(
            LAUNCHER.to_owned(),
            ReplicaStatus {
                active: launcher_active,
                ..old.clone()
            },
        );
    } else if launcher_active > 0 {
        let counts = ReplicaStatus {
            active: launcher_active,
            ..ReplicaStatus::default()
        };
        map.insert(LAUNCHER.to_owned(), counts);
    }
    let mut workers = ReplicaStatus::default();
    for pod in observed.workers.iter().chain(&observed.plain_workers) {
        match pod.phase {
            // On its way out it neither holds resources nor tells anything.
            Phase::Succeeded | Phase::Failed if pod.deleted.is_some() => {}
            Phase::Succeeded => workers.succeeded += 1,
            Phase::Failed => workers.failed += 1,
            _ if pass.husk(pod) => {}
            _ => workers.active += 1,
        }
    }
    workers.selector = Some(format!(
        "{}={},{}={},{}={}",
        names::OPERATOR_NAME_LABEL,
        names::OPERATOR_NAME,
        names::JOB_NAME_LABEL,
        observed.job.name,
        names::JOB_ROLE_LABEL,
        names::ROLE_WORKER,
    ));
    map.insert(WORKER.to_owned(), workers);
    status.replica_statuses = Some(map);
    status.workers_ready = Some(format!("{}/{}", pass.workers.ready.len(), pass.job.workers));
}

fn tries(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus) {
    let mut launcher = status.launcher.clone().unwrap_or_default();
    if let Some((uid, charged)) = &report.count_job {
        launcher.earlier_tries += charged;
        launcher.counted_job = Some(uid.clone());
    }
    if let Some(job) = pass.observed.launcher_job.as_deref() {
        let tries = Tries::of(job);
        let pods: Vec<_> = pass.tries().collect();
        let present = if launcher.counted_job.as_deref() == Some(job.uid.as_str()) {
            0
        } else {
            tries.charged(job, &pods)
        };
        launcher.charged_tries = launcher.earlier_tries + present;
        let refunded = tries.refunded + i64::from(tries.pending_counted(job, &pods));
        launcher.refunded_tries = launcher.refunded_tries.max(refunded);
        launcher.restarts = launcher.restarts.max(tries.restarts);
    }
    // A count may go down to nothing again: Kubernetes 1.21 counts only pods that are there.
    if status.launcher.is_some() || launcher != crate::api::mpijob::LauncherStatus::default() {
        status.launcher = Some(launcher);
    }
}

fn refusals(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus, plan: &mut Plan) {
    let job = &pass.observed.job.name;
    let template = report.refused.iter().find(|(name, refusal)| {
        children::is_job(job, name) && !matches!(refusal.code, 409 | PREDECESSOR)
    });
    if let Some((name, refusal)) = template {
        let (reason, message) = children::refusal_text(pass, name, refusal);
        let known = find(status, condition::INVALID)
            .is_some_and(|c| c.status == "True" && c.message.as_deref() == Some(message.as_str()));
        if !known {
            set(
                status,
                condition::INVALID,
                true,
                reasons::TEMPLATE_REFUSED,
                &message,
                pass.now,
            );
            note(plan, true, reason, cut(&message, 1000));
        }
    } else if !report.finished {
        clear(
            status,
            condition::INVALID,
            "Valid",
            "The spec passes all checks.",
            pass.now,
        );
    }
}

fn degraded(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus, plan: &mut Plan) {
    let mut found: Option<(&str, String)> = None;
    let mut add = |reason: &'static str, message: String| {
        found = Some(match found.take() {
            Some((first, text)) => (first, format!("{text}; {message}")),
            None => (reason, message),
        });
    };
    let age = pass
        .observed
        .job
        .created
        .map(|created| pass.now.duration_since(created));
    for (name, refusal) in &report.refused {
        // Children of an earlier MPIJob of the same name go by themselves, normally at once.
        if refusal.code == PREDECESSOR && age.is_some_and(|age| age < PREDECESSOR_PATIENCE) {
            continue;
        }
        let (reason, message) = children::refusal_text(pass, name, refusal);
        if reason != reasons::FAILED {
            add(reason, message);
        }
    }
    // Before the loss that it may have led to: this is what somebody has to do something about.
    if !report.stuck.is_empty() {
        add(
            reasons::STUCK_TERMINATING,
            cut(&report.stuck.join("; "), 1000),
        );
    }
    if let Some((lost, launcher)) = &report.lost {
        let since = lost
            .iter()
            .filter_map(|index| {
                let any = pass.unindexed();
                let pods = pass
                    .observed
                    .workers
                    .iter()
                    .filter(|pod| any || pod.index == Some(*index));
                pods.filter_map(|pod| pod.deleted.or(pod.created)).max()
            })
            .min()
            .unwrap_or(pass.now);
        let due = super::after(since, LOSS_PATIENCE);
        let known = find(status, condition::DEGRADED).is_some_and(|c| {
            c.status == "True" && c.reason.as_deref() == Some(reasons::WORKER_LOST)
        });
        if due <= pass.now || known {
            let then = if pass.job.elastic {
                "an elastic program goes on with the others"
            } else {
                "the try does not count if it fails (workerLossPolicy: RestartLauncher would restart it)"
            };
            add(
                reasons::WORKER_LOST,
                format!(
                    "{} was lost while launcher pod {launcher} runs; {then}",
                    lost_workers(pass, lost),
                ),
            );
        } else {
            plan.look_at(due);
        }
    }
    if !report.legacy_lost.is_empty() {
        add(
            reasons::LEGACY_WORKER_LOST,
            format!(
                "worker {} of the Go operator is gone and is not created again; suspend and resume the MPIJob to run it with an Indexed Job",
                super::indexes::format(&report.legacy_lost)
            ),
        );
    }
    if !report.template_ignored.is_empty() {
        add(
            reasons::TEMPLATE_CHANGE_IGNORED,
            format!(
                "the {} template was edited after its pods had started; suspend and resume the MPIJob to use it",
                report.template_ignored.join(" and the ")
            ),
        );
    }
    if !report.shrink_waits.is_empty() {
        add(
            reasons::SHRINK_WAITS,
            format!(
                "fewer workers are wanted; nobody leaves before {}, which stays, is Ready",
                pass.name_workers(&report.shrink_waits)
            ),
        );
    }
    if report.growth_waits {
        add(
            reasons::GROWTH_WAITS,
            "more workers than the worker Job has room for are wanted; it is built again when the launcher has ended (elasticPolicy.maxReplicas would leave room)".to_owned(),
        );
    }
    let bypassed = find(status, condition::DEGRADED).is_some_and(|c| {
        c.status == "True" && c.reason.as_deref() == Some(reasons::PROBE_BYPASSED)
    });
    if !report.bypassed.is_empty() || (bypassed && !pass.workers.bypassed.is_empty()) {
        let which = &pass.workers.bypassed;
        add(
            reasons::PROBE_BYPASSED,
            format!(
                "{}: the readiness probe that the operator added does not pass, the launcher was started without it; set the port of sshd as containerPort or add a probe",
                pass.name_workers(which)
            ),
        );
    }
    for warning in &pass.job.warnings {
        add(reasons::VALIDATION_ERROR, warning.to_string());
    }
    // Last: nothing can be done about it in this cluster, so whatever else is amiss goes first.
    if pass.unindexed() && !report.finished {
        add(reasons::INDEXED_JOB_UNAVAILABLE, UNINDEXED.to_owned());
    }
    match found {
        Some((reason, message)) => {
            let old = find(status, condition::DEGRADED).cloned();
            set(
                status,
                condition::DEGRADED,
                true,
                reason,
                &message,
                pass.now,
            );
            let news =
                old.is_none_or(|old| old.status != "True" || old.reason.as_deref() != Some(reason));
            if news {
                note(plan, true, reason, cut(&message, 1000));
            }
        }
        // One that says why it is False already keeps that: the job has ended.
        None if is_true(status, condition::DEGRADED) => clear(
            status,
            condition::DEGRADED,
            "Recovered",
            "Nothing is amiss.",
            pass.now,
        ),
        None => {}
    }
}

/// The workers that a try lost. Without indexes the pods that went are known only while they are
/// still there.
fn lost_workers(pass: &Pass<'_>, lost: &[u32]) -> String {
    if !pass.unindexed() {
        return pass.name_workers(lost);
    }
    let mut gone: Vec<&PodFacts> = pass
        .observed
        .workers
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| !pod.live())
        .collect();
    gone.sort_by_key(|pod| std::cmp::Reverse(pod.deleted.or(pod.ended)));
    let names = gone.iter().map(|pod| pod.name.as_str());
    gate::name_pods(names.take(lost.len()), lost.len())
}

fn end(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus, plan: &mut Plan) {
    let Some(verdict) = &report.verdict else {
        return;
    };
    let job = &pass.observed.job;
    let completion = match verdict {
        Verdict::Succeeded { at } => *at,
        Verdict::Failed { .. } => pass.now,
    };
    if status.completion_time.is_none() {
        status.completion_time = Some(rfc3339(completion));
    }
    if status.start_time.is_none() {
        status.start_time.clone_from(&status.completion_time);
    }
    match verdict {
        Verdict::Succeeded { .. } => {
            let message = format!(
                "MPIJob {}/{} successfully completed.",
                job.namespace, job.name
            );
            set(
                status,
                condition::SUCCEEDED,
                true,
                reasons::SUCCEEDED,
                &message,
                pass.now,
            );
            // An eviction may have been recorded as Failed by the Go operator meanwhile.
            flip(status, condition::FAILED);
            note(plan, false, reasons::SUCCEEDED, message);
            plan.milestones.push(Milestone::Succeeded);
        }
        Verdict::Failed { reason, message } => {
            set(status, condition::FAILED, true, reason, message, pass.now);
            note(plan, true, reason, message.clone());
            plan.milestones.push(Milestone::Failed);
        }
    }
    if find(status, condition::RUNNING).is_some() {
        flip(status, condition::RUNNING);
    } else {
        let message = format!(
            "MPIJob {}/{} is finished but Running condition was never set.",
            job.namespace, job.name
        );
        set(
            status,
            condition::RUNNING,
            false,
            reasons::RUNNING,
            &message,
            completion,
        );
    }
    clear(
        status,
        condition::WORKERS_READY,
        "Finished",
        "The job has ended.",
        pass.now,
    );
    clear(
        status,
        condition::DEGRADED,
        "Finished",
        "The job has ended.",
        pass.now,
    );
}

/// Sets a condition to False and leaves everything else of it, both times included: run time is
/// completionTime less Running's lastTransitionTime.
fn flip(status: &mut MpiJobStatus, type_: &str) {
    let conditions = status.conditions.iter_mut().flatten();
    for condition in conditions.filter(|c| c.type_ == type_ && c.status == "True") {
        condition.status = "False".to_owned();
    }
}

fn suspended(pass: &Pass<'_>, status: &mut MpiJobStatus, plan: &mut Plan) {
    let job = &pass.observed.job;
    let changed = set(
        status,
        condition::SUSPENDED,
        true,
        reasons::SUSPENDED,
        "MPIJob suspended",
        pass.now,
    );
    if changed {
        note(
            plan,
            false,
            reasons::SUSPENDED,
            "MPIJob suspended".to_owned(),
        );
    }
    let message = format!("MPIJob {}/{} is suspended.", job.namespace, job.name);
    set(
        status,
        condition::RUNNING,
        false,
        reasons::SUSPENDED,
        &message,
        pass.now,
    );
    clear(
        status,
        condition::WORKERS_READY,
        reasons::SUSPENDED,
        "The job is suspended.",
        pass.now,
    );
}

fn resumed(pass: &Pass<'_>, status: &mut MpiJobStatus, plan: &mut Plan) {
    if !is_true(status, condition::SUSPENDED) {
        return;
    }
    set(
        status,
        condition::SUSPENDED,
        false,
        reasons::RESUMED,
        "MPIJob resumed",
        pass.now,
    );
    status.start_time = Some(rfc3339(pass.now));
    note(plan, false, reasons::RESUMED, "MPIJob resumed".to_owned());
}

fn workers_ready(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus, plan: &mut Plan) {
    if pass.job.workers == 0 || report.legacy {
        return;
    }
    let before = find(status, condition::WORKERS_READY).cloned();
    let (value, reason, message) = if let Some((pod, node)) = &report.waits_for_pod {
        let on = node
            .as_deref()
            .map(|node| format!(" on node {node}"))
            .unwrap_or_default();
        (
            false,
            reasons::WAITING_FOR_WORKERS,
            format!(
                "pod {pod}{on} of an earlier start is still there; nothing new is started before it is gone"
            ),
        )
    } else if let Some(held) = &report.held {
        (false, held.reason, held.message.clone())
    } else {
        let ready = pass.workers.ready.len();
        let mut message = format!("{ready}/{} workers are Ready", pass.job.workers);
        if ready < pass.job.workers as usize {
            let _ = write!(message, " (at least {} needed)", pass.job.min_ready);
            (true, reasons::ENOUGH_READY, message)
        } else {
            (true, reasons::ALL_READY, message)
        }
    };
    set(
        status,
        condition::WORKERS_READY,
        value,
        reason,
        &message,
        pass.now,
    );
    let telling = !value && reason != reasons::WAITING_FOR_WORKERS;
    if telling && before.is_none_or(|old| old.reason.as_deref() != Some(reason)) {
        note(plan, true, reason, cut(&message, 1000));
    }
}

fn running(pass: &Pass<'_>, report: &Report, status: &mut MpiJobStatus, plan: &mut Plan) {
    if is_true(status, condition::RUNNING) {
        return;
    }
    let launcher = pass
        .tries()
        .any(|pod| pod.phase == Phase::Running && pod.deleted.is_none());
    let workers = if report.legacy {
        let pods = &pass.observed.plain_workers;
        pods.iter()
            .filter(|pod| pod.phase == Phase::Running)
            .count()
    } else {
        pass.workers
            .live
            .values()
            .filter(|pod| pod.phase == Phase::Running)
            .count()
    };
    if !launcher || workers < pass.job.min_ready as usize {
        return;
    }
    let job = &pass.observed.job;
    let message = format!("MPIJob {}/{} is running.", job.namespace, job.name);
    set(
        status,
        condition::RUNNING,
        true,
        reasons::RUNNING,
        &message,
        pass.now,
    );
    note(
        plan,
        false,
        reasons::RUNNING,
        format!("MPIJob {}/{} is running", job.namespace, job.name),
    );
}

/// One word for `kubectl get`.
fn phase(status: &MpiJobStatus, report: &Report) -> &'static str {
    if is_true(status, condition::SUCCEEDED) {
        "Succeeded"
    } else if is_true(status, condition::FAILED) {
        "Failed"
    } else if is_true(status, condition::INVALID) {
        "Invalid"
    } else if report.suspended {
        "Suspended"
    } else if report.held.is_some() || report.waits_for_pod.is_some() {
        "Waiting"
    } else if is_true(status, condition::RUNNING) {
        "Running"
    } else {
        "Waiting"
    }
}
