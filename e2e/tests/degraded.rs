//! A server that has no Indexed Jobs and drops `suspend` (Kubernetes 1.21): a job runs over pod
//! addresses, and its launcher is held all the same.
//!
//! Whether the server is such a one is read back from a Job that is not stored. On any other these
//! tests say so and end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use e2e::Namespace;
use e2e::history::{Change, Seen, live};
use e2e::mpi::{
    IMAGE, condition, is_launcher_of, is_ready, is_terminating, is_worker_of, rank_hosts, sample,
    tries, uid,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

/// Whether this server stores neither `completionMode` nor `suspend`.
async fn is_old(ns: &Namespace) -> Result<bool> {
    let job: Job = serde_json::from_value(json!({
        "metadata": {"generateName": "asked-"},
        "spec": {
            "completionMode": "Indexed", "completions": 1, "suspend": true,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": IMAGE}],
            }},
        },
    }))?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let spec = ns.api::<Job>().create(&dry, &job).await?.spec;
    let spec = spec.unwrap_or_default();
    let old = spec.completion_mode.is_none() && spec.suspend.is_none();
    if !old {
        // Not eprintln!, whose lines the harness shows of failed tests only.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "this server has Indexed Jobs: nothing to see here")?;
    }
    Ok(old)
}

fn ready_workers(seen: &[Seen<Pod>], job: &str) -> Vec<Pod> {
    let mut pods: Vec<Pod> = live(seen).into_values().collect();
    pods.retain(|pod| is_worker_of(pod, job) && is_ready(pod) && !is_terminating(pod));
    pods
}

/// Each launcher pod was created at a moment when so many workers were Ready.
fn assert_gate_was_kept(ns: &Namespace, job: &str, workers: usize) {
    let seen = ns.pods.all();
    for (at, one) in seen.iter().enumerate() {
        if one.change == Change::Added && is_launcher_of(&one.object, job) {
            let ready = ready_workers(&seen[..at], job).len();
            assert_eq!(
                ready,
                workers,
                "at the creation of {}",
                one.object.name_any()
            );
        }
    }
}

fn ips(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter()
        .filter_map(|pod| pod.status.as_ref()?.pod_ip.clone())
        .collect()
}

async fn hostfile(ns: &Namespace, job: &str) -> Result<BTreeSet<String>> {
    let config = ns.api::<ConfigMap>().get(&format!("{job}-config")).await?;
    let text = config.data.unwrap_or_default()["hostfile"].clone();
    Ok(text
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect())
}

#[tokio::test]
async fn without_indexed_jobs_the_pi_sample_succeeds_over_pod_addresses() {
    e2e::in_namespace("degraded", async |ns| {
        if !is_old(ns).await? {
            return Ok(());
        }
        ns.create(&sample("pi-ok.yaml")?).await?;
        let told = ns.until_condition("pi", "Degraded", "True").await?;
        assert_eq!(told.reason, "IndexedJobUnavailable", "{told:?}");
        let end = ns.until_succeeded("pi").await?;
        assert_eq!(condition(&end, "Failed"), None);
        let launchers = ns.launchers_ever("pi");
        assert_eq!(launchers.len(), 1, "one try is enough");
        let log = ns.log(&launchers[0]).await?;
        assert!(log.contains("pi is approximately 3.14159"), "{log}");
        // A hostname is the pod's name there.
        let hosts: BTreeSet<String> = rank_hosts(&log).into_iter().collect();
        let workers: BTreeSet<String> = ns
            .pods
            .all()
            .iter()
            .filter(|one| is_worker_of(&one.object, "pi"))
            .map(|one| one.object.name_any())
            .collect();
        assert_eq!(hosts, workers, "{log}");
        assert_gate_was_kept(ns, "pi", 2);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn without_indexed_jobs_a_retry_waits_for_a_replaced_worker_and_finds_its_address() {
    e2e::in_namespace("degraded-retry", async |ns| {
        if !is_old(ns).await? {
            return Ok(());
        }
        // Runs until its worker is gone, and then fails.
        let job = e2e::mpi::job("pi")
            .workers(2)
            .run_policy(json!({"backoffLimit": 0, "workerLossPolicy": "RestartLauncher"}));
        ns.create(&job).await?;
        let first = ns.until_launcher_runs("pi", &[]).await?;
        let before = ready_workers(&ns.pods.all(), "pi");
        assert_eq!(hostfile(ns, "pi").await?, ips(&before));
        ns.delete_pod(&before[0]).await?;
        let second = ns.until_launcher_runs("pi", &[uid(&first)]).await?;
        let after = ready_workers(&ns.pods.all(), "pi");
        assert_eq!(hostfile(ns, "pi").await?, ips(&after));
        assert_ne!(ips(&before), ips(&after));
        ns.tell(&second).await?;
        let end = ns.until_succeeded("pi").await?;
        assert_eq!(tries(&end, "chargedTries"), 0);
        assert_gate_was_kept(ns, "pi", 2);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn without_suspend_nothing_runs_while_a_job_is_suspended() {
    e2e::in_namespace("degraded-suspend", async |ns| {
        if !is_old(ns).await? {
            return Ok(());
        }
        let job = e2e::mpi::job("pi")
            .workers(2)
            .run_policy(json!({"suspend": true}));
        ns.create(&job).await?;
        ns.until_condition("pi", "Suspended", "True").await?;
        ns.no_launcher_for("pi", std::time::Duration::from_secs(5))
            .await?;
        ns.suspend("pi", false).await?;
        let first = ns.until_launcher_runs("pi", &[]).await?;
        ns.suspend("pi", true).await?;
        ns.until_no_pods("pi").await?;
        ns.suspend("pi", false).await?;
        let second = ns.until_launcher_runs("pi", &[uid(&first)]).await?;
        ns.tell(&second).await?;
        ns.until_succeeded("pi").await?;
        assert_gate_was_kept(ns, "pi", 2);
        Ok(())
    })
    .await;
}
