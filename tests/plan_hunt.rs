//! Histories that try to break the operator: odd objects, odd moments, hands of others. Each test
//! says what has to hold all the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;
use kube::core::ObjectList;
use mpi_operator::api::names;
use mpi_operator::facts::index::{Change, Index, Key, Kind};
use mpi_operator::metrics::Metrics;
use mpi_operator::plan::Options;
use mpi_operator::plan::build::Gang;
use mpi_operator::queue::Queue;
use mpi_operator::reconcile::Reconciler;
use mpi_operator::watch::Sink;
use mpi_operator::watch::slim::SlimMpiJob;
use mpi_operator::write::Writer;
use serde_json::{Value, json};
use support::{Node, World, end_try, finish, long_running, spec, start};

fn now() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

fn seen(kind: &str, object: &Value) -> Change {
    Change::Seen(Box::new(support::operator::decode(kind, object).unwrap()))
}

fn mpijob(uid: &str, version: u64) -> Value {
    json!({
        "metadata": {
            "name": "pi", "namespace": "default", "uid": uid, "generation": 1,
            "resourceVersion": version.to_string(),
        },
        "spec": spec(1, json!({})),
    })
}

// Objects that nobody expects.

#[test]
fn an_mpijob_nested_deeper_than_a_decoder_goes_does_not_end_the_list() {
    // The API server stores such a job: unknown fields of a template are kept.
    let mut deep = "1".to_owned();
    for _ in 0..200 {
        deep = format!("{{\"a\":{deep}}}");
    }
    let good = mpijob("good", 1).to_string();
    let bad = mpijob("bad", 2).to_string().replacen(
        "\"image\":\"mpi\"",
        &format!("\"image\":\"mpi\",\"odd\":{deep}"),
        1,
    );
    let list = format!(
        "{{\"apiVersion\":\"kubeflow.org/v2beta1\",\"kind\":\"MPIJobList\",\"metadata\":{{}},\"items\":[{good},{bad}]}}"
    );
    let list = serde_json::from_str::<ObjectList<SlimMpiJob>>(&list);
    assert_eq!(
        list.map(|list| list.items.len()).map_err(|e| e.to_string()),
        Ok(2)
    );
}

#[test]
fn managed_fields_nested_deeper_than_a_decoder_goes_do_not_end_the_list() {
    let mut deep = "{}".to_owned();
    for _ in 0..200 {
        deep = format!("{{\"f:a\":{deep}}}");
    }
    let bad = mpijob("bad", 2).to_string().replacen(
        "\"name\":\"pi\"",
        &format!("\"name\":\"pi\",\"managedFields\":[{{\"manager\":\"m\",\"operation\":\"Update\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{deep}}}]"),
        1,
    );
    let decoded = serde_json::from_str::<SlimMpiJob>(&bad);
    assert_eq!(decoded.map(|_| ()).map_err(|e| e.to_string()), Ok(()));
}

// What the index keeps.

#[test]
fn a_child_whose_label_was_taken_off_and_put_back_is_seen_again() {
    // A watch by label tells "deleted" when the label goes, though the object is still there.
    let mut index = Index::default();
    let key = Key::from("u1");
    index.apply(seen("MPIJob", &mpijob("u1", 1)), now());
    let job = |version: u64| {
        json!({
            "metadata": {
                "name": "pi-launcher", "namespace": "default", "uid": "j1",
                "resourceVersion": version.to_string(),
                "labels": { names::OPERATOR_NAME_LABEL: names::OPERATOR_NAME },
                "ownerReferences": [{ "uid": "u1", "name": "pi", "controller": true }],
            },
        })
    };
    index.apply(seen("Job", &job(2)), now());
    let gone = Change::Gone {
        kind: Kind::Job,
        uid: "j1".to_owned(),
        version: 3,
    };
    index.apply(gone, now());
    assert!(index.observe(&key).unwrap().launcher_job.is_none());
    index.apply(seen("Job", &job(4)), now());
    assert!(index.observe(&key).unwrap().launcher_job.is_some());
}

#[test]
fn a_late_answer_about_a_deleted_mpijob_does_not_hide_its_successor() {
    let mut index = Index::default();
    let (old, new) = (mpijob("old", 5), mpijob("new", 9));
    index.apply(seen("MPIJob", &old), now());
    // The watch broke off, and the job was deleted and created again meanwhile.
    index.apply(Change::ListBegins(Kind::MpiJob), now());
    index.apply(seen("MPIJob", &new), now());
    // The answer to a status patch that was sent before all that.
    index.apply(seen("MPIJob", &mpijob("old", 6)), now());
    index.apply(Change::ListEnds(Kind::MpiJob), now());
    assert!(index.observe(&Key::from("new")).is_some());
    assert!(index.observe(&Key::from("old")).is_none());
}

// Pods that outlive their Job.

#[test]
fn a_new_process_starts_no_launcher_beside_one_whose_job_is_gone() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(5);
    // Somebody deletes the launcher Job; its pod takes its time to end, and a new process comes.
    world.stop_operator();
    let left = world.launchers()[0].clone();
    world.take_away("Job", "pi-launcher");
    world.mark_deleted(&left, 30);
    world.strip(&left);
    world.start_operator();
    assert_eq!(
        world.wrote("create Job pi-launcher"),
        1,
        "{}",
        world.describe()
    );
    world.until("another launcher runs", 120, |world| {
        world.launched() && world.launchers() != [left.clone()]
    });
    world.sound();
}

#[test]
fn a_new_process_makes_no_workers_beside_those_whose_job_is_gone() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(5);
    world.stop_operator();
    let left = world.workers();
    world.take_away("Job", "pi-worker");
    for name in &left {
        world.mark_deleted(name, 30);
        world.strip(name);
    }
    world.start_operator();
    assert_eq!(
        world.wrote("create Job pi-worker"),
        1,
        "{}",
        world.describe()
    );
}

#[test]
fn a_launcher_pod_that_was_orphaned_is_waited_for_only_while_it_runs() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(5);
    // kubectl delete job --cascade=orphan
    let orphan = world.launchers()[0].clone();
    world.take_away("Job", "pi-launcher");
    world.change("Pod", &orphan, |pod| {
        pod["metadata"]["ownerReferences"] = Value::Null;
        pod["metadata"]["finalizers"] = Value::Null;
    });
    world.advance(30);
    assert!(world.launchers().contains(&orphan), "{}", world.describe());
    end_try(&mut world, 1);
    world.script.then = (5, 0);
    world.until("the job ends", 300, World::ended);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

// Files that MPI reads.

#[test]
fn a_config_map_made_again_between_two_tries_names_the_hosts_of_the_release() {
    let mut world = World::new(spec(3, json!({})));
    world.script.tries = [(20, 1)].into();
    world.script.unready.insert(2);
    world.advance(4);
    // A worker that exits with 0 before it is retired burns its index: a hole.
    let burned = world.worker(1).unwrap();
    world.change("Pod", &burned, |pod| {
        pod["status"]["phase"] = json!("Succeeded")
    });
    world.script.unready.clear();
    start(&mut world);
    assert_eq!(world.worker_indexes(), [0, 2, 3], "{}", world.describe());
    let released = world.get("ConfigMap", "pi-config")["data"]["hostfile"].clone();
    assert!(released.as_str().unwrap().contains("pi-worker-3"));
    world.until("the first try has failed", 60, |world| !world.launched());
    world.take_away("ConfigMap", "pi-config");
    world.react();
    world.advance(1);
    let again = &world.get("ConfigMap", "pi-config")["data"]["hostfile"];
    assert_eq!(*again, released);
    finish(&mut world);
}

#[test]
fn the_secret_is_there_when_a_job_resumes_whose_secret_was_deleted() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.suspend(true);
    world.settle();
    world.take_away("Secret", "pi-ssh");
    world.suspend(false);
    start(&mut world);
    assert!(
        !world.get("Secret", "pi-ssh").is_null(),
        "{}",
        world.describe()
    );
}

// Pauses and rest.

#[test]
fn the_first_restarts_of_a_launcher_wait_for_nothing_but_the_workers() {
    let patch = json!({ "runPolicy": { "workerLossPolicy": "RestartLauncher" } });
    let mut world = long_running(2, patch);
    world.script.fails_on_loss = None;
    for round in 0..5 {
        world.until("the launcher runs", 600, World::launched);
        world.advance(2);
        let (lost, from) = (world.launchers(), world.now);
        world.delete_worker(0);
        world.until("another launcher runs", 600, |world| {
            world.launched() && world.launchers() != lost
        });
        let pause = world.now.duration_since(from).as_secs();
        assert!(
            pause < 15,
            "restart {round} took {pause} s\n{}",
            world.describe()
        );
    }
}

#[test]
fn a_launcher_that_waits_though_all_workers_are_ready_says_why() {
    let patch = json!({ "runPolicy": { "workerLossPolicy": "RestartLauncher" } });
    let mut world = long_running(2, patch);
    world.script.fails_on_loss = None;
    for _ in 0..4 {
        world.until("the launcher runs", 600, World::launched);
        world.advance(2);
        let lost = world.launchers();
        world.delete_worker(0);
        world.until(
            "the launcher is gone and the workers are Ready",
            60,
            |world| world.launchers() != lost && world.ready_workers() == 2,
        );
        world.advance(12);
        assert!(
            world.launched() || world.condition("WorkersReady").starts_with("False/"),
            "{}",
            world.describe()
        );
    }
}

#[test]
fn a_launcher_husk_that_a_finalizer_holds_is_not_deleted_again_and_again() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(3);
    let launcher = world.launchers()[0].clone();
    world.change("Pod", &launcher, |pod| {
        let finalizers = pod["metadata"]["finalizers"].as_array_mut().unwrap();
        finalizers.push(json!("example.org/keep"));
    });
    let node = world.get("Pod", &launcher)["spec"]["nodeName"]
        .as_str()
        .unwrap()
        .to_owned();
    world.lose_node(&node);
    world.nodes.insert(node, (Node::Gone, world.now));
    world.advance(300);
    let before = world.wrote("delete Pod");
    world.advance(1200);
    assert!(
        world.wrote("delete Pod") - before <= 2,
        "{}",
        world.describe()
    );
}

#[test]
fn a_deadline_of_zero_is_no_fight_about_the_hold() {
    let mut world = long_running(2, json!({ "runPolicy": { "activeDeadlineSeconds": 0 } }));
    world.script.ready_after = 1000;
    world.advance(5);
    let workers = world.workers();
    let all = |world: &mut World, ready: bool| {
        for name in &workers {
            world.set_ready(name, ready);
        }
        world.operate();
    };
    all(&mut world, true);
    assert_eq!(world.get("Job", "pi-launcher")["spec"]["suspend"], false);
    // Before the Job controller has seen any of it.
    let before = world.wrote("patch Job pi-launcher");
    all(&mut world, false);
    assert!(world.wrote("patch Job pi-launcher") - before <= 2);
    finish(&mut world);
    assert!(world.is("Failed"), "{}", world.describe());
}

#[test]
fn a_shrink_that_waits_for_a_worker_says_so() {
    let mut world = long_running(4, json!({ "elasticPolicy": { "minReplicas": 2 } }));
    world.script.unready.insert(2);
    start(&mut world);
    // A worker that stays is not Ready, and nobody knows when it will be.
    world.edit(json!({ "elasticPolicy": { "removeFirst": ["pi-worker-0"] } }));
    world.scale(3);
    world.advance(700);
    assert_eq!(world.worker_indexes().len(), 4, "{}", world.describe());
    let told = ["WorkersReady", "Degraded"].map(|type_| world.message(type_));
    assert!(
        told.iter()
            .any(|text| text.contains("worker 2") || text.contains("shrink")),
        "{told:?}"
    );
}

// The reconciler against a server that refuses.

/// An API server that stores what it gets, and refuses what the test says; its calls.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    objects: HashMap<String, Value>,
    calls: Vec<String>,
    version: u64,
    /// Method and part of the path, and how many more calls are refused with 403.
    refused: Option<(&'static str, &'static str, usize)>,
}

impl Stored {
    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.calls.push(format!("{method} {path}"));
        if let Some((verb, part, left)) = &mut self.refused
            && *verb == method
            && path.contains(*part)
            && *left > 0
        {
            *left -= 1;
            return (403, json!({ "message": "not allowed here" }));
        }
        self.version += 1;
        let version = json!(self.version.to_string());
        match method {
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let mut object = body.clone();
                object["metadata"]["uid"] = json!(format!("made-{}", self.version));
                object["metadata"]["resourceVersion"] = version;
                self.objects
                    .insert(format!("{path}/{name}"), object.clone());
                (201, object)
            }
            "PATCH" => {
                let Some(object) = self.objects.get_mut(path.trim_end_matches("/status")) else {
                    return (404, json!({}));
                };
                support::merge(object, body);
                object["metadata"]["resourceVersion"] = version;
                (200, object.clone())
            }
            _ => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => (404, json!({})),
            },
        }
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "the reconciler under test gets a client of a server made up here"
)]
impl Server {
    fn client(&self) -> kube::Client {
        let stored = self.0.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let stored = stored.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let (code, answer) =
                    stored
                        .lock()
                        .unwrap()
                        .answer(parts.method.as_str(), parts.uri.path(), &body);
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, std::convert::Infallible>(
                    http::Response::builder().status(code).body(body).unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    fn calls(&self, begin: &str, part: &str) -> usize {
        let stored = self.0.lock().unwrap();
        let same = |call: &&String| call.starts_with(begin) && call.contains(part);
        stored.calls.iter().filter(same).count()
    }
}

thread_local! {
    static BEGUN: tokio::time::Instant = tokio::time::Instant::now();
}

/// The runtime's clock, which stands still while nothing is due.
fn clock() -> Timestamp {
    let elapsed = BEGUN.with(|begun| begun.elapsed());
    now().checked_add(elapsed).unwrap()
}

/// Lets the reconciler work on these objects for so many seconds of virtual time.
async fn reconcile(server: &Server, options: Options, objects: &[(&str, Value)], seconds: u64) {
    let sink = Sink {
        index: Arc::default(),
        queue: Arc::new(Queue::default()),
        clock,
    };
    let metrics = Metrics::new();
    let writer = Writer::new(server.client(), Arc::new(|| true), metrics.clone());
    for (kind, object) in objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        let collection = match *kind {
            "MPIJob" => "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs",
            "Job" => "/apis/batch/v1/namespaces/default/jobs",
            _ => "/api/v1/namespaces/default/pods",
        };
        let mut stored = server.0.lock().unwrap();
        stored.version = 100;
        stored
            .objects
            .insert(format!("{collection}/{name}"), object.clone());
        drop(stored);
        sink.take(seen(kind, object));
    }
    let reconciler = Arc::new(Reconciler::new(sink, writer, options, metrics));
    let work = tokio::time::timeout(Duration::from_secs(seconds), reconciler.work());
    assert!(work.await.is_err(), "work has no end");
}

/// A worker Job and a worker pod of it, changed by a merge patch.
fn worker(patch: &Value) -> [(&'static str, Value); 2] {
    let labels = json!({
        names::OPERATOR_NAME_LABEL: names::OPERATOR_NAME,
        names::JOB_NAME_LABEL: "pi",
        names::JOB_ROLE_LABEL: names::ROLE_WORKER,
    });
    let job = json!({
        "metadata": {
            "name": "pi-worker", "namespace": "default", "uid": "w1", "resourceVersion": "2",
            "creationTimestamp": "2029-12-31T00:00:00Z", "labels": labels,
            "ownerReferences": [{ "uid": "u1", "name": "pi", "controller": true }],
        },
        "spec": { "parallelism": 1, "completions": 10, "completionMode": "Indexed" },
    });
    let mut pod = json!({
        "metadata": {
            "name": "pi-worker-0-abcde", "namespace": "default", "uid": "p1",
            "resourceVersion": "3", "labels": labels,
            "creationTimestamp": "2029-12-31T00:00:00Z",
            "annotations": { names::COMPLETION_INDEX_ANNOTATION: "0" },
            "finalizers": [names::TRACKING_FINALIZER],
            "ownerReferences": [{ "uid": "w1", "name": "pi-worker", "controller": true }],
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "main" }] },
        "status": { "phase": "Running" },
    });
    support::merge(&mut pod, patch);
    [("Job", job), ("Pod", pod)]
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_when_its_pod_group_is_taken_after_a_refusal() {
    let server = Server::default();
    server.0.lock().unwrap().refused = Some(("POST", "/podgroups", 2));
    let mut options = Options::default();
    options.settings.gang = Some(Gang::Volcano);
    reconcile(&server, options, &[("MPIJob", mpijob("u1", 1))], 600).await;
    assert_eq!(server.calls("POST", "/podgroups"), 3);
    assert_eq!(server.calls("POST", "/jobs"), 2);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_may_not_be_read_are_not_asked_for_each_second() {
    let server = Server::default();
    server.0.lock().unwrap().refused = Some(("GET", "/nodes/", usize::MAX));
    let [job, pod] = worker(&json!({ "metadata": {
        "deletionTimestamp": "2029-12-31T23:50:00Z", "deletionGracePeriodSeconds": 30,
        "finalizers": ["example.org/keep"],
    } }));
    let objects = [("MPIJob", mpijob("u1", 1)), job, pod];
    reconcile(&server, Options::default(), &objects, 600).await;
    let asked = server.calls("GET", "/nodes/");
    assert!((1..=40).contains(&asked), "asked {asked} times in 600 s");
}

#[tokio::test(start_paused = true)]
async fn a_retirement_that_is_refused_is_not_repeated_each_second() {
    let server = Server::default();
    server.0.lock().unwrap().refused = Some(("PATCH", "/pods/", usize::MAX));
    let [job, pod] = worker(&json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2029-12-31T00:00:00Z" },
    ] } }));
    let objects = [("MPIJob", mpijob("u1", 1)), job, pod];
    reconcile(&server, Options::default(), &objects, 600).await;
    let tried = server.calls("PATCH", "/pods/");
    assert!((1..=60).contains(&tried), "tried {tried} times in 600 s");
}
