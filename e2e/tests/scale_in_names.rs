//! A job of six workers shrinks by name and grows again at random, while the operator is killed at
//! random moments: after each step only the named workers are others than before.
//!
//! `MPI_E2E_ELASTIC_STEPS` is the number of steps, 20 if unset; `MPI_E2E_ELASTIC_SEED` plays one
//! history again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use e2e::Namespace;
use e2e::elastic::{ensure_only_changed, remove_first};
use e2e::mpi::{condition, is_ready, job, uid};
use e2e::wait::workers_at;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};

const WORKERS: usize = 6;

/// Numbers that look random and come again with the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

async fn kill_operator(ns: &Namespace) -> anyhow::Result<()> {
    let operators: Api<Pod> = Api::namespaced(ns.cluster.client.clone(), "mpi-operator");
    for pod in ns.cluster.operator_pods().await? {
        let now = DeleteParams::default().grace_period(0);
        operators.delete(&pod.name_any(), &now).await.ok();
    }
    Ok(())
}

/// Waits for `count` Ready workers and a status that says that nobody leaves.
async fn until_done(ns: &Namespace, generation: i64, count: usize) -> anyhow::Result<()> {
    ns.until_mpijob("six", "the step is done", e2e::LATER, |object| {
        let status = &object.data["status"];
        let seen = status["observedGeneration"].as_i64().unwrap_or(0) >= generation;
        Ok(seen && status["scaleIn"]["leaving"].is_null())
    })
    .await?;
    ns.pods
        .until(&format!("{count} Ready workers"), e2e::LATER, |seen| {
            let workers = workers_at(seen, "six");
            let ready = workers.values().filter(|p| is_ready(p)).count();
            Ok((workers.len() == count && ready == count).then_some(()))
        })
        .await
}

#[tokio::test]
async fn random_steps_by_name_touch_nobody_else_whenever_the_operator_dies() {
    let steps = number("MPI_E2E_ELASTIC_STEPS").unwrap_or(20);
    let seed = number("MPI_E2E_ELASTIC_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("{steps} steps, seed {seed}");
    e2e::in_namespace("names", async |ns| {
        let mut random = Random(seed);
        ns.create(&job("six").workers(i32::try_from(WORKERS)?))
            .await?;
        let launcher = ns.until_launcher_runs("six", &[]).await?;
        let mut now = ns.until_workers_ready("six", WORKERS).await?;
        let (began, mut kills) = (Instant::now(), 0);
        for step in 0..steps {
            let mut named: Vec<u32> = Vec::new();
            let patch = if now.len() == WORKERS {
                let leave = 1 + random.below(WORKERS - 2);
                let mut left: Vec<u32> = now.keys().copied().collect();
                for _ in 0..leave {
                    named.push(left.remove(random.below(left.len())));
                }
                remove_first("six", &named, WORKERS - leave)
            } else {
                named.extend((0..6).filter(|index| !now.contains_key(index)));
                // The same list twice in a row would not act again.
                remove_first("six", &[], WORKERS)
            };
            named.sort_unstable();
            let object = ns.patch("six", patch).await?;
            if random.below(2) == 0 {
                tokio::time::sleep(Duration::from_millis(u64::try_from(random.below(400))?)).await;
                kill_operator(ns).await?;
                kills += 1;
            }
            let count = if now.len() == WORKERS {
                WORKERS - named.len()
            } else {
                WORKERS
            };
            until_done(ns, object.metadata.generation.unwrap_or(0), count).await?;
            let after = ns.until_workers_ready("six", count).await?;
            ensure_only_changed(&now, &after, &named)
                .map_err(|error| error.context(format!("step {step}, seed {seed}")))?;
            now = after;
        }
        println!(
            "{steps} steps and {kills} dead operators in {:.0} s",
            began.elapsed().as_secs_f64()
        );
        ns.assert_nothing_counted("six").await?;
        let object = ns.mpijob_api().get("six").await?;
        assert!(condition(&object, "Degraded").is_none_or(|c| !c.is_true()));
        assert_eq!(
            uid(&launcher),
            uid(&ns.launchers_ever("six").pop().expect("one"))
        );
        ns.tell(&launcher).await?;
        ns.until_succeeded("six").await?;
        assert_eq!(ns.launchers_ever("six").len(), 1);
        ns.cluster.scale_operator(1).await
    })
    .await;
}
