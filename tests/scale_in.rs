//! Who leaves when a job shrinks: the order as such, and random shrinks and growths by name, with
//! nodes that go, workers that are lost, and an operator that dies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::collections::BTreeSet;

use mpi_operator::plan::scale_in::Candidate;
use proptest::prelude::*;
use serde_json::json;
use support::{Crash, long_running, start};

/// Workers with distinct indexes and distinct places in the list.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let worker = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        -2_i32..3,
        any::<bool>(),
    );
    prop::collection::vec(worker, 1..12).prop_map(|workers| {
        let all = workers.into_iter().enumerate();
        all.map(
            |(at, (named, placed, node_leaves, cost, ready))| Candidate {
                index: u32::try_from(at).unwrap(),
                // Places in another order than indexes.
                named: named.then_some((at * 7) % 12),
                placed,
                node_leaves,
                cost,
                ready,
            },
        )
        .collect()
    })
}

fn order(mut workers: Vec<Candidate>) -> Vec<u32> {
    workers.sort_by_cached_key(Candidate::key);
    workers.iter().map(|worker| worker.index).collect()
}

proptest! {
    #[test]
    fn the_order_does_not_depend_on_who_is_asked_first(
        (workers, mixed) in candidates().prop_flat_map(|workers| {
            (Just(workers.clone()), Just(workers).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(order(workers), order(mixed));
    }

    #[test]
    fn nobody_leaves_before_one_who_should_leave_first(workers in candidates()) {
        let sorted = order(workers.clone());
        let of = |index: &u32| workers.iter().find(|worker| worker.index == *index).unwrap();
        for pair in sorted.windows(2) {
            let (first, second) = (of(&pair[0]), of(&pair[1]));
            // Each rule decides only where all before it are silent.
            let by_name = match (first.named, second.named) {
                (Some(a), Some(b)) => a.cmp(&b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => std::cmp::Ordering::Equal,
            };
            let verdict = by_name
                .then(first.placed.cmp(&second.placed))
                .then(second.node_leaves.cmp(&first.node_leaves))
                .then(first.cost.cmp(&second.cost))
                .then(first.ready.cmp(&second.ready))
                .then(second.index.cmp(&first.index));
            prop_assert!(verdict.is_lt(), "{first:?} before {second:?}");
        }
    }

    #[test]
    fn a_name_is_enough_to_leave_first(workers in candidates(), at in any::<prop::sample::Index>()) {
        let mut workers = workers;
        for worker in &mut workers {
            worker.named = None;
        }
        let at = at.index(workers.len());
        workers[at].named = Some(0);
        let wanted = workers[at].index;
        prop_assert_eq!(order(workers)[0], wanted);
    }
}

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// So many of the named places in the set of those that are there leave.
    Shrink(Vec<prop::sample::Index>),
    Grow(usize),
    Lose(prop::sample::Index),
    Cordon(bool),
    /// The operator dies after so many writes of the next step.
    Crash(usize),
    /// It is down while the next shrink or growth is asked for, and for so long.
    Late(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let places = prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    prop_oneof![
        5 => places.prop_map(Step::Shrink),
        4 => (1_usize..4).prop_map(Step::Grow),
        1 => any::<prop::sample::Index>().prop_map(Step::Lose),
        1 => any::<bool>().prop_map(Step::Cordon),
        4 => (1_usize..9).prop_map(Step::Crash),
        1 => (1_i64..4).prop_map(Step::Late),
    ]
}

const MOST: usize = 8;

fn play(steps: &[Step]) {
    let mut world = long_running(6, json!({}));
    world.script.fails_on_loss = None;
    start(&mut world);
    world.advance(6);
    let mut late = 0;
    for step in steps {
        let before = world.worker_uids();
        let there: Vec<u32> = before.keys().copied().collect();
        let mut changes: BTreeSet<u32> = BTreeSet::new();
        let wanted = match step {
            Step::Shrink(places) => {
                let mut named: Vec<u32> = Vec::new();
                for place in places {
                    let index = *place.get(&there);
                    if !named.contains(&index) && named.len() + 1 < there.len() {
                        named.push(index);
                    }
                }
                changes.extend(&named);
                let names: Vec<String> = named.iter().map(|i| format!("pi-worker-{i}")).collect();
                // The same list twice would not act again.
                world.edit(json!({ "elasticPolicy": { "removeFirst": null } }));
                world.advance(1);
                world.up = late == 0;
                world.edit(json!({
                    "elasticPolicy": { "removeFirst": names },
                    "mpiReplicaSpecs": { "Worker": { "replicas": there.len() - named.len() } },
                }));
                there.len() - named.len()
            }
            Step::Grow(more) => {
                let wanted = (there.len() + more).min(MOST);
                let free = (0..).filter(|index| !before.contains_key(index));
                changes.extend(free.take(wanted - there.len()));
                world.up = late == 0;
                world.edit(json!({ "mpiReplicaSpecs": { "Worker": { "replicas": wanted } } }));
                wanted
            }
            Step::Lose(place) => {
                world.delete_worker(*place.get(&there));
                world.advance(10);
                continue;
            }
            Step::Cordon(cordon) => {
                world.cordoned.clear();
                if *cordon {
                    world.cordoned.insert("n2".to_owned());
                }
                continue;
            }
            Step::Crash(writes) => {
                world.crash = Some(Crash(*writes));
                continue;
            }
            Step::Late(seconds) => {
                late = *seconds;
                continue;
            }
        };
        if late > 0 {
            world.blind = true;
            world.advance(late);
            late = 0;
            world.start_operator();
        }
        world.advance(25);
        world.crash = None;
        let after = world.worker_uids();
        assert_eq!(after.len(), wanted, "{step:?}\n{}", world.describe());
        let all: BTreeSet<u32> = before.keys().chain(after.keys()).copied().collect();
        let changed: BTreeSet<u32> = all
            .into_iter()
            .filter(|index| before.get(index) != after.get(index))
            .collect();
        assert_eq!(changed, changes, "{step:?}\n{}", world.describe());
        world.sound();
    }
    assert_eq!(world.tries.len(), 1, "{}", world.describe());
    assert_eq!(world.get("Job", "pi-worker")["status"]["failed"], 0);
    world.settle();
    world.at_rest();
    assert!(world.status()["scaleIn"]["leaving"].is_null());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() {
            ProptestConfig::default().cases
        } else {
            48
        },
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn only_the_named_leave_and_the_lowest_gaps_are_filled(
        steps in prop::collection::vec(step(), 1..14),
    ) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&steps)));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().cloned();
            return Err(TestCaseError::fail(text.unwrap_or_else(|| "a panic".to_owned())));
        }
    }
}
