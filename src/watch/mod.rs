//! Step 1 of the flow: kube streams -> [`Change`], with back-off and relist.
//!
//! Each watch ends only with an error that repeating does not mend: the kind does not exist, or we
//! may not list it. Everything else is logged and tried again with back-off; `watcher` without an
//! explicit one would loop hot.

pub mod slim;
pub mod taints;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::api::names;
use crate::facts::index::{Change, ChildKind, Index, Key, Kind, Object};
use crate::queue::Queue;
use slim::{SlimJob, SlimMpiJob, SlimPod};

/// Objects of one page of a list: bounds the memory of a first list.
const PAGE: u32 = 500;

/// Longest pause between two tries of a watch.
const MOST_PAUSE: std::time::Duration = std::time::Duration::from_secs(30);

/// What ends a watch for good.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The API server does not know the kind.
    #[error("CRD doesn't exist. Exiting")]
    NoSuchKind {
        /// Plural of it.
        resource: &'static str,
    },
    /// The API server does not let us list or watch it.
    #[error("not allowed to list or watch {resource}: {message}")]
    Refused {
        /// Plural of it.
        resource: &'static str,
        /// The server's sentence.
        message: String,
    },
}

/// What the watches share.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Where changes go.
    pub index: Arc<Mutex<Index>>,
    /// What is woken by them.
    pub queue: Arc<Queue<Key>>,
    /// Wall clock.
    pub clock: fn() -> Timestamp,
}

impl Sink {
    /// Takes a change in and wakes the MPIJobs that it touches.
    pub fn take(&self, change: Change) {
        let now = (self.clock)();
        let keys = self
            .index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .apply(change, now);
        for key in keys {
            self.queue.push(key);
        }
    }
}

/// All watches; returns when one of them has ended for good.
///
/// # Errors
///
/// [`WatchError`] of the first that ended.
#[expect(clippy::disallowed_types, reason = "watches are made from a client")]
pub async fn run(client: kube::Client, namespace: Option<&str>, sink: Sink) -> WatchError {
    let selector = format!("{}={}", names::OPERATOR_NAME_LABEL, names::OPERATOR_NAME);
    let all = watcher::Config::default().page_size(PAGE);
    let ours = all.clone().labels(&selector);
    let mpijobs = follow(
        "mpijobs",
        Kind::MpiJob,
        watcher::watcher(api::<SlimMpiJob>(&client, namespace), all),
        SlimMpiJob::into_object,
        &sink,
    );
    let jobs = follow(
        "jobs",
        Kind::Job,
        watcher::watcher(api::<SlimJob>(&client, namespace), ours.clone()),
        SlimJob::into_object,
        &sink,
    );
    let pods = follow(
        "pods",
        Kind::Pod,
        watcher::watcher(api::<SlimPod>(&client, namespace), ours.clone()),
        SlimPod::into_object,
        &sink,
    );
    let services = follow(
        "services",
        Kind::Child(ChildKind::Service),
        watcher::watcher(
            api::<PartialObjectMeta<Service>>(&client, namespace),
            ours.clone(),
        ),
        |object: PartialObjectMeta<Service>| {
            slim::child_object(ChildKind::Service, object.metadata)
        },
        &sink,
    );
    let config_maps = follow(
        "configmaps",
        Kind::Child(ChildKind::ConfigMap),
        watcher::watcher(
            api::<PartialObjectMeta<ConfigMap>>(&client, namespace),
            ours,
        ),
        |object: PartialObjectMeta<ConfigMap>| {
            slim::child_object(ChildKind::ConfigMap, object.metadata)
        },
        &sink,
    );
    tokio::select! {
        error = mpijobs => error,
        error = jobs => error,
        error = pods => error,
        error = services => error,
        error = config_maps => error,
    }
}

#[expect(clippy::disallowed_types, reason = "watches are made from a client")]
fn api<K>(client: &kube::Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn follow<K>(
    resource: &'static str,
    kind: Kind,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    into_object: impl Fn(K) -> Option<Object> + Send,
    sink: &Sink,
) -> WatchError
where
    K: Clone + Debug + DeserializeOwned + Send + 'static + kube::ResourceExt,
{
    let back_off = watcher::DefaultBackoff::default();
    let mut events = Box::pin(events.backoff(back_off));
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => sink.take(Change::ListBegins(kind)),
            Ok(Some(Event::InitApply(object) | Event::Apply(object))) => {
                let (uid, version) = (object.uid(), version(&object));
                match (into_object(object), uid) {
                    (Some(object), _) => sink.take(Change::Seen(Box::new(object))),
                    // Nobody controls it any more: it is no child of an MPIJob.
                    (None, Some(uid)) => sink.take(Change::Gone { kind, uid, version }),
                    (None, None) => {}
                }
            }
            Ok(Some(Event::InitDone)) => sink.take(Change::ListEnds(kind)),
            Ok(Some(Event::Delete(object))) => {
                let version = version(&object);
                if let Some(uid) = object.uid() {
                    sink.take(Change::Gone { kind, uid, version });
                }
            }
            Ok(None) => {
                // The stream of a watcher has no end; a pause keeps a surprise from spinning.
                tokio::time::sleep(MOST_PAUSE).await;
            }
            Err(error) => {
                if let Some(error) = fatal(resource, &error) {
                    return error;
                }
                tracing::warn!(resource, error = %error, "watch failed, trying again");
            }
        }
    }
}

fn version(object: &impl kube::ResourceExt) -> u64 {
    let version = object.resource_version();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn fatal(resource: &'static str, error: &watcher::Error) -> Option<WatchError> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status,
        watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    match status.code {
        404 => Some(WatchError::NoSuchKind { resource }),
        401 | 403 => Some(WatchError::Refused {
            resource,
            message: status.message.clone(),
        }),
        _ => None,
    }
}
