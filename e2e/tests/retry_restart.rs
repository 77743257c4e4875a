//! `workerLossPolicy: RestartLauncher`: when a worker is lost, the running launcher is started
//! anew once the worker is back, and that costs no try. Without it the launcher runs on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{MpiJob, is_terminating, job, tries, uid};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

fn restarting(name: &str) -> MpiJob {
    job(name)
        .workers(2)
        .backoff_limit(0)
        .run_policy(json!({"workerLossPolicy": "RestartLauncher"}))
}

#[tokio::test]
async fn a_lost_worker_restarts_the_launcher_without_costing_a_try() {
    e2e::in_namespace("restart", async |ns| {
        ns.create(&restarting("restart")).await?;
        let first = ns.until_launcher_runs("restart", &[]).await?;
        let workers = ns.until_workers_ready("restart", 2).await?;
        ns.lose_workers("restart", &[workers[&0].clone()], async |pod| {
            ns.delete_pod(pod).await
        })
        .await?;
        let second = ns.until_launcher_runs("restart", &[uid(&first)]).await?;
        let after = ns.until_workers_ready("restart", 2).await?;
        assert_eq!(uid(&after[&1]), uid(&workers[&1]), "the other worker stays");
        ns.tell(&second).await?;
        let end = ns.until_succeeded("restart").await?;
        assert_eq!(tries(&end, "restarts"), 1);
        assert_eq!(tries(&end, "chargedTries"), 0);
        assert_eq!(ns.launchers_ever("restart").len(), 2);
        ns.assert_one_launcher_at_a_time("restart")?;
        ns.assert_gate_was_kept("restart", 2)
    })
    .await;
}

#[tokio::test]
async fn a_try_that_the_lost_worker_ended_first_is_refunded() {
    e2e::in_namespace("restart-lost", async |ns| {
        let job = restarting("restart").tries(
            "mpirun -n 2 /home/mpiuser/pi 1000 600",
            "mpirun -n 2 /home/mpiuser/pi",
        );
        ns.create(&job).await?;
        ns.until_ranks("restart", 2).await?;
        let workers = ns.until_workers_ready("restart", 2).await?;
        // Both ends are possible: mpirun notices first, or the operator takes the launcher back.
        ns.exec(&workers[&1], &["sh", "-c", "kill -QUIT 1"])
            .await
            .ok();
        let end = ns.until_succeeded("restart").await?;
        assert_eq!(tries(&end, "chargedTries"), 0);
        ns.assert_one_launcher_at_a_time("restart")?;
        ns.assert_gate_was_kept("restart", 2)
    })
    .await;
}

#[tokio::test]
async fn a_launcher_that_is_stuck_in_terminating_does_not_block_the_next_one() {
    e2e::in_namespace("restart-husk", async |ns| {
        ns.create(&restarting("restart")).await?;
        let first = ns.until_launcher_runs("restart", &[]).await?;
        let workers = ns.until_workers_ready("restart", 2).await?;
        ns.hold_pod(&first).await?;
        ns.delete_pod(&workers[&0]).await?;
        let second = ns.until_launcher_runs("restart", &[uid(&first)]).await?;
        let husk = ns.api::<Pod>().get(&first.name_any()).await?;
        assert!(
            is_terminating(&husk),
            "it is still there, held by a finalizer"
        );
        ns.tell(&second).await?;
        let end = ns.until_succeeded("restart").await?;
        assert_eq!(tries(&end, "chargedTries"), 0);
        ns.assert_one_launcher_at_a_time("restart")
    })
    .await;
}
