//! A try during which a worker was lost is not the program's fault: it is refunded, and a program
//! without retries gets another try. Its own failures still count.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{condition, job, pi, tries, uid};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::EvictParams;

/// Two ranks that stay for ten minutes.
const LONG: &str = "mpirun -n 2 /home/mpiuser/pi 1000 600";

#[tokio::test]
async fn a_try_that_ends_because_a_worker_was_lost_is_refunded() {
    e2e::in_namespace("refund", async |ns| {
        let job = pi("refund")
            .workers(2)
            .backoff_limit(0)
            .tries(LONG, "mpirun -n 2 /home/mpiuser/pi");
        ns.create(&job).await?;
        ns.until_launcher_runs("refund", &[]).await?;
        ns.until_ranks("refund", 2).await?;
        let workers = ns.until_workers_ready("refund", 2).await?;
        ns.delete_pod(&workers[&1]).await?;
        let end = ns.until_succeeded("refund").await?;
        assert_eq!(tries(&end, "chargedTries"), 0);
        assert_eq!(tries(&end, "refundedTries"), 1);
        assert_eq!(ns.launchers_ever("refund").len(), 2);
        ns.assert_one_launcher_at_a_time("refund")?;
        ns.assert_gate_was_kept("refund", 2)
    })
    .await;
}

#[tokio::test]
async fn after_a_refunded_try_the_programs_own_failure_still_ends_the_job() {
    e2e::in_namespace("refund-fail", async |ns| {
        let job = pi("refund")
            .workers(2)
            .backoff_limit(0)
            .tries(LONG, "echo my own fault; exit 1");
        ns.create(&job).await?;
        ns.until_ranks("refund", 2).await?;
        let workers = ns.until_workers_ready("refund", 2).await?;
        ns.delete_pod(&workers[&1]).await?;
        let end = ns.until_failed("refund").await?;
        let failed = condition(&end, "Failed").expect("it is Failed");
        assert!(
            failed.reason.starts_with("BackoffLimitExceeded"),
            "{failed:?}"
        );
        assert_eq!(tries(&end, "chargedTries"), 1);
        let launchers = ns.launchers_ever("refund");
        assert_eq!(launchers.len(), 2, "one refunded, one charged");
        assert_eq!(ns.log(&launchers[1]).await?, "my own fault\n");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_evicted_launcher_costs_no_try() {
    e2e::in_namespace("evicted-l", async |ns| {
        ns.create(&job("evicted").workers(1).backoff_limit(0))
            .await?;
        let first = ns.until_launcher_runs("evicted", &[]).await?;
        ns.api::<Pod>()
            .evict(&first.name_any(), &EvictParams::default())
            .await?;
        let second = ns.until_launcher_runs("evicted", &[uid(&first)]).await?;
        ns.tell(&second).await?;
        let end = ns.until_succeeded("evicted").await?;
        assert_eq!(tries(&end, "chargedTries"), 0);
        assert_eq!(ns.launchers_ever("evicted").len(), 2);
        ns.assert_one_launcher_at_a_time("evicted")?;
        ns.assert_gate_was_kept("evicted", 1)
    })
    .await;
}
