//! A worker that is deleted while the launcher leaves it idle comes back under the same index, and
//! nobody else notices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{job, uid};

#[tokio::test]
async fn an_idle_worker_that_is_deleted_is_ready_again_under_its_index_and_nothing_is_counted() {
    e2e::in_namespace("idle", async |ns| {
        ns.create(&job("idle").workers(3)).await?;
        let launcher = ns.until_launcher_runs("idle", &[]).await?;
        let before = ns.until_workers_ready("idle", 3).await?;
        ns.lose_workers("idle", &[before[&1].clone()], async |pod| {
            ns.delete_pod(pod).await
        })
        .await?;
        let after = ns.until_workers_ready("idle", 3).await?;
        assert_eq!(
            uid(&before[&0]),
            uid(&after[&0]),
            "worker 0 is the same pod"
        );
        assert_eq!(
            uid(&before[&2]),
            uid(&after[&2]),
            "worker 2 is the same pod"
        );
        assert_ne!(uid(&before[&1]), uid(&after[&1]), "worker 1 is another pod");
        assert_eq!(
            after.len(),
            3,
            "no other index was started: {:?}",
            after.keys()
        );
        ns.assert_nothing_counted("idle").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("idle").await?;
        assert_eq!(ns.launchers_ever("idle").len(), 1, "the launcher ran on");
        Ok(())
    })
    .await;
}
