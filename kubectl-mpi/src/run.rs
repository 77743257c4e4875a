//! The subcommands.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Global, Invocation, Output, Task};
use crate::cluster::{self, Cluster};
use crate::mpijob::MpiJob;
use crate::pods::{self, Pods};
use crate::scale_in::{self, Change};
use crate::table::ranges;
use crate::view::{self, Facts};
use crate::{handover, table};

/// How often a change that somebody else overtook is decided anew.
const MOST_CONFLICTS: u32 = 5;

/// Distance between two looks while `--wait` waits.
const LOOK: Duration = Duration::from_secs(1);

/// Why a subcommand did not do what was asked. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
    /// Nothing can be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
    /// An object cannot be written as text.
    #[error("cannot write the output: {0}")]
    Format(String),
    /// kubectl cannot be started.
    #[error("cannot start kubectl, which has to be in PATH: {0}")]
    Kubectl(io::Error),
    /// No runtime.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Does what was asked.
///
/// # Errors
/// If it could not be done.
pub async fn run(invocation: Invocation) -> Result<(), Error> {
    let global = &invocation.global;
    match invocation.task {
        Task::Version => print(concat!(
            "kubectl-mpi ",
            env!("CARGO_PKG_VERSION"),
            " (kubeflow.org/v2beta1)\n"
        )),
        Task::List {
            all_namespaces,
            output,
        } => list(&Cluster::connect(global).await?, all_namespaces, output).await,
        Task::Describe {
            job,
            output,
            events,
        } => describe(&Cluster::connect(global).await?, &job, output, events).await,
        Task::Logs {
            job,
            worker,
            previous_try,
            kubectl,
        } => logs(global, &job, worker, previous_try, &kubectl).await,
        Task::Exec {
            job,
            worker,
            kubectl,
            command,
        } => exec(global, &job, worker, &kubectl, &command).await,
        Task::ScaleIn { job, workers, wait } => {
            scale_in(&Cluster::connect(global).await?, &job, &workers, wait).await
        }
        Task::Suspend { job, suspend } => {
            hold(&Cluster::connect(global).await?, &job, suspend).await
        }
    }
}

/// Writes to stdout. A reader that went away, as in `| head`, is no error.
///
/// # Errors
/// If stdout takes nothing.
pub fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn structured(value: &impl Serialize, output: Output) -> Result<(), Error> {
    let text = match output {
        Output::Yaml => serde_yaml_ng::to_string(value).map_err(|e| Error::Format(e.to_string())),
        _ => serde_json::to_string_pretty(value)
            .map(|text| text + "\n")
            .map_err(|e| Error::Format(e.to_string())),
    };
    print(&text?)
}

#[expect(clippy::disallowed_methods, reason = "the one clock of this program")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn reference(name: &str) -> String {
    format!("mpijob.kubeflow.org/{name}")
}

async fn list(cluster: &Cluster, all_namespaces: bool, output: Output) -> Result<(), Error> {
    let jobs = cluster.list(all_namespaces).await?;
    match output {
        Output::Json | Output::Yaml => {
            let items: Vec<Value> = jobs.iter().map(stored).collect();
            structured(
                &json!({"apiVersion": "v1", "kind": "List", "items": items}),
                output,
            )
        }
        Output::Name => {
            let lines = jobs.iter().map(|job| reference(job.name()) + "\n");
            print(&lines.collect::<String>())
        }
        // As kubectl: on stderr, so that a script sees no row.
        _ if jobs.is_empty() => {
            if all_namespaces {
                eprintln!("No MPIJobs found.");
            } else {
                eprintln!("No MPIJobs found in namespace {}.", cluster.namespace);
            }
            Ok(())
        }
        _ => print(&view::list(
            &jobs,
            all_namespaces,
            output == Output::Wide,
            now(),
        )),
    }
}

/// The object without the book-keeping of apply, as kubectl shows it.
fn stored(job: &MpiJob) -> Value {
    let mut object = job.raw().clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

async fn describe(cluster: &Cluster, job: &str, output: Output, events: bool) -> Result<(), Error> {
    let job = cluster.get(job).await?;
    if output == Output::Name {
        return print(&(reference(job.name()) + "\n"));
    }
    let about = async {
        if events {
            Some(cluster.events(&job).await)
        } else {
            None
        }
    };
    let (pods, jobs, events) = tokio::join!(
        cluster.of_job("pods", job.name()),
        cluster.of_job("jobs", job.name()),
        about
    );
    let now = now();
    let shown = view::describe(&Facts {
        job,
        pods,
        jobs,
        events,
        now,
    });
    match output {
        Output::Json | Output::Yaml => structured(&shown, output),
        _ => print(&view::text(&shown, output == Output::Wide, now)),
    }
}

async fn pods_of(cluster: &Cluster, job: &MpiJob) -> Result<Vec<Pod>, Error> {
    let pods = cluster.of_job("pods", job.name()).await;
    pods.map_err(Error::Refused)
}

async fn logs(
    global: &Global,
    job: &str,
    worker: Option<u32>,
    previous_try: usize,
    flags: &[OsString],
) -> Result<(), Error> {
    let cluster = Cluster::connect(global).await?;
    let job = cluster.get(job).await?;
    let all = pods_of(&cluster, &job).await?;
    let pod = view::log_pod(&job, &all, worker, previous_try).map_err(Error::Refused)?;
    hand_over("logs", global, &cluster, pod, flags, &[])
}

async fn exec(
    global: &Global,
    job: &str,
    worker: u32,
    flags: &[OsString],
    command: &[OsString],
) -> Result<(), Error> {
    let cluster = Cluster::connect(global).await?;
    let job = cluster.get(job).await?;
    let all = pods_of(&cluster, &job).await?;
    let pod = view::exec_pod(&job, &all, worker, now()).map_err(Error::Refused)?;
    hand_over("exec", global, &cluster, pod, flags, command)
}

fn hand_over(
    verb: &str,
    global: &Global,
    cluster: &Cluster,
    pod: &Pod,
    flags: &[OsString],
    command: &[OsString],
) -> Result<(), Error> {
    let namespace = &cluster.namespace;
    let name = pods::name(pod);
    let arguments = handover::arguments(verb, global, namespace, name, flags, command);
    Err(Error::Kubectl(handover::hand_over(&arguments)))
}

async fn scale_in(
    cluster: &Cluster,
    name: &str,
    named: &BTreeSet<u32>,
    wait: Option<Duration>,
) -> Result<(), Error> {
    let change = change(cluster, name, named).await?;
    let what = format!("mpijob/{name}");
    print(&format!("{what}: workers before: {}\n", change.before))?;
    if !change.already.is_empty() {
        let already = ranges(change.already.iter().copied());
        print(&format!("{what}: leaving already: {already}\n"))?;
    }
    if change.patch.is_some() {
        let (before, after) = change.replicas;
        let leaving = ranges(change.leaving.iter().copied());
        print(&format!(
            "{what}: replicas {before} -> {after}, leaving: {leaving}\n"
        ))?;
    }
    if let Some(note) = &change.note {
        eprintln!("note: {note}");
    }
    match wait {
        Some(limit) => until_gone(cluster, name, &change, limit).await,
        None => Ok(()),
    }
}

/// Decides and patches; anew if the job changed in between, as its status does all the time.
async fn change(cluster: &Cluster, name: &str, named: &BTreeSet<u32>) -> Result<Change, Error> {
    for _ in 0..MOST_CONFLICTS {
        let job = cluster.get(name).await?;
        let all = pods_of(cluster, &job).await?;
        let change = scale_in::change(&job, &all, named).map_err(Error::Refused)?;
        let Some(patch) = &change.patch else {
            return Ok(change);
        };
        if cluster.patch(name, patch).await?.is_some() {
            return Ok(change);
        }
    }
    let what = format!("change MPIJob {name}");
    Err(cluster::Error::Conflict { what }.into())
}

async fn until_gone(
    cluster: &Cluster,
    name: &str,
    change: &Change,
    limit: Duration,
) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        let job = cluster.get(name).await?;
        let all = pods_of(cluster, &job).await?;
        let pods = Pods::of(&job, &all);
        let there = |pod: &&&Pod| change.pods.contains(pods::uid(pod)) && !pods::terminal(pod);
        let left: BTreeSet<u32> = pods
            .workers
            .iter()
            .filter(|(_, all)| all.iter().any(|pod| there(&pod)))
            .map(|(index, _)| *index)
            .collect();
        if left.is_empty() && pods.live().len() <= change.replicas.1 as usize {
            return print(&format!(
                "mpijob/{name}: workers after: {}\n",
                view::indexes(&pods)
            ));
        }
        if let Some(end) = job.ended() {
            let text = format!("MPIJob {name} has ended ({end}) before the workers left");
            return Err(Error::Refused(text));
        }
        if started.elapsed() >= limit {
            let why = job.holds("Degraded").map(|c| format!(": {}", c.message));
            let text = format!(
                "worker {} of MPIJob {name} is still there after {}s{}",
                ranges(left),
                limit.as_secs(),
                table::one_line(&why.unwrap_or_default())
            );
            return Err(Error::Refused(text));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn hold(cluster: &Cluster, name: &str, suspend: bool) -> Result<(), Error> {
    let job = cluster.get(name).await?;
    if let Some(end) = job.ended() {
        let text = format!("MPIJob {name} has ended ({end}) and does not run again");
        return Err(Error::Refused(text));
    }
    let word = if suspend { "suspended" } else { "resumed" };
    if job.suspended() == suspend {
        let state = if suspend {
            "suspended"
        } else {
            "not suspended"
        };
        return print(&format!("mpijob/{name} is {state} already\n"));
    }
    // The UID: not another job of the same name.
    let patch = json!({
        "metadata": {"uid": job.uid()},
        "spec": {"runPolicy": {"suspend": suspend}},
    });
    match cluster.patch(name, &patch).await? {
        Some(_) => print(&format!("mpijob/{name} {word}\n")),
        None => {
            let what = format!("change MPIJob {name}");
            Err(cluster::Error::Conflict { what }.into())
        }
    }
}
