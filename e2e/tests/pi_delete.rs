//! Whatever state a job is in, deleting it, or the namespace it is in, leaves nothing behind.
//!
//! A namespace is the harder one: since Kubernetes 1.34 its pods go first, and the Jobs only when
//! all pods are gone, while the Job controller can no longer make the replacement that it wants to
//! have before it lets go of a failed pod.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{MpiJob, job, pi};
use e2e::wait::poll;
use e2e::{Namespace, SOON};
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use kube::api::{Api, DeleteParams};
use serde_json::json;

async fn namespace_can_be_deleted(
    prefix: &str,
    job: MpiJob,
    until: impl AsyncFnOnce(&Namespace) -> anyhow::Result<()>,
) {
    e2e::in_namespace(prefix, async |ns| {
        ns.create(&job).await?;
        until(ns).await?;
        let all: Api<KubeNamespace> = Api::all(ns.cluster.client.clone());
        all.delete(&ns.name, &DeleteParams::background()).await?;
        poll("the namespace gone", SOON, async || {
            Ok(all.get_opt(&ns.name).await?.is_none().then_some(()))
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_namespace_with_a_running_job_can_be_deleted() {
    namespace_can_be_deleted("del-run", job("run").workers(2), async |ns| {
        ns.until_condition("run", "Running", "True").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_namespace_with_a_job_whose_workers_are_held_can_be_deleted() {
    let held = pi("held").workers(2).hold_worker(1);
    namespace_can_be_deleted("del-held", held, async |ns| {
        ns.pods
            .until("worker 1", SOON, |seen| {
                let workers = e2e::wait::workers_at(seen, "held");
                let running = workers.get(&1).is_some_and(|p| {
                    let status = p.status.clone().unwrap_or_default();
                    status
                        .init_container_statuses
                        .unwrap_or_default()
                        .iter()
                        .any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
                });
                Ok(running.then_some(()))
            })
            .await
    })
    .await;
}

#[tokio::test]
async fn a_namespace_with_a_finished_job_whose_worker_never_was_ready_can_be_deleted() {
    let early = pi("early")
        .workers(1)
        .hold_worker(0)
        .script("sleep 3")
        .spec(json!({"launcherCreationPolicy": "AtStartup"}));
    namespace_can_be_deleted("del-early", early, async |ns| {
        ns.until_succeeded("early").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_namespace_with_a_job_that_finished_in_a_moment_can_be_deleted() {
    let quick = pi("quick").workers(3).script("true");
    namespace_can_be_deleted("del-quick", quick, async |ns| {
        ns.until_succeeded("quick").await?;
        Ok(())
    })
    .await;
}
