//! Two operators: one leads, the other takes over. And what other flags change. Not beside other
//! tests: the operator's Deployment is changed for a while.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use e2e::cluster::OPERATOR;
use e2e::mpi::{condition, job, pi};
use e2e::wait::poll;
use e2e::{Cluster, Namespace, SOON};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// Deletes the leading pod and waits until another one leads; how long that took.
async fn replace_leader(cluster: &Cluster, how: &DeleteParams) -> anyhow::Result<Duration> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), OPERATOR);
    let first = cluster.until_leads(None).await?;
    pods.delete(&first, how).await?;
    let since = Instant::now();
    cluster.until_leads(Some(&first)).await?;
    let took = since.elapsed();
    // Two again, for the next round.
    poll("two ready operators", SOON, async || {
        let pods = cluster.operator_pods().await?;
        let ready = pods.iter().filter(|p| e2e::mpi::is_ready(p)).count();
        Ok((pods.len() == 2 && ready == 2).then_some(()))
    })
    .await?;
    Ok(took)
}

async fn two_operators(ns: &Namespace) -> anyhow::Result<()> {
    ns.create(&job("through").workers(1)).await?;
    let launcher = ns.until_launcher_runs("through", &[]).await?;
    let killed = replace_leader(&ns.cluster, &DeleteParams::default().grace_period(0)).await?;
    assert!(killed <= Duration::from_secs(20), "led after {killed:?}");
    ns.create(&pi("after-kill").workers(2)).await?;
    ns.until_succeeded("after-kill").await?;
    let ended = replace_leader(&ns.cluster, &DeleteParams::default()).await?;
    assert!(ended <= Duration::from_secs(6), "led after {ended:?}");
    ns.create(&pi("after-end").workers(2)).await?;
    ns.until_succeeded("after-end").await?;
    // What ran all the time was left alone.
    ns.tell(&launcher).await?;
    ns.until_succeeded("through").await?;
    assert_eq!(ns.launchers_ever("through").len(), 1);
    Ok(())
}

#[tokio::test]
async fn contract_07_37_of_two_operators_one_leads_and_the_other_takes_over_when_it_ends() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("two", async |ns| {
        ns.cluster.scale_operator(2).await?;
        let result = two_operators(ns).await;
        ns.cluster.scale_operator(1).await?;
        ns.cluster.until_leads(None).await?;
        result
    })
    .await;
}

async fn metrics(cluster: &Cluster) -> anyhow::Result<String> {
    let pod = cluster.until_leads(None).await?;
    let url = format!("/api/v1/namespaces/{OPERATOR}/pods/{pod}:9090/proxy/metrics");
    cluster.kubectl(&["get", "--raw", &url]).await
}

/// The value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn contract_07_39_the_five_metrics_count_what_happens_and_forget_deleted_jobs() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("metrics", async |ns| {
        let cluster = ns.cluster.clone();
        let flags = ["-monitoring-port", "9090", "--v=2", "-logtostderr=true"];
        cluster
            .with_operator_flags(&flags, async || {
                let before = metrics(&ns.cluster).await?;
                ns.create(&pi("good").workers(1).script("true")).await?;
                ns.create(&job("bad").script("false").backoff_limit(0))
                    .await?;
                ns.until_succeeded("good").await?;
                ns.until_failed("bad").await?;
                let info = format!(
                    "mpi_operator_job_info{{launcher=\"good-launcher\",namespace=\"{}\"}}",
                    ns.name
                );
                let after = metrics(&ns.cluster).await?;
                assert_eq!(value(&after, &info), Some(1.0), "{after}");
                assert_eq!(value(&after, "mpi_operator_is_leader"), Some(1.0));
                for (name, more) in [
                    ("mpi_operator_jobs_created_total", 2.0),
                    ("mpi_operator_jobs_successful_total", 1.0),
                    ("mpi_operator_jobs_failed_total", 1.0),
                ] {
                    let added = value(&after, name).unwrap() - value(&before, name).unwrap_or(0.0);
                    assert!(added >= more, "{name} grew by {added}");
                    assert!(after.contains(&format!("# TYPE {name} counter")));
                }
                ns.delete_mpijob("good").await?;
                poll("job_info of a deleted job gone", SOON, async || {
                    let now = metrics(&ns.cluster).await?;
                    Ok(value(&now, &info).is_none().then_some(()))
                })
                .await
            })
            .await
    })
    .await;
}

#[tokio::test]
async fn contract_07_36_with_a_namespace_and_a_domain_the_operator_keeps_to_them() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("one", async |ns| {
        let cluster = ns.cluster.clone();
        let namespace = format!("-namespace={}", ns.name);
        let flags = [
            &*namespace,
            "--cluster-domain",
            "cluster.local",
            "-threadiness=4",
            "-kube-api-qps=50",
        ];
        cluster
            .with_operator_flags(&flags, async || {
                e2e::in_namespace("not-this", async |other| {
                    other.create(&job("not").script("true")).await?;
                    ns.create(
                        &pi("mine")
                            .workers(2)
                            .when_told("mpirun -n 2 /home/mpiuser/pi"),
                    )
                    .await?;
                    let launcher = ns.until_launcher_runs("mine", &[]).await?;
                    let file = ns.exec(&launcher, &["cat", "/etc/mpi/hostfile"]).await?;
                    let first =
                        format!("mine-worker-0.mine.{}.svc.cluster.local slots=1\n", ns.name);
                    assert!(file.starts_with(&first), "{file}");
                    ns.tell(&launcher).await?;
                    ns.until_succeeded("mine").await?;
                    let untouched = other.mpijob_api().get("not").await?;
                    assert!(condition(&untouched, "Created").is_none());
                    Ok(())
                })
                .await;
                Ok(())
            })
            .await
    })
    .await;
}

#[tokio::test]
async fn contract_07_37_the_lease_has_the_times_of_the_go_operator() {
    let _alone = ALONE.lock().await;
    let Ok(Some(cluster)) = Cluster::connect().await else {
        return;
    };
    let leader = cluster.until_leads(None).await.unwrap();
    let lease = ["get", "lease", OPERATOR, "-n", OPERATOR, "-o", "json"];
    let lease: serde_json::Value =
        serde_json::from_str(&cluster.kubectl(&lease).await.unwrap()).unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    let (host, id) = holder.split_once('_').unwrap();
    assert_eq!((host, id.len()), (&*leader, 36), "{holder}");
    let pods = cluster.operator_pods().await.unwrap();
    assert!(pods.iter().any(|p| p.name_any() == leader));
}
