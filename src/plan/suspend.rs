//! A suspended job: nothing of it runs, whatever cleanPodPolicy says. Pure.

use jiff::SignedDuration;
use serde_json::{Map, json};

use super::status::Report;
use super::{Pass, build, children, launcher, retire, stuck};
use crate::action::{Action, ObjectKind, Plan};
use crate::api::names;

/// Holds the launcher, removes the workers; the templates may be edited until the job resumes.
pub fn suspended(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    report.suspended = true;
    if !pass.observed.plain_workers.is_empty() {
        for pod in pass
            .observed
            .plain_workers
            .iter()
            .filter(|pod| pod.deleted.is_none())
        {
            plan.actions.push(super::delete_pod(pod, false));
        }
        if pass.launcher_job().is_none() && !pass.observed.memory.launcher_sought {
            plan.actions.push(Action::SeekLauncher {
                name: names::launcher_job(&pass.observed.job.name),
            });
        }
    }
    match pass.launcher_job() {
        Some(job) => {
            let released = job.ran()
                || !job.held()
                || job.annotations.contains_key(names::RELEASED_ANNOTATION);
            let marked = job.annotations.contains_key(names::ENDED_ANNOTATION);
            let edited = job.annotations.get(names::CONTENT_ANNOTATION)
                != Some(&build::launcher_job::digest(&pass.context()));
            if released && (!marked || !job.held()) {
                let mut marks = Map::new();
                marks.insert(names::ENDED_ANNOTATION.to_owned(), json!("true"));
                plan.actions.push(Action::Patch {
                    kind: ObjectKind::Job,
                    name: job.name.clone(),
                    body: children::job_patch(
                        &job.uid,
                        &job.resource_version,
                        marks.into(),
                        launcher::closed(job),
                    ),
                });
            } else if !released && edited && job.labelled {
                // Built again now, so that a template that the server refuses is known before the
                // job resumes.
                launcher::rebuild(pass, job, plan, report);
            }
            if marked && pass.tries().all(|pod| !pod.active()) {
                launcher::put_on_record(pass, job, report);
            }
        }
        None if pass.observed.launcher_job.is_none()
            && pass.observed.plain_workers.is_empty()
            // The pods of an earlier launcher Job first: its tries are on record by then.
            && !pass.observed.launchers.iter().any(|pod| pod.active()) =>
        {
            let all: Vec<u32> = (0..pass.job.workers).collect();
            let hosts = pass
                .observed
                .config_map
                .is_none()
                .then(|| (all.clone(), all));
            children::ensure(pass, hosts.as_ref(), false, plan, report);
            if report.refused.is_empty() {
                launcher::ensure(
                    pass,
                    &super::gate::Gate::Open {
                        hosts: Vec::new(),
                        bypassed: Vec::new(),
                        since: None,
                    },
                    plan,
                    report,
                );
            }
        }
        None => {}
    }
    if let Some(job) = pass
        .observed
        .worker_job
        .as_ref()
        .filter(|job| !job.deleting)
    {
        plan.actions.push(super::delete_job(job));
    }
    children::remove_pod_group(pass, plan);
    retire::left_over(pass.observed, plan);
    stuck::watch(pass, plan, report);
    if pass
        .observed
        .workers
        .iter()
        .chain(&pass.observed.launchers)
        .any(|pod| pod.active())
    {
        plan.look_at(super::after(pass.now, SignedDuration::from_secs(30)));
    }
}
