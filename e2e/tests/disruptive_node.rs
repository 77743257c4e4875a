//! A node is lost and comes back: its workers run elsewhere under the same index meanwhile, what is
//! left of them on the lost node blocks nothing and is reported, and nothing is counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use anyhow::Context;
use e2e::mpi::{condition, is_terminating, job, node, uid};
use e2e::wait::poll;
use e2e::{LATER, Namespace, SOON};
use serde_json::{Value, json};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// Pods leave a lost node after five seconds.
fn short_toleration() -> Value {
    json!({"spec": {"tolerations": [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
         "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
         "effect": "NoExecute", "tolerationSeconds": 5},
    ]}})
}

/// A node that does not run the operator, and another one.
async fn victim_and_refuge(ns: &Namespace) -> anyhow::Result<(String, String)> {
    let home: Vec<String> = ns
        .cluster
        .operator_pods()
        .await?
        .iter()
        .map(|p| node(p).to_owned())
        .collect();
    let nodes = ns.cluster.nodes().await?;
    let victim = nodes
        .iter()
        .find(|n| !home.contains(n))
        .context("every node runs the operator")?;
    let refuge = nodes
        .iter()
        .find(|n| *n != victim)
        .context("there is only one node")?;
    Ok((victim.clone(), refuge.clone()))
}

async fn start_again(ns: &Namespace, victim: &str) -> anyhow::Result<()> {
    ns.cluster.cluster_sh(&["node-start", victim]).await?;
    poll("the node Ready again", SOON, async || {
        Ok(ns.cluster.node_is_ready(victim).await?.then_some(()))
    })
    .await
}

#[tokio::test]
async fn workers_of_a_lost_node_run_elsewhere_under_their_index_and_their_husks_block_nothing() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("node", async |ns| {
        let (victim, refuge) = victim_and_refuge(ns).await?;
        let job = job("node")
            .workers(4)
            .spread()
            .worker_template(short_toleration())
            .launcher_template(json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": refuge}}}));
        // The spread would keep the replacements off the one node that is left.
        let job = job.worker_template(json!({"spec": {"topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {e2e::mpi::JOB_NAME: "node", e2e::mpi::JOB_ROLE: "worker"}},
        }]}}));
        ns.create(&job).await?;
        let launcher = ns.until_launcher_runs("node", &[]).await?;
        let before = ns.until_workers_ready("node", 4).await?;
        let lost: Vec<u32> = before
            .iter()
            .filter(|(_, pod)| node(pod) == victim)
            .map(|(index, _)| *index)
            .collect();
        assert!(!lost.is_empty() && lost.len() < 4, "workers on {victim}: {lost:?}");
        let mark = ns.pods.mark();
        ns.cluster.cluster_sh(&["node-stop", &victim]).await?;
        let result = async {
            for index in &lost {
                ns.until_replaced("node", &before[index], mark).await?;
            }
            let after = ns.until_workers_ready("node", 4).await?;
            for (index, pod) in &after {
                assert_eq!(uid(pod) == uid(&before[index]), !lost.contains(index));
                assert_eq!(node(pod), refuge);
            }
            let husks = ns
                .pods
                .live()
                .values()
                .filter(|p| node(p) == victim && is_terminating(p))
                .count();
            assert_eq!(husks, lost.len(), "what is left on the lost node");
            let told = ns
                .until_mpijob("node", "Degraded with StuckTerminating", LATER, |object| {
                    Ok(condition(object, "Degraded")
                        .is_some_and(|c| c.is_true() && c.reason == "StuckTerminating"))
                })
                .await?;
            let told = condition(&told, "Degraded").expect("it was there");
            assert!(told.message.contains(&victim), "the node is named: {told:?}");
            ns.assert_nothing_counted("node").await?;
            ns.tell(&launcher).await?;
            ns.until_succeeded("node").await
        }
        .await;
        start_again(ns, &victim).await?;
        result?;
        ns.pods
            .until_live("no husk left once the node is back", SOON, |all| {
                Ok((!all.values().any(|p| node(p) == victim && is_terminating(p))).then_some(()))
            })
            .await?;
        let after = ns.until_workers_ready("node", 4).await?;
        assert!(after.values().all(|p| node(p) == refuge), "nobody else was touched");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_job_on_a_lost_node_can_be_deleted_and_made_again_under_its_name() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("node-again", async |ns| {
        let (victim, refuge) = victim_and_refuge(ns).await?;
        let on = |name: &str| {
            job("again")
                .workers(2)
                .worker_template(short_toleration())
                .worker_template(
                    json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": name}}}),
                )
                .launcher_template(
                    json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": refuge}}}),
                )
        };
        ns.create(&on(&victim)).await?;
        let first = ns.until_launcher_runs("again", &[]).await?;
        ns.cluster.cluster_sh(&["node-stop", &victim]).await?;
        let result = async {
            ns.delete_mpijob("again").await?;
            poll("the MPIJob gone", SOON, async || {
                Ok(ns
                    .mpijob_api()
                    .get_opt("again")
                    .await?
                    .is_none()
                    .then_some(()))
            })
            .await?;
            ns.create(&on(&refuge)).await?;
            let second = ns.until_launcher_runs("again", &[uid(&first)]).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let hosts = ns
                .exec(&second, &["getent", "ahosts", "again-worker-0.again"])
                .await?;
            let address = hosts
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
            let workers = ns.until_new_workers_ready("again", 2, &refuge).await?;
            let status = workers[&0].status.clone().unwrap_or_default();
            assert_eq!(
                Some(address),
                status.pod_ip,
                "the name leads to the new worker"
            );
            ns.tell(&second).await?;
            ns.until_succeeded("again").await
        }
        .await;
        start_again(ns, &victim).await?;
        result.map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn workers_leave_a_tainted_node_and_are_ready_elsewhere_under_their_index() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("taint", async |ns| {
        let (victim, refuge) = victim_and_refuge(ns).await?;
        let taint = format!("mpi-operator.e2e/{}", ns.name);
        let preferred = json!({"spec": {"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [victim]},
                ],
            }}],
        }}}});
        let on_refuge = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": refuge}}});
        let job = job("taint").workers(2).worker_template(preferred);
        ns.create(&job.launcher_template(on_refuge)).await?;
        let launcher = ns.until_launcher_runs("taint", &[]).await?;
        let before = ns.until_workers_ready("taint", 2).await?;
        let lost: Vec<u32> = before
            .iter()
            .filter(|(_, pod)| node(pod) == victim)
            .map(|(index, _)| *index)
            .collect();
        assert!(
            !lost.is_empty(),
            "the scheduler placed no worker on {victim}"
        );
        let mark = ns.pods.mark();
        let line = format!("{taint}=yes:NoExecute");
        ns.cluster
            .kubectl(&["taint", "node", &victim, &line])
            .await?;
        let result = async {
            for index in &lost {
                let took = ns.until_replaced("taint", &before[index], mark).await?;
                assert!(
                    took <= e2e::WORKER_BACK,
                    "worker {index} back after {took:?}"
                );
            }
            let after = ns.until_workers_ready("taint", 2).await?;
            assert!(after.values().all(|p| node(p) == refuge));
            ns.assert_nothing_counted("taint").await?;
            ns.tell(&launcher).await?;
            ns.until_succeeded("taint").await
        }
        .await;
        ns.cluster
            .kubectl(&["taint", "node", &victim, &format!("{line}-")])
            .await?;
        result.map(|_| ())
    })
    .await;
}
