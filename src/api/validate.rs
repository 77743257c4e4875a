//! Spec -> [`ValidJob`], or every violation.
//!
//! What the planner works with is a [`ValidJob`]: all defaults filled in, all enums closed. A spec
//! that cannot become one is reported with the field paths and texts of the Go operator 0.8.2.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use serde_path_to_error::Segment;

use super::depth;
use super::mpijob::{ElasticPolicy, LAUNCHER, MpiJobSpec, ReplicaSpec, SchedulingPolicy, WORKER};
use super::{defaults, names};

#[cfg(test)]
mod tests;

/// Largest number of workers. An Indexed Job takes no more pods at once, and without a bound one
/// spec with `replicas: 2000000000` would cost the operator all its memory for the hostfile.
pub const MAX_WORKERS: i32 = 100_000;

/// Longest text that reports a broken spec, in bytes; the API's limit for a note of an event.
pub const MAX_MESSAGE: usize = 1024;

/// Longest quote of a user's text inside one violation, in bytes.
const MAX_QUOTE: usize = 200;

/// Most entries of one list that are named; the message is cut anyway.
const MAX_NAMED: usize = 5;

/// A spec that can be run, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidJob {
    /// `slots=` of each hostfile line; at least 0.
    pub slots: i32,
    /// The launcher is a rank host too.
    pub launcher_as_worker: bool,
    /// Number of wanted workers; 0 for a launcher-only job.
    pub workers: u32,
    /// Form of hostfile and environment.
    pub implementation: Implementation,
    /// The launcher waits until workers are Ready, on each start.
    pub gated: bool,
    /// Directory of the key pair.
    pub ssh_path: String,
    /// Clean-up at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// Seconds; copied to the launcher Job.
    pub ttl_seconds: Option<i32>,
    /// Seconds that the launcher may take, all tries together.
    pub deadline_seconds: Option<i64>,
    /// Retries of the launcher; None is the Job API's default of 6.
    pub backoff_limit: Option<i32>,
    /// The user holds the job.
    pub suspend: bool,
    /// Gang scheduling wishes, as given.
    pub scheduling: SchedulingPolicy,
    /// What a lost worker does to a running launcher.
    pub worker_loss: WorkerLossPolicy,
    /// The launcher's pods.
    pub launcher: Role,
    /// The workers' pods; None for a launcher-only job.
    pub worker: Option<Role>,
    /// The gate opens with this many workers Ready; 1..=workers (0 for a launcher-only job).
    pub min_ready: u32,
    /// Room is left for this many workers; at least `workers`.
    pub max_workers: u32,
    /// The job has an `elasticPolicy`.
    pub elastic: bool,
    /// Indexes of the workers that leave first, in this order, each once.
    pub remove_first: Vec<u32>,
    /// What is odd but does not stop the job, such as an unknown launcherCreationPolicy.
    pub warnings: Vec<Violation>,
}

/// The pods of one role.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// The pod template, raw: an object with at least one container.
    pub template: Value,
    /// For the pods; the template's own is overridden.
    pub restart_policy: RestartPolicy,
}

/// `spec.mpiImplementation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// Open MPI 4 and 5.
    OpenMpi,
    /// Intel MPI.
    Intel,
    /// MPICH.
    Mpich,
}

/// `spec.runPolicy.cleanPodPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanPodPolicy {
    /// Workers stay.
    None,
    /// Workers that have not ended go.
    Running,
    /// All workers go.
    All,
}

/// `spec.mpiReplicaSpecs[..].restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// A container that ended is not started again in its pod.
    Never,
    /// A container that failed is started again in its pod.
    OnFailure,
}

/// `spec.runPolicy.workerLossPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerLossPolicy {
    /// mpirun notices by itself and fails; the gate holds the retry.
    WaitForLauncher,
    /// The launcher is stopped, without costing a try, and started again when the workers are back.
    RestartLauncher,
}

/// Who runs an MPIJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Management {
    /// This operator.
    Ours,
    /// Another controller that the API knows (MultiKueue): nothing of the job is touched.
    Foreign,
    /// A text that the API does not know: nothing of the job is touched but for one event.
    Unknown(String),
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Field path, as `spec.mpiReplicaSpecs[Launcher].replicas`.
    pub path: String,
    /// What is wrong, as `Invalid value: 2: must be 1`.
    pub text: String,
}

impl Violation {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    fn required(path: impl Into<String>, why: &str) -> Self {
        Self::new(path, format!("Required value: {why}"))
    }

    fn invalid(path: impl Into<String>, value: impl fmt::Display, why: &str) -> Self {
        Self::new(path, format!("Invalid value: {value}: {why}"))
    }

    fn unsupported(path: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|text| quote(text)).collect();
        let supported = supported.join(", ");
        Self::new(
            path,
            format!(
                "Unsupported value: {}: supported values: {supported}",
                quote(value)
            ),
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// The one sentence of event and condition about a spec that breaks rules.
#[must_use]
pub fn validation_message(violations: &[Violation]) -> String {
    let all: Vec<String> = violations.iter().map(Violation::to_string).collect();
    let all = all.join(", ");
    let message = if violations.len() == 1 {
        format!("Found validation errors: {all}")
    } else {
        format!("Found validation errors: [{all}]")
    };
    cut_bytes(message, MAX_MESSAGE)
}

/// `text`, or what of it fits into `limit` bytes with `...` at its end.
#[must_use]
pub fn cut_bytes(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit.saturating_sub("...".len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str("...");
    text
}

/// `text` in quotes, escaped and cut, so that a stored text of any size makes a readable sentence.
fn quote(text: &str) -> String {
    Value::from(cut_bytes(text.to_owned(), MAX_QUOTE)).to_string()
}

/// Reads the `spec` of a stored MPIJob. A missing or null spec is an empty one.
///
/// # Errors
/// The first field that has not the type of the API. The API server stores no such object while
/// our CustomResourceDefinition is in place, but one of an older definition may be stored.
pub fn decode(raw_spec: &Value) -> Result<MpiJobSpec, Violation> {
    if raw_spec.is_null() {
        return Ok(MpiJobSpec::default());
    }
    if raw_spec == depth::TOO_DEEP {
        return Err(Violation {
            path: "spec".to_owned(),
            text: format!("Invalid value: {}", depth::TOO_DEEP),
        });
    }
    if !raw_spec.is_object() {
        // serde would also read a struct from a list of its fields.
        return Err(wrong_type("spec".to_owned(), raw_spec, "an object"));
    }
    serde_path_to_error::deserialize(raw_spec).map_err(|error| {
        let mut path = "spec".to_owned();
        let mut parent = "";
        for segment in error.path() {
            match segment {
                Segment::Map { key } if parent == "mpiReplicaSpecs" => {
                    path.push_str(&format!("[{}]", cut_bytes(key.clone(), MAX_QUOTE)));
                    parent = "";
                }
                Segment::Map { key } => {
                    path.push('.');
                    path.push_str(&cut_bytes(key.clone(), MAX_QUOTE));
                    parent = key;
                }
                Segment::Seq { index } => path.push_str(&format!("[{index}]")),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let what = cut_bytes(error.inner().to_string(), MAX_QUOTE);
        let what = what.strip_prefix("invalid value: ").unwrap_or(&what);
        let what = what.strip_prefix("invalid type: ").unwrap_or(what);
        Violation::new(path, format!("Invalid value: {what}"))
    })
}

/// Who runs the job.
#[must_use]
pub fn management(spec: &MpiJobSpec) -> Management {
    let managed_by = spec
        .run_policy
        .as_ref()
        .and_then(|policy| policy.managed_by.as_deref());
    match managed_by {
        None | Some("" | names::MANAGED_BY_US) => Management::Ours,
        Some(names::MANAGED_BY_MULTIKUEUE) => Management::Foreign,
        Some(other) => Management::Unknown(other.to_owned()),
    }
}

/// Fills in every default and checks every rule.
///
/// # Errors
/// All broken rules, in the order in which the Go operator reports them, then those that only
/// this operator knows.
pub fn validate(name: &str, spec: &MpiJobSpec) -> Result<ValidJob, Vec<Violation>> {
    let mut found = Findings::default();
    let roles = spec.mpi_replica_specs.as_ref();
    let role = |key| {
        roles
            .and_then(|roles| roles.get(key))
            .and_then(Option::as_ref)
    };

    let wanted = role(WORKER).map_or(0, defaults::replicas);
    found.check_name(name, wanted);
    let (launcher, worker) = if roles.is_some() {
        let launcher = role(LAUNCHER);
        if launcher.is_none() {
            let path = replica_path(LAUNCHER);
            found.broken(Violation::required(path, "must have Launcher replica spec"));
        }
        (
            launcher.and_then(|launcher| found.check_role(LAUNCHER, launcher)),
            role(WORKER).and_then(|worker| found.check_role(WORKER, worker)),
        )
    } else {
        found.broken(Violation::required(
            "spec.mpiReplicaSpecs",
            "must have replica specs",
        ));
        (None, None)
    };

    let policy = spec.run_policy.clone().unwrap_or_default();
    let slots = defaults::slots_per_worker(spec);
    found.check_not_negative("spec.slotsPerWorker", slots.into());
    for (field, value) in [
        (
            "ttlSecondsAfterFinished",
            policy.ttl_seconds_after_finished.map(i64::from),
        ),
        ("activeDeadlineSeconds", policy.active_deadline_seconds),
        ("backoffLimit", policy.backoff_limit.map(i64::from)),
    ] {
        found.check_not_negative(&format!("spec.runPolicy.{field}"), value.unwrap_or(0));
    }
    let clean_pod_policy = found.one_of(
        "spec.runPolicy.cleanPodPolicy",
        defaults::clean_pod_policy(spec),
        &[
            ("All", CleanPodPolicy::All),
            ("None", CleanPodPolicy::None),
            ("Running", CleanPodPolicy::Running),
        ],
    );
    let implementation = found.one_of(
        "spec.mpiImplementation",
        defaults::mpi_implementation(spec),
        &[
            ("Intel", Implementation::Intel),
            ("MPICH", Implementation::Mpich),
            ("OpenMPI", Implementation::OpenMpi),
        ],
    );
    let worker_loss = found.one_of(
        "spec.runPolicy.workerLossPolicy",
        defaults::worker_loss_policy(spec),
        &[
            ("RestartLauncher", WorkerLossPolicy::RestartLauncher),
            ("WaitForLauncher", WorkerLossPolicy::WaitForLauncher),
        ],
    );
    let workers = u32::try_from(wanted).unwrap_or(0);
    let elastic = found.check_elastic(name, spec.elastic_policy.as_ref(), workers);
    let gated = found.check_creation_policy(defaults::launcher_creation_policy(spec));
    let scheduling = found.check_scheduling(policy.scheduling_policy.unwrap_or_default());
    found.warn_other_roles(spec);

    match (launcher, clean_pod_policy, implementation, worker_loss) {
        (Some(launcher), Some(clean_pod_policy), Some(implementation), Some(worker_loss))
            if found.violations.is_empty() =>
        {
            Ok(ValidJob {
                slots,
                launcher_as_worker: spec.run_launcher_as_worker.unwrap_or(false),
                workers,
                implementation,
                gated,
                ssh_path: defaults::ssh_auth_mount_path(spec).to_owned(),
                clean_pod_policy,
                ttl_seconds: policy.ttl_seconds_after_finished,
                deadline_seconds: policy.active_deadline_seconds,
                backoff_limit: policy.backoff_limit,
                suspend: policy.suspend.unwrap_or(false),
                scheduling,
                worker_loss,
                launcher,
                worker,
                min_ready: elastic.min_ready,
                max_workers: elastic.max_workers,
                elastic: elastic.asked_for,
                remove_first: elastic.remove_first,
                warnings: found.warnings,
            })
        }
        _ => Err(found.violations),
    }
}

/// Path of one role.
fn replica_path(role: &str) -> String {
    format!("spec.mpiReplicaSpecs[{role}]")
}

/// What `elasticPolicy` comes to.
struct Elastic {
    asked_for: bool,
    min_ready: u32,
    max_workers: u32,
    remove_first: Vec<u32>,
}

/// What the checks have found so far.
#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
    warnings: Vec<Violation>,
}

impl Findings {
    fn broken(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    fn check_name(&mut self, name: &str, wanted: i32) {
        let label = format!("{name}-worker-{}", wanted.max(1) - 1);
        let why = why_no_dns_label(&label);
        if !why.is_empty() {
            self.broken(Violation::invalid(
                "metadata.name",
                quote(name),
                &format!(
                    "will not able to create pod and service with invalid DNS label {}: {}",
                    quote(&label),
                    why.join(", ")
                ),
            ));
        }
    }

    /// None only if a violation was added.
    fn check_role(&mut self, role: &str, spec: &ReplicaSpec) -> Option<Role> {
        let path = replica_path(role);
        let is_launcher = role == LAUNCHER;
        let default = if is_launcher {
            defaults::LAUNCHER_RESTART_POLICY
        } else {
            defaults::WORKER_RESTART_POLICY
        };
        let restart_policy = self.one_of(
            &format!("{path}.restartPolicy"),
            defaults::restart_policy(spec, default),
            &[
                ("Never", RestartPolicy::Never),
                ("OnFailure", RestartPolicy::OnFailure),
            ],
        );
        let template = self.check_template(&format!("{path}.template"), spec.template.as_ref());
        let replicas = defaults::replicas(spec);
        let why = if is_launcher {
            (replicas != 1).then(|| "must be 1".to_owned())
        } else if replicas < 1 {
            Some("must be greater than or equal to 1".to_owned())
        } else {
            (replicas > MAX_WORKERS).then(|| format!("must be less than or equal to {MAX_WORKERS}"))
        };
        if let Some(why) = why {
            self.broken(Violation::invalid(
                format!("{path}.replicas"),
                replicas,
                &why,
            ));
        }
        Some(Role {
            template: template?.clone(),
            restart_policy: restart_policy?,
        })
    }

    /// The template, if what the operator itself reads and adds to has the type that it expects.
    /// All the rest of it is for the API server to judge.
    fn check_template<'a>(&mut self, path: &str, template: Option<&'a Value>) -> Option<&'a Value> {
        let template = template.filter(|template| !template.is_null());
        let spec = template.and_then(|template| present(template, "spec"));
        let containers = spec.and_then(|spec| present(spec, "containers"));

        let mut wrong = Vec::new();
        let mut expect = |path: String, value: Option<&Value>, kind: Kind| {
            let Some(value) = value else { return };
            if !kind.is(value) {
                wrong.push(wrong_type(path, value, kind.name()));
            } else if kind == Kind::Texts {
                for (key, text) in value.as_object().into_iter().flatten() {
                    if !text.is_string() && !text.is_null() {
                        let path = format!("{path}[{}]", cut_bytes(key.clone(), MAX_QUOTE));
                        wrong.push(wrong_type(path, text, "a text"));
                    }
                }
            } else if kind == Kind::Objects {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    if !item.is_object() {
                        wrong.push(wrong_type(format!("{path}[{index}]"), item, "an object"));
                    }
                }
            }
        };
        expect(path.to_owned(), template, Kind::Object);
        let metadata = template.and_then(|template| present(template, "metadata"));
        expect(format!("{path}.metadata"), metadata, Kind::Object);
        for field in ["labels", "annotations"] {
            let value = metadata.and_then(|metadata| present(metadata, field));
            expect(format!("{path}.metadata.{field}"), value, Kind::Texts);
        }
        expect(format!("{path}.spec"), spec, Kind::Object);
        for (field, kind) in [
            ("volumes", Kind::Objects),
            ("initContainers", Kind::Objects),
            ("tolerations", Kind::Objects),
            ("dnsConfig", Kind::Object),
            ("nodeSelector", Kind::Texts),
            ("securityContext", Kind::Object),
        ] {
            let value = spec.and_then(|spec| present(spec, field));
            expect(format!("{path}.spec.{field}"), value, kind);
        }
        let searches = spec
            .and_then(|spec| present(spec, "dnsConfig"))
            .and_then(|config| present(config, "searches"));
        expect(
            format!("{path}.spec.dnsConfig.searches"),
            searches,
            Kind::List,
        );
        expect(format!("{path}.spec.containers"), containers, Kind::Objects);
        let list = containers.and_then(Value::as_array);
        for (index, container) in list.into_iter().flatten().enumerate() {
            for (field, kind) in [
                ("command", Kind::List),
                ("args", Kind::List),
                ("env", Kind::Objects),
                ("ports", Kind::Objects),
                ("volumeMounts", Kind::Objects),
                ("lifecycle", Kind::Object),
                ("resources", Kind::Object),
            ] {
                let path = format!("{path}.spec.containers[{index}].{field}");
                expect(path, present(container, field), kind);
            }
        }

        let broken = !wrong.is_empty();
        self.violations.append(&mut wrong);
        if containers.is_none() || list.is_some_and(Vec::is_empty) {
            self.broken(Violation::required(
                format!("{path}.spec.containers"),
                "must define at least one container",
            ));
            return None;
        }
        template.filter(|_| !broken)
    }

    fn check_not_negative(&mut self, path: &str, value: i64) {
        if value < 0 {
            let why = "must be greater than or equal to 0";
            self.broken(Violation::invalid(path, value, why));
        }
    }

    /// The meaning of `text`; None only if a violation was added.
    fn one_of<T: Copy>(&mut self, path: &str, text: &str, choices: &[(&str, T)]) -> Option<T> {
        let choice = choices.iter().find(|(name, _)| *name == text);
        if choice.is_none() {
            let supported: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.broken(Violation::unsupported(path, text, &supported));
        }
        choice.map(|(_, meaning)| *meaning)
    }

    fn check_elastic(
        &mut self,
        name: &str,
        policy: Option<&ElasticPolicy>,
        workers: u32,
    ) -> Elastic {
        let mut elastic = Elastic {
            asked_for: false,
            min_ready: workers,
            max_workers: workers,
            remove_first: Vec::new(),
        };
        let Some(policy) = policy else {
            return elastic;
        };
        if workers == 0 {
            self.warnings.push(Violation::new(
                "spec.elasticPolicy",
                "Ignored: the job has no workers",
            ));
            return elastic;
        }
        elastic.asked_for = true;
        if let Some(min) = policy.min_replicas {
            match u32::try_from(min) {
                Ok(min) if (1..=workers).contains(&min) => elastic.min_ready = min,
                _ => self.broken(Violation::invalid(
                    "spec.elasticPolicy.minReplicas",
                    min,
                    &format!("must be from 1 to the {workers} replicas of Worker"),
                )),
            }
        }
        if let Some(max) = policy.max_replicas {
            match u32::try_from(max) {
                Ok(large) if large >= workers && max <= MAX_WORKERS => {
                    elastic.max_workers = large;
                    let last = names::worker_hostname(name, large.saturating_sub(1));
                    if last.len() > names::MAX_LABEL {
                        self.warnings.push(Violation::invalid(
                            "spec.elasticPolicy.maxReplicas",
                            max,
                            &format!("hostname {} would be too long", quote(&last)),
                        ));
                    }
                }
                _ => self.broken(Violation::invalid(
                    "spec.elasticPolicy.maxReplicas",
                    max,
                    &format!("must be from the {workers} replicas of Worker to {MAX_WORKERS}"),
                )),
            }
        }
        self.check_remove_first(name, policy, &mut elastic);
        elastic
    }

    /// A name that no worker can have is refused, not skipped: whoever wrote it means a worker, and
    /// the shrink that it belongs to would take another one.
    fn check_remove_first(&mut self, name: &str, policy: &ElasticPolicy, elastic: &mut Elastic) {
        let mut seen = BTreeSet::new();
        let mut wrong = 0;
        for (at, hostname) in policy.remove_first.iter().flatten().enumerate() {
            let path = || remove_first_path(at);
            let violation = match worker_index(name, hostname) {
                None => Violation::invalid(
                    path(),
                    quote(hostname),
                    &format!("must be the hostname of a worker of this job, {name}-worker-<index>"),
                ),
                Some(index) if index >= MAX_WORKERS.unsigned_abs() => Violation::invalid(
                    path(),
                    quote(hostname),
                    &format!("the index must be less than {MAX_WORKERS}"),
                ),
                Some(index) if !seen.insert(index) => {
                    Violation::new(path(), format!("Duplicate value: {}", quote(hostname)))
                }
                Some(index) => {
                    elastic.remove_first.push(index);
                    continue;
                }
            };
            wrong += 1;
            if wrong <= MAX_NAMED {
                self.broken(violation);
            }
        }
    }

    /// Whether the launcher waits for its workers.
    fn check_creation_policy(&mut self, policy: &str) -> bool {
        if policy != defaults::AT_STARTUP && policy != defaults::WAIT_FOR_WORKERS_READY {
            let mut warning = Violation::unsupported(
                "spec.launcherCreationPolicy",
                policy,
                &[defaults::AT_STARTUP, defaults::WAIT_FOR_WORKERS_READY],
            );
            warning.text.push_str("; acts as WaitForWorkersReady");
            self.warnings.push(warning);
        }
        policy != defaults::AT_STARTUP
    }

    /// The wishes as given, but for a number that no PodGroup can hold.
    fn check_scheduling(&mut self, mut policy: SchedulingPolicy) -> SchedulingPolicy {
        if let Some(min) = policy.min_available.filter(|min| *min < 0) {
            self.warnings.push(Violation::invalid(
                "spec.runPolicy.schedulingPolicy.minAvailable",
                min,
                "must be greater than or equal to 0; acts as unset",
            ));
            policy.min_available = None;
        }
        policy
    }

    fn warn_other_roles(&mut self, spec: &MpiJobSpec) {
        let keys = spec.mpi_replica_specs.iter().flat_map(|map| map.keys());
        let others = keys.filter(|key| *key != LAUNCHER && *key != WORKER);
        for key in others.take(MAX_NAMED) {
            self.warnings.push(Violation::new(
                replica_path(&cut_bytes(key.clone(), MAX_QUOTE)),
                "Ignored: the roles are \"Launcher\" and \"Worker\"",
            ));
        }
    }
}

/// What a place in the template has to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    List,
    /// A list of objects.
    Objects,
    /// A map from text to text.
    Texts,
}

impl Kind {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::Object | Self::Texts => value.is_object(),
            Self::List | Self::Objects => value.is_array(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object | Self::Texts => "an object",
            Self::List | Self::Objects => "a list",
        }
    }
}

/// The field, unless it is missing or null, which mean the same.
fn present<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

fn wrong_type(path: String, value: &Value, expected: &str) -> Violation {
    let value = cut_bytes(value.to_string(), MAX_QUOTE);
    Violation::invalid(path, value, &format!("must be {expected}"))
}

/// Why `label` is no DNS-1035 label, in the words of the API server; empty if it is one.
fn why_no_dns_label(label: &str) -> Vec<&'static str> {
    let mut why = Vec::new();
    if label.len() > names::MAX_LABEL {
        why.push("must be no more than 63 characters");
    }
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = label.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || label.ends_with('-') || !label.chars().all(inner) {
        why.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  \
             or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        );
    }
    why
}

/// The index of which [`names::worker_hostname`] makes `hostname`.
fn worker_index(job: &str, hostname: &str) -> Option<u32> {
    hostname
        .strip_prefix(job)
        .and_then(|rest| rest.strip_prefix("-worker-"))
        .and_then(|index| index.parse::<u32>().ok())
        .filter(|index| names::worker_hostname(job, *index) == hostname)
}

/// Path of one entry of `removeFirst`.
fn remove_first_path(at: usize) -> String {
    format!("spec.elasticPolicy.removeFirst[{at}]")
}

/// The entries of `removeFirst` that name no worker of a worker Job with room for so many indexes.
#[must_use]
pub fn out_of_range(name: &str, job: &ValidJob, completions: u32) -> Vec<Violation> {
    job.remove_first
        .iter()
        .enumerate()
        .filter(|(_, index)| **index >= completions)
        .take(MAX_NAMED)
        .map(|(at, index)| {
            Violation::invalid(
                remove_first_path(at),
                quote(&names::worker_hostname(name, *index)),
                &format!("the index must be less than {completions}, the room of the worker Job"),
            )
        })
        .collect()
}
