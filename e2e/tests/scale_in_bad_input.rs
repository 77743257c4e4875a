//! Wishes for a shrink that cannot be: refused by the API server, or told in a condition; nothing is
//! done by halves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::elastic::{ensure_only_changed, remove_first, replicas};
use e2e::mpi::{condition, job};
use serde_json::json;

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_leaves_the_workers_alone() {
    e2e::in_namespace("bad-shrink", async |ns| {
        let policy = json!({"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}});
        ns.create(&job("bad").workers(3).spec(policy)).await?;
        let launcher = ns.until_launcher_runs("bad", &[]).await?;
        let before = ns.until_workers_ready("bad", 3).await?;
        let elastic = |policy| json!({"spec": {"elasticPolicy": policy}});
        for (patch, said) in [
            (remove_first("other", &[1], 2), "removeFirst"),
            (remove_first("bad", &[100_000], 2), "removeFirst"),
            (remove_first("bad", &[1, 1], 2), "Duplicate"),
            (
                elastic(json!({"removeFirst": ["bad-worker-01"]})),
                "removeFirst",
            ),
            (
                elastic(json!({"removeFirst": ["bad-launcher"]})),
                "removeFirst",
            ),
            (elastic(json!({"minReplicas": 4})), "minReplicas"),
            (elastic(json!({"maxReplicas": 2})), "maxReplicas"),
            (elastic(json!({"minReplicas": 0})), "minReplicas"),
            (replicas(5), "maxReplicas"),
            (replicas(1), "minReplicas"),
            (replicas(0), "must not be below 1"),
        ] {
            let refused = ns.patch("bad", patch.clone()).await;
            let error = format!("{:#}", refused.expect_err(&format!("{patch} is refused")));
            assert!(error.contains(said), "{patch}: {error}");
        }
        // No rule of the API server knows how much room the worker Job has.
        ns.patch("bad", remove_first("bad", &[99_999], 2)).await?;
        let told = ns.until_condition("bad", "Invalid", "True").await?;
        let path = "spec.elasticPolicy.removeFirst[0]: Invalid value: \"bad-worker-99999\"";
        assert!(told.message.contains(path), "{told:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure_only_changed(&before, &ns.until_workers_ready("bad", 3).await?, &[])?;
        // It heals by an edit, and then the shrink happens.
        ns.patch("bad", remove_first("bad", &[1], 2)).await?;
        ns.until_condition("bad", "Invalid", "False").await?;
        ensure_only_changed(&before, &ns.until_workers_ready("bad", 2).await?, &[1])?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("bad").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_shrink_to_nothing_of_a_plain_job_is_told_and_heals() {
    e2e::in_namespace("shrink-zero", async |ns| {
        ns.create(&job("zero").workers(2)).await?;
        let launcher = ns.until_launcher_runs("zero", &[]).await?;
        let before = ns.until_workers_ready("zero", 2).await?;
        // The Go operator stored this, so the API server has to.
        ns.patch("zero", replicas(0)).await?;
        let told = ns.until_condition("zero", "Invalid", "True").await?;
        let path = "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0";
        assert!(told.message.contains(path), "{told:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure_only_changed(&before, &ns.until_workers_ready("zero", 2).await?, &[])?;
        ns.patch("zero", replicas(2)).await?;
        ns.until_condition("zero", "Invalid", "False").await?;
        ensure_only_changed(&before, &ns.until_workers_ready("zero", 2).await?, &[])?;
        ns.tell(&launcher).await?;
        let end = ns.until_succeeded("zero").await?;
        assert!(condition(&end, "Degraded").is_none_or(|c| !c.is_true()));
        Ok(())
    })
    .await;
}
