//! The operator is not needed for a lost worker to come back, and what happens while it is down is
//! put right when it returns. Not beside other tests: they need the operator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::mpi::{WAIT_FOR_GO, job, pi, tries, uid};
use e2e::{Cluster, WORKER_BACK};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// Runs `body` while the operator is down, and starts it again in any case.
async fn while_down(
    cluster: &Cluster,
    body: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    cluster.scale_operator(0).await?;
    let result = body().await;
    cluster.scale_operator(1).await?;
    result
}

#[tokio::test]
async fn workers_deleted_while_the_operator_is_down_are_back_as_fast() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("down", async |ns| {
        ns.create(&job("down").workers(3)).await?;
        let launcher = ns.until_launcher_runs("down", &[]).await?;
        let before = ns.until_workers_ready("down", 3).await?;
        // Retiring happens in the background, after the launcher was released.
        ns.until_retired("down", 3).await?;
        while_down(&ns.cluster, async || {
            let victims = [before[&0].clone(), before[&2].clone()];
            let took = ns
                .lose_workers("down", &victims, async |pod| ns.delete_pod(pod).await)
                .await?;
            assert!(
                took.iter().all(|one| *one <= WORKER_BACK),
                "back after {took:?}"
            );
            let after = ns.until_workers_ready("down", 3).await?;
            assert_eq!(uid(&after[&1]), uid(&before[&1]));
            Ok(())
        })
        .await?;
        ns.assert_nothing_counted("down").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("down").await?;
        assert_eq!(ns.launchers_ever("down").len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_launcher_that_slipped_through_meanwhile_is_taken_back_without_costing_a_try() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("slipped", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.cluster.label_nodes(&label, Some("yes")).await?;
        let job = job("slipped")
            .workers(2)
            .worker_node_label(&label)
            .backoff_limit(1)
            .script(WAIT_FOR_GO);
        ns.create(&job).await?;
        let first = ns.until_launcher_runs("slipped", &[]).await?;
        let workers = ns.until_workers_ready("slipped", 2).await?;
        let mut slipped = None;
        while_down(&ns.cluster, async || {
            ns.cluster.label_nodes(&label, None).await?;
            ns.delete_pod(&workers[&1]).await?;
            // The program fails, and nobody holds the retry that the Job controller makes.
            ns.exec(&first, &["sh", "-c", "kill -TERM 1"]).await.ok();
            slipped = Some(ns.until_launcher_runs("slipped", &[uid(&first)]).await?);
            Ok(())
        })
        .await?;
        let slipped = slipped.expect("it ran");
        ns.pods
            .until_live("the slipped launcher to be taken back", e2e::SOON, |all| {
                Ok((!all.contains_key(&slipped.name_any())).then_some(()))
            })
            .await?;
        ns.no_launcher_for("slipped", Duration::from_secs(15))
            .await?;
        ns.cluster.label_nodes(&label, Some("yes")).await?;
        let third = ns
            .until_launcher_runs("slipped", &[uid(&first), uid(&slipped)])
            .await?;
        ns.tell(&third).await?;
        let end = ns.until_succeeded("slipped").await;
        ns.cluster.label_nodes(&label, None).await?;
        assert!(tries(&end?, "chargedTries") <= 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_job_ends_well_although_the_operator_is_killed_again_and_again() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("killed", async |ns| {
        ns.create(&pi("killed").workers(2)).await?;
        let operators: Api<Pod> = Api::namespaced(ns.cluster.client.clone(), "mpi-operator");
        for round in 0..4 {
            tokio::time::sleep(Duration::from_millis(500 * round)).await;
            for pod in ns.cluster.operator_pods().await? {
                let now = DeleteParams::default().grace_period(0);
                operators.delete(&pod.name_any(), &now).await.ok();
            }
        }
        ns.until_succeeded("killed").await?;
        assert_eq!(ns.launchers_ever("killed").len(), 1);
        ns.assert_gate_was_kept("killed", 2)?;
        ns.cluster.scale_operator(1).await
    })
    .await;
}
