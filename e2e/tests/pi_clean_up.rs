//! Contract 7.31: what is left of the workers at the end is what `cleanPodPolicy` says. At the end
//! only: until then all of them run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{MpiJob, is_terminating, job, uid};
use e2e::wait::workers_at;
use e2e::{Namespace, SOON};
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

fn job_with(policy: Option<&str>) -> MpiJob {
    let job = job("clean").workers(2);
    match policy {
        Some(policy) => job.run_policy(json!({"cleanPodPolicy": policy})),
        None => job,
    }
}

async fn run_to_the_end(ns: &Namespace, policy: Option<&str>) -> anyhow::Result<()> {
    ns.create(&job_with(policy)).await?;
    let launcher = ns.until_launcher_runs("clean", &[]).await?;
    ns.until_workers_ready("clean", 2).await?;
    ns.tell(&launcher).await?;
    ns.until_succeeded("clean").await?;
    Ok(())
}

async fn workers_stay(policy: Option<&str>) {
    e2e::in_namespace("clean", async |ns| {
        run_to_the_end(ns, policy).await?;
        let before = ns.until_workers_ready("clean", 2).await?;
        // Another job of the same operator starts and ends meanwhile.
        ns.create(&job("other").script("true")).await?;
        ns.until_succeeded("other").await?;
        let after = workers_at(&ns.pods.all(), "clean");
        assert_eq!(after.len(), 2);
        for (index, pod) in &after {
            assert_eq!(uid(pod), uid(&before[index]));
            assert!(!is_terminating(pod));
        }
        // The policy is read again after the end.
        ns.patch(
            "clean",
            json!({"spec": {"runPolicy": {"cleanPodPolicy": "All"}}}),
        )
        .await?;
        no_worker_left(ns).await
    })
    .await;
}

async fn no_worker_left(ns: &Namespace) -> anyhow::Result<()> {
    ns.pods
        .until("no worker pod", SOON, |seen| {
            let live = e2e::history::live(seen);
            let left = live.values().any(|p| e2e::mpi::is_worker_of(p, "clean"));
            Ok((!left).then_some(()))
        })
        .await?;
    let launchers = ns.launchers_ever("clean");
    assert_eq!(launchers.len(), 1);
    assert!(
        ns.log(&launchers[0]).await.is_ok(),
        "the launcher's log stays"
    );
    Ok(())
}

#[tokio::test]
async fn contract_07_31_policy_none_leaves_the_workers_running() {
    workers_stay(Some("None")).await;
}

#[tokio::test]
async fn contract_07_31_no_policy_is_none() {
    workers_stay(None).await;
}

#[tokio::test]
async fn contract_07_31_policy_running_removes_the_running_workers() {
    e2e::in_namespace("clean", async |ns| {
        run_to_the_end(ns, Some("Running")).await?;
        no_worker_left(ns).await
    })
    .await;
}

#[tokio::test]
async fn contract_07_31_policy_all_removes_workers_and_their_job_but_not_the_launcher() {
    e2e::in_namespace("clean", async |ns| {
        run_to_the_end(ns, Some("All")).await?;
        no_worker_left(ns).await?;
        e2e::wait::poll("the worker Job gone", SOON, async || {
            let job = ns.api::<Job>().get_opt("clean-worker").await?;
            Ok(job.is_none().then_some(()))
        })
        .await?;
        assert!(ns.api::<Job>().get_opt("clean-launcher").await?.is_some());
        Ok(())
    })
    .await;
}
