//! A worker whose node is about to go leaves first when nobody is named.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use e2e::Namespace;
use e2e::elastic::{ensure_only_changed, replicas};
use e2e::mpi::{job, node};
use k8s_openapi::api::core::v1::Pod;

const TAINT: &str = "DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule";
const TAINT_OFF: &str = "DeletionCandidateOfClusterAutoscaler-";

fn on(workers: &BTreeMap<u32, Pod>, name: &str) -> Vec<u32> {
    let there = workers.iter().filter(|(_, pod)| node(pod) == name);
    there.map(|(index, _)| *index).collect()
}

async fn shrink(ns: &Namespace) -> anyhow::Result<()> {
    ns.create(&job("nodes").workers(4).spread()).await?;
    let launcher = ns.until_launcher_runs("nodes", &[]).await?;
    let four = ns.until_workers_ready("nodes", 4).await?;
    // Not the node of the worker that would leave otherwise.
    let nodes = ns.cluster.nodes().await?;
    let leaving = nodes.iter().find(|name| **name != node(&four[&3]));
    let leaving = leaving.expect("a second node");
    assert_eq!(on(&four, leaving).len(), 2, "two workers on each node");
    ns.kubectl(&["cordon", leaving]).await?;
    ns.patch("nodes", replicas(2)).await?;
    let two = ns.until_workers_ready("nodes", 2).await?;
    ensure_only_changed(&four, &two, &on(&four, leaving))?;
    // And now the other node, by the mark of an autoscaler.
    ns.kubectl(&["uncordon", leaving]).await?;
    ns.patch("nodes", replicas(4)).await?;
    let four = ns.until_workers_ready("nodes", 4).await?;
    ensure_only_changed(&two, &four, &on(&four, leaving))?;
    ns.kubectl(&["taint", "node", leaving, TAINT]).await?;
    ns.patch("nodes", replicas(3)).await?;
    let three = ns.until_workers_ready("nodes", 3).await?;
    let highest = *on(&four, leaving).last().expect("two of them");
    ensure_only_changed(&four, &three, &[highest])?;
    ns.assert_nothing_counted("nodes").await?;
    ns.tell(&launcher).await?;
    ns.until_succeeded("nodes").await?;
    Ok(())
}

#[tokio::test]
async fn workers_on_a_node_that_goes_leave_first() {
    e2e::in_namespace("leaving-node", async |ns| {
        let result = shrink(ns).await;
        for name in ns.cluster.nodes().await? {
            ns.kubectl(&["uncordon", &name]).await?;
            ns.kubectl(&["taint", "node", &name, TAINT_OFF]).await.ok();
        }
        result
    })
    .await;
}
