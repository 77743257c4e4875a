//! What one MPIJob goes through, told as facts over a simulated cluster: each test is a history of
//! user, cluster and operator, and the end that has to come of it. In every end state a further look
//! of the operator writes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use mpi_operator::action::{Action, ObjectKind};
use mpi_operator::api::names;
use serde_json::{Value, json};
use support::{Node, World, end_try, finish, long_running, parse, spec, start};

// Start.

#[test]
fn no_launcher_pod_is_there_before_every_worker_is_ready() {
    let mut world = World::new(spec(3, json!({})));
    world.script.unready.insert(2);
    world.advance(60);
    assert_eq!(world.role("launcher").len(), 0);
    assert_eq!(world.ready_workers(), 2);
    assert!(world.condition("WorkersReady").starts_with("False/"));
    world.script.unready.clear();
    start(&mut world);
    assert_eq!(world.ready_workers(), 3);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn writes_until_the_launcher_starts_do_not_grow_with_the_workers() {
    let writes = |workers| {
        let mut world = long_running(workers, json!({}));
        world.until("a launcher pod is there", 120, |world| {
            !world.role("launcher").is_empty()
        });
        world.sound();
        let texts = world.log.iter().map(|entry| entry.text.clone());
        let (before, rest): (Vec<_>, Vec<_>) = texts.partition(|text| !text.starts_with("retire"));
        assert!(rest.len() <= workers as usize);
        before
    };
    let (few, many) = (writes(3), writes(200));
    assert_eq!(few.len(), many.len(), "{few:#?}\n{many:#?}");
    assert!(few.len() <= 9, "{few:#?}");
}

#[test]
fn each_worker_costs_one_retirement_and_nothing_else() {
    let mut world = long_running(200, json!({}));
    start(&mut world);
    let before = world.log.len();
    world.settle();
    world.at_rest();
    assert_eq!(world.wrote("retire"), 200);
    assert!(world.log.len() - before <= 210, "{}", world.describe());
}

#[test]
fn a_held_launcher_names_the_worker_that_no_node_takes() {
    let mut world = World::new(spec(3, json!({})));
    world.script.unschedulable.insert(1);
    world.advance(60);
    assert_eq!(world.condition("WorkersReady"), "False/Unschedulable");
    assert!(
        world.message("WorkersReady").contains("worker 1"),
        "{}",
        world.message("WorkersReady")
    );
    world.settle();
    world.at_rest();
    assert_eq!(world.status()["phase"], "Waiting");
}

#[test]
fn a_launcher_that_starts_at_once_waits_for_no_worker() {
    let mut world = World::new(spec(2, json!({ "launcherCreationPolicy": "AtStartup" })));
    world.script.unready.insert(0);
    world.advance(3);
    assert_eq!(world.role("launcher").len(), 1);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_job_without_workers_runs_its_launcher_alone() {
    let mut world = World::new(spec(0, json!({})));
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.wrote("create Job pi-worker"), 0);
    assert_eq!(world.get("ConfigMap", "pi-config")["data"]["hostfile"], "");
    assert_eq!(world.role("launcher").len(), 1);
}

#[test]
fn running_is_told_once_and_kept_with_its_times_at_the_end() {
    let mut world = World::new(spec(2, json!({})));
    start(&mut world);
    world.advance(2);
    assert_eq!(world.condition("Running"), "True/MPIJobRunning");
    finish(&mut world);
    assert_eq!(world.condition("Running"), "False/MPIJobRunning");
    for reason in ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"] {
        assert_eq!(world.told(reason), 1, "{reason}");
    }
}

// End.

#[test]
fn a_job_that_succeeded_keeps_its_workers_under_policy_none() {
    let mut world = World::new(spec(3, json!({})));
    finish(&mut world);
    assert_eq!(world.condition("Succeeded"), "True/MPIJobSucceeded");
    assert!(world.status()["completionTime"].is_string());
    assert_eq!(world.workers().len(), 3);
    assert_eq!(world.status()["replicaStatuses"]["Worker"]["active"], 3);
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn policy_running_leaves_the_worker_job_with_no_running_pod() {
    let mut world = World::new(spec(
        3,
        json!({ "runPolicy": { "cleanPodPolicy": "Running" } }),
    ));
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.workers().len(), 0, "{}", world.describe());
    assert_eq!(world.get("Job", "pi-worker")["spec"]["parallelism"], 0);
}

#[test]
fn policy_all_removes_the_worker_job_and_leaves_the_launcher() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "cleanPodPolicy": "All" } })));
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.role("worker").len(), 0);
    assert!(world.get("Job", "pi-worker").is_null());
    assert!(!world.get("Job", "pi-launcher").is_null());
    assert_eq!(world.role("launcher").len(), 1);
}

#[test]
fn policy_all_removes_the_launcher_pods_of_a_job_that_asks_for_it() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "cleanPodPolicy": "All" } })));
    world.change("MPIJob", "pi", |job| {
        job["metadata"]["annotations"]["mpi-operator.kubeflow.org/clean-launcher"] = json!("true");
    });
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.pods().len(), 0, "{}", world.describe());
    assert!(!world.get("Job", "pi-launcher").is_null());
    assert_eq!(world.tries.len(), 1, "it does not run again");
}

#[test]
fn contract_07_13_workers_that_ask_for_a_topology_carry_their_rank() {
    for (launcher_too, shift) in [(false, 0), (true, 1)] {
        let annotations = json!({ "kueue.x-k8s.io/podset-required-topology": "rack" });
        let template = json!({ "metadata": { "annotations": annotations } });
        let mut world = World::new(spec(
            3,
            json!({
                "runLauncherAsWorker": launcher_too,
                "mpiReplicaSpecs": { "Worker": { "template": template } },
            }),
        ));
        world.script.then = (1000, 0);
        world.until("the launcher runs", 60, World::launched);
        world.react();
        for name in world.workers() {
            let pod = world.get("Pod", &name);
            let rank = &pod["metadata"]["labels"]["training.kubeflow.org/replica-index"];
            let index = support::index_of(pod).unwrap();
            assert_eq!(*rank, json!((index + shift).to_string()), "{name}");
        }
        assert_eq!(
            world.wrote("patch Pod pi-worker"),
            3,
            "{}",
            world.describe()
        );
    }
}

#[test]
fn clean_up_follows_the_policy_of_the_moment() {
    let mut world = World::new(spec(2, json!({})));
    finish(&mut world);
    world.edit(json!({ "runPolicy": { "cleanPodPolicy": "All" } }));
    world.settle();
    world.at_rest();
    assert_eq!(world.role("worker").len(), 0);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_program_that_fails_too_often_fails_the_job() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.script.then = (5, 1);
    finish(&mut world);
    let failed = world.condition("Failed");
    assert!(failed.starts_with("True/BackoffLimitExceeded"), "{failed}");
    assert!(
        world
            .message("Failed")
            .starts_with("Job has reached the specified backoff limit")
    );
    assert!(world.status()["completionTime"].is_string());
    assert_eq!(world.tries.len(), 2);
    assert_eq!(world.charged(), 2);
    assert_eq!(world.told("MPIJobSucceeded"), 0);
}

#[test]
fn a_job_whose_second_try_works_has_succeeded() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.script.tries = [(5, 1)].into();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 1);
}

#[test]
fn no_worker_is_retired_while_a_finished_job_is_cleaned_up() {
    for policy in ["All", "Running"] {
        let mut world = long_running(3, json!({ "runPolicy": { "cleanPodPolicy": policy } }));
        start(&mut world);
        world.advance(3);
        world.delete_worker(1);
        end_try(&mut world, 0);
        world.until("the job ends", 60, World::ended);
        let retired = world.wrote("retire");
        world.settle();
        world.at_rest();
        assert_eq!(
            world.wrote("retire"),
            retired,
            "{policy}\n{}",
            world.describe()
        );
    }
}

#[test]
fn a_launcher_job_is_collected_only_after_its_end_is_on_record() {
    let mut world = World::new(spec(
        2,
        json!({ "runPolicy": { "ttlSecondsAfterFinished": 10 } }),
    ));
    start(&mut world);
    world.stop_operator();
    world.advance(100);
    assert!(
        !world.get("Job", "pi-launcher").is_null(),
        "collected while nobody had recorded its end\n{}",
        world.describe()
    );
    world.start_operator();
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert!(
        world.get("Job", "pi-launcher").is_null(),
        "{}",
        world.describe()
    );
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn a_finished_job_never_runs_again_after_its_launcher_job_is_gone() {
    let mut world = World::new(spec(2, json!({})));
    finish(&mut world);
    world.take_away("Job", "pi-launcher");
    world.react();
    world.settle();
    world.restart_operator();
    world.settle();
    world.at_rest();
    assert!(world.is("Succeeded"));
    assert_eq!(world.tries.len(), 1);
    assert!(world.get("Job", "pi-launcher").is_null());
}

#[test]
fn a_job_deletes_itself_after_its_ttl_only_if_asked() {
    for (asked, gone) in [(false, false), (true, true)] {
        let mut world = World::new(spec(
            1,
            json!({ "runPolicy": { "ttlSecondsAfterFinished": 30 } }),
        ));
        world.options.delete_finished_jobs = asked;
        world.until("the job ends", 100, World::ended);
        world.settle();
        assert_eq!(world.get("MPIJob", "pi").is_null(), gone);
    }
}

#[test]
fn suspending_a_finished_job_changes_nothing() {
    let mut world = World::new(spec(2, json!({})));
    finish(&mut world);
    world.suspend(true);
    world.settle();
    world.at_rest();
    assert!(world.is("Succeeded"));
    assert!(!world.is("Suspended"));
    assert_eq!(world.workers().len(), 2);
}

// Retries and lost workers.

#[test]
fn a_retry_is_held_while_a_worker_is_missing_and_released_after_it() {
    let mut world = World::new(spec(3, json!({})));
    world.script.tries = [(20, 1)].into();
    start(&mut world);
    world.advance(5);
    world.script.unready.insert(1);
    world.script.fails_on_loss = None;
    world.delete_worker(1);
    world.until("the try has failed", 60, |world| {
        world.launchers().is_empty()
    });
    world.advance(60);
    assert_eq!(world.role("launcher").len(), 1, "{}", world.describe());
    assert_eq!(world.get("Job", "pi-launcher")["spec"]["suspend"], true);
    assert!(world.condition("WorkersReady").starts_with("False/"));
    world.script.unready.clear();
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.tries.len(), 2);
    assert_eq!(world.charged(), 0, "a worker was lost during the try");
}

#[test]
fn a_try_that_lost_a_worker_is_given_back() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "backoffLimit": 0 } })));
    world.script.tries = [(100, 0)].into();
    start(&mut world);
    world.advance(5);
    world.delete_worker(1);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
    assert_eq!(world.status()["launcher"]["refundedTries"], 1);
    assert_eq!(world.tries.len(), 2);
}

#[test]
fn many_lost_workers_in_a_row_cost_no_try() {
    let mut world = long_running(3, json!({ "runPolicy": { "backoffLimit": 0 } }));
    for round in 0..4 {
        start(&mut world);
        world.advance(5);
        world.delete_worker(round % 3);
        world.until("the try has failed", 60, |world| {
            world.launchers().is_empty()
        });
    }
    world.script.then = (5, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
    assert_eq!(world.status()["launcher"]["refundedTries"], 4);
}

#[test]
fn a_failure_without_a_loss_is_charged_beside_one_with() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.script.tries = [(5, 1), (100, 0), (5, 1)].into();
    world.until("the second try runs", 120, |world| {
        world.tries.len() == 2 && world.launched()
    });
    world.delete_worker(0);
    finish(&mut world);
    assert!(
        world
            .condition("Failed")
            .starts_with("True/BackoffLimitExceeded"),
        "{}",
        world.describe()
    );
    assert_eq!(world.charged(), 2);
    assert_eq!(world.tries.len(), 3);
}

#[test]
fn a_try_that_goes_on_without_a_worker_and_succeeds_is_a_success() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "backoffLimit": 0 } })));
    world.script.tries = [(90, 0)].into();
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.script.unready.insert(2);
    world.delete_worker(2);
    world.advance(50);
    assert_eq!(world.condition("Degraded"), "True/WorkerLost");
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.tries.len(), 1);
    assert_eq!(world.charged(), 0);
}

#[test]
fn a_drained_launcher_costs_no_try() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "backoffLimit": 0 } })));
    world.script.tries = [(100, 0)].into();
    start(&mut world);
    let launcher = world.launchers().remove(0);
    world.evict(&launcher);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

#[test]
fn a_restarted_launcher_costs_no_try() {
    let patch =
        json!({ "runPolicy": { "backoffLimit": 0, "workerLossPolicy": "RestartLauncher" } });
    let mut world = long_running(3, patch);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    let first = world.launchers();
    world.delete_worker(1);
    world.until("another launcher runs", 60, |world| {
        world.launched() && world.launchers() != first
    });
    world.advance(3);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
    assert_eq!(world.status()["launcher"]["restarts"], 1);
    assert_eq!(world.tries.len(), 2);
}

#[test]
fn a_launcher_that_is_restarted_again_and_again_slows_down() {
    let patch =
        json!({ "runPolicy": { "backoffLimit": 0, "workerLossPolicy": "RestartLauncher" } });
    let mut world = long_running(2, patch);
    world.script.fails_on_loss = None;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        world.until("the launcher runs", 600, World::launched);
        world.advance(2);
        let (lost, from) = (world.launchers(), world.now);
        world.delete_worker(0);
        world.until("another launcher runs", 600, |world| {
            world.launched() && world.launchers() != lost
        });
        pauses.push(world.now.duration_since(from).as_secs());
    }
    assert!(pauses[8] > 3 * pauses[0], "{pauses:?}");
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_launcher_that_slipped_through_while_the_operator_was_down_is_taken_back() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.script.tries = [(20, 1), (1000, 0)].into();
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.stop_operator();
    world.script.unready.insert(1);
    world.advance(12);
    // A second before the retry is due.
    world.until("the first try has failed", 60, |world| {
        world.launchers().is_empty()
    });
    world.delete_worker(1);
    world.until("the second try runs", 60, World::launched);
    world.advance(2);
    world.start_operator();
    world.advance(10);
    assert_eq!(world.launchers().len(), 0, "{}", world.describe());
    assert_eq!(world.get("Job", "pi-launcher")["spec"]["suspend"], true);
    world.script.unready.clear();
    world.script.then = (5, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 1);
}

#[test]
fn a_worker_lost_while_the_operator_is_down_does_not_fail_the_job() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "backoffLimit": 0 } })));
    world.script.tries = [(100, 0)].into();
    start(&mut world);
    world.advance(5);
    world.stop_operator();
    world.delete_worker(1);
    world.advance(2);
    world.start_operator();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

#[test]
fn a_lost_race_for_a_deleted_worker_costs_a_pause_and_no_try() {
    let mut world = World::new(spec(3, json!({ "runPolicy": { "backoffLimit": 0 } })));
    world.controller_first = true;
    world.script.tries = [(100, 0)].into();
    world.script.unready.insert(1);
    world.until("two workers are ready", 60, |world| {
        world.ready_workers() == 2
    });
    world.delete_worker(1);
    world.script.unready.clear();
    start(&mut world);
    world.delete_worker(2);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

// Workers.

#[test]
fn a_retired_worker_comes_back_with_its_index_and_no_pause() {
    let mut world = long_running(3, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    let old = world.worker(1);
    world.delete_worker(1);
    world.advance(6);
    assert_eq!(world.worker_indexes(), [0, 1, 2]);
    assert_ne!(world.worker(1), old);
    assert_eq!(world.get("Job", "pi-worker")["status"]["failed"], 0);
}

#[test]
fn a_ready_worker_is_retired_after_release_or_ten_seconds_of_waiting() {
    let mut world = World::new(spec(2, json!({})));
    world.script.unready.insert(1);
    world.until("a worker is ready", 60, |world| world.ready_workers() == 1);
    world.advance(8);
    assert_eq!(world.wrote("retire"), 0);
    world.advance(4);
    assert_eq!(world.wrote("retire"), 1);
    world.script.unready.clear();
    start(&mut world);
    world.advance(2);
    assert_eq!(world.wrote("retire"), 2);
    assert!(
        world
            .workers()
            .iter()
            .all(|name| { world.get("Pod", name)["metadata"]["finalizers"] == json!([]) })
    );
}

#[test]
fn a_worker_in_a_crash_loop_is_left_to_the_job_controller_after_three_ends() {
    let mut world = long_running(2, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.script.crash.insert(1, 4);
    world.advance(60);
    let failed = world.get("Job", "pi-worker")["status"]["failed"]
        .as_i64()
        .unwrap();
    assert!(failed >= 1, "never counted\n{}", world.describe());
    let pods = world.tries.len();
    let before = world.log.len();
    world.advance(120);
    let retired = world.log[before..]
        .iter()
        .filter(|e| e.text.starts_with("retire"))
        .count();
    assert_eq!(retired, 0, "{}", world.describe());
    assert_eq!(pods, 1);
}

#[test]
fn a_quota_is_named_in_the_condition() {
    let mut world = World::new(spec(3, json!({})));
    world.script.quota = Some(2);
    world.advance(60);
    assert_eq!(world.condition("WorkersReady"), "False/QuotaExceeded");
    assert!(world.message("WorkersReady").contains("exceeded quota"));
    world.settle();
    world.at_rest();
    world.script.quota = None;
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn growth_within_the_headroom_adds_pods_and_touches_no_other() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(3);
    let before = world.workers();
    world.scale(4);
    world.advance(10);
    assert_eq!(world.worker_indexes(), [0, 1, 2, 3]);
    assert!(before.iter().all(|name| world.workers().contains(name)));
    assert_eq!(world.wrote("delete Job"), 0);
    assert_eq!(world.tries.len(), 1);
    world.settle();
    world.at_rest();
}

/// Leaves the worker Job room for four workers, as a long name would.
fn short_of_room(world: &mut World) {
    world.change("Job", "pi-worker", |job| {
        job["spec"]["completions"] = json!(4)
    });
    world.tick();
}

#[test]
fn growth_beyond_the_headroom_waits_for_the_end_of_the_try() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(3);
    short_of_room(&mut world);
    world.scale(6);
    world.settle();
    world.at_rest();
    assert_eq!(world.workers().len(), 2);
    assert_eq!(world.launchers().len(), 1);
    assert_eq!(world.wrote("delete Job"), 0);
    assert_eq!(world.condition("Degraded"), "True/GrowthWaits");
    end_try(&mut world, 1);
    world.script.then = (5, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.worker_indexes(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.wrote("delete Job pi-worker"), 1);
}

#[test]
fn growth_beyond_the_headroom_builds_the_workers_again_while_no_launcher_runs() {
    let mut world = World::new(spec(2, json!({})));
    world.script.unready.insert(0);
    world.advance(15);
    short_of_room(&mut world);
    world.scale(6);
    world.script.unready.clear();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.worker_indexes(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn a_shrink_takes_the_named_workers_first() {
    let patch = json!({ "elasticPolicy": { "minReplicas": 1, "removeFirst": ["pi-worker-1"] } });
    let mut world = long_running(4, patch);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.scale(2);
    world.advance(10);
    assert_eq!(world.worker_indexes(), [0, 2]);
    assert_eq!(world.get("Job", "pi-worker")["status"]["failed"], 0);
    assert_eq!(world.tries.len(), 1);
    world.settle();
    world.at_rest();
}

#[test]
fn a_shrink_looks_at_deletion_cost_then_readiness_then_the_highest_index() {
    let patch = json!({ "elasticPolicy": { "minReplicas": 1 } });
    let mut world = long_running(5, patch);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    let cheap = world.worker(0).unwrap();
    world.change("Pod", &cheap, |pod| {
        pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!("-5");
    });
    let unready = world.worker(2).unwrap();
    world.script.unready.insert(2);
    world.set_ready(&unready, false);
    world.advance(1);
    world.scale(2);
    world.advance(10);
    assert_eq!(world.worker_indexes(), [1, 3], "{}", world.describe());
    world.settle();
    world.at_rest();
}

#[test]
fn a_shrink_retires_deletes_and_lowers_parallelism_in_this_order() {
    let mut world = long_running(3, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    let before = world.log.len();
    world.scale(2);
    world.advance(4);
    let steps: Vec<&str> = world.log[before..]
        .iter()
        .filter_map(|entry| match entry.action.as_ref()? {
            Action::Retire { .. } => Some("retire"),
            Action::DeletePod { .. } => Some("delete"),
            Action::Patch {
                kind: ObjectKind::Job,
                body,
                ..
            } if body["spec"]["parallelism"].is_null() => Some("hosts"),
            Action::Patch { kind, .. } => Some(match kind {
                ObjectKind::ConfigMap => "files",
                ObjectKind::Pod => "refresh",
                _ => "parallelism",
            }),
            _ => None,
        })
        .collect();
    // The worker is retired long since.
    let wanted = ["files", "refresh", "hosts", "delete", "parallelism"];
    assert_eq!(steps, wanted, "{}", world.describe());
    // Who leaves is on record before all that, and off it at the end.
    let first = world.log[before..].iter().find(|entry| {
        let only_status = entry.text.starts_with("status");
        !only_status || entry.text.contains(r#""leaving":"2""#)
    });
    assert!(first.is_some_and(|entry| entry.action.is_none()));
    assert!(world.status()["scaleIn"].is_null());
}

fn scale_in(names: &[u32], min: u32) -> Value {
    let names: Vec<String> = names.iter().map(|i| format!("pi-worker-{i}")).collect();
    json!({ "elasticPolicy": { "minReplicas": min, "removeFirst": names } })
}

/// Shrinks or grows, and which indexes have another pod afterwards, or none, or one for the first
/// time.
fn changed(world: &mut World, workers: u32) -> Vec<u32> {
    let before = world.worker_uids();
    world.scale(workers);
    world.advance(12);
    let after = world.worker_uids();
    assert_eq!(after.len(), workers as usize, "{}", world.describe());
    (0..10).filter(|i| before.get(i) != after.get(i)).collect()
}

#[test]
fn a_name_acts_once_until_the_list_changes() {
    let mut world = long_running(6, scale_in(&[1, 4], 1));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    assert_eq!(changed(&mut world, 4), [1, 4]);
    assert_eq!(world.status()["scaleIn"]["handled"], "1,4");
    assert_eq!(changed(&mut world, 6), [1, 4]);
    assert_eq!(changed(&mut world, 5), [5], "{}", world.describe());
    // The same names in another order are another list.
    world.edit(scale_in(&[4, 1], 1));
    assert!(world.status()["scaleIn"].is_null(), "{}", world.status());
    assert_eq!(changed(&mut world, 4), [4]);
    assert_eq!(world.status()["scaleIn"]["handled"], "4");
    // The other name has not acted yet.
    assert_eq!(changed(&mut world, 3), [1]);
    assert_eq!(world.status()["scaleIn"]["handled"], "1,4");
    world.edit(json!({ "elasticPolicy": { "removeFirst": null } }));
    assert!(world.status()["scaleIn"].is_null(), "{}", world.status());
    assert_eq!(world.tries.len(), 1, "{}", world.describe());
    world.settle();
    world.at_rest();
}

#[test]
fn a_shrink_that_is_called_off_leaves_its_names_unused() {
    let mut world = long_running(4, scale_in(&[1], 1));
    world.script.fails_on_loss = None;
    world.script.unready.insert(2);
    start(&mut world);
    world.advance(5);
    let before = world.worker_uids();
    world.scale(3);
    world.advance(5);
    assert_eq!(world.condition("Degraded"), "True/ShrinkWaits");
    assert_eq!(world.status()["scaleIn"]["leaving"], "1");
    world.scale(4);
    world.advance(5);
    assert_eq!(world.worker_uids(), before);
    assert!(world.status()["scaleIn"].is_null(), "{}", world.status());
    world.script.unready.clear();
    world.advance(5);
    assert_eq!(changed(&mut world, 3), [1]);
}

#[test]
fn another_list_changes_a_shrink_that_waits_and_not_one_that_has_begun() {
    let mut world = long_running(4, scale_in(&[1], 1));
    world.script.fails_on_loss = None;
    world.script.unready.insert(2);
    start(&mut world);
    world.advance(5);
    world.scale(3);
    world.advance(5);
    world.edit(scale_in(&[0], 1));
    world.advance(1);
    assert_eq!(world.status()["scaleIn"]["leaving"], "0");
    world.script.unready.clear();
    world.advance(12);
    assert_eq!(world.worker_indexes(), [1, 2, 3]);

    // Died after the delete, and finds another list and the worker back.
    let mut world = long_running(4, scale_in(&[1], 1));
    world.script.fails_on_loss = None;
    world.script.unready.insert(2);
    start(&mut world);
    world.advance(5);
    world.scale(3);
    world.advance(5);
    world.stop_operator();
    world.delete_worker(1);
    world.script.unready.clear();
    world.edit(scale_in(&[0], 1));
    world.advance(10);
    assert_eq!(world.worker_indexes(), [0, 1, 2, 3]);
    world.start_operator();
    world.advance(10);
    assert_eq!(world.worker_indexes(), [0, 2, 3], "{}", world.describe());
    assert!(world.status()["scaleIn"].is_null(), "the list is a new one");
    world.settle();
    world.at_rest();
}

#[test]
fn a_worker_whose_node_leaves_goes_after_the_named_and_before_the_cheap() {
    let mut world = long_running(6, scale_in(&[5], 1));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    let cheap = world.worker(2).unwrap();
    world.change("Pod", &cheap, |pod| {
        pod["metadata"]["annotations"][names::DELETION_COST_ANNOTATION] = json!("-5");
    });
    // Workers 1, 3 and 5 are there.
    world.cordoned.insert("n2".to_owned());
    world.advance(1);
    assert_eq!(changed(&mut world, 5), [5]);
    assert_eq!(world.looks, 0, "the name was enough");
    assert_eq!(changed(&mut world, 4), [3]);
    assert_eq!(world.looks, 2);
    assert_eq!(changed(&mut world, 2), [1, 2]);
    world.settle();
    world.at_rest();
}

#[test]
fn a_node_is_asked_anew_for_each_shrink() {
    let mut world = long_running(6, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    assert_eq!(changed(&mut world, 5), [5]);
    world.cordoned.insert("n2".to_owned());
    assert_eq!(changed(&mut world, 4), [3]);
}

#[test]
fn a_shrink_gives_up_a_worker_without_a_node_before_any_other() {
    let mut world = long_running(3, scale_in(&[], 2));
    world.script.unschedulable.insert(1);
    start(&mut world);
    world.advance(5);
    let cheap = world.worker(0).unwrap();
    world.change("Pod", &cheap, |pod| {
        pod["metadata"]["annotations"][names::DELETION_COST_ANNOTATION] = json!("-5");
    });
    world.advance(1);
    assert_eq!(changed(&mut world, 2), [1]);
    assert_eq!(world.worker_indexes(), [0, 2]);
}

#[test]
fn a_named_worker_goes_though_another_is_missing_and_that_one_comes_back() {
    let mut world = long_running(4, scale_in(&[1], 1));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    world.script.quota = Some(5);
    world.delete_worker(3);
    world.advance(1);
    world.scale(3);
    world.advance(30);
    assert_eq!(world.worker_indexes(), [0, 2, 3], "{}", world.describe());
}

#[test]
fn a_shrink_and_a_growth_of_a_program_that_is_not_elastic_are_no_loss() {
    for policy in ["WaitForWorkersReady", "AtStartup"] {
        let mut world = long_running(
            4,
            json!({
                "launcherCreationPolicy": policy,
                "runPolicy": { "backoffLimit": 0, "workerLossPolicy": "RestartLauncher" },
            }),
        );
        world.script.fails_on_loss = None;
        start(&mut world);
        world.advance(10);
        let cheap = world.worker(1).unwrap();
        world.change("Pod", &cheap, |pod| {
            pod["metadata"]["annotations"][names::DELETION_COST_ANNOTATION] = json!("-5");
        });
        world.advance(1);
        assert_eq!(changed(&mut world, 3), [1]);
        let data = &world.get("ConfigMap", "pi-config")["data"];
        let hosts = |key: &str| -> Vec<char> {
            let lines = data[key].as_str().unwrap().lines();
            let lines = lines.filter_map(|line| line.split("pi-worker-").nth(1));
            lines.map(|rest| rest.chars().next().unwrap()).collect()
        };
        assert_eq!(hosts("hostfile"), ['0', '2', '3'], "{policy}: {data}");
        assert_eq!(hosts("discover_hosts.sh"), ['0', '2', '3'], "{policy}");
        assert_eq!(changed(&mut world, 4), [1]);
        world.advance(60);
        assert_eq!(world.tries.len(), 1, "{policy}: {}", world.describe());
        assert!(!world.is("Degraded"), "{policy}: {}", world.status());
        world.settle();
        world.at_rest();
    }
}

#[test]
fn a_lost_worker_of_an_elastic_program_is_told_until_it_is_back() {
    let mut world = long_running(3, scale_in(&[], 1));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    world.script.unready.insert(1);
    world.delete_worker(1);
    world.advance(60);
    assert_eq!(world.condition("Degraded"), "True/WorkerLost");
    assert!(world.message("Degraded").contains("worker 1 was lost"));
    world.script.unready.clear();
    world.advance(30);
    assert!(!world.is("Degraded"), "{}", world.status());
    assert_eq!(world.tries.len(), 1);
    world.settle();
    world.at_rest();
}

#[test]
fn a_launcher_starts_with_the_minimum_and_the_others_join() {
    let mut world = long_running(5, scale_in(&[], 2));
    world.script.unready.extend([2, 3, 4]);
    start(&mut world);
    world.advance(3);
    assert!(world.is("Running"), "{}", world.status());
    assert_eq!(world.condition("WorkersReady"), "True/EnoughReady");
    assert!(world.message("WorkersReady").contains("2/5"));
    let lines = |world: &World, key: &str| {
        let data = &world.get("ConfigMap", "pi-config")["data"];
        data[key].as_str().unwrap().lines().count()
    };
    assert_eq!(lines(&world, "hostfile"), 2);
    world.script.unready.clear();
    world.advance(12);
    assert_eq!(world.condition("WorkersReady"), "True/AllReady");
    assert_eq!(lines(&world, "hostfile"), 5);
    assert_eq!(lines(&world, "discover_hosts.sh"), 6);
    assert_eq!(world.tries.len(), 1);
    assert_eq!(
        world.wrote("patch Job pi-launcher"),
        1,
        "{}",
        world.describe()
    );
    world.settle();
    world.at_rest();
}

#[test]
fn workers_that_join_before_the_launcher_pod_is_there_do_not_hold_it_again() {
    let mut world = long_running(5, scale_in(&[], 2));
    world.script.ready_after = 3;
    world.script.unready.extend([2, 3, 4]);
    world.until("the launcher is let go", 60, |world| {
        world.wrote("patch Job pi-launcher") == 1
    });
    world.script.unready.clear();
    for index in [2, 3, 4] {
        let name = world.worker(index).unwrap();
        world.set_ready(&name, true);
    }
    world.react();
    world.advance(10);
    assert_eq!(
        world.wrote("patch Job pi-launcher"),
        1,
        "{}",
        world.describe()
    );
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn the_files_are_written_once_a_second_at_most_and_the_kubelet_is_told_each_time() {
    let mut world = long_running(8, scale_in(&[], 1));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    let before = world.log.len();
    for step in 0..20_u32 {
        world.scale(8 - step % 7);
        if step % 3 == 0 {
            world.advance(1);
        }
    }
    world.advance(15);
    let of = |text: &str| -> Vec<jiff::Timestamp> {
        let log = world.log[before..].iter();
        log.filter(|entry| entry.text.starts_with(text))
            .map(|entry| entry.at)
            .collect()
    };
    let files = of("patch ConfigMap");
    assert!(files.len() > 2, "{}", world.describe());
    assert!(files.windows(2).all(|pair| pair[0] < pair[1]), "{files:?}");
    assert_eq!(of("patch Pod pi-launcher"), files);
    let pod = world.launchers().pop().unwrap();
    assert_eq!(
        world.get("Pod", &pod)["metadata"]["annotations"][names::FILES_ANNOTATION],
        world.get("ConfigMap", "pi-config")["metadata"]["annotations"][names::CONTENT_ANNOTATION],
    );
}

#[test]
fn a_launcher_that_reads_the_files_at_its_start_costs_no_refresh() {
    let mut world = World::new(spec(3, json!({})));
    finish(&mut world);
    assert_eq!(
        world.wrote("patch Pod pi-launcher"),
        0,
        "{}",
        world.describe()
    );
}

#[test]
fn a_launcher_between_two_tries_is_held_before_a_worker_leaves() {
    let mut world = World::new(spec(4, scale_in(&[1], 1)));
    world.script.tries = [(8, 1)].into();
    world.script.then = (100_000, 0);
    world.script.fails_on_loss = None;
    world.until("the first try has failed", 60, |world| {
        world.tries.len() == 1 && !world.launched() && world.charged() == 1
    });
    let before = world.log.len();
    world.scale(3);
    let entry = |text: &str| {
        world.log[before..]
            .iter()
            .position(|e| e.text.contains(text))
    };
    let held = entry(r#""suspend":true"#).expect("held");
    assert!(
        held < entry("delete Pod pi-worker-1").unwrap(),
        "{}",
        world.describe()
    );
    world.until("the second try runs", 60, |world| {
        world.tries.len() == 2 && world.launched()
    });
    let data = &world.get("ConfigMap", "pi-config")["data"];
    assert!(
        !data["hostfile"].as_str().unwrap().contains("pi-worker-1"),
        "{data}"
    );
}

#[test]
fn a_name_that_no_worker_can_have_stops_the_shrink_before_anything_is_done() {
    let mut world = long_running(4, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(12);
    for (bad, text) in [
        (
            "pi-worker-10000",
            "removeFirst[1]: Invalid value: \"pi-worker-10000\"",
        ),
        (
            "po-worker-1",
            "removeFirst[1]: Invalid value: \"po-worker-1\"",
        ),
        (
            "pi-worker-1",
            "removeFirst[1]: Duplicate value: \"pi-worker-1\"",
        ),
    ] {
        let (before, pods) = (world.log.len(), world.worker_uids());
        world.edit(json!({
            "elasticPolicy": { "removeFirst": ["pi-worker-1", bad] },
            "mpiReplicaSpecs": { "Worker": { "replicas": 3 } },
        }));
        world.advance(20);
        assert_eq!(world.condition("Invalid"), "True/ValidationError", "{bad}");
        assert!(
            world.message("Invalid").contains(text),
            "{}",
            world.message("Invalid")
        );
        let touched = |entry: &&support::Entry| entry.action.is_some();
        assert_eq!(
            world.log[before..].iter().filter(touched).count(),
            0,
            "{bad}"
        );
        assert_eq!(world.worker_uids(), pods);
        world.edit(json!({
            "elasticPolicy": null, "mpiReplicaSpecs": { "Worker": { "replicas": 4 } },
        }));
        world.advance(12);
        assert!(!world.is("Invalid"));
    }
    world.edit(scale_in(&[1], 1));
    assert_eq!(changed(&mut world, 3), [1]);
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn a_shrink_to_nothing_is_refused_and_touches_nobody() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(12);
    let pods = world.worker_uids();
    world.scale(0);
    world.advance(30);
    assert_eq!(world.condition("Invalid"), "True/ValidationError");
    assert!(
        world
            .message("Invalid")
            .contains("spec.mpiReplicaSpecs[Worker].replicas")
    );
    assert_eq!(world.worker_uids(), pods);
    world.scale(2);
    world.advance(12);
    assert!(!world.is("Invalid"));
    assert_eq!(world.worker_uids(), pods);
}

#[test]
fn a_gap_of_a_shrink_is_filled_by_the_next_growth() {
    let patch = json!({ "elasticPolicy": { "minReplicas": 1, "removeFirst": ["pi-worker-0"] } });
    let mut world = long_running(3, patch);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.scale(2);
    world.advance(10);
    assert_eq!(world.worker_indexes(), [1, 2]);
    world.scale(3);
    world.advance(10);
    assert_eq!(world.worker_indexes(), [0, 1, 2]);
    world.settle();
    world.at_rest();
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_shrink_is_no_loss_of_a_worker() {
    let mut world = long_running(
        3,
        json!({ "runPolicy": { "backoffLimit": 0, "workerLossPolicy": "RestartLauncher" } }),
    );
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.scale(2);
    world.advance(60);
    assert_eq!(world.tries.len(), 1, "{}", world.describe());
    assert_ne!(world.condition("Degraded"), "True/WorkerLost");
    world.settle();
    world.at_rest();
}

#[test]
fn discover_hosts_follows_ready_workers_and_the_hostfile_of_a_try_stays() {
    let mut world = long_running(3, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(3);
    world.script.unready.insert(1);
    world.delete_worker(1);
    world.advance(10);
    let data = &world.get("ConfigMap", "pi-config")["data"];
    let lines = |key: &str| data[key].as_str().unwrap().lines().count();
    assert_eq!(lines("discover_hosts.sh"), 3, "{data}");
    assert_eq!(lines("hostfile"), 3, "{data}");
}

// Suspension.

#[test]
fn a_job_that_is_created_suspended_starts_nothing() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "suspend": true } })));
    world.settle();
    world.at_rest();
    assert_eq!(world.pods().len(), 0);
    assert_eq!(world.condition("Suspended"), "True/MPIJobSuspended");
    assert_eq!(world.condition("Running"), "False/MPIJobSuspended");
    assert!(world.status()["startTime"].is_null());
    assert_eq!(world.get("Job", "pi-launcher")["spec"]["suspend"], true);
    assert!(!world.get("Service", "pi").is_null());
    world.suspend(false);
    finish(&mut world);
    assert!(world.is("Succeeded"));
    assert_eq!(world.condition("Suspended"), "False/MPIJobResumed");
    assert_eq!(world.told("MPIJobResumed"), 1);
}

#[test]
fn a_job_suspended_while_it_runs_has_no_pod_left_and_runs_from_edited_templates() {
    let mut world = long_running(3, json!({}));
    start(&mut world);
    world.advance(5);
    let began = world.status()["startTime"].clone();
    let old = world.pods();
    world.suspend(true);
    world.settle();
    world.at_rest();
    assert_eq!(world.pods().len(), 0, "{}", world.describe());
    assert!(world.is("Suspended"));
    assert_eq!(world.charged(), 0, "{}", world.describe());
    for role in ["Launcher", "Worker"] {
        let labels = json!({ "metadata": { "labels": { "queue": "b" } } });
        world.edit(json!({ "mpiReplicaSpecs": { role: { "template": labels } } }));
    }
    world.advance(10);
    world.suspend(false);
    start(&mut world);
    assert_ne!(world.status()["startTime"], began);
    for pod in world.pods() {
        assert!(!old.contains(&pod));
        assert_eq!(
            world.get("Pod", &pod)["metadata"]["labels"]["queue"],
            "b",
            "{pod}"
        );
    }
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_template_edited_at_the_moment_of_resume_is_used() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "suspend": true } })));
    world.advance(5);
    let labels = json!({ "template": { "metadata": { "labels": { "queue": "b" } } } });
    world.edit(json!({
        "runPolicy": { "suspend": false },
        "mpiReplicaSpecs": { "Launcher": labels, "Worker": labels },
    }));
    start(&mut world);
    for pod in world.pods() {
        assert_eq!(
            world.get("Pod", &pod)["metadata"]["labels"]["queue"],
            "b",
            "{pod}"
        );
    }
}

#[test]
fn charged_tries_are_carried_over_a_suspension() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.script.tries = [(5, 1), (1000, 0), (5, 1)].into();
    world.until("the second try runs", 120, |world| {
        world.tries.len() == 2 && world.launched()
    });
    world.suspend(true);
    world.settle();
    assert_eq!(world.charged(), 1, "{}", world.describe());
    world.suspend(false);
    finish(&mut world);
    assert!(
        world
            .condition("Failed")
            .starts_with("True/BackoffLimitExceeded"),
        "{}",
        world.describe()
    );
    assert_eq!(world.charged(), 2);
    assert_eq!(world.tries.len(), 3);
}

#[test]
fn a_job_suspended_and_resumed_at_once_runs_one_launcher() {
    let mut world = long_running(3, json!({}));
    start(&mut world);
    world.advance(3);
    world.suspend(true);
    world.suspend(false);
    world.advance(1);
    world.suspend(true);
    world.advance(1);
    world.suspend(false);
    world.until("the launcher runs", 120, World::launched);
    world.advance(3);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

#[test]
fn a_node_that_is_gone_does_not_hold_a_resume_back() {
    for node in [Node::Gone, Node::OutOfService, Node::Lost] {
        let mut world = long_running(3, json!({}));
        start(&mut world);
        world.advance(5);
        let name = world.get("Pod", &world.launchers()[0])["spec"]["nodeName"]
            .as_str()
            .unwrap()
            .to_owned();
        world.nodes.insert(name, (node, world.now));
        world.suspend(true);
        world.advance(200);
        assert!(world.is("Suspended"));
        world.suspend(false);
        world.until("the launcher runs again", 300, |world| {
            world.launchers().iter().any(|name| {
                let pod = world.get("Pod", name);
                pod["metadata"]["deletionTimestamp"].is_null()
                    && pod["status"]["phase"] == "Running"
            })
        });
        world.advance(3);
        end_try(&mut world, 0);
        world.until("the job ends", 300, World::ended);
        assert!(world.is("Succeeded"), "{node:?}\n{}", world.describe());
        world.settle();
        world.at_rest();
    }
}

#[test]
fn a_launcher_on_a_node_that_is_gone_is_replaced() {
    let mut world = long_running(2, json!({ "runPolicy": { "backoffLimit": 0 } }));
    start(&mut world);
    world.advance(5);
    let first = world.launchers();
    let name = world.get("Pod", &first[0])["spec"]["nodeName"]
        .as_str()
        .unwrap()
        .to_owned();
    world.nodes.insert(name, (Node::Gone, world.now));
    world.until("another launcher runs", 300, |world| {
        let others = world
            .launchers()
            .into_iter()
            .filter(|name| !first.contains(name));
        others
            .into_iter()
            .any(|name| world.get("Pod", &name)["status"]["phase"] == "Running")
    });
    world.advance(3);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

// Deadline.

#[test]
fn a_deadline_ends_a_program_that_takes_too_long() {
    let mut world = long_running(2, json!({ "runPolicy": { "activeDeadlineSeconds": 30 } }));
    start(&mut world);
    let began = world.now;
    finish(&mut world);
    assert_eq!(world.condition("Failed"), "True/DeadlineExceeded");
    let took = parse(&world.status()["completionTime"])
        .unwrap()
        .duration_since(began);
    assert!((28..=35).contains(&took.as_secs()), "{took}");
}

#[test]
fn a_deadline_does_not_run_before_the_first_release() {
    let mut world = World::new(spec(
        2,
        json!({ "runPolicy": { "activeDeadlineSeconds": 30 } }),
    ));
    world.script.unready.insert(0);
    world.advance(100);
    world.script.unready.clear();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn a_deadline_runs_on_while_the_launcher_is_held() {
    let mut world = long_running(2, json!({ "runPolicy": { "activeDeadlineSeconds": 60 } }));
    start(&mut world);
    let began = world.now;
    world.advance(5);
    world.script.unready.insert(1);
    world.delete_worker(1);
    finish(&mut world);
    assert_eq!(
        world.condition("Failed"),
        "True/DeadlineExceeded",
        "{}",
        world.describe()
    );
    let took = parse(&world.status()["completionTime"])
        .unwrap()
        .duration_since(began);
    assert!((58..=70).contains(&took.as_secs()), "{took}");
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn a_deadline_that_a_hold_used_in_part_leaves_the_rest_to_the_next_try() {
    let mut world = long_running(2, json!({ "runPolicy": { "activeDeadlineSeconds": 100 } }));
    start(&mut world);
    let began = world.now;
    world.advance(5);
    world.script.unready.insert(1);
    world.delete_worker(1);
    world.advance(40);
    world.script.unready.clear();
    start(&mut world);
    finish(&mut world);
    assert_eq!(world.condition("Failed"), "True/DeadlineExceeded");
    let took = parse(&world.status()["completionTime"])
        .unwrap()
        .duration_since(began);
    assert!((97..=110).contains(&took.as_secs()), "{took}");
}

#[test]
fn a_deadline_starts_anew_at_a_resume() {
    let mut world = long_running(2, json!({ "runPolicy": { "activeDeadlineSeconds": 60 } }));
    start(&mut world);
    world.advance(50);
    world.suspend(true);
    world.advance(60);
    world.suspend(false);
    start(&mut world);
    world.advance(50);
    assert!(!world.ended(), "{}", world.describe());
    finish(&mut world);
    assert_eq!(world.condition("Failed"), "True/DeadlineExceeded");
}

// Refusals.

#[test]
fn a_refused_launcher_template_starts_no_worker() {
    let image = |image: &str| json!({ "template": { "spec": { "containers": [{ "name": "main", "image": image }] } } });
    let mut world = World::new(spec(
        2,
        json!({ "mpiReplicaSpecs": { "Launcher": image("refused") } }),
    ));
    world.advance(30);
    assert_eq!(world.condition("Invalid"), "True/TemplateRefused");
    assert!(
        world.message("Invalid").contains("spec.template"),
        "{}",
        world.message("Invalid")
    );
    assert_eq!(world.wrote("create Job pi-worker"), 0);
    assert_eq!(world.told("MPIJobFailed"), 1);
    assert!(!world.is("Failed"));
    let before = world.wrote("create Job");
    world.advance(600);
    assert!(world.wrote("create Job") - before < 10, "retried too often");
    world.edit(json!({ "mpiReplicaSpecs": { "Launcher": image("mpi") } }));
    world.advance(2);
    assert!(!world.is("Invalid"), "{}", world.describe());
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_refused_worker_template_is_told_and_mended_by_an_edit() {
    let image = |image: &str| json!({ "template": { "spec": { "containers": [{ "name": "main", "image": image }] } } });
    let mut world = World::new(spec(
        2,
        json!({ "mpiReplicaSpecs": { "Worker": image("refused") } }),
    ));
    world.advance(30);
    assert_eq!(world.condition("Invalid"), "True/TemplateRefused");
    assert_eq!(world.role("launcher").len(), 0);
    world.edit(json!({ "mpiReplicaSpecs": { "Worker": image("mpi") } }));
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn an_object_of_somebody_else_is_left_alone_and_told() {
    for (kind, name) in [
        ("Service", "pi"),
        ("ConfigMap", "pi-config"),
        ("Secret", "pi-ssh"),
        ("Job", "pi-launcher"),
        ("Job", "pi-worker"),
    ] {
        let mut world = World::empty();
        world.insert(
            kind,
            json!({ "metadata": { "name": name }, "spec": { "suspend": true } }),
        );
        // The Job controller writes the status of a Job, whoever made it.
        let content = |world: &World| {
            let mut object = world.get(kind, name).clone();
            object.as_object_mut().unwrap().shift_remove("status");
            object["metadata"]["resourceVersion"] = Value::Null;
            object
        };
        let foreign = content(&world);
        world.submit(spec(2, json!({})));
        world.advance(120);
        assert_eq!(content(&world), foreign, "{kind} {name}");
        assert_eq!(
            world.told("ErrResourceExists"),
            1,
            "{kind} {name}\n{}",
            world.describe()
        );
        assert!(!world.ended(), "{kind} {name}\n{}", world.describe());
        world.sound();
        world.take_away(kind, name);
        finish(&mut world);
        assert!(world.is("Succeeded"), "{kind} {name}");
    }
}

#[test]
fn a_job_of_another_manager_is_not_touched() {
    for (manager, events) in [("kueue.x-k8s.io/multikueue", 0), ("somebody/else", 1)] {
        let mut world = World::new(spec(2, json!({ "runPolicy": { "managedBy": manager } })));
        world.settle();
        world.restart_operator();
        world.settle();
        assert_eq!(world.log.len(), 0);
        assert!(world.status().is_null());
        assert_eq!(world.events.len(), events, "{manager}");
    }
}

#[test]
fn a_spec_that_does_not_decode_is_told_and_leaves_what_runs() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(3);
    world.edit(json!({ "slotsPerWorker": "four" }));
    world.settle();
    world.at_rest();
    assert_eq!(world.condition("Invalid"), "True/ValidationError");
    assert!(world.message("Invalid").contains("spec.slotsPerWorker"));
    assert_eq!(world.told("ValidationError"), 1);
    assert_eq!(world.launchers().len(), 1);
    world.edit(json!({ "slotsPerWorker": 1 }));
    world.advance(3);
    assert!(!world.is("Invalid"));
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_spec_that_breaks_rules_starts_nothing() {
    let mut world = World::new(spec(
        2,
        json!({ "runPolicy": { "cleanPodPolicy": "Maybe" } }),
    ));
    world.settle();
    world.at_rest();
    assert_eq!(world.condition("Invalid"), "True/ValidationError");
    assert_eq!(world.condition("Created"), "True/MPIJobCreated");
    assert_eq!(world.wrote("create"), 0);
    assert_eq!(world.told("ValidationError"), 1);
}

#[test]
fn nothing_is_created_for_a_job_that_is_being_deleted() {
    let mut world = World::empty();
    world.submit(spec(2, json!({})));
    world.change("MPIJob", "pi", |job| {
        job["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    });
    world.settle();
    assert_eq!(world.log.len(), 0);
}

// Kueue, restarts, edits by hand.

#[test]
fn a_child_job_that_kueue_suspends_is_set_back_without_a_fight() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(3);
    let before = world.log.len();
    for _ in 0..120 {
        for name in ["pi-worker", "pi-launcher"] {
            world.change("Job", name, |job| job["spec"]["suspend"] = json!(true));
        }
        world.tick();
    }
    let patches = world.log[before..]
        .iter()
        .filter(|e| e.text.starts_with("patch Job"))
        .count();
    assert!(
        patches <= 16,
        "{patches} patches in two minutes\n{}",
        world.describe()
    );
    world.advance(60);
    end_try(&mut world, 0);
    world.script.then = (5, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 0);
}

#[test]
fn a_restart_of_the_operator_writes_nothing_that_was_written() {
    let mut world = long_running(3, json!({}));
    start(&mut world);
    world.settle();
    let before = world.log.len();
    world.restart_operator();
    world.settle();
    let texts: Vec<&str> = world.log[before..]
        .iter()
        .map(|e| e.text.as_str())
        .collect();
    assert!(texts.is_empty(), "{}", world.describe());
    assert_eq!(world.tries.len(), 1);
    assert_eq!(world.told("MPIJobCreated"), 1);
}

#[test]
fn edits_by_hand_of_service_and_config_map_are_set_right_once() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.settle();
    let data = world.get("ConfigMap", "pi-config")["data"].clone();
    world.change("ConfigMap", "pi-config", |config| {
        config["data"]["extra"] = json!("x");
        config["metadata"]["managedFields"] = support::operator::managed("kubectl", "f:data");
    });
    let selector = world.get("Service", "pi")["spec"]["selector"].clone();
    world.change("Service", "pi", |service| {
        service["spec"]["selector"]["training.kubeflow.org/job-name"] = json!("other");
        service["metadata"]["managedFields"] = support::operator::managed("kubectl", "f:spec");
    });
    world.settle();
    world.at_rest();
    assert_eq!(world.get("ConfigMap", "pi-config")["data"], data);
    assert_eq!(world.get("Service", "pi")["spec"]["selector"], selector);
}

#[test]
fn a_deleted_child_is_made_again() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.settle();
    for (kind, name) in [("Service", "pi"), ("ConfigMap", "pi-config")] {
        world.take_away(kind, name);
        world.advance(3);
        assert!(!world.get(kind, name).is_null(), "{kind}");
    }
    world.settle();
    world.at_rest();
    assert_eq!(world.tries.len(), 1);
}

#[test]
fn a_launcher_job_deleted_in_mid_run_is_made_again_behind_the_gate() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    world.advance(5);
    world.take_away("Job", "pi-launcher");
    world.react();
    world.until("another launcher runs", 60, |world| {
        world.tries.len() == 2 && world.launched()
    });
    world.advance(2);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn a_worker_job_that_became_complete_is_built_again() {
    let mut world = long_running(2, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(15);
    world.change("Job", "pi-worker", |job| {
        support::cluster::set_condition(job, "Complete", true, "2030-01-01T00:00:20Z");
    });
    world.react();
    world.advance(20);
    assert_eq!(world.worker_indexes(), [0, 1], "{}", world.describe());
    assert!(!world.ended());
}

#[test]
fn late_watches_lead_to_the_same_end() {
    for lag in [1, 3] {
        let mut world = World::new(spec(3, json!({ "runPolicy": { "cleanPodPolicy": "All" } })));
        world.blind = true;
        world.lag = lag;
        world.script.tries = [(5, 1), (30, 0)].into();
        world.until("the second try runs", 200, |world| {
            world.tries.len() == 2 && world.launched()
        });
        world.delete_worker(0);
        finish(&mut world);
        assert!(world.is("Succeeded"), "lag {lag}\n{}", world.describe());
        assert_eq!(world.charged(), 1, "lag {lag}\n{}", world.describe());
    }
}

// A job of the Go operator.

/// Objects as the Go operator 0.8.2 leaves them: plain worker pods, an unlabelled launcher Job.
fn legacy() -> World {
    let mut world = World::empty();
    let owner = json!([{
        "apiVersion": names::API_VERSION, "kind": names::KIND, "name": "pi", "uid": support::UID,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let labels = |role: &str| {
        json!({
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": "pi",
            "training.kubeflow.org/job-role": role,
        })
    };
    let started = json!({ "main": "running" });
    for (kind, name) in [
        ("Service", "pi"),
        ("ConfigMap", "pi-config"),
        ("Secret", "pi-ssh"),
    ] {
        world.insert(
            kind,
            json!({
                "metadata": { "name": name, "labels": { "app": "pi" }, "ownerReferences": owner },
            }),
        );
    }
    for index in 0..2 {
        let mut labels = labels("worker");
        labels["training.kubeflow.org/replica-index"] = json!(index.to_string());
        let name = format!("pi-worker-{index}");
        world.insert(
            "Pod",
            json!({
                "metadata": { "name": name, "labels": labels, "ownerReferences": owner },
                "spec": { "nodeName": "n1", "containers": [{ "name": "main" }] },
                "status": { "phase": "Running", "note": started },
            }),
        );
        world.set_ready(&name, true);
    }
    world.insert("Job", json!({
        "metadata": { "name": "pi-launcher", "labels": { "app": "pi" }, "ownerReferences": owner },
        "spec": {
            "template": {
                "metadata": { "labels": labels("launcher") },
                "spec": { "containers": [{ "name": "main" }] },
            },
        },
    }));
    world.script.then = (60, 0);
    let mut job = spec(2, json!({}));
    job.as_object_mut()
        .unwrap()
        .shift_remove("launcherCreationPolicy");
    world.up = false;
    world.submit(job);
    world.advance(10);
    world.start_operator();
    world
}

#[test]
fn a_job_of_the_go_operator_is_finished_as_it_is() {
    let mut world = legacy();
    let pods = world.pods();
    world.advance(20);
    assert_eq!(world.pods(), pods);
    assert_eq!(world.wrote("create"), 0, "{}", world.describe());
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.tries.len(), 1);
    assert_eq!(world.workers().len(), 2);
    assert_eq!(
        world.wrote("create") + world.wrote("delete") + world.wrote("patch"),
        0
    );
}

#[test]
fn a_lost_plain_worker_is_told_and_not_made_again() {
    let mut world = legacy();
    world.script.fails_on_loss = None;
    world.advance(5);
    world.delete_pod("pi-worker-1");
    world.advance(5);
    assert_eq!(world.condition("Degraded"), "True/LegacyWorkerLost");
    assert_eq!(world.wrote("create"), 0);
    finish(&mut world);
    assert!(world.is("Succeeded"));
}

#[test]
fn a_job_of_the_go_operator_becomes_ours_by_suspension_and_resume() {
    let mut world = legacy();
    world.advance(5);
    world.suspend(true);
    world.settle();
    world.at_rest();
    assert_eq!(world.pods().len(), 0, "{}", world.describe());
    world.suspend(false);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert!(!world.get("Job", "pi-worker").is_null());
}

// Crashes.

/// What a user sees at the end.
fn summary(world: &World) -> Value {
    let conditions: Vec<String> = [
        "Created",
        "Running",
        "Suspended",
        "Succeeded",
        "Failed",
        "Invalid",
    ]
    .iter()
    .map(|type_| format!("{type_} {}", world.condition(type_)))
    .collect();
    let objects: Vec<String> = world
        .objects
        .keys()
        .filter(|(kind, _)| *kind != "Pod")
        .map(|(kind, name)| format!("{kind} {name}"))
        .collect();
    json!({
        "conditions": conditions,
        "objects": objects,
        "charged": world.charged(),
        "workers": world.worker_indexes(),
        "tries": world.tries.values().filter(|attempt| attempt.began.is_some()).count(),
    })
}

/// Plays `history` once as it is and once for each write with a crash after it.
fn crash_everywhere(history: impl Fn(&mut World)) {
    let play = |crash: Option<usize>| {
        let mut world = World::empty();
        world.crash = crash.map(support::Crash);
        history(&mut world);
        world.settle();
        world.at_rest();
        (summary(&world), world)
    };
    let (wanted, world) = play(None);
    let writes = world.log.len();
    for at in 1..=writes {
        let (got, world) = play(Some(at));
        assert_eq!(
            got,
            wanted,
            "crash after write {at} of {writes}\n{}",
            world.describe()
        );
    }
}

#[test]
fn a_crash_after_any_write_of_a_plain_run_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.submit(spec(
            2,
            json!({ "runPolicy": {
            "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 600,
        } }),
        ));
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_crash_after_any_write_of_a_run_with_a_lost_worker_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.script.tries = [(5, 1), (1000, 0)].into();
        world.submit(spec(
            2,
            json!({ "runPolicy": { "backoffLimit": 1, "cleanPodPolicy": "All" } }),
        ));
        world.until("the second try runs", 300, |world| {
            world.tries.len() == 2 && world.launched()
        });
        world.advance(2);
        world.delete_worker(0);
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_crash_after_any_write_of_a_suspension_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.script.tries = [(5, 1), (1000, 0)].into();
        world.submit(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
        world.until("the second try runs", 300, |world| {
            world.tries.len() == 2 && world.launched()
        });
        world.suspend(true);
        world.advance(20);
        world.suspend(false);
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_crash_after_any_write_of_a_scale_in_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.script.tries = [(1000, 0)].into();
        world.script.fails_on_loss = None;
        world.submit(spec(
            4,
            json!({
                "elasticPolicy": { "minReplicas": 1, "removeFirst": ["pi-worker-1"] },
            }),
        ));
        world.until("the launcher runs", 300, World::launched);
        world.advance(3);
        world.scale(2);
        world.advance(30);
        end_try(world, 0);
        world.until("the job ends", 300, World::ended);
    });
}

/// A step of a history that shrinks or grows: only these indexes may change.
#[track_caller]
fn only(world: &mut World, workers: u32, indexes: &[u32]) {
    // A crash in mid-step is part of the step.
    assert_eq!(changed(world, workers), indexes, "{}", world.describe());
}

#[test]
fn a_crash_after_any_write_of_a_shrink_and_a_growth_touches_nobody_else() {
    crash_everywhere(|world| {
        world.script.tries = [(1000, 0)].into();
        world.script.fails_on_loss = None;
        world.submit(spec(6, scale_in(&[1, 4], 1)));
        world.until("the launcher runs", 300, World::launched);
        world.until("all are Ready", 300, |world| world.ready_workers() == 6);
        world.advance(5);
        only(world, 4, &[1, 4]);
        only(world, 6, &[1, 4]);
        // The old list does not act again.
        only(world, 5, &[5]);
        world.edit(scale_in(&[2], 1));
        only(world, 4, &[2]);
        end_try(world, 0);
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_crash_after_any_write_of_a_shrink_of_a_job_with_gaps_removes_the_same() {
    crash_everywhere(|world| {
        world.script.tries = [(1000, 0)].into();
        world.script.fails_on_loss = None;
        world.submit(spec(6, scale_in(&[1], 1)));
        world.until("the launcher runs", 300, World::launched);
        world.until("all are Ready", 300, |world| world.ready_workers() == 6);
        world.advance(5);
        only(world, 5, &[1]);
        // The Job controller fills a gap with the lowest free index, which is 1 and not 3.
        world.edit(scale_in(&[3], 1));
        only(world, 4, &[3]);
        assert_eq!(world.worker_indexes(), [0, 2, 4, 5], "{}", world.describe());
        assert_eq!(world.status()["scaleIn"]["handled"], "3");
        end_try(world, 0);
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_deleted_job_leaves_nothing_behind_and_is_not_written_to() {
    let mut world = long_running(2, json!({}));
    start(&mut world);
    let writes = world.log.len();
    world.delete_job();
    world.settle();
    assert_eq!(world.log.len(), writes, "{}", world.describe());
    assert!(world.objects.is_empty(), "{}", world.describe());
}

// A server without Indexed Jobs, and one that drops `suspend`.

/// A job on Kubernetes 1.21, of whose server this process knows nothing yet.
fn on_old_server(workers: u32, patch: Value) -> World {
    let mut world = World::empty();
    world.make_old();
    world.submit(spec(workers, patch));
    world
}

fn hostfile(world: &World) -> Vec<String> {
    let text = world.get("ConfigMap", "pi-config")["data"]["hostfile"].as_str();
    text.unwrap().lines().map(str::to_owned).collect()
}

/// What the hostfile has to say: the addresses of the live workers.
fn addresses(world: &World, end: &str) -> Vec<String> {
    let mut found: Vec<String> = world
        .workers()
        .iter()
        .map(|name| {
            let ip = world.get("Pod", name)["status"]["podIP"].as_str().unwrap();
            format!("{ip}{end}")
        })
        .collect();
    found.sort();
    found
}

#[track_caller]
fn names_the_live_workers(world: &World) {
    let mut lines = hostfile(world);
    lines.sort();
    assert_eq!(lines, addresses(world, " slots=1"), "{}", world.describe());
}

#[test]
fn without_indexed_jobs_a_job_runs_over_pod_addresses_once_every_worker_is_ready() {
    let mut world = on_old_server(3, json!({}));
    world.script.unready.insert(2);
    world.advance(60);
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    assert_eq!(world.get("Job", "pi-launcher")["spec"]["parallelism"], 0);
    assert_eq!(world.condition("Degraded"), "True/IndexedJobUnavailable");
    let waits_for = world.worker(2).unwrap();
    let message = world.message("WorkersReady");
    assert!(
        message.contains(&format!("waiting for worker pod {waits_for}")),
        "{message}"
    );
    world.script.unready.clear();
    start(&mut world);
    names_the_live_workers(&world);
    let discover = world.get("ConfigMap", "pi-config")["data"]["discover_hosts.sh"].clone();
    let mut printed: Vec<&str> = discover.as_str().unwrap().lines().skip(1).collect();
    printed.sort_unstable();
    let wanted: Vec<String> = addresses(&world, "")
        .iter()
        .map(|ip| format!("echo {ip}"))
        .collect();
    assert_eq!(printed, wanted);
    assert_eq!(world.status()["replicaStatuses"]["Worker"]["active"], 3);
    assert_eq!(world.status()["workersReady"], "3/3");
    assert_eq!(world.wrote("retire"), 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.tries.len(), 1);
    assert_eq!(world.told("IndexedJobUnavailable"), 1);
    assert_eq!(world.condition("Degraded"), "False/Finished");
}

#[test]
fn the_lines_of_a_hostfile_of_addresses_have_the_form_of_the_implementation() {
    for implementation in ["Intel", "MPICH"] {
        let mut world = on_old_server(2, json!({ "mpiImplementation": implementation }));
        start(&mut world);
        let mut lines = hostfile(&world);
        lines.sort();
        assert_eq!(lines, addresses(&world, ":1"));
    }
}

#[test]
fn without_indexed_jobs_a_launcher_that_starts_at_once_waits_all_the_same() {
    // Neither a process that knows nothing of the server nor one that does may let it go.
    for known in [false, true] {
        let mut world = World::empty();
        world.make_old();
        let at_startup = json!({ "launcherCreationPolicy": "AtStartup" });
        world.submit(spec(2, at_startup));
        world.script.unready.insert(1);
        if known {
            world.advance(5);
            world.suspend(true);
            world.settle();
            world.suspend(false);
        }
        world.advance(30);
        assert_eq!(world.tries.len(), 0, "{known}\n{}", world.describe());
        let jobs = launcher_jobs(&world);
        assert!(!jobs.is_empty());
        for job in jobs {
            assert_eq!(job["spec"]["parallelism"], 0, "{known}: {job}");
        }
        world.script.unready.clear();
        start(&mut world);
        names_the_live_workers(&world);
        finish(&mut world);
        assert!(world.is("Succeeded"), "{}", world.describe());
    }
}

#[test]
fn without_indexed_jobs_a_retry_is_held_while_a_worker_is_missing_and_finds_its_new_address() {
    let mut world = on_old_server(3, json!({ "runPolicy": { "backoffLimit": 0 } }));
    world.script.then = (1000, 0);
    start(&mut world);
    world.advance(5);
    let before = hostfile(&world);
    world.script.unready.insert(1);
    world.delete_worker(1);
    world.advance(60);
    assert_eq!(world.launchers().len(), 0, "{}", world.describe());
    assert_eq!(world.tries.len(), 1, "{}", world.describe());
    world.script.unready.clear();
    start(&mut world);
    names_the_live_workers(&world);
    assert_ne!(hostfile(&world), before);
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_indexed_jobs_the_hostfile_follows_under_a_try_that_goes_on() {
    let mut world = on_old_server(2, json!({}));
    world.script.then = (1000, 0);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    let gone = world.worker(0).unwrap();
    world.script.unready.insert(0);
    world.delete_worker(0);
    world.advance(2);
    // While one is missing it stays as it was: with one host less a program might succeed.
    assert_eq!(hostfile(&world).len(), 2);
    world.advance(60);
    assert_eq!(world.condition("Degraded"), "True/WorkerLost");
    let message = world.message("Degraded");
    assert!(
        message.contains("a worker pod was lost"),
        "{gone}: {message}"
    );
    world.script.unready.clear();
    world.advance(30);
    names_the_live_workers(&world);
    assert_eq!(world.tries.len(), 1);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_indexed_jobs_restart_launcher_starts_it_again_without_a_charge() {
    let mut world = on_old_server(
        2,
        json!({ "runPolicy": { "backoffLimit": 0, "workerLossPolicy": "RestartLauncher" } }),
    );
    world.script.then = (1000, 0);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    world.delete_worker(1);
    world.until("the second try runs", 120, |world| {
        world.tries.len() == 2 && world.launched()
    });
    names_the_live_workers(&world);
    assert_eq!(world.status()["launcher"]["restarts"], 1);
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_suspend_a_program_that_fails_too_often_fails_the_job() {
    let mut world = on_old_server(2, json!({ "runPolicy": { "backoffLimit": 2 } }));
    world.script.then = (5, 1);
    finish(&mut world);
    let failed = world.condition("Failed");
    assert!(failed.starts_with("True/BackoffLimitExceeded"), "{failed}");
    assert_eq!(world.tries.len(), 3);
    assert_eq!(world.charged(), 3);
}

#[test]
fn without_suspend_nothing_runs_while_the_job_is_suspended() {
    let mut world = on_old_server(2, json!({ "runPolicy": { "suspend": true } }));
    world.settle();
    world.at_rest();
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    assert!(!world.get("Job", "pi-launcher").is_null());
    world.script.then = (1000, 0);
    world.suspend(false);
    start(&mut world);
    world.suspend(true);
    world.settle();
    world.at_rest();
    assert_eq!(world.pods().len(), 0, "{}", world.describe());
    world.edit(json!({ "mpiReplicaSpecs": { "Launcher": { "template": {
        "metadata": { "labels": { "edited": "yes" } },
    } } } }));
    world.suspend(false);
    start(&mut world);
    let launcher = world.launchers()[0].clone();
    assert_eq!(
        world.get("Pod", &launcher)["metadata"]["labels"]["edited"],
        "yes"
    );
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_suspend_a_hold_takes_no_pod_that_was_deleted_for_one_failure_too_many() {
    let mut world = on_old_server(1, json!({ "runPolicy": { "backoffLimit": 0 } }));
    world.script.then = (1000, 0);
    start(&mut world);
    // Its pod is Failed on its way, after the Job controller was told to keep none.
    let launcher = world.launchers()[0].clone();
    world.delete_pod(&launcher);
    world.tick();
    world.suspend(true);
    world.settle();
    world.at_rest();
    assert!(!world.ended(), "{}", world.describe());
    world.suspend(false);
    start(&mut world);
    assert_eq!(world.charged(), 0);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_suspend_a_failed_try_whose_pod_somebody_removes_is_no_longer_charged() {
    // That Job controller forgets it too.
    let mut world = on_old_server(1, json!({ "runPolicy": { "backoffLimit": 5 } }));
    world.script.tries = [(5, 1), (1000, 0)].into();
    world.until("the second try runs", 120, |world| {
        world.tries.len() == 2 && world.launched()
    });
    world.advance(30);
    assert_eq!(world.charged(), 1, "{}", world.describe());
    let mut failed = world.role("launcher");
    failed.retain(|name| support::terminal(world.get("Pod", name)));
    world.take_away("Pod", &failed[0]);
    world.advance(30);
    assert_eq!(world.charged(), 0, "{}", world.describe());
}

#[test]
fn without_indexed_jobs_a_ready_worker_without_an_address_is_waited_for() {
    let mut world = on_old_server(2, json!({}));
    world.script.unready.insert(1);
    world.advance(10);
    let late = world.worker(1).unwrap();
    let ip = world.get("Pod", &late)["status"]["podIP"].clone();
    world.change("Pod", &late, |pod| pod["status"]["podIP"] = Value::Null);
    world.script.unready.clear();
    world.advance(10);
    assert_eq!(world.ready_workers(), 2);
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    world.change("Pod", &late, |pod| pod["status"]["podIP"] = ip);
    start(&mut world);
    names_the_live_workers(&world);
    finish(&mut world);
}

#[test]
fn without_suspend_a_held_launcher_takes_an_edited_template() {
    let mut world = on_old_server(2, json!({}));
    world.script.unready.insert(1);
    world.advance(20);
    world.edit(json!({ "mpiReplicaSpecs": { "Launcher": { "template": {
        "metadata": { "labels": { "edited": "yes" } },
    } } } }));
    world.advance(20);
    world.script.unready.clear();
    start(&mut world);
    let launcher = world.launchers()[0].clone();
    assert_eq!(
        world.get("Pod", &launcher)["metadata"]["labels"]["edited"],
        "yes"
    );
    finish(&mut world);
}

#[test]
fn without_suspend_the_deadline_counts_from_the_first_release_and_through_a_hold() {
    let mut world = on_old_server(2, json!({ "runPolicy": { "activeDeadlineSeconds": 60 } }));
    world.script.then = (1000, 0);
    world.script.unready.insert(1);
    world.advance(200);
    world.script.unready.clear();
    start(&mut world);
    let begun = world.now;
    world.advance(20);
    assert!(!world.ended(), "{}", world.describe());
    // The program fails, and its retry is held beyond the deadline.
    world.script.unready.insert(1);
    world.delete_worker(1);
    world.until("the job ends", 120, World::ended);
    assert_eq!(world.condition("Failed"), "True/DeadlineExceeded");
    let took = world.now.duration_since(begun).as_secs();
    assert!((55..=65).contains(&took), "{took} s\n{}", world.describe());
    world.settle();
    world.at_rest();
}

#[test]
fn without_indexed_jobs_policies_clean_up_as_ever() {
    for (policy, left) in [("None", 2), ("Running", 0), ("All", 0)] {
        let mut world = on_old_server(2, json!({ "runPolicy": { "cleanPodPolicy": policy } }));
        finish(&mut world);
        assert!(world.is("Succeeded"));
        assert_eq!(
            world.workers().len(),
            left,
            "{policy}\n{}",
            world.describe()
        );
        assert_eq!(
            world.get("Job", "pi-worker").is_null(),
            policy == "All",
            "{policy}"
        );
    }
}

#[test]
fn without_indexed_jobs_workers_that_ended_with_0_come_back_however_many_they_are() {
    let mut world = on_old_server(2, json!({}));
    world.script.then = (1000, 0);
    world.script.fails_on_loss = None;
    start(&mut world);
    // A name so long that the worker Job has no headroom.
    world.change("Job", "pi-worker", |job| {
        job["spec"]["completions"] = json!(2)
    });
    let uid = support::uid(world.get("Job", "pi-worker"));
    for _ in 0..3 {
        let name = world.worker(0).unwrap();
        world.change("Pod", &name, |pod| {
            pod["status"]["phase"] = json!("Succeeded")
        });
        world.advance(20);
        assert_eq!(world.ready_workers(), 2, "{}", world.describe());
    }
    assert_eq!(support::uid(world.get("Job", "pi-worker")), uid);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_indexed_jobs_a_job_shrinks_and_grows() {
    let mut world = on_old_server(
        4,
        json!({ "elasticPolicy": { "minReplicas": 1, "removeFirst": ["pi-worker-0"] } }),
    );
    world.script.then = (1000, 0);
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(5);
    world.scale(3);
    world.advance(10);
    assert_eq!(world.ready_workers(), 3, "{}", world.describe());
    names_the_live_workers(&world);
    world.scale(5);
    world.advance(10);
    assert_eq!(world.ready_workers(), 5);
    names_the_live_workers(&world);
    assert_eq!(world.tries.len(), 1);
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn without_indexed_jobs_more_workers_are_no_loss_for_the_try_that_runs() {
    let mut world = on_old_server(
        2,
        json!({ "runPolicy": { "workerLossPolicy": "RestartLauncher" } }),
    );
    world.script.then = (1000, 0);
    start(&mut world);
    world.advance(5);
    world.scale(3);
    world.advance(60);
    assert_eq!(world.ready_workers(), 3);
    assert_eq!(world.tries.len(), 1, "{}", world.describe());
    assert_eq!(world.condition("Degraded"), "True/IndexedJobUnavailable");
    end_try(&mut world, 0);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn a_launcher_template_that_is_refused_costs_no_worker_on_a_server_without_suspend_either() {
    let mut world = on_old_server(
        2,
        json!({ "mpiReplicaSpecs": { "Launcher": { "template": { "spec": { "containers": [
            { "name": "main", "image": "refused" },
        ] } } } } }),
    );
    world.advance(20);
    assert_eq!(world.condition("Invalid"), "True/TemplateRefused");
    assert_eq!(world.pods().len(), 0, "{}", world.describe());
}

/// Bodies of the launcher Jobs that were created.
fn launcher_jobs(world: &World) -> Vec<Value> {
    let created = world.log.iter().filter_map(|entry| match &entry.action {
        Some(Action::Create {
            kind: ObjectKind::Job,
            name,
            body,
        }) if name == "pi-launcher" => Some((**body).clone()),
        _ => None,
    });
    created.collect()
}

#[test]
fn a_server_that_keeps_suspend_is_asked_once_and_costs_no_further_write() {
    let writes = |known: bool| {
        let mut world = World::empty();
        if known {
            // A Job of some other MPIJob.
            world.insert("MPIJob", json!({ "metadata": { "name": "other" } }));
            let owner = support::uid(world.get("MPIJob", "other"));
            world.insert(
                "Job",
                json!({
                    "metadata": {
                        "name": "other-worker",
                        "labels": { names::OPERATOR_NAME_LABEL: names::OPERATOR_NAME },
                        "ownerReferences": [{ "uid": owner, "name": "other", "controller": true }],
                    },
                    "spec": { "parallelism": 0, "completionMode": "Indexed", "completions": 1 },
                }),
            );
        }
        world.submit(spec(2, json!({})));
        finish(&mut world);
        assert!(world.is("Succeeded"), "{}", world.describe());
        let paused = launcher_jobs(&world)[0]["spec"]["parallelism"] == 0;
        assert_eq!(paused, !known);
        assert_eq!(world.get("Job", "pi-launcher")["spec"]["parallelism"], 1);
        world.log.len()
    };
    assert_eq!(writes(true), writes(false));
}

#[test]
fn a_launcher_that_starts_at_once_costs_no_further_write_where_the_server_is_unknown() {
    let mut world = World::new(spec(2, json!({ "launcherCreationPolicy": "AtStartup" })));
    world.advance(2);
    assert_eq!(world.wrote("patch Job"), 0, "{}", world.describe());
    assert_eq!(world.role("launcher").len(), 1);
    assert_eq!(launcher_jobs(&world)[0]["spec"]["suspend"], false);
}

#[test]
fn a_server_that_drops_suspend_alone_holds_the_launcher_by_parallelism() {
    let mut world = World::empty();
    world.drops = &["suspend"];
    world.script.unready.insert(1);
    world.script.tries = [(5, 1), (1000, 0)].into();
    world.submit(spec(2, json!({ "runPolicy": { "backoffLimit": 1 } })));
    world.advance(60);
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    assert_eq!(world.condition("Degraded"), "");
    world.script.unready.clear();
    world.until("the second try runs", 120, |world| {
        world.tries.len() == 2 && world.launched()
    });
    assert!(hostfile(&world)[0].starts_with("pi-worker-0.pi.default.svc"));
    world.delete_worker(0);
    world.script.tries = [(20, 0)].into();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
    assert_eq!(world.charged(), 1);
}

#[test]
fn a_server_that_was_taken_back_to_one_without_suspend_runs_no_launcher_early() {
    let mut world = World::new(spec(2, json!({ "runPolicy": { "suspend": true } })));
    world.settle();
    // The process has seen a Job whose suspend was kept.
    world.make_old();
    world.take_away("Job", "pi-launcher");
    world.script.unready.insert(1);
    world.suspend(false);
    world.advance(30);
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    world.script.unready.clear();
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn a_job_outlives_the_upgrade_of_its_server() {
    let mut world = on_old_server(2, json!({}));
    world.script.unready.insert(1);
    world.advance(20);
    // What a newer server reads of the Jobs that the older one stored.
    world.drops = &[];
    for name in ["pi-launcher", "pi-worker"] {
        world.change("Job", name, |job| {
            job["spec"]["suspend"] = json!(false);
            job["spec"]["completionMode"] = json!("NonIndexed");
        });
    }
    world.advance(20);
    assert_eq!(world.tries.len(), 0, "{}", world.describe());
    world.script.unready.clear();
    start(&mut world);
    names_the_live_workers(&world);
    finish(&mut world);
    assert!(world.is("Succeeded"), "{}", world.describe());
}

#[test]
fn a_crash_after_any_write_on_a_server_without_indexed_jobs_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.make_old();
        world.script.tries = [(5, 1), (1000, 0)].into();
        world.submit(spec(
            2,
            json!({ "runPolicy": { "backoffLimit": 1, "cleanPodPolicy": "Running" } }),
        ));
        world.until("the second try runs", 300, |world| {
            world.tries.len() == 2 && world.launched()
        });
        world.advance(2);
        world.delete_worker(0);
        world.until("the job ends", 300, World::ended);
    });
}

#[test]
fn a_crash_after_any_write_of_a_suspension_without_suspend_leads_to_the_same_end() {
    crash_everywhere(|world| {
        world.make_old();
        world.script.tries = [(5, 1), (1000, 0)].into();
        world.submit(spec(
            2,
            json!({
                "launcherCreationPolicy": "AtStartup",
                "runPolicy": { "backoffLimit": 1, "activeDeadlineSeconds": 5000 },
            }),
        ));
        world.until("the second try runs", 300, |world| {
            world.tries.len() == 2 && world.launched()
        });
        world.suspend(true);
        world.advance(20);
        world.suspend(false);
        world.until("the job ends", 300, World::ended);
    });
}
