//! Builds tasks and channels, awaits every task, ends the process when one of them ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;

use crate::args::Config;
use crate::facts::index::{ChildKind, Index, Kind};
use crate::lease::{self, Leadership, LeaseConfig};
use crate::metrics::Metrics;
use crate::plan::Options;
use crate::plan::build::{Gang, Settings};
use crate::queue::Queue;
use crate::reconcile::Reconciler;
use crate::serve::{self, Readiness};
use crate::watch::{Sink, WatchError};
use crate::write::Writer;

/// Passes that may be under way at once, at least. Each one waits for the API server most of its
/// time, so this is not a number of threads.
const LEAST_PASSES: usize = 16;

/// Connecting to the API server may take this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream that is silent for this long is dead: watches end by themselves after less, and
/// bookmarks come each minute.
const READ_TIMEOUT: Duration = Duration::from_secs(295);

/// The API server may be out of reach for this long at the start.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Options of the planner from the flags.
#[must_use]
pub fn options(config: &Config) -> Options {
    let gang = config.gang_scheduling.as_ref().map(|name| {
        if name == "volcano" {
            Gang::Volcano
        } else {
            Gang::SchedulerPlugins {
                scheduler_name: name.clone(),
            }
        }
    });
    Options {
        settings: Settings {
            cluster_domain: config.cluster_domain.clone(),
            gang,
            unreachable_toleration_seconds: config.unreachable_toleration_seconds,
        },
        delete_finished_jobs: config.delete_finished_jobs,
        force_delete_unreachable: config.force_delete_unreachable,
    }
}

/// How a run ended that was not told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Told to end: code 0.
    Stopped,
    /// The CRD is missing: code 1.
    NoCrd,
    /// Refused, lease lost, port taken: code 255, as in the Go operator.
    Lost,
}

async fn client_config(config: &Config) -> Result<kube::Config> {
    let options = KubeConfigOptions::default();
    #[expect(
        clippy::disallowed_methods,
        reason = "KUBECONFIG wins over -kubeConfig"
    )]
    let by_environment = std::env::var("KUBECONFIG").is_ok_and(|text| !text.is_empty());
    let mut client = if by_environment {
        let kubeconfig = Kubeconfig::from_env()
            .context("reading KUBECONFIG")?
            .context("KUBECONFIG names no file")?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("KUBECONFIG")?
    } else if let Some(path) = &config.kubeconfig {
        let kubeconfig =
            Kubeconfig::read_from(path).with_context(|| format!("-kubeConfig={path}"))?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .with_context(|| format!("-kubeConfig={path}"))?
    } else if let Some(master) = &config.master {
        kube::Config::new(
            master
                .parse()
                .with_context(|| format!("-master={master}"))?,
        )
    } else {
        // By address, so that it works before cluster DNS does.
        kube::Config::incluster_env().context(
            "neither KUBECONFIG nor -kubeConfig is set, and this is no pod with a service account",
        )?
    };
    if let Some(master) = &config.master {
        client.cluster_url = master
            .parse()
            .with_context(|| format!("-master={master}"))?;
    }
    client.connect_timeout = Some(CONNECT_TIMEOUT);
    client.read_timeout = Some(READ_TIMEOUT);
    // Repeating is the queue's: the client would repeat for minutes, creates included.
    client.default_retry = false;
    Ok(client)
}

/// One list of one MPIJob: is the CRD there, are we let in, does the server answer?
#[expect(clippy::disallowed_types, reason = "the runtime makes the client")]
async fn probe(client: &kube::Client, namespace: Option<&str>) -> Result<Option<Exit>> {
    let path = match namespace {
        Some(namespace) => {
            format!("/apis/kubeflow.org/v2beta1/namespaces/{namespace}/mpijobs?limit=1")
        }
        None => "/apis/kubeflow.org/v2beta1/mpijobs?limit=1".to_owned(),
    };
    let deadline = tokio::time::Instant::now() + START_PATIENCE;
    loop {
        let request = http::Request::get(&path)
            .body(Vec::new())
            .context("building a request")?;
        let answer =
            tokio::time::timeout(Duration::from_secs(10), client.request_text(request)).await;
        let message = match answer {
            Ok(Ok(_)) => return Ok(None),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                tracing::error!("CRD doesn't exist. Exiting");
                return Ok(Some(Exit::NoCrd));
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
                tracing::error!(message = %status.message, "not allowed to list mpijobs");
                return Ok(Some(Exit::Lost));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 10 s".to_owned(),
        };
        if tokio::time::Instant::now() >= deadline {
            bail!("the API server cannot be reached: {message}");
        }
        tracing::warn!(message = %message, "the API server cannot be reached, trying again");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Runs the operator until it is told to end or cannot go on.
///
/// # Errors
///
/// What keeps it from starting.
pub async fn run(config: Config) -> Result<Exit> {
    let (stop, stopped) = watch::channel(false);
    let (lead, leads) = watch::channel(Leadership::standby());
    let (ready, readiness) = watch::channel(Readiness::Starting("not started".to_owned()));
    let metrics = Metrics::new();

    let health = serve::bind(config.health_port, "health").await?;
    let monitoring = match config.monitoring_port {
        0 => None,
        port => Some(serve::bind(port, "metrics").await?),
    };
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(serve::serve(
        health,
        serve::health_router(leads.clone(), readiness),
        "health",
        stopped.clone(),
    ));
    if let Some(listener) = monitoring {
        let router = serve::metrics_router(metrics.clone());
        servers.spawn(serve::serve(listener, router, "metrics", stopped.clone()));
    }

    #[expect(clippy::disallowed_types, reason = "the runtime makes the client")]
    let client =
        kube::Client::try_from(client_config(&config).await?).context("making a client")?;
    if let Some(exit) = probe(&client, config.namespace.as_deref()).await? {
        return Ok(exit);
    }

    let mut signals = signals()?;
    let election = if config.leader_elect {
        let lease = LeaseConfig::new(&config.lock_namespace)?;
        tracing::info!(identity = %lease.identity, namespace = %lease.namespace, "waiting to lead");
        tokio::spawn(lease::run(client.clone(), lease, lead, stopped.clone()))
    } else {
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            lead.send_replace(Leadership::alone());
            let _ = stopped.wait_for(|stop| *stop).await;
            Ok(())
        })
    };
    tokio::pin!(election);

    // A standby watches nothing: it costs no memory, and a first list takes well under a second.
    let exit = tokio::select! {
        exit = operate(client, &config, leads, ready, metrics) => exit,
        ended = &mut election => return Ok(lost(ended)),
        Some(ended) = servers.join_next() => {
            match ended {
                Ok(Err(error)) => tracing::error!(%error, "a server ended"),
                other => tracing::error!(?other, "a server ended"),
            }
            Exit::Lost
        }
        () = signals.wait() => {
            tracing::info!("told to end");
            Exit::Stopped
        }
    };
    // No pass runs any more, so the lease may go to somebody else at once.
    stop.send_replace(true);
    let goodbye = async {
        let _ = (&mut election).await;
        while servers.join_next().await.is_some() {}
    };
    tokio::select! {
        () = goodbye => {}
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
        () = signals.wait() => return Ok(Exit::NoCrd),
    }
    Ok(exit)
}

fn lost(ended: Result<Result<(), lease::LeaseError>, tokio::task::JoinError>) -> Exit {
    match ended {
        Ok(Ok(())) => tracing::error!("the election ended"),
        Ok(Err(error)) => tracing::error!(%error, "the lease is lost"),
        Err(error) => tracing::error!(%error, "the election ended"),
    }
    Exit::Lost
}

/// Waits until this process leads, then watches and works.
#[expect(clippy::disallowed_types, reason = "the runtime hands the client on")]
async fn operate(
    client: kube::Client,
    config: &Config,
    mut leads: watch::Receiver<Leadership>,
    ready: watch::Sender<Readiness>,
    metrics: Metrics,
) -> Exit {
    if leads.wait_for(Leadership::is_leader).await.is_err() {
        return Exit::Lost;
    }
    metrics.set_leader(true);
    tracing::info!("leading");
    ready.send_replace(Readiness::Starting(
        "the first lists are under way".to_owned(),
    ));

    let index: Arc<Mutex<Index>> = Arc::default();
    let queue = Arc::new(Queue::default());
    let sink = Sink {
        index: index.clone(),
        queue: queue.clone(),
        clock: wall_clock,
    };
    let may_write: Arc<dyn Fn() -> bool + Send + Sync> = {
        let leads = leads.clone();
        Arc::new(move || leads.borrow().is_leader())
    };
    let writer = Writer::new(client.clone(), may_write, metrics.clone());
    let reconciler = Arc::new(Reconciler::new(
        sink.clone(),
        writer,
        options(config),
        metrics.clone(),
    ));

    let watches = crate::watch::run(client, config.namespace.as_deref(), sink);
    let work = async {
        // A pass before all kinds are listed would take what it does not see for missing.
        let kinds = [
            Kind::MpiJob,
            Kind::Job,
            Kind::Pod,
            Kind::Child(ChildKind::Service),
            Kind::Child(ChildKind::ConfigMap),
        ];
        while !index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .synced(&kinds)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ready.send_replace(Readiness::Ready);
        tracing::info!("synced");
        let mut passes = tokio::task::JoinSet::new();
        for _ in 0..config.threadiness.max(LEAST_PASSES) {
            passes.spawn(reconciler.clone().work());
        }
        // Workers loop for ever; one that ends has panicked.
        passes.join_next().await
    };
    let exit = tokio::select! {
        error = watches => {
            tracing::error!(%error, "a watch ended");
            match error {
                WatchError::NoSuchKind { .. } => Exit::NoCrd,
                WatchError::Refused { .. } => Exit::Lost,
            }
        }
        ended = work => {
            tracing::error!(?ended, "a worker ended");
            Exit::Lost
        }
    };
    metrics.set_leader(false);
    exit
}

fn wall_clock() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    Timestamp::now()
}

struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

fn signals() -> Result<Signals> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok(Signals {
        term: signal(SignalKind::terminate()).context("handling SIGTERM")?,
        int: signal(SignalKind::interrupt()).context("handling SIGINT")?,
    })
}

impl Signals {
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
