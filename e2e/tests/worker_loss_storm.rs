//! A drain storm: ten workers, one of them deleted every three seconds for two minutes. With
//! `RestartLauncher` and a single retry the job Succeeds, and no try is charged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use e2e::mpi::{job, rank_hosts, tries};
use e2e::wait::workers_at;
use serde_json::json;

const WORKERS: i32 = 10;
const STORM: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_secs(3);

/// After the storm the job needs one quiet start, which restarts that came in a row may delay.
const CALM: Duration = Duration::from_secs(900);

#[tokio::test]
async fn a_job_of_ten_workers_outlives_two_minutes_of_drain_without_a_charged_try() {
    e2e::in_namespace("storm", async |ns| {
        let program = format!("mpirun -n {WORKERS} /home/mpiuser/pi 1000 20");
        ns.create(
            &job("storm")
                .workers(WORKERS)
                .backoff_limit(1)
                .run_policy(json!({"workerLossPolicy": "RestartLauncher"}))
                .script(&program),
        )
        .await?;
        ns.until_launcher_runs("storm", &[]).await?;
        let (began, mut lost) = (Instant::now(), 0);
        let random = RandomState::new();
        while began.elapsed() < STORM {
            let live: Vec<_> = workers_at(&ns.pods.all(), "storm").into_values().collect();
            let pick = usize::try_from(random.hash_one(lost))? % live.len().max(1);
            if let Some(victim) = live.get(pick) {
                // It may have ended a moment ago; then there is one victim less.
                lost += u32::from(ns.delete_pod(victim).await.is_ok());
            }
            tokio::time::sleep(EVERY).await;
        }
        println!("{lost} workers deleted");
        assert!(
            lost >= 30,
            "only {lost} workers were deleted: that was no storm"
        );
        let end = ns.until_end("storm", "Succeeded", "Failed", CALM).await?;
        assert_eq!(tries(&end, "chargedTries"), 0, "{}", end.data["status"]);
        assert!(tries(&end, "restarts") + tries(&end, "refundedTries") >= 1);
        let last = ns
            .launchers_ever("storm")
            .pop()
            .expect("there was a launcher");
        assert_eq!(rank_hosts(&ns.log(&last).await?).len(), 10);
        ns.assert_one_launcher_at_a_time("storm")?;
        Ok(())
    })
    .await;
}
