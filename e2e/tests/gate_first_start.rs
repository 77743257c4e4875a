//! The first launcher pod is created when every worker is Ready, never before, whatever keeps a
//! worker; and the MPIJob says which worker it waits for, and why.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::mpi::{MpiJob, condition, job, pi};
use e2e::{Namespace, SOON};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// The job is held: its launcher Job exists, suspended, and the condition has one of `reasons` and
/// names `index`.
async fn assert_held(
    ns: &Namespace,
    name: &str,
    reasons: &[&str],
    index: &str,
) -> anyhow::Result<()> {
    ns.until_job(&format!("{name}-launcher"), "suspended", |job| {
        job.spec.as_ref().is_some_and(|s| s.suspend == Some(true))
    })
    .await?;
    let told = ns
        .until_mpijob(
            name,
            &format!("WorkersReady=False with one of {reasons:?}"),
            SOON,
            |object| {
                Ok(condition(object, "WorkersReady")
                    .is_some_and(|c| c.status == "False" && reasons.contains(&c.reason.as_str())))
            },
        )
        .await?;
    let told = condition(&told, "WorkersReady").expect("it was there");
    assert!(
        told.message.contains(index),
        "worker {index} is not named: {told:?}"
    );
    assert_eq!(ns.launchers_ever(name).len(), 0, "no launcher while held");
    ns.no_launcher_for(name, Duration::from_secs(5)).await
}

async fn pod_of(ns: &Namespace, name: &str, index: u32) -> anyhow::Result<Pod> {
    ns.pods
        .until(&format!("worker {index}"), SOON, |seen| {
            Ok(e2e::wait::workers_at(seen, name).remove(&index))
        })
        .await
}

async fn end_well(ns: &Namespace, name: &str, workers: u32) -> anyhow::Result<()> {
    let end = ns.until_succeeded(name).await?;
    assert!(condition(&end, "WorkersReady").is_some());
    assert_eq!(ns.launchers_ever(name).len(), 1, "one try");
    ns.assert_gate_was_kept(name, workers)
}

#[tokio::test]
async fn no_launcher_before_the_init_container_of_a_worker_is_done() {
    e2e::in_namespace("gate-init", async |ns| {
        ns.create(&pi("held").workers(2).hold_worker(1)).await?;
        assert_held(ns, "held", &["WaitingForWorkers"], "1").await?;
        let worker = pod_of(ns, "held", 1).await?;
        ns.exec_in(&worker, Some("hold"), &["touch", "/tmp/go"])
            .await?;
        end_well(ns, "held", 2).await
    })
    .await;
}

#[tokio::test]
async fn no_launcher_while_a_worker_is_unschedulable() {
    e2e::in_namespace("gate-node", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.create(&pi("held").workers(2).worker_node_label(&label))
            .await?;
        assert_held(ns, "held", &["Unschedulable"], "0").await?;
        ns.cluster.label_nodes(&label, Some("yes")).await?;
        let end = end_well(ns, "held", 2).await;
        ns.cluster.label_nodes(&label, None).await?;
        end
    })
    .await;
}

#[tokio::test]
async fn no_launcher_while_the_image_of_the_workers_cannot_be_pulled() {
    e2e::in_namespace("gate-image", async |ns| {
        let absent = json!({"image": "localhost:9/absent:dev"});
        ns.create(&pi("held").workers(2).worker_container(absent))
            .await?;
        assert_held(ns, "held", &["ImagePullFailed"], "0").await
    })
    .await;
}

#[tokio::test]
async fn no_launcher_before_the_readiness_probe_of_a_worker_passes() {
    e2e::in_namespace("gate-probe", async |ns| {
        let probed = pi("held").workers(2).worker_container(json!({
            "readinessProbe": {
                "exec": {"command": ["test", "-e", "/tmp/go"]},
                "periodSeconds": 1, "timeoutSeconds": 10,
            },
        }));
        ns.create(&probed).await?;
        for index in [0, 1] {
            let pod = pod_of(ns, "held", index).await?;
            ns.pods
                .until_live("the worker to run", SOON, |all| {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    Ok(all
                        .get(name)
                        .filter(|p| e2e::mpi::phase(p) == "Running")
                        .map(|_| ()))
                })
                .await?;
        }
        let zero = pod_of(ns, "held", 0).await?;
        ns.tell(&zero).await?;
        assert_held(ns, "held", &["WaitingForWorkers", "ProbeFailing"], "1").await?;
        ns.tell(&pod_of(ns, "held", 1).await?).await?;
        end_well(ns, "held", 2).await
    })
    .await;
}

#[tokio::test]
async fn no_launcher_while_a_quota_keeps_workers_from_being_created() {
    e2e::in_namespace("gate-quota", async |ns| {
        let quota: ResourceQuota = serde_json::from_value(json!({
            "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}},
        }))?;
        let quotas = ns.api::<ResourceQuota>();
        quotas.create(&PostParams::default(), &quota).await?;
        // A quota holds from the moment on at which its use is known.
        e2e::wait::poll("the quota in force", SOON, async || {
            let status = quotas.get("few").await?.status.unwrap_or_default();
            Ok(status.used.map(|_| ()))
        })
        .await?;
        ns.create(&pi("held").workers(2)).await?;
        assert_held(ns, "held", &["QuotaExceeded"], "1").await?;
        quotas.delete("few", &DeleteParams::default()).await?;
        end_well(ns, "held", 2).await
    })
    .await;
}

#[tokio::test]
async fn launcher_creation_policy_at_startup_does_not_wait() {
    e2e::in_namespace("at-startup", async |ns| {
        let early: MpiJob = job("early")
            .workers(1)
            .hold_worker(0)
            .spec(json!({"launcherCreationPolicy": "AtStartup"}));
        ns.create(&early).await?;
        let launcher = ns.until_launcher_runs("early", &[]).await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("early").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_default_policy_is_stored_so_that_schedulers_can_read_it() {
    e2e::in_namespace("default", async |ns| {
        let stored = ns.create(&pi("default").workers(1).suspended()).await?;
        assert_eq!(
            stored.data["spec"]["launcherCreationPolicy"],
            "WaitForWorkersReady"
        );
        Ok(())
    })
    .await;
}
