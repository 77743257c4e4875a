//! Step 3 of the flow: `plan(&Observed, now) -> Plan`. Pure: no clock, no randomness, no I/O.
//!
//! The steps, in order: who manages the job; is it being deleted; does its spec decode and pass
//! the checks; has it ended ([`finish`]); is it suspended ([`suspend`]); else it runs ([`run`]):
//! child objects, launcher ([`launcher`] behind the [`gate`]), workers ([`workers`],
//! [`scale_in`], [`retire`]), pods that do not go away ([`stuck`]). Each step adds actions to the plan and facts
//! to the [`status::Report`], from which [`status`] makes the one status patch and the events.

pub mod build;
pub mod children;
pub mod finish;
pub mod gate;
pub mod hostfile;
pub mod indexes;
pub mod launcher;
pub mod retire;
pub mod run;
pub mod scale_in;
pub mod status;
pub mod stuck;
pub mod suspend;
pub mod topology;
pub mod workers;

use jiff::{SignedDuration, Timestamp};

use crate::action::{Action, EventNote, Plan};
use crate::api::validate::{self, Management, ValidJob, Violation};
use crate::api::{names, reasons};
use crate::facts::observed::{JobFacts, Observed, PodFacts};
use build::{BuildContext, Settings};
use gate::Workers;
use hostfile::Addresses;
use scale_in::ScaleIn;
use status::Report;

/// What the process was told by its flags, as far as plans depend on it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// For the child objects.
    pub settings: Settings,
    /// The operator deletes an MPIJob itself when its TTL is over.
    pub delete_finished_jobs: bool,
    /// Launcher husks on nodes that are NotReady (not only gone or out of service) are deleted.
    pub force_delete_unreachable: bool,
}

/// One pass over one MPIJob: what all steps share.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The snapshot.
    pub observed: &'a Observed,
    /// The spec, valid and with defaults.
    pub job: &'a ValidJob,
    /// From the flags.
    pub options: &'a Options,
    /// The time of this pass.
    pub now: Timestamp,
    /// Run label of the present run.
    pub run: String,
    /// Workers of the present worker Job. One that leaves now is still live, but no longer counted
    /// as Ready.
    pub workers: Workers<'a>,
    /// Whether workers leave.
    pub scale_in: ScaleIn,
    /// Their addresses, where MPI reaches them so and not by hostname.
    pub addresses: Option<Addresses>,
}

impl<'a> Pass<'a> {
    fn new(
        observed: &'a Observed,
        job: &'a ValidJob,
        options: &'a Options,
        now: Timestamp,
    ) -> Self {
        let worker_job = observed.worker_job.as_deref().filter(|job| !job.deleting);
        // Under runLauncherAsWorker the launcher's template froze a run label, and the Service has
        // to select it together with the workers.
        let launcher_run = observed
            .launcher_job
            .as_deref()
            .filter(|job| {
                !job.deleting
                    && job.failure.is_none()
                    && !job.annotations.contains_key(names::ENDED_ANNOTATION)
            })
            .and_then(|job| job.run.clone());
        let run = launcher_run
            .or_else(|| worker_job.and_then(|job| job.run.clone()))
            .unwrap_or_else(|| run_label(&observed.job.uid, observed.job.generation));
        let pods = observed.workers.iter().map(|pod| &**pod);
        let workers = match worker_job {
            Some(job) => Workers::of(pods, job, now),
            None => Workers::default(),
        };
        let addresses = unindexed(observed, job).then(|| {
            let live = workers.live.iter();
            live.filter_map(|(index, pod)| Some((*index, pod.ip?)))
                .collect()
        });
        Self {
            observed,
            job,
            options,
            now,
            run,
            workers,
            scale_in: ScaleIn::Nobody,
            addresses,
        }
    }

    /// Settles who leaves; from then on those do not count as Ready.
    fn scale_in(&mut self) {
        self.scale_in = scale_in::decide(self);
        let leaving = self.scale_in.leaving();
        self.workers.ready.retain(|index| !leaving.contains(index));
    }

    /// The indexes of the workers that are wanted and stay, whether they are there or not.
    #[must_use]
    pub fn expected(&self) -> Vec<u32> {
        let wanted = self.job.workers as usize;
        self.workers.expected(wanted, self.scale_in.leaving())
    }

    /// Entries of `removeFirst` that no worker can have.
    fn out_of_range(&self) -> Vec<Violation> {
        let name = &self.observed.job.name;
        let (wanted, most) = (self.job.workers, self.job.max_workers);
        // A worker Job that was made for more workers has room for them as long as it is there.
        let built = self.worker_job().map_or(0, |job| job.completions);
        let room = build::worker_job::headroom(name.len(), wanted, most);
        validate::out_of_range(name, self.job, room.max(u32::try_from(built).unwrap_or(0)))
    }

    /// The server makes no Indexed Job of the workers: they have neither index nor hostname.
    #[must_use]
    pub fn unindexed(&self) -> bool {
        unindexed(self.observed, self.job)
    }

    /// The launcher waits for its workers. By address it always does: a hostfile without addresses
    /// would let it run alone.
    #[must_use]
    pub fn gated(&self) -> bool {
        self.job.gated || self.addresses.is_some()
    }

    /// Workers in a sentence: `worker 0-2,5`, or the names of their pods where indexes are only
    /// ours.
    #[must_use]
    pub fn name_workers(&self, workers: &[u32]) -> String {
        if !self.unindexed() {
            return format!("worker {}", indexes::format(workers));
        }
        let pods = workers.iter().filter_map(|i| self.workers.live.get(i));
        gate::name_pods(pods.map(|pod| pod.name.as_str()), workers.len())
    }

    /// Context for building child objects.
    #[must_use]
    pub fn context(&self) -> BuildContext<'_> {
        BuildContext {
            job: self.job,
            name: &self.observed.job.name,
            namespace: &self.observed.job.namespace,
            uid: &self.observed.job.uid,
            run: &self.run,
            settings: &self.options.settings,
        }
    }

    /// The worker Job, unless it is being deleted.
    #[must_use]
    pub fn worker_job(&self) -> Option<&'a JobFacts> {
        self.observed
            .worker_job
            .as_deref()
            .filter(|job| !job.deleting)
    }

    /// The launcher Job, unless it is being deleted.
    #[must_use]
    pub fn launcher_job(&self) -> Option<&'a JobFacts> {
        self.observed
            .launcher_job
            .as_deref()
            .filter(|job| !job.deleting)
    }

    /// Launcher pods of the present launcher Job, oldest first.
    pub fn tries(&self) -> impl Iterator<Item = &'a PodFacts> {
        let uid = self
            .launcher_job()
            .map(|job| job.uid.as_str())
            .unwrap_or_default();
        self.observed
            .launchers
            .iter()
            .map(|pod| &**pod)
            .filter(move |pod| pod.owner == uid)
    }

    /// The first of these pods that still counts. Nothing new is started beside it; the report says
    /// that it is waited for.
    pub fn left_over<'p>(
        &self,
        pods: &'p [std::sync::Arc<PodFacts>],
        report: &mut Report,
    ) -> Option<&'p PodFacts> {
        let left = pods.iter().find(|pod| !self.husk(pod))?;
        report.waits_for_pod = Some((left.name.clone(), left.node.clone()));
        Some(left)
    }

    /// Whether a launcher pod of the present launcher Job still counts.
    #[must_use]
    pub fn try_is_present(&self) -> bool {
        self.tries().any(|pod| !self.husk(pod))
    }

    /// Whether `pod` no longer counts: it ended, or its node will not let it end.
    #[must_use]
    pub fn husk(&self, pod: &PodFacts) -> bool {
        stuck::husk(pod, &self.observed.nodes, self.now)
    }
}

/// As the worker Job says; before there is one, as the newest Job of any MPIJob says.
fn unindexed(observed: &Observed, job: &ValidJob) -> bool {
    let worker_job = observed.worker_job.as_deref().filter(|job| !job.deleting);
    job.workers > 0
        && match worker_job {
            Some(job) => !job.indexed,
            None => observed.kept.is_some_and(|kept| !kept.completion_mode),
        }
}

/// Label value that marks the pods of one run; the generation makes it new at each resume, and the
/// UID keeps jobs of the same name apart.
fn run_label(uid: &str, generation: i64) -> String {
    let short: String = uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(8)
        .collect();
    format!("{short}-{generation}")
}

/// What to do about one MPIJob, given what was observed of it.
#[must_use]
pub fn plan(observed: &Observed, options: &Options, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    // Children go by garbage collection; making new ones now would only leave more behind.
    if observed.job.deleting {
        retire::left_over(observed, &mut plan);
        return plan;
    }
    let spec = match validate::decode(&observed.job.spec) {
        Ok(spec) => spec,
        Err(violation) => {
            status::invalid(
                observed,
                reasons::VALIDATION_ERROR,
                &[violation],
                now,
                &mut plan,
            );
            return plan;
        }
    };
    match validate::management(&spec) {
        Management::Ours => {}
        Management::Foreign => return plan,
        Management::Unknown(text) => {
            // No status: whoever the text means may write it. The event has a name of its own, so
            // it is there once however often this is planned.
            plan.events.push(EventNote {
                warning: true,
                reason: reasons::VALIDATION_ERROR.to_owned(),
                message: format!(
                    "spec.runPolicy.managedBy: Unsupported value: \"{text}\": this operator leaves the MPIJob alone"
                ),
                once: true,
            });
            return plan;
        }
    }
    let ended = status::ended(&observed.job.status);
    let job = match validate::validate(&observed.job.name, &spec) {
        Ok(job) => job,
        Err(violations) => {
            // A job that has ended stays as it ended, whatever was edited since.
            if !ended {
                status::invalid(
                    observed,
                    reasons::VALIDATION_ERROR,
                    &violations,
                    now,
                    &mut plan,
                );
            }
            return plan;
        }
    };
    let mut pass = Pass::new(observed, &job, options, now);
    let out_of_range = pass.out_of_range();
    if !ended && !out_of_range.is_empty() {
        let reason = reasons::VALIDATION_ERROR;
        status::invalid(observed, reason, &out_of_range, now, &mut plan);
        return plan;
    }
    let mut report = Report::default();
    if ended || finish::verdict(&pass, &mut report) {
        finish::finished(&pass, &mut plan, &mut report);
    } else if job.suspend {
        suspend::suspended(&pass, &mut plan, &mut report);
    } else {
        pass.scale_in();
        run::running(&pass, &mut plan, &mut report);
    }
    plan.launcher = observed.launcher_job.as_ref().map(|job| job.name.clone());
    status::finish(&pass, report, &mut plan);
    plan
}

/// `at` and `distance` later; the end of time where that is beyond it.
pub(crate) fn after(at: Timestamp, distance: SignedDuration) -> Timestamp {
    at.checked_add(distance).unwrap_or(Timestamp::MAX)
}

/// Deletes a Job with its pods.
pub(crate) fn delete_job(job: &JobFacts) -> Action {
    Action::DeleteJob {
        name: job.name.clone(),
        uid: job.uid.clone(),
    }
}

/// Deletes a pod; `force` does not wait for its node.
pub(crate) fn delete_pod(pod: &PodFacts, force: bool) -> Action {
    Action::DeletePod {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        force,
    }
}

/// Takes a pod off the Job controller's books.
pub(crate) fn retire_pod(pod: &PodFacts) -> Action {
    Action::Retire {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
    }
}

/// The distance until the next look at something that fails `count` times in a row.
pub(crate) fn back_off(first_seconds: i64, count: u32, most_seconds: i64) -> SignedDuration {
    let factor = 1_i64.checked_shl(count.min(20)).unwrap_or(i64::MAX);
    SignedDuration::from_secs(first_seconds.saturating_mul(factor).min(most_seconds))
}
