//! Every change of one kind of object in a namespace, in the order in which the API server made
//! them.
//!
//! One watch stream is ordered by the server, so "the launcher pod was created when both workers
//! were Ready" is a fact of this list and needs no clock. Between two kinds, and for durations,
//! there is only the time at which a change arrived here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Added,
    /// It was written.
    Modified,
    /// It is gone; the object is its last state.
    Deleted,
}

/// One change.
#[derive(Debug, Clone)]
pub struct Seen<K> {
    /// When it arrived here.
    pub at: Instant,
    /// What it was.
    pub change: Change,
    /// The object afterwards.
    pub object: K,
}

/// All changes since the namespace was made. The watch ends with this value.
pub struct History<K> {
    kind: &'static str,
    log: Arc<Mutex<Log<K>>>,
    changed: watch::Receiver<()>,
    task: JoinHandle<()>,
}

struct Log<K> {
    seen: Vec<Seen<K>>,
    /// The stream had a gap, so the order can no longer be trusted.
    gap: Option<String>,
}

impl<K> Drop for History<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> History<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Follows `api` from now on.
    #[must_use]
    pub fn follow(kind: &'static str, api: Api<K>) -> Self {
        let log = Arc::new(Mutex::new(Log {
            seen: Vec::new(),
            gap: None,
        }));
        let (tell, changed) = watch::channel(());
        let task = tokio::spawn(follow(kind, api, Arc::clone(&log), tell));
        Self {
            kind,
            log,
            changed,
            task,
        }
    }

    /// Every change up to now.
    #[must_use]
    pub fn all(&self) -> Vec<Seen<K>> {
        lock(&self.log).seen.clone()
    }

    /// The objects that exist now, by name.
    #[must_use]
    pub fn live(&self) -> BTreeMap<String, K> {
        live(&lock(&self.log).seen)
    }

    /// Number of changes so far: a mark to look on from, with [`Self::since`].
    #[must_use]
    pub fn mark(&self) -> usize {
        lock(&self.log).seen.len()
    }

    /// Every change after `mark`.
    #[must_use]
    pub fn since(&self, mark: usize) -> Vec<Seen<K>> {
        lock(&self.log).seen[mark..].to_vec()
    }

    /// Waits until `look` finds what it wants in the list of all changes.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&[Seen<K>]) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        let mut changed = self.changed.clone();
        loop {
            changed.mark_unchanged();
            {
                let log = lock(&self.log);
                if let Some(gap) = &log.gap {
                    bail!(
                        "waiting for {what}: the watch of {} broke: {gap}",
                        self.kind
                    );
                }
                if let Some(found) = look(&log.seen)? {
                    return Ok(found);
                }
            }
            if tokio::time::timeout_at(deadline.into(), changed.changed())
                .await
                .is_err()
            {
                bail!("waited {} s in vain for {what}", within.as_secs());
            }
        }
    }

    /// Waits until `look` finds what it wants among the objects that exist.
    pub async fn until_live<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&BTreeMap<String, K>) -> Result<Option<T>>,
    ) -> Result<T> {
        self.until(what, within, |seen| look(&live(seen))).await
    }
}

/// The objects that exist after the changes `seen`, by name.
pub fn live<K: Resource + Clone>(seen: &[Seen<K>]) -> BTreeMap<String, K> {
    let mut live = BTreeMap::new();
    for one in seen {
        let name = one.object.name_any();
        if one.change == Change::Deleted {
            live.remove(&name);
        } else {
            live.insert(name, one.object.clone());
        }
    }
    live
}

fn lock<K>(log: &Mutex<Log<K>>) -> MutexGuard<'_, Log<K>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow<K>(
    kind: &'static str,
    api: Api<K>,
    log: Arc<Mutex<Log<K>>>,
    tell: watch::Sender<()>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let push = |change, object| {
        lock(&log).seen.push(Seen {
            at: Instant::now(),
            change,
            object,
        });
        tell.send_replace(());
    };
    let mut version = loop {
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                let version = list.metadata.resource_version.unwrap_or_default();
                for object in list.items {
                    push(Change::Added, object);
                }
                break version;
            }
            Err(error) => {
                eprintln!("list of {kind}: {error}; again in 2 s");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    };
    loop {
        let stream = match api.watch(&WatchParams::default(), &version).await {
            Ok(stream) => stream,
            Err(error) => {
                eprintln!("watch of {kind}: {error}; again in 1 s");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let mut stream = stream.boxed();
        loop {
            let (change, object) = match stream.try_next().await {
                Ok(Some(WatchEvent::Added(object))) => (Change::Added, object),
                Ok(Some(WatchEvent::Modified(object))) => (Change::Modified, object),
                Ok(Some(WatchEvent::Deleted(object))) => (Change::Deleted, object),
                Ok(Some(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                Ok(Some(WatchEvent::Error(status))) => {
                    lock(&log).gap = Some(status.message.clone());
                    tell.send_replace(());
                    return;
                }
                Ok(None) => break,
                Err(error) => {
                    eprintln!("watch of {kind}: {error}");
                    break;
                }
            };
            version = object.resource_version().unwrap_or(version);
            push(change, object);
        }
    }
}
