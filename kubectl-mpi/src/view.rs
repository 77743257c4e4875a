//! Objects as what is shown: a list of jobs, and all about one of them. Pure.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde::Serialize;

use crate::mpijob::{Condition, MpiJob};
use crate::pods::{self, Pods};
use crate::table::{NOTHING, age, cell, one_line, ranges, table};

/// What was read, or the one line that says why it cannot be.
pub type Read<T> = Result<Vec<T>, String>;

/// What the launcher waits for.
const WORKERS_READY: &str = "WorkersReady";

/// Reasons of [`WORKERS_READY`] that explain a worker without a pod.
const WHY_NO_POD: [&str; 4] = [
    "QuotaExceeded",
    "AdmissionRefused",
    "BackOff",
    "CrashLooping",
];

/// How many events are shown.
const EVENTS: usize = 10;

/// Everything that was read of one job.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The MPIJob.
    pub job: MpiJob,
    /// Its pods, of every role.
    pub pods: Read<Pod>,
    /// Its launcher Job and worker Job.
    pub jobs: Read<Job>,
    /// Events about it; None if nobody asked.
    pub events: Option<Read<Event>>,
    /// The present.
    pub now: Timestamp,
}

/// All about one job, as `-o json` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Name of the MPIJob.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Where it stands, in one word.
    pub status: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The operator has not looked at the last edit yet.
    pub edit_unseen: bool,
    /// Workers Ready and wanted, as `2/3`.
    pub workers_ready: String,
    /// What its `elasticPolicy` says, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic: Option<String>,
    /// May the launcher start; absent after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Tries of the launcher.
    pub tries: Tries,
    /// Workers by index.
    pub workers: Vec<Row>,
    /// Launcher pods, the newest try first.
    pub launcher: Vec<Row>,
    /// Conditions that matter.
    pub conditions: Vec<Told>,
    /// Its last events, the newest last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Told>>,
    /// What could not be read, one line each.
    pub unreadable: Vec<String>,
}

/// May the launcher start?
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// None: not known yet.
    pub open: Option<bool>,
    /// Why not, in one word where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for.
    pub message: String,
    /// Since when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Tries of the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tries {
    /// Failed tries that count.
    pub charged: i64,
    /// Failed tries that do not.
    pub refunded: i64,
    /// `backoffLimit`: with more than these, the job fails.
    pub limit: i64,
    /// Restarts by `workerLossPolicy: RestartLauncher`.
    pub restarts: i64,
}

/// One pod, or one worker without a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Index of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// How many tries before the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_try: Option<usize>,
    /// `Ready`, `Running`, `Pending`, `Terminating`, `Failed`, `Succeeded` or `Missing`.
    pub state: String,
    /// Node of the pod.
    pub node: String,
    /// When the pod was created.
    pub created: Option<Timestamp>,
    /// Why it is not Ready, or how it ended.
    pub why: String,
    /// Name of the pod.
    pub pod: String,
}

/// One condition or event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Type of the condition, or `Normal` and `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// Jobs as a table.
#[must_use]
pub fn list(jobs: &[MpiJob], all_namespaces: bool, wide: bool, now: Timestamp) -> String {
    let mut heads = vec!["NAME", "STATUS", "WORKERS", "TRIES", "AGE"];
    if all_namespaces {
        heads.insert(0, "NAMESPACE");
    }
    if wide {
        heads.extend(["REFUNDED", "RESTARTS", "WHY"]);
    }
    let row = |job: &MpiJob| {
        let mut row = vec![
            job.name().to_owned(),
            job.phase().to_owned(),
            job.workers_ready(),
            format!("{}/{}", job.tries("chargedTries"), job.backoff_limit()),
            age(job.created(), now),
        ];
        if all_namespaces {
            row.insert(0, job.namespace().to_owned());
        }
        if wide {
            row.push(job.tries("refundedTries").to_string());
            row.push(job.tries("restarts").to_string());
            row.push(cell(&why(job)));
        }
        row
    };
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    table("", &heads, &rows)
}

/// Why a job does not run, or not as it should, in one phrase.
fn why(job: &MpiJob) -> String {
    let phrase = |c: Condition<'_>| format!("{}: {}", c.reason, c.message);
    if job.ended().is_some() {
        return job.holds("Failed").map(phrase).unwrap_or_default();
    }
    if job.suspended() {
        return String::new();
    }
    let waits = || job.condition(WORKERS_READY).filter(|c| c.status == "False");
    let telling = job.holds("Invalid").or_else(waits);
    telling
        .or_else(|| job.holds("Degraded"))
        .map(phrase)
        .unwrap_or_default()
}

/// All about one job.
#[must_use]
pub fn describe(facts: &Facts) -> Description {
    let job = &facts.job;
    let no_pods = Vec::new();
    let pods = Pods::of(job, facts.pods.as_ref().unwrap_or(&no_pods));
    let unreadable = [
        facts.pods.as_ref().err(),
        facts.jobs.as_ref().err(),
        facts
            .events
            .as_ref()
            .and_then(|events| events.as_ref().err()),
    ];
    let runs = job.ended().is_none() && !job.suspended() && facts.pods.is_ok();
    let ready = pods.live().values().filter(|pod| pods::ready(pod)).count();
    Description {
        name: job.name().to_owned(),
        namespace: job.namespace().to_owned(),
        status: job.phase().to_owned(),
        created: job.created(),
        edit_unseen: job.edit_unseen(),
        // The status may be some seconds behind the pods.
        workers_ready: if runs {
            format!("{ready}/{}", job.replicas())
        } else {
            job.workers_ready()
        },
        elastic: elastic(job),
        gate: gate(facts, &pods),
        tries: Tries {
            charged: job.tries("chargedTries"),
            refunded: job.tries("refundedTries"),
            limit: job.backoff_limit(),
            restarts: job.tries("restarts"),
        },
        workers: workers(facts, &pods, runs),
        launcher: launcher(facts, &pods),
        conditions: job.conditions().filter(matters).map(told).collect(),
        events: facts
            .events
            .as_ref()
            .and_then(|events| Some(last(events.as_ref().ok()?))),
        unreadable: unreadable.into_iter().flatten().cloned().collect(),
    }
}

fn elastic(job: &MpiJob) -> Option<String> {
    let policy = job.elastic_policy()?;
    let mut parts = Vec::new();
    for (field, text) in [("minReplicas", "at least"), ("maxReplicas", "at most")] {
        if let Some(number) = policy[field].as_i64() {
            parts.push(format!("{text} {number}"));
        }
    }
    let first = job.remove_first();
    if !first.is_empty() {
        parts.push(format!("leave first: {}", first.join(", ")));
    }
    if parts.is_empty() {
        parts.push("yes".to_owned());
    }
    Some(parts.join(", "))
}

fn gate(facts: &Facts, pods: &Pods<'_>) -> Option<Gate> {
    let job = &facts.job;
    if job.ended().is_some() {
        return None;
    }
    let answer = |open: Option<bool>, message: &str| {
        Some(Gate {
            open,
            reason: String::new(),
            message: one_line(message),
            since: None,
        })
    };
    let closed_by = |told: &Condition<'_>, message: &str| {
        Some(Gate {
            open: Some(false),
            reason: told.reason.to_owned(),
            message: one_line(message),
            since: told.since,
        })
    };
    if job.suspended() {
        return answer(Some(false), "the job is suspended");
    }
    if let Some(invalid) = job.holds("Invalid") {
        return closed_by(&invalid, invalid.message);
    }
    if job.replicas() == 0 {
        return answer(Some(true), "the job has no workers");
    }
    let waits = job.condition(WORKERS_READY);
    if let Some(waits) = waits.as_ref().filter(|told| told.status == "False") {
        let runs = pods.launchers.iter().any(|pod| pods::live(pod));
        if runs {
            let message = format!("a try runs; the next would wait: {}", waits.message);
            return closed_by(waits, &message);
        }
        return closed_by(waits, waits.message);
    }
    if job.at_startup() {
        return answer(Some(true), "the launcher does not wait (AtStartup)");
    }
    let Some(ready) = waits else {
        return answer(None, "the operator has not looked at the job yet");
    };
    if launcher_job_is_held(facts) {
        // A moment before the release; or another controller, as Kueue, holds it.
        return answer(
            Some(false),
            "the workers are Ready, but the launcher Job is still suspended",
        );
    }
    if facts.pods.is_err() {
        return answer(Some(true), ready.message);
    }
    // Counts in the status are written seconds later.
    let count = pods.live().values().filter(|pod| pods::ready(pod)).count();
    let message = format!("{count}/{} workers are Ready", job.replicas());
    answer(Some(true), &message)
}

fn launcher_job_is_held(facts: &Facts) -> bool {
    let name = format!("{}-launcher", facts.job.name());
    let mut jobs = facts.jobs.iter().flatten();
    let found = jobs.find(|job| job.metadata.name.as_ref() == Some(&name));
    let spec = found.and_then(|job| job.spec.as_ref());
    spec.is_some_and(|spec| spec.suspend == Some(true))
}

fn row(pod: &Pod, now: Timestamp) -> Row {
    Row {
        index: None,
        previous_try: None,
        state: pods::state(pod).to_owned(),
        node: pods::node(pod).to_owned(),
        created: pods::created(pod),
        why: pods::why(pod, now),
        pod: pods::name(pod).to_owned(),
    }
}

fn workers(facts: &Facts, pods: &Pods<'_>, runs: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, all) in &pods.workers {
        for (place, pod) in all.iter().enumerate() {
            // Behind the one that counts, only those that are still there in earnest.
            if place == 0 || !pods::terminal(pod) {
                rows.push(Row {
                    index: Some(*index),
                    ..row(pod, facts.now)
                });
            }
        }
    }
    let missing = if runs {
        pods.missing(facts.job.replicas())
    } else {
        Vec::new()
    };
    for index in missing {
        // A pod of it that ended, or does not go, tells more.
        if rows.iter().any(|row| row.index == Some(index)) {
            continue;
        }
        let reason = facts.job.condition(WORKERS_READY).map_or("", |c| c.reason);
        let why = if WHY_NO_POD.contains(&reason) {
            format!("no pod: {reason}")
        } else {
            "no pod yet".to_owned()
        };
        rows.push(Row {
            index: Some(index),
            previous_try: None,
            state: "Missing".to_owned(),
            node: String::new(),
            created: None,
            why,
            pod: String::new(),
        });
    }
    rows.sort_by_key(|row| row.index);
    rows
}

fn launcher(facts: &Facts, pods: &Pods<'_>) -> Vec<Row> {
    let tries = pods.launchers.iter().enumerate();
    tries
        .map(|(back, pod)| {
            let mut row = row(pod, facts.now);
            row.previous_try = Some(back);
            // Nobody waits for a launcher to be Ready.
            if row.state == "Ready" {
                "Running".clone_into(&mut row.state);
            }
            row
        })
        .collect()
}

/// Those that are True, but for what every job has and what the gate tells.
fn matters(condition: &Condition<'_>) -> bool {
    condition.status == "True" && !["Created", WORKERS_READY].contains(&condition.type_)
}

fn told(condition: Condition<'_>) -> Told {
    Told {
        type_: condition.type_.to_owned(),
        status: condition.status.to_owned(),
        since: condition.since,
        reason: condition.reason.to_owned(),
        message: one_line(condition.message),
    }
}

fn last(events: &[Event]) -> Vec<Told> {
    let at = |event: &Event| {
        let series = event
            .series
            .as_ref()
            .and_then(|s| s.last_observed_time.as_ref());
        let seconds = event.last_timestamp.as_ref().map(|time| time.0);
        let created = event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        let exact = series.or(event.event_time.as_ref()).map(|time| time.0);
        seconds.or(exact).or(created)
    };
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| at(event));
    let skip = sorted.len().saturating_sub(EVENTS);
    let text = |text: &Option<String>| one_line(text.as_deref().unwrap_or_default());
    sorted
        .into_iter()
        .skip(skip)
        .map(|event| Told {
            type_: text(&event.type_),
            status: String::new(),
            since: at(event),
            reason: text(&event.reason),
            message: text(&event.message),
        })
        .collect()
}

/// A description for people.
#[must_use]
pub fn text(shown: &Description, wide: bool, now: Timestamp) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        text.push_str(&format!("{:<12}{value}\n", format!("{name}:")));
    };
    field("Name", &shown.name);
    field("Namespace", &shown.namespace);
    let unseen = if shown.edit_unseen {
        " (the operator has not taken in the last edit yet)"
    } else {
        ""
    };
    field("Status", &format!("{}{unseen}", shown.status));
    field("Age", &age(shown.created, now));
    field("Ready", &format!("{} workers", shown.workers_ready));
    if let Some(elastic) = &shown.elastic {
        field("Elastic", elastic);
    }
    if let Some(gate) = &shown.gate {
        let word = match gate.open {
            Some(true) => "open",
            Some(false) => "closed",
            None => "not known",
        };
        let reason = if gate.reason.is_empty() {
            String::new()
        } else {
            format!("{}: ", gate.reason)
        };
        let since = gate
            .since
            .map(|since| format!(" for {}", age(Some(since), now)))
            .unwrap_or_default();
        field("Gate", &format!("{word}{since}; {reason}{}", gate.message));
    }
    let tries = &shown.tries;
    field(
        "Tries",
        &format!(
            "{} charged, {} refunded, backoffLimit {}; {} restarts",
            tries.charged, tries.refunded, tries.limit, tries.restarts
        ),
    );
    let pods_known = !shown
        .unreadable
        .iter()
        .any(|line| line.starts_with(CANNOT_READ_PODS));
    if pods_known {
        let workers = shown
            .workers
            .iter()
            .map(|row| pod_row(row.index.map(|i| i.to_string()), row, wide, now));
        section(
            &mut text,
            "Workers",
            &pod_heads("INDEX", wide),
            workers.collect(),
        );
        let launcher = shown
            .launcher
            .iter()
            .map(|row| pod_row(row.previous_try.map(try_name), row, wide, now));
        section(
            &mut text,
            "Launcher",
            &pod_heads("TRY", wide),
            launcher.collect(),
        );
    }
    let condition = |told: &Told| {
        let since = age(told.since, now);
        vec![
            told.type_.clone(),
            told.status.clone(),
            since,
            cell(&told.reason),
            cell(&told.message),
        ]
    };
    section(
        &mut text,
        "Conditions",
        &["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"],
        shown.conditions.iter().map(condition).collect(),
    );
    if let Some(events) = &shown.events {
        let event = |told: &Told| {
            let since = age(told.since, now);
            vec![
                since,
                told.type_.clone(),
                cell(&told.reason),
                cell(&told.message),
            ]
        };
        let heads = ["AGE", "TYPE", "REASON", "MESSAGE"];
        section(
            &mut text,
            "Events",
            &heads,
            events.iter().map(event).collect(),
        );
    }
    if !shown.unreadable.is_empty() {
        text.push('\n');
        for line in &shown.unreadable {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

/// How the line that says why pods are not shown begins.
pub const CANNOT_READ_PODS: &str = "cannot read pods";

fn try_name(back: usize) -> String {
    if back == 0 {
        "newest".to_owned()
    } else {
        format!("previous {back}")
    }
}

fn pod_heads(first: &'static str, wide: bool) -> Vec<&'static str> {
    let mut heads = vec![first, "STATE", "NODE", "AGE", "WHY"];
    if wide {
        heads.insert(4, "POD");
    }
    heads
}

fn pod_row(first: Option<String>, row: &Row, wide: bool, now: Timestamp) -> Vec<String> {
    let mut cells = vec![
        first.unwrap_or_else(|| NOTHING.to_owned()),
        row.state.clone(),
        cell(&row.node),
        row.created
            .map_or_else(|| NOTHING.to_owned(), |created| age(Some(created), now)),
        cell(&row.why),
    ];
    if wide {
        cells.insert(4, cell(&row.pod));
    }
    cells
}

fn section(text: &mut String, name: &str, heads: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        text.push_str(&format!("\n{name}: none\n"));
    } else {
        text.push_str(&format!("\n{name}:\n{}", table("  ", heads, &rows)));
    }
}

/// The workers of a job, as `0-2,4 (4)`.
#[must_use]
pub fn indexes(pods: &Pods<'_>) -> String {
    let live = pods.live();
    format!("{} ({})", ranges(live.keys().copied()), live.len())
}

/// The pod whose log is meant: of a worker, or of a try of the launcher.
///
/// # Errors
/// One line that says why there is none.
pub fn log_pod<'a>(
    job: &MpiJob,
    all: &'a [Pod],
    worker: Option<u32>,
    previous_try: usize,
) -> Result<&'a Pod, String> {
    let pods = Pods::of(job, all);
    if let Some(index) = worker {
        let found = pods
            .workers
            .get(&index)
            .and_then(|all| all.first().copied());
        return found.ok_or_else(|| no_worker(job, &pods, index));
    }
    if let Some(pod) = pods.launchers.get(previous_try) {
        return Ok(pod);
    }
    let name = job.name();
    Err(match pods.launchers.len() {
        0 => {
            let why = why(job);
            let why = if why.is_empty() {
                job.phase().to_owned()
            } else {
                one_line(&why)
            };
            format!("MPIJob {name} has no launcher pod: {why}")
        }
        1 => format!("MPIJob {name} has the pod of one try only; there is no previous one"),
        count => format!(
            "MPIJob {name} has the pods of {count} tries: --previous-try goes up to {}",
            count - 1
        ),
    })
}

/// The pod of a worker, which has to run.
///
/// # Errors
/// One line that says why there is none.
pub fn exec_pod<'a>(
    job: &MpiJob,
    all: &'a [Pod],
    index: u32,
    now: Timestamp,
) -> Result<&'a Pod, String> {
    let pods = Pods::of(job, all);
    let found = pods
        .workers
        .get(&index)
        .and_then(|all| all.first().copied());
    let pod = found.ok_or_else(|| no_worker(job, &pods, index))?;
    if pods::running(pod) {
        return Ok(pod);
    }
    let why = pods::why(pod, now);
    let why = if why.is_empty() {
        why
    } else {
        format!(", {why}")
    };
    Err(format!(
        "worker {index} of MPIJob {} does not run: {}{why}",
        job.name(),
        pods::state(pod)
    ))
}

fn no_worker(job: &MpiJob, pods: &Pods<'_>, index: u32) -> String {
    format!(
        "MPIJob {} has no pod of worker {index}; its workers are {}",
        job.name(),
        ranges(pods.workers.keys().copied())
    )
}
