//! The decision over a table, and the loop against a Lease in memory with short durations.

use super::*;

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::task::JoinHandle;

/// A Lease of ours that has been over for this many seconds.
pub(crate) fn expired(seconds: u64) -> Leadership {
    let lease_until = Instant::now()
        .checked_sub(Duration::from_secs(seconds))
        .unwrap();
    Leadership(Hold::Held {
        write_until: lease_until,
        lease_until,
    })
}

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig {
        namespace: "mpi-operator".to_owned(),
        name: LEASE_NAME.to_owned(),
        identity: identity.to_owned(),
        duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(600),
        write_limit: Duration::from_millis(500),
        retry: Duration::from_millis(100),
        refusal_limit: Duration::from_millis(300),
    }
}

fn lease(holder: &str, renewed: &str, version: &str) -> Lease {
    serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME, "resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }))
    .unwrap()
}

const NOON: &str = "2026-01-01T12:00:00.000000Z";
const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn decides(observed: Option<&Observed>, now: Instant, want: Decision) {
    assert_eq!(evaluate(observed, now, "me", 15 * SECOND), want);
}

#[test]
fn a_missing_lease_is_created() {
    decides(None, Instant::now(), Decision::Create);
}

#[test]
fn a_foreign_lease_expires_by_our_own_clock_only() {
    let start = Instant::now();
    // Written by a clock that is years behind, and one that is years ahead.
    for renewed in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let seen = Observed::next(None, lease("other", renewed, "1"), start);
        decides(Some(&seen), start, Decision::Wait(15 * SECOND));
        decides(Some(&seen), start + 14 * SECOND, Decision::Wait(SECOND));
        decides(Some(&seen), start + 15 * SECOND, Decision::Take);
        decides(Some(&seen), start + 99 * SECOND, Decision::Take);
    }
}

#[test]
fn a_renewal_restarts_the_count_and_anything_else_does_not() {
    let start = Instant::now();
    let first = Observed::next(None, lease("other", NOON, "1"), start);
    let labelled = Observed::next(Some(&first), lease("other", NOON, "2"), start + 10 * SECOND);
    assert_eq!(labelled.version, "2");
    decides(Some(&labelled), start + 15 * SECOND, Decision::Take);
    // Even a renewal that goes back in time is a sign of life.
    let back = "2026-01-01T11:00:00.000000Z";
    let renewed = Observed::next(
        Some(&labelled),
        lease("other", back, "3"),
        start + 14 * SECOND,
    );
    decides(
        Some(&renewed),
        start + 15 * SECOND,
        Decision::Wait(14 * SECOND),
    );
    let moved = Observed::next(
        Some(&renewed),
        lease("third", back, "4"),
        start + 20 * SECOND,
    );
    decides(
        Some(&moved),
        start + 30 * SECOND,
        Decision::Wait(5 * SECOND),
    );
}

#[test]
fn a_clock_that_seems_to_go_back_only_waits_longer() {
    let start = Instant::now() + 60 * SECOND;
    let seen = Observed::next(None, lease("other", NOON, "1"), start);
    decides(
        Some(&seen),
        start - 30 * SECOND,
        Decision::Wait(15 * SECOND),
    );
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let now = Instant::now();
    for holder in [Some(String::new()), None] {
        let mut released = lease("", NOON, "1");
        released.spec.as_mut().unwrap().holder_identity = holder;
        let seen = Observed::next(None, released, now);
        decides(Some(&seen), now, Decision::Take);
    }
    let mut bare = lease("", NOON, "1");
    bare.spec = None;
    decides(Some(&Observed::next(None, bare, now)), now, Decision::Take);
}

#[test]
fn our_own_lease_is_renewed_however_old() {
    let start = Instant::now();
    let seen = Observed::next(None, lease("me", NOON, "1"), start);
    decides(Some(&seen), start, Decision::Renew);
    decides(Some(&seen), start + 500 * SECOND, Decision::Renew);
    // A name that only starts like ours is somebody else.
    let seen = Observed::next(None, lease("me2", NOON, "1"), start);
    decides(Some(&seen), start, Decision::Wait(15 * SECOND));
}

#[test]
fn the_holders_own_duration_counts() {
    let now = Instant::now();
    for (seconds, want) in [
        (Some(40), 40),
        (Some(3), 3),
        (Some(0), 15),
        (Some(-1), 15),
        (None, 15),
    ] {
        let mut other = lease("other", NOON, "1");
        other.spec.as_mut().unwrap().lease_duration_seconds = seconds;
        let seen = Observed::next(None, other, now);
        decides(Some(&seen), now, Decision::Wait(want * SECOND));
    }
}

#[test]
fn leadership_ends_by_itself_before_the_lease_does() {
    let sent = Instant::now();
    let held = Leadership::held(sent, &LeaseConfig::new("ns").unwrap());
    // The last write may take 10 s, and then the Lease is over.
    assert!(held.is_leader_at(sent + 4 * SECOND));
    assert!(!held.is_leader_at(sent + 5 * SECOND));
    assert_eq!(held.expired_for_at(sent + 14 * SECOND), None);
    assert_eq!(held.expired_for_at(sent + 36 * SECOND), Some(21 * SECOND));
    assert!(!Leadership::standby().is_leader());
    assert!(Leadership::alone().is_leader());
    assert_eq!(Leadership::standby().expired_for(), None);
}

#[test]
fn identities_are_hostname_and_a_fresh_uuid() {
    let one = LeaseConfig::new("ns").unwrap().identity;
    let two = LeaseConfig::new("ns").unwrap().identity;
    assert_ne!(one, two);
    let uuid = one.rsplit_once('_').unwrap().1;
    assert_eq!(uuid.len(), 36);
    assert_eq!(uuid.as_bytes()[14], b'4');
    assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
}

/// A Lease endpoint in memory.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    events: Vec<Value>,
    /// Answer everything with this.
    fault: Option<(u16, &'static str)>,
    /// Do the next patch, but answer 500.
    lose_reply: bool,
    patches: usize,
}

impl Stored {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        if let Some((code, message)) = self.fault {
            return (code, status(code, message));
        }
        if path.ends_with("/events") {
            self.events.push(body.clone());
            return (201, body);
        }
        match (method, &mut self.lease) {
            ("GET", Some(lease)) => (200, lease.clone()),
            ("GET" | "PATCH", None) => (404, status(404, "leases \"mpi-operator\" not found")),
            ("POST", Some(_)) => (409, status(409, "already exists")),
            ("POST", None) => {
                self.version += 1;
                let mut lease = body;
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                lease["metadata"]["uid"] = json!("uid-1");
                self.lease = Some(lease.clone());
                (201, lease)
            }
            ("PATCH", Some(lease)) => {
                self.patches += 1;
                if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return (409, status(409, "the object has been modified"));
                }
                self.version += 1;
                for (key, value) in body["spec"].as_object().unwrap() {
                    lease["spec"][key] = value.clone();
                }
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                if std::mem::take(&mut self.lose_reply) {
                    return (500, status(500, "reply lost"));
                }
                (200, lease.clone())
            }
            other => panic!("{other:?} {path}"),
        }
    }
}

fn status(code: u16, message: &str) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
           "message": message, "reason": reason})
}

impl Server {
    fn client(&self) -> kube::Client {
        let stored = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let (code, answer) =
                    stored
                        .lock()
                        .unwrap()
                        .answer(parts.method.as_str(), parts.uri.path(), body);
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(code).body(body).unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    fn start(&self, identity: &str) -> Running {
        let (state, leadership) = watch::channel(Leadership::standby());
        let (stop, shutdown) = watch::channel(false);
        let task = tokio::spawn(run(self.client(), config(identity), state, shutdown));
        Running {
            leadership,
            stop,
            task,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Stored) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn holder(&self) -> String {
        self.with(|s| {
            s.lease.as_ref().unwrap()["spec"]["holderIdentity"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    }
}

struct Running {
    leadership: watch::Receiver<Leadership>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), LeaseError>>,
}

impl Running {
    async fn leads_within(&mut self, limit: Duration) -> Duration {
        let start = Instant::now();
        let led = timeout(limit, self.leadership.wait_for(Leadership::is_leader)).await;
        assert!(led.is_ok(), "does not lead after {limit:?}");
        start.elapsed()
    }

    async fn ends_within(self, limit: Duration) -> Result<(), LeaseError> {
        timeout(limit, self.task).await.unwrap().unwrap()
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn one_leads_and_its_successor_waits_for_the_whole_duration() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    let mut second = server.start("second");
    sleep(ms(1500)).await;
    assert!(!second.leadership.borrow().is_leader());
    assert_eq!(server.holder(), "first");
    // Killed: nothing is released.
    first.task.abort();
    let after = second.leads_within(ms(2000)).await;
    assert!(after >= ms(850), "{after:?}");
    // By then the first one's own word is long over.
    assert!(!first.leadership.borrow().is_leader());
    assert_eq!(server.holder(), "second");
    server.with(|s| {
        let spec = &s.lease.as_ref().unwrap()["spec"];
        assert_eq!(spec["leaseTransitions"], 1);
        assert_eq!(spec["leaseDurationSeconds"], 1);
        let said: Vec<_> = s.events.iter().map(|e| &e["message"]).collect();
        assert_eq!(said, ["first became leader", "second became leader"]);
        assert_eq!(s.events[0]["reason"], "LeaderElection");
        assert_eq!(s.events[0]["involvedObject"]["uid"], "uid-1");
    });
}

#[tokio::test]
async fn shutdown_releases_the_lease_for_the_next_one() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    let mut second = server.start("second");
    sleep(ms(150)).await;
    first.stop.send_replace(true);
    let after = second.leads_within(ms(500)).await;
    assert!(after < ms(400), "{after:?}");
    assert!(!first.leadership.borrow().is_leader());
    assert_eq!(first.ends_within(ms(100)).await, Ok(()));
    second.stop.send_replace(true);
    assert_eq!(second.ends_within(ms(500)).await, Ok(()));
    assert_eq!(server.holder(), "");
}

#[tokio::test]
async fn a_candidate_that_is_stopped_leaves_the_lease_alone() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    let second = server.start("second");
    sleep(ms(150)).await;
    second.stop.send_replace(true);
    assert_eq!(second.ends_within(ms(200)).await, Ok(()));
    assert_eq!(server.holder(), "first");
}

#[tokio::test]
async fn a_leader_without_api_server_stops_writing_before_its_lease_is_over() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    server.with(|s| s.fault = Some((500, "etcd is down")));
    let start = Instant::now();
    let leadership = first.leadership.clone();
    let end = first.ends_within(ms(1500)).await;
    assert!(start.elapsed() < ms(950), "{:?}", start.elapsed());
    assert!(!leadership.borrow().is_leader());
    let error = end.unwrap_err();
    assert_eq!(error.reason(), "LeaseExpired");
    assert!(error.to_string().contains("etcd is down"), "{error}");
}

#[tokio::test]
async fn a_short_outage_does_not_end_a_leader() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    server.with(|s| s.fault = Some((503, "restarting")));
    sleep(ms(250)).await;
    server.with(|s| s.fault = None);
    sleep(ms(700)).await;
    assert!(first.leadership.borrow().is_leader());
    assert!(!first.task.is_finished());
}

#[tokio::test]
async fn a_leader_ends_when_somebody_else_holds_the_lease() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    server.with(|s| {
        s.version += 1;
        let version = json!(s.version.to_string());
        let lease = s.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = version;
        lease["spec"]["holderIdentity"] = json!("thief");
    });
    let leadership = first.leadership.clone();
    let error = first.ends_within(ms(500)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "lost lease mpi-operator/mpi-operator: thief holds it"
    );
    assert!(!leadership.borrow().is_leader());
    assert_eq!(server.holder(), "thief");
}

#[tokio::test]
async fn a_lost_reply_and_a_foreign_label_are_no_loss() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    server.with(|s| s.lose_reply = true);
    sleep(ms(400)).await;
    server.with(|s| {
        s.version += 1;
        let version = json!(s.version.to_string());
        s.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = version;
    });
    sleep(ms(800)).await;
    assert!(first.leadership.borrow().is_leader());
    assert!(!first.task.is_finished());
    assert_eq!(
        server.with(|s| s.lease.as_ref().unwrap()["spec"]["leaseTransitions"].clone()),
        0
    );
}

#[tokio::test]
async fn a_deleted_lease_is_made_again() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    server.with(|s| s.lease = None);
    sleep(ms(400)).await;
    assert!(first.leadership.borrow().is_leader());
    assert_eq!(server.holder(), "first");
}

#[tokio::test]
async fn a_refused_candidate_says_why_and_gives_up() {
    for (code, message) in [
        (403, "leases.coordination.k8s.io is forbidden"),
        (401, "Unauthorized"),
        (404, "namespaces \"mpi-operator\" not found"),
    ] {
        let server = Server::default();
        // A get of a missing Lease in a missing namespace is answered like any missing Lease.
        server.with(|s| s.fault = Some((code, message)));
        let candidate = server.start("first");
        let error = candidate.ends_within(ms(1500)).await.unwrap_err();
        assert_eq!(error.reason(), "LeaseRefused");
        assert_eq!(
            error.to_string(),
            format!("cannot use lease mpi-operator/mpi-operator: {message}")
        );
    }
}

#[tokio::test]
async fn a_candidate_waits_for_an_api_server_that_is_down() {
    let server = Server::default();
    server.with(|s| s.fault = Some((500, "down")));
    let mut candidate = server.start("first");
    sleep(ms(900)).await;
    assert!(!candidate.task.is_finished());
    server.with(|s| s.fault = None);
    candidate.leads_within(ms(300)).await;
}

#[tokio::test]
async fn at_rest_a_leader_sends_one_patch_a_retry_and_reads_nothing() {
    let server = Server::default();
    let mut first = server.start("first");
    first.leads_within(ms(300)).await;
    let before = server.with(|s| s.patches);
    sleep(ms(1000)).await;
    let sent = server.with(|s| s.patches) - before;
    assert!((6..=11).contains(&sent), "{sent}");
}
