//! The gate holds every retry, too: the next launcher pod is created when all workers are Ready
//! again, not when the back-off of the Job is over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::SOON;
use e2e::mpi::{WAIT_FOR_GO, condition, is_ready, job, tries, uid};

/// Longer than the ten seconds that the Job controller waits after the first failure.
const BEYOND_BACK_OFF: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_retry_waits_for_a_worker_that_is_no_longer_ready() {
    e2e::in_namespace("gate-retry", async |ns| {
        let fails_once = job("retry")
            .workers(2)
            .ready_by_file()
            .backoff_limit(3)
            .tries(&format!("{WAIT_FOR_GO} exit 1"), "echo second");
        ns.create(&fails_once).await?;
        let first = ns.until_launcher_runs("retry", &[]).await?;
        let workers = ns.until_workers_ready("retry", 2).await?;
        ns.exec(&workers[&1], &["touch", "/tmp/unready"]).await?;
        ns.pods
            .until_live("worker 1 unready", SOON, |all| {
                let pod = all.values().find(|p| uid(*p) == uid(&workers[&1]));
                Ok(pod.filter(|p| !is_ready(p)).map(|_| ()))
            })
            .await?;
        // The launcher asks worker 0 for its marker before it waits, so this is the first try.
        ns.tell(&first).await?;
        ns.until_tries_ended("retry", 1).await?;
        ns.no_launcher_for("retry", BEYOND_BACK_OFF).await?;
        let held = ns.until_condition("retry", "WorkersReady", "False").await?;
        assert!(held.message.contains('1'), "worker 1 is named: {held:?}");
        ns.exec(&workers[&1], &["rm", "/tmp/unready"]).await?;
        let end = ns.until_succeeded("retry").await?;
        assert_eq!(ns.launchers_ever("retry").len(), 2);
        assert!(tries(&end, "chargedTries") <= 1);
        ns.assert_one_launcher_at_a_time("retry")?;
        ns.assert_gate_was_kept("retry", 2)
    })
    .await;
}

#[tokio::test]
async fn a_retry_waits_for_the_replacement_of_a_lost_worker_and_the_try_is_not_charged() {
    e2e::in_namespace("gate-loss", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.cluster.label_nodes(&label, Some("yes")).await?;
        let fails_once = job("retry")
            .workers(2)
            .worker_node_label(&label)
            .backoff_limit(0)
            .tries(&format!("{WAIT_FOR_GO} exit 1"), "echo second");
        ns.create(&fails_once).await?;
        let first = ns.until_launcher_runs("retry", &[]).await?;
        let workers = ns.until_workers_ready("retry", 2).await?;
        ns.cluster.label_nodes(&label, None).await?;
        ns.delete_pod(&workers[&1]).await?;
        // The launcher does not notice; the MPIJob tells after 30 s.
        let degraded = ns.until_condition("retry", "Degraded", "True").await?;
        assert_eq!(degraded.reason, "WorkerLost");
        assert!(degraded.message.contains("worker 1"), "{degraded:?}");
        ns.tell(&first).await?;
        ns.until_tries_ended("retry", 1).await?;
        ns.no_launcher_for("retry", BEYOND_BACK_OFF).await?;
        let held = ns.until_condition("retry", "WorkersReady", "False").await?;
        assert_eq!(held.reason, "Unschedulable", "{held:?}");
        ns.cluster.label_nodes(&label, Some("yes")).await?;
        let end = ns.until_succeeded("retry").await;
        ns.cluster.label_nodes(&label, None).await?;
        let end = end?;
        assert_eq!(
            tries(&end, "chargedTries"),
            0,
            "a worker was missing during the try"
        );
        assert_eq!(ns.launchers_ever("retry").len(), 2);
        assert!(!condition(&end, "Degraded").is_some_and(|c| c.is_true()));
        ns.assert_one_launcher_at_a_time("retry")?;
        ns.assert_gate_was_kept("retry", 2)
    })
    .await;
}
