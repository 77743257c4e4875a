//! The operator writes what it has to, and then nothing: at rest there is no write, and the writes on
//! the way to the launcher's start are as many for eight workers as for two. By the API server's
//! own record.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::Namespace;
use e2e::mpi::{job, pi};

/// Longer than the 10 s after which a change of counts alone is written, and that doubled.
const SETTLED: Duration = Duration::from_secs(25);

/// What is written meanwhile is written for no reason.
const REST: Duration = Duration::from_secs(30);

async fn writes_at_rest(ns: &Namespace) -> anyhow::Result<Vec<String>> {
    tokio::time::sleep(SETTLED).await;
    let before = ns.cluster.operator_writes(&ns.name).await?;
    assert!(
        !before.is_empty(),
        "the record is empty: it is not the one of this cluster"
    );
    tokio::time::sleep(REST).await;
    let after = ns.cluster.operator_writes(&ns.name).await?;
    Ok(after[before.len()..].to_vec())
}

#[tokio::test]
async fn at_rest_nothing_is_written_for_jobs_that_run_wait_sleep_or_have_ended() {
    e2e::in_namespace("quiet", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.create(&job("runs").workers(3)).await?;
        ns.create(&pi("waits").workers(2).worker_node_label(&label))
            .await?;
        ns.create(&pi("sleeps").workers(2).suspended()).await?;
        ns.create(&pi("ended").workers(1).script("true")).await?;
        ns.create(&pi("wrong").workers(1).spec(serde_json::json!({
            "mpiReplicaSpecs": {"Worker": {"restartPolicy": "Always"}},
        })))
        .await?;
        ns.until_condition("runs", "Running", "True").await?;
        ns.until_condition("waits", "WorkersReady", "False").await?;
        ns.until_condition("sleeps", "Suspended", "True").await?;
        ns.until_condition("wrong", "Invalid", "True").await?;
        ns.until_succeeded("ended").await?;
        let written = writes_at_rest(ns).await?;
        assert!(written.is_empty(), "written at rest: {written:#?}");
        Ok(())
    })
    .await;
}

/// Writes until the launcher runs. Pods are left out: one patch per worker retires it.
async fn writes_until_start(
    ns: &Namespace,
    name: &str,
    workers: i32,
) -> anyhow::Result<Vec<String>> {
    let before = ns.cluster.operator_writes(&ns.name).await?.len();
    ns.create(&job(name).workers(workers)).await?;
    ns.until_launcher_runs(name, &[]).await?;
    let mut writes = ns
        .cluster
        .operator_writes(&ns.name)
        .await?
        .split_off(before);
    writes.retain(|one| !one.contains(" pods "));
    Ok(writes)
}

#[tokio::test]
async fn the_writes_until_the_launcher_starts_do_not_grow_with_the_workers() {
    e2e::in_namespace("writes", async |ns| {
        let two = writes_until_start(ns, "two", 2).await?;
        let eight = writes_until_start(ns, "eight", 8).await?;
        // One more status may fall due, because eight workers take longer than two.
        assert!(
            eight.len() <= two.len() + 1,
            "two workers: {two:#?}\neight workers: {eight:#?}"
        );
        Ok(())
    })
    .await;
}
