//! What holds of every history: random users, kubelets, restarts and crashes of the operator, and
//! the invariants of the operator after each second and at the end.
//!
//! `PROPTEST_CASES` raises the number of histories. One that failed is kept in
//! `plan_properties.regressions` and played first from then on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use serde_json::json;
use support::{Crash, Node, World, spec};

/// The job and its programs.
#[derive(Debug, Clone)]
struct Setup {
    workers: u32,
    backoff_limit: u32,
    policy: &'static str,
    restarts: bool,
    tries: Vec<(i64, i32)>,
    old: bool,
}

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    DeleteWorker(u32),
    EvictWorker(u32),
    DeleteLauncher,
    EvictLauncher,
    Suspend,
    Resume,
    Scale(u32),
    Unready(u32),
    CrashLoop(u32),
    Mend,
    NodeAway(i64),
    Restart,
    Down(i64),
    CrashAfter(usize),
}

fn setup() -> impl Strategy<Value = Setup> {
    let attempt = (1_i64..25, prop_oneof![3 => Just(0), 2 => Just(1)]);
    (
        1_u32..5,
        0_u32..3,
        prop_oneof![Just("None"), Just("Running"), Just("All")],
        any::<bool>(),
        prop::collection::vec(attempt, 0..4),
        // One in four on a server without Indexed Jobs and suspend.
        prop_oneof![3 => Just(false), 1 => Just(true)],
    )
        .prop_map(
            |(workers, backoff_limit, policy, restarts, tries, old)| Setup {
                workers,
                backoff_limit,
                policy,
                restarts,
                tries,
                old,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_i64..15).prop_map(Step::Wait),
        3 => (0_u32..4).prop_map(Step::DeleteWorker),
        1 => (0_u32..4).prop_map(Step::EvictWorker),
        1 => Just(Step::DeleteLauncher),
        1 => Just(Step::EvictLauncher),
        2 => Just(Step::Suspend),
        3 => Just(Step::Resume),
        2 => (1_u32..5).prop_map(Step::Scale),
        1 => (0_u32..4).prop_map(Step::Unready),
        1 => (0_u32..4).prop_map(Step::CrashLoop),
        2 => Just(Step::Mend),
        1 => (1_i64..60).prop_map(Step::NodeAway),
        1 => Just(Step::Restart),
        1 => (1_i64..30).prop_map(Step::Down),
        3 => (1_usize..6).prop_map(Step::CrashAfter),
    ]
}

fn mend(world: &mut World) {
    world.script.unready.clear();
    world.script.crash.clear();
}

fn take(world: &mut World, step: &Step) {
    match step {
        Step::Wait(seconds) => world.advance(*seconds),
        Step::DeleteWorker(index) => world.delete_worker(*index),
        Step::EvictWorker(index) => {
            if let Some(name) = world.worker(*index) {
                world.evict(&name);
            }
        }
        Step::DeleteLauncher => {
            if let Some(name) = world.launchers().first().cloned() {
                world.delete_pod(&name);
            }
        }
        Step::EvictLauncher => {
            if let Some(name) = world.launchers().first().cloned() {
                world.evict(&name);
            }
        }
        Step::Suspend => world.suspend(true),
        Step::Resume => world.suspend(false),
        Step::Scale(workers) => world.scale(*workers),
        Step::Unready(index) => {
            world.script.unready.insert(*index);
        }
        Step::CrashLoop(index) => {
            world.script.crash.insert(*index, 3);
        }
        Step::Mend => mend(world),
        Step::NodeAway(seconds) => {
            world.lose_node("n2");
            world.advance(*seconds);
            world
                .nodes
                .insert("n2".to_owned(), (Node::Ready, world.now));
        }
        Step::Restart => world.restart_operator(),
        Step::Down(seconds) => {
            world.stop_operator();
            world.advance(*seconds);
            world.start_operator();
        }
        Step::CrashAfter(writes) => world.crash = Some(Crash(*writes)),
    }
    world.sound();
}

fn play(setup: &Setup, steps: &[Step]) {
    let mut world = World::empty();
    if setup.old {
        world.make_old();
    }
    world.script.tries = setup.tries.iter().copied().collect();
    let loss = if setup.restarts {
        "RestartLauncher"
    } else {
        "WaitForLauncher"
    };
    world.submit(spec(
        setup.workers,
        json!({ "runPolicy": {
            "backoffLimit": setup.backoff_limit,
            "cleanPodPolicy": setup.policy,
            "workerLossPolicy": loss,
        } }),
    ));
    for step in steps {
        take(&mut world, step);
        world.advance(1);
        world.sound();
    }
    mend(&mut world);
    world.crash = None;
    world.settle();
    world.at_rest();
    let suspended = world.get("MPIJob", "pi")["spec"]["runPolicy"]["suspend"] == true;
    if suspended && !world.ended() {
        // A try that ended before the suspension keeps its pod, and with it its log.
        let runs = |name: &String| !support::terminal(world.get("Pod", name));
        assert!(
            !world.pods().iter().any(runs),
            "pods while suspended\n{}",
            world.describe()
        );
        // It can go on from there.
        world.suspend(false);
        world.settle();
        world.at_rest();
    }
    assert!(world.ended(), "no end\n{}", world.describe());
    let clean = i64::try_from(world.clean_failures()).unwrap();
    if !world.blind {
        assert!(
            world.charged() <= clean,
            "{} tries charged, {clean} failed without a lost worker\n{}",
            world.charged(),
            world.describe()
        );
        assert!(
            !world.is("Failed") || clean > i64::from(setup.backoff_limit),
            "failed too early\n{}",
            world.describe()
        );
    }
    match setup.policy {
        "All" => assert!(world.role("worker").is_empty(), "{}", world.describe()),
        "Running" => assert!(world.workers().is_empty(), "{}", world.describe()),
        _ => {}
    }
    // An end is final, for a new process as well.
    let tries = world.tries.len();
    world.restart_operator();
    world.settle();
    world.at_rest();
    assert_eq!(world.tries.len(), tries, "{}", world.describe());
}

fn config() -> Config {
    let mut config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 300,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 64;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn invariants_hold_in_every_history(
        setup in setup(),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let outcome = catch_unwind(AssertUnwindSafe(|| play(&setup, &steps)));
        if let Err(panic) = outcome {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_else(|| "a panic".to_owned());
            return Err(TestCaseError::fail(text));
        }
    }

    #[test]
    fn the_same_snapshot_gives_the_same_plan(
        setup in setup(),
        steps in prop::collection::vec(step(), 1..10),
    ) {
        let mut world = World::new(spec(setup.workers, json!({})));
        for step in &steps {
            take(&mut world, step);
            prop_assert_eq!(world.plan(), world.plan());
        }
    }
}
