//! A job that is neither ended nor suspended: everything it needs is brought in line. Pure.

use super::gate::{self, Gate};
use super::status::Report;
use super::{Pass, children, launcher, retire, stuck, topology, workers};
use crate::action::{Action, Plan};
use crate::api::names;

/// Plans for a running job. The launcher Job comes before the workers, so that a template that the
/// server refuses costs no worker; the ConfigMap comes before a release and before a removal.
pub fn running(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    if !pass.observed.plain_workers.is_empty() && pass.observed.worker_job.is_none() {
        return legacy(pass, plan, report);
    }
    let gate = gate::gate(pass);
    let hosts = config_hosts(pass, &gate);
    let releasing = matches!(gate, Gate::Open { .. });
    let content = children::ensure(pass, hosts.as_ref(), releasing, plan, report);
    // Where no launcher reads the files, they name nobody before the next release writes them.
    let files_told = hosts.is_none() || content.is_some();
    let launcher_counts = !pass.gated() || pass.launcher_job().is_some_and(|job| !job.held());
    children::pod_group(pass, launcher_counts, plan, report);
    let present = pass.launcher_job().is_some_and(|job| !job.held());
    if !report.refused.is_empty() && !present {
        // With somebody else's Service, hostfile or keys nothing may start; what runs goes on.
        stuck::watch(pass, plan, report);
        return;
    }
    let accepted = launcher::ensure(pass, &gate, plan, report);
    // Before a worker goes that the files no longer name, and not for a launcher that is held.
    if let Some(content) = content.filter(|_| !plan.held) {
        launcher::refresh(pass, &content, plan);
    }
    if accepted {
        workers::ensure(pass, files_told, plan, report);
    }
    if let Gate::Held(held) = &gate {
        if report.held.is_none() {
            report.held = Some(held.clone());
        }
        if let Some(at) = held.look_again {
            plan.look_at(at);
        }
        read_job_events(pass, plan);
    }
    topology::label(pass, plan);
    retire::retire(pass, &gate, plan);
    stuck::watch(pass, plan, report);
}

/// The hosts that the ConfigMap should name now: (hostfile, live hosts). None where it does not
/// matter, because no launcher reads it before the next release writes it anyway.
fn config_hosts(pass: &Pass<'_>, gate: &Gate) -> Option<(Vec<u32>, Vec<u32>)> {
    let all = || pass.expected();
    let live = pass.workers.ready.clone();
    if pass.addresses.is_some() {
        return addressed(pass, gate, live);
    }
    if !pass.gated() {
        return Some((all(), live));
    }
    let runs = pass.launcher_job().filter(|job| !job.held());
    if let Some(job) = runs {
        let present = pass.try_is_present();
        if present && pass.job.elastic {
            return Some((live.clone(), live));
        }
        if present {
            let mut hosts = launcher::released_hosts(job).unwrap_or_else(all);
            hosts.retain(|index| !pass.scale_in.leaving().contains(index));
            return Some((hosts, live));
        }
        // The next try reads it, and it was let go with these hosts.
        return pass.observed.config_map.is_none().then(|| {
            let hosts = launcher::released_hosts(job).unwrap_or_else(all);
            (hosts.clone(), hosts)
        });
    }
    match gate {
        Gate::Open { hosts, .. } => Some((hosts.clone(), hosts.clone())),
        Gate::Held(_) if pass.observed.config_map.is_some() => None,
        // What the first release will need, so that it does not have to write again.
        Gate::Held(_) => Some((all(), all())),
    }
}

/// The same where the files name addresses: a worker that comes back has a new one. They follow as
/// soon as every worker is there again, also under a running try, which has read them, so that the
/// next one finds the addresses of the moment.
fn addressed(pass: &Pass<'_>, gate: &Gate, live: Vec<u32>) -> Option<(Vec<u32>, Vec<u32>)> {
    let runs = pass.launcher_job().is_some_and(|job| !job.held());
    if runs && pass.job.elastic && pass.try_is_present() {
        return Some((live.clone(), live));
    }
    match gate {
        Gate::Open { hosts, .. } => Some((hosts.clone(), live)),
        // A short hostfile would let a try that slips through run with fewer ranks, and succeed.
        Gate::Held(_) if pass.observed.config_map.is_some() => None,
        Gate::Held(_) => Some((Vec::new(), Vec::new())),
    }
}

/// Reads the Job controller's warnings once workers are missing for longer than usual.
fn read_job_events(pass: &Pass<'_>, plan: &mut Plan) {
    let Some(job) = pass.worker_job() else { return };
    let missing = (pass.workers.live.len() as u64) < u64::from(pass.job.workers);
    let since = job.created.unwrap_or(pass.now);
    if !missing || pass.now.duration_since(since) < gate::MISSING_PATIENCE {
        return;
    }
    let read = pass.observed.memory.job_warnings_read;
    let due = read.map_or(pass.now, |at| {
        super::after(at, jiff::SignedDuration::from_secs(30))
    });
    if due <= pass.now {
        plan.background.push(Action::ReadJobEvents {
            uid: job.uid.clone(),
        });
        plan.look_at(super::after(pass.now, gate::MISSING_PATIENCE));
    } else {
        plan.look_at(due);
    }
}

/// A job that the Go operator started with plain worker pods: it is finished as it is. Its objects
/// are left alone; only the end is ours.
fn legacy(pass: &Pass<'_>, plan: &mut Plan, report: &mut Report) {
    report.legacy = true;
    if pass.launcher_job().is_none() && !pass.observed.memory.launcher_sought {
        plan.actions.push(Action::SeekLauncher {
            name: names::launcher_job(&pass.observed.job.name),
        });
        return;
    }
    let live: Vec<u32> = pass
        .observed
        .plain_workers
        .iter()
        .filter(|pod| pod.live())
        .filter_map(|pod| pod.index)
        .collect();
    let shift = u32::from(pass.job.launcher_as_worker);
    let lost: Vec<u32> = (0..pass.job.workers)
        .filter(|index| !live.contains(&(index + shift)))
        .collect();
    let ready = pass
        .observed
        .plain_workers
        .iter()
        .filter(|pod| pod.live() && pod.ready)
        .count();
    let may_start = !pass.job.gated || ready >= pass.job.min_ready as usize;
    if pass.observed.launcher_job.is_none() && lost.is_empty() && may_start {
        // The Go operator stopped while its own gate held the launcher.
        launcher::create(pass, plan, report);
    }
    if !lost.is_empty() {
        report.legacy_lost = lost;
    }
    stuck::watch(pass, plan, report);
}
