//! Leader election over a Lease, so that at most one operator writes at any time.
//!
//! [`evaluate`] decides, [`run`] does. The Lease is the Go operator's, so that old and new never
//! lead at once during a swap.
//!
//! What it rests on: every write carries the resourceVersion that it was decided on. Clocks of
//! other machines are never read: a candidate waits for the whole duration, counted from when it
//! saw the Lease change last. And a leader counts from before it *sent* a renewal, which is
//! earlier than anybody can have seen it. It stops writing one call's time before anybody may take
//! over, and goes on if a renewal gets through.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the election talks to the API server itself and measures time; `evaluate` does neither"
)]

use std::future::Future;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use rand_core::RngCore;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// Name of the Lease.
pub const LEASE_NAME: &str = "mpi-operator";

/// Component of the event, and field manager of the Lease.
const COMPONENT: &str = "mpi-operator";

/// Which Lease, as whom, and how fast.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// Namespace of the Lease; has to exist.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; never used by two processes.
    pub identity: String,
    /// How long others leave a Lease alone that does not change; whole seconds, at least 1.
    pub duration: Duration,
    /// A leader that could not renew for this long ends; less than `duration`.
    pub renew_deadline: Duration,
    /// The longest that one write may be on its way. A leader sends none when less than this is
    /// left of the Lease, so that none arrives under its successor; less than `duration` by some
    /// renewals.
    pub write_limit: Duration,
    /// Between two renewals, and between two looks of a candidate.
    pub retry: Duration,
    /// A candidate that is refused (no right, no such namespace) for this long gives up. Not at
    /// once, because roles and namespace may be applied a moment after the Deployment.
    pub refusal_limit: Duration,
}

impl LeaseConfig {
    /// The Lease `mpi-operator` in this namespace, as `<hostname>_<uuid>`.
    ///
    /// The duration is the Go operator's 15 s. It ended 5 s after a renewal was due, so whenever an
    /// API server restarted; here writes pause after 5 s and the process ends after 10 s. A look
    /// each 2 s lets a successor lead 17 s after its leader was killed.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Identity`] if the system has no random numbers.
    pub fn new(namespace: &str) -> Result<Self, LeaseError> {
        Ok(Self {
            namespace: namespace.to_owned(),
            name: LEASE_NAME.to_owned(),
            identity: new_identity()?,
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            write_limit: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            refusal_limit: Duration::from_secs(30),
        })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn new_identity() -> Result<String, LeaseError> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned());
    let mut bytes = [0_u8; 16];
    rand_core::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| LeaseError::Identity {
            problem: error.to_string(),
        })?;
    // Version 4, variant 1 of RFC 4122.
    let bits = u128::from_be_bytes(bytes) & !(0xf << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62);
    let hex = format!("{bits:032x}");
    Ok(format!(
        "{host}_{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    ))
}

/// Why the election ended although nobody asked for it. The process has to end as well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// We led and could not renew in time.
    #[error("lost lease {path}: not renewed for {seconds} s: {problem}")]
    Expired {
        /// `<namespace>/<name>` of the Lease.
        path: String,
        /// Seconds without a renewal.
        seconds: u64,
        /// The last failure.
        problem: String,
    },
    /// We led and somebody else holds the Lease.
    #[error("lost lease {path}: {by} holds it")]
    TakenOver {
        /// `<namespace>/<name>` of the Lease.
        path: String,
        /// Identity of the holder.
        by: String,
    },
    /// We never led, and the API server refuses us the Lease.
    #[error("cannot use lease {path}: {problem}")]
    Refused {
        /// `<namespace>/<name>` of the Lease.
        path: String,
        /// What the API server says.
        problem: String,
    },
    /// The system has no random numbers to make an identity of.
    #[error("no random numbers for an identity: {problem}")]
    Identity {
        /// What the system says.
        problem: String,
    },
}

impl LeaseError {
    /// A short word for logs and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "LeaseExpired",
            Self::TakenOver { .. } => "LeaseTakenOver",
            Self::Refused { .. } => "LeaseRefused",
            Self::Identity { .. } => "NoIdentity",
        }
    }
}

/// Whether this process may write. Carries its own end, so that it turns to "no" by itself when
/// renewals stop arriving, whatever became of the task that makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership(Hold);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Standby,
    Alone,
    Held {
        write_until: Instant,
        lease_until: Instant,
    },
}

impl Leadership {
    /// Somebody else leads, or nobody yet.
    #[must_use]
    pub fn standby() -> Self {
        Self(Hold::Standby)
    }

    /// No election: we always lead.
    #[must_use]
    pub fn alone() -> Self {
        Self(Hold::Alone)
    }

    fn held(sent: Instant, config: &LeaseConfig) -> Self {
        Self(Hold::Held {
            write_until: sent + config.duration.saturating_sub(config.write_limit),
            lease_until: sent + config.duration,
        })
    }

    /// Whether a write may be sent now. Ask right before each one; it costs a clock reading.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader_at(Instant::now())
    }

    /// [`Leadership::is_leader`] at a given moment.
    #[must_use]
    pub fn is_leader_at(&self, now: Instant) -> bool {
        match self.0 {
            Hold::Standby => false,
            Hold::Alone => true,
            Hold::Held { write_until, .. } => now < write_until,
        }
    }

    /// For how long our own Lease has been over; `None` while it is not, and without one.
    #[must_use]
    pub fn expired_for(&self) -> Option<Duration> {
        self.expired_for_at(Instant::now())
    }

    /// [`Leadership::expired_for`] at a given moment.
    #[must_use]
    pub fn expired_for_at(&self, now: Instant) -> Option<Duration> {
        match self.0 {
            Hold::Held { lease_until, .. } if now >= lease_until => {
                Some(now.duration_since(lease_until))
            }
            _ => None,
        }
    }
}

/// The Lease as last read, and when it last changed under our eyes.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Its spec.
    pub spec: LeaseSpec,
    /// Its resourceVersion.
    pub version: String,
    /// When we first saw this spec, by our own clock.
    pub seen: Instant,
}

impl Observed {
    /// Take in an answer of the API server that arrived at `now`. A new version with the same
    /// spec (a label, an annotation) is no renewal and does not restart the count.
    #[must_use]
    pub fn next(before: Option<&Self>, lease: Lease, now: Instant) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let seen = match before {
            Some(before) if before.spec == spec => before.seen,
            _ => now,
        };
        Self {
            spec,
            version: lease.metadata.resource_version.unwrap_or_default(),
            seen,
        }
    }

    fn holder(&self) -> Option<&str> {
        self.spec
            .holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }
}

/// What to do about the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// There is none: create it, held by us.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It was released or has expired: take it.
    Take,
    /// Somebody else holds it for this long, if it does not change until then.
    Wait(Duration),
}

/// Decide. `now` is of the same clock as [`Observed::seen`]; `fallback` is the duration of a Lease
/// that names none.
#[must_use]
pub fn evaluate(
    observed: Option<&Observed>,
    now: Instant,
    me: &str,
    fallback: Duration,
) -> Decision {
    let Some(observed) = observed else {
        return Decision::Create;
    };
    match observed.holder() {
        None => return Decision::Take,
        Some(holder) if holder == me => return Decision::Renew,
        Some(_) => {}
    }
    // The holder's own promise counts, not ours: it may be configured otherwise.
    let duration = observed
        .spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map_or(fallback, Duration::from_secs);
    let left = duration.saturating_sub(now.saturating_duration_since(observed.seen));
    if left.is_zero() {
        Decision::Take
    } else {
        Decision::Wait(left)
    }
}

/// Take part in the election until `shutdown` becomes true (or its sender is dropped).
///
/// `state` always tells what we are; it changes at each renewal. On shutdown the Lease is released
/// at once, so that a successor need not wait: the caller has to end its own writes before.
///
/// # Errors
///
/// [`LeaseError`] if we led and no longer do, or if we never can. `state` says standby by then.
/// An API server that cannot be reached is no error for a candidate: it waits.
pub async fn run(
    client: kube::Client,
    config: LeaseConfig,
    state: watch::Sender<Leadership>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), LeaseError> {
    let mut elector = Elector {
        api: Api::namespaced(client.clone(), &config.namespace),
        events: Api::namespaced(client, &config.namespace),
        config,
        observed: None,
        look: true,
        led_since_sent: None,
        refused_since: None,
        problem: String::new(),
        state,
    };
    let result = loop {
        let Some(step) = unless_stopped(&mut shutdown, elector.step()).await else {
            break Ok(());
        };
        let pause = match step {
            Ok(pause) => pause,
            Err(error) => break Err(error),
        };
        if unless_stopped(&mut shutdown, sleep(pause)).await.is_none() {
            break Ok(());
        }
    };
    elector.state.send_replace(Leadership::standby());
    if result.is_ok() && elector.led_since_sent.is_some() {
        elector.release().await;
    }
    result
}

async fn unless_stopped<T>(
    shutdown: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = shutdown.wait_for(|stop| *stop) => None,
        done = work => Some(done),
    }
}

/// Why a request did not do what it should.
enum Failure {
    /// Somebody else was faster, or a reply of ours was lost: look again.
    Stale(String),
    /// We are not allowed to, or the namespace is missing.
    Refused(String),
    /// Anything that may pass.
    Later(String),
}

struct Elector {
    api: Api<Lease>,
    events: Api<Event>,
    config: LeaseConfig,
    observed: Option<Observed>,
    /// Read the Lease before the next decision. A leader whose renewals succeed never has to.
    look: bool,
    /// While leading: when the last successful renewal was sent.
    led_since_sent: Option<Instant>,
    refused_since: Option<Instant>,
    /// The last failure; empty after a success.
    problem: String,
    state: watch::Sender<Leadership>,
}

impl Elector {
    /// Look if necessary, decide, write; returns the pause until the next step.
    async fn step(&mut self) -> Result<Duration, LeaseError> {
        match self.try_step().await {
            Ok(pause) => {
                self.problem.clear();
                self.refused_since = None;
                self.check_held()?;
                Ok(pause)
            }
            Err(failure) => {
                // After any failure it is unknown what is stored: a renewal whose reply was lost
                // counts for others, and its version is not the one that we have.
                self.look = true;
                self.check_held()?;
                self.note(failure)
            }
        }
    }

    async fn try_step(&mut self) -> Result<Duration, Failure> {
        if self.look || self.led_since_sent.is_none() {
            let lease = self.call(self.api.get_opt(&self.config.name)).await?;
            self.observed =
                lease.map(|lease| Observed::next(self.observed.as_ref(), lease, Instant::now()));
            self.look = false;
        }
        let config = &self.config;
        let decision = evaluate(
            self.observed.as_ref(),
            Instant::now(),
            &config.identity,
            config.duration,
        );
        let sent = Instant::now();
        let lease = match decision {
            Decision::Wait(left) => {
                self.led_since_sent = None;
                // To the very moment, else a takeover is late by up to one retry.
                return Ok(left.min(self.config.retry).max(Duration::from_millis(10)));
            }
            Decision::Create => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(config.name.clone()),
                        namespace: Some(config.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.spec(None)),
                };
                let params = PostParams {
                    field_manager: Some(COMPONENT.to_owned()),
                    ..PostParams::default()
                };
                self.call(self.api.create(&params, &lease)).await?
            }
            Decision::Renew | Decision::Take => {
                let before = self.observed.as_ref();
                let patch = json!({
                    "metadata": {"resourceVersion": before.map(|b| b.version.as_str())},
                    "spec": self.spec(before),
                });
                self.patch(&patch).await?
            }
        };
        let uid = lease.metadata.uid.clone();
        self.observed = Some(Observed::next(None, lease, sent));
        let first = self.led_since_sent.replace(sent).is_none();
        self.state
            .send_replace(Leadership::held(sent, &self.config));
        if first {
            info!(identity = %self.config.identity, lease = %self.config.path(), "became leader");
            self.announce(uid).await;
        }
        Ok(self.config.retry)
    }

    /// While leading: is the Lease still ours, and renewed recently enough?
    fn check_held(&mut self) -> Result<(), LeaseError> {
        if !matches!(*self.state.borrow(), Leadership(Hold::Held { .. })) {
            return Ok(());
        }
        let holder = self.observed.as_ref().and_then(Observed::holder);
        let Some(sent) = self.led_since_sent else {
            return Err(LeaseError::TakenOver {
                path: self.config.path(),
                by: holder.unwrap_or_default().to_owned(),
            });
        };
        if sent.elapsed() >= self.config.renew_deadline {
            return Err(LeaseError::Expired {
                path: self.config.path(),
                seconds: self.config.renew_deadline.as_secs(),
                problem: if self.problem.is_empty() {
                    "no answer".to_owned()
                } else {
                    self.problem.clone()
                },
            });
        }
        Ok(())
    }

    /// Say a failure once, give up if refused for too long, else return the pause.
    fn note(&mut self, failure: Failure) -> Result<Duration, LeaseError> {
        let (problem, refused) = match failure {
            Failure::Stale(problem) => {
                debug!(%problem, "lease changed, looking again");
                return Ok(self.config.retry / 10);
            }
            Failure::Refused(problem) => (problem, true),
            Failure::Later(problem) => (problem, false),
        };
        let lease = self.config.path();
        if problem == self.problem {
            debug!(%lease, %problem, "lease still not reached");
        } else {
            warn!(%lease, %problem, "cannot reach lease, trying again");
        }
        self.problem = problem;
        let now = Instant::now();
        if refused {
            let since = *self.refused_since.get_or_insert(now);
            if now.duration_since(since) >= self.config.refusal_limit {
                return Err(LeaseError::Refused {
                    path: lease,
                    problem: self.problem.clone(),
                });
            }
        } else {
            self.refused_since = None;
        }
        // Twice as often as when all is well: a leader has to renew before its deadline.
        Ok(self.config.retry / 2)
    }

    /// The spec that makes us the holder, or keeps us.
    fn spec(&self, before: Option<&Observed>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = before.is_some_and(|b| b.holder() == Some(self.config.identity.as_str()));
        let transitions = before.and_then(|b| b.spec.lease_transitions);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.config.duration.as_secs().max(1)).unwrap_or(i32::MAX),
            ),
            acquire_time: before
                .filter(|_| ours)
                .and_then(|b| b.spec.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match before {
                None => 0,
                Some(_) if ours => transitions.unwrap_or(0),
                Some(_) => transitions.unwrap_or(0).saturating_add(1),
            }),
            ..LeaseSpec::default()
        }
    }

    async fn patch(&self, patch: &serde_json::Value) -> Result<Lease, Failure> {
        let params = PatchParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PatchParams::default()
        };
        let name = &self.config.name;
        self.call(self.api.patch(name, &params, &Patch::Merge(patch)))
            .await
    }

    /// One request. The client itself has no time limit and repeats some answers for minutes; with
    /// half the deadline a second try still fits into it.
    async fn call<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let limit = self.config.renew_deadline / 2;
        match timeout(limit, request).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(classify(error)),
            Err(_) => Err(Failure::Later(format!(
                "no answer within {} s",
                limit.as_secs_f32()
            ))),
        }
    }

    /// The event of the Go operator, on the Lease. Tried once: it is for people only.
    async fn announce(&self, uid: Option<String>) {
        let config = &self.config;
        let now = Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", config.name, now.as_nanosecond())),
                namespace: Some(config.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                name: Some(config.name.clone()),
                namespace: Some(config.namespace.clone()),
                uid,
                ..ObjectReference::default()
            },
            type_: Some("Normal".to_owned()),
            reason: Some("LeaderElection".to_owned()),
            message: Some(format!("{} became leader", config.identity)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                ..EventSource::default()
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        let params = PostParams::default();
        match timeout(Duration::from_secs(1), self.events.create(&params, &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "election event not stored"),
            Err(_) => debug!("election event not stored in time"),
        }
    }

    /// Leave the Lease to the next one. A renewal that was cut off by the shutdown may still have
    /// reached the server, so a conflict is looked at once more.
    async fn release(&mut self) {
        for _ in 0..2 {
            if self.look {
                match self.call(self.api.get_opt(&self.config.name)).await {
                    Ok(Some(lease)) => {
                        self.observed = Some(Observed::next(None, lease, Instant::now()));
                    }
                    _ => return,
                }
            }
            let Some(observed) = &self.observed else {
                return;
            };
            if observed.holder() != Some(self.config.identity.as_str()) {
                return;
            }
            // As client-go releases: no holder and one second, in case a reader minds the duration
            // although there is no holder.
            let now = MicroTime(Timestamp::now());
            let patch = json!({
                "metadata": {"resourceVersion": observed.version},
                "spec": {
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "acquireTime": now,
                    "renewTime": now,
                },
            });
            match self.patch(&patch).await {
                Ok(_) => {
                    info!(lease = %self.config.path(), "released the lease");
                    return;
                }
                Err(Failure::Stale(_)) => self.look = true,
                Err(Failure::Refused(problem) | Failure::Later(problem)) => {
                    warn!(lease = %self.config.path(), %problem, "lease not released, it will expire");
                    return;
                }
            }
        }
    }
}

fn classify(error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => Failure::Stale(status.message.clone()),
            401 | 403 => Failure::Refused(status.message.clone()),
            // A Lease that is missing is `None` on a get and a reason to look again on a patch; on
            // a create only the namespace can be missing, and the message says so.
            404 if status.message.starts_with("namespaces ") => {
                Failure::Refused(status.message.clone())
            }
            404 => Failure::Stale(status.message.clone()),
            _ => Failure::Later(status.message.clone()),
        },
        other => Failure::Later(other.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
