//! Deleted workers are back within six seconds of their deletion mark, under the same index, as
//! often as one likes: 20 in a row and in bursts of three. Nothing is counted, nobody else goes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::mpi::{job, uid};
use e2e::{Namespace, WORKER_BACK};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Mutex;

/// These tests measure time, so they do not run beside each other.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn lose(ns: &Namespace, victims: &[Pod]) -> anyhow::Result<Vec<Duration>> {
    ns.lose_workers("lossy", victims, async |pod| ns.delete_pod(pod).await)
        .await
}

fn assert_all_quick(took: &[Duration]) {
    let shown: Vec<f32> = took.iter().map(Duration::as_secs_f32).collect();
    println!("back after {shown:.1?} s");
    assert!(
        took.iter().all(|one| *one <= WORKER_BACK),
        "back after {shown:.1?} s; allowed are {} s",
        WORKER_BACK.as_secs()
    );
}

#[tokio::test]
async fn twenty_deletes_in_a_row_are_each_made_good_within_six_seconds() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("row", async |ns| {
        ns.create(&job("lossy").workers(3)).await?;
        let launcher = ns.until_launcher_runs("lossy", &[]).await?;
        let mut took = Vec::new();
        for round in 0..20 {
            let before = ns.until_workers_ready("lossy", 3).await?;
            let victim = round % 3;
            took.extend(lose(ns, &[before[&victim].clone()]).await?);
            let after = ns.until_workers_ready("lossy", 3).await?;
            for (index, pod) in &after {
                let same = uid(pod) == uid(&before[index]);
                assert_eq!(same, *index != victim, "worker {index} in round {round}");
            }
        }
        assert_all_quick(&took);
        ns.assert_nothing_counted("lossy").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("lossy").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn bursts_of_three_deletes_are_made_good_within_six_seconds() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("burst", async |ns| {
        ns.create(&job("lossy").workers(4)).await?;
        let launcher = ns.until_launcher_runs("lossy", &[]).await?;
        let mut took = Vec::new();
        for round in 0..5 {
            let before = ns.until_workers_ready("lossy", 4).await?;
            let spared = round % 4;
            let victims: Vec<Pod> = before
                .iter()
                .filter(|(index, _)| **index != spared)
                .map(|(_, pod)| pod.clone())
                .collect();
            took.extend(lose(ns, &victims).await?);
            let after = ns.until_workers_ready("lossy", 4).await?;
            assert_eq!(uid(&after[&spared]), uid(&before[&spared]));
        }
        assert_all_quick(&took);
        ns.assert_nothing_counted("lossy").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("lossy").await?;
        Ok(())
    })
    .await;
}
