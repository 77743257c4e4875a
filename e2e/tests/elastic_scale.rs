//! The `scale` subresource: what kubectl and a HorizontalPodAutoscaler do with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::elastic::ensure_only_changed;
use e2e::mpi::job;
use e2e::wait::poll;
use e2e::{Namespace, SOON};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn scale_of(ns: &Namespace, job: &str) -> anyhow::Result<Value> {
    let path = format!(
        "/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs/{job}/scale",
        ns.name
    );
    ns.cluster.raw(&path).await
}

#[tokio::test]
async fn kubectl_scale_shrinks_and_grows_and_scale_tells_the_pods() {
    e2e::in_namespace("kubectl-scale", async |ns| {
        ns.create(&job("sc").workers(3)).await?;
        let launcher = ns.until_launcher_runs("sc", &[]).await?;
        let three = ns.until_workers_ready("sc", 3).await?;
        ns.kubectl(&["scale", "mpijob/sc", "--replicas=2"]).await?;
        let two = ns.until_workers_ready("sc", 2).await?;
        ensure_only_changed(&three, &two, &[2])?;
        let scale = poll("the scale to say 2", SOON, async || {
            let scale = scale_of(ns, "sc").await?;
            Ok((scale["status"]["replicas"] == 2).then_some(scale))
        })
        .await?;
        assert_eq!(scale["spec"]["replicas"], 2);
        let selector = scale["status"]["selector"].as_str().expect("a text");
        let pods = ["get", "pods", "--no-headers", "-l", selector];
        assert_eq!(ns.kubectl(&pods).await?.lines().count(), 2, "{selector}");
        ns.kubectl(&["scale", "mpijob/sc", "--replicas=4"]).await?;
        let four = ns.until_workers_ready("sc", 4).await?;
        ensure_only_changed(&two, &four, &[2, 3])?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("sc").await?;
        Ok(())
    })
    .await;
}

/// Without metrics an autoscaler still keeps the number of workers within its own limits.
#[tokio::test]
async fn a_horizontal_pod_autoscaler_reads_and_sets_the_number_of_workers() {
    e2e::in_namespace("hpa", async |ns| {
        ns.create(&job("hpa").workers(1)).await?;
        let launcher = ns.until_launcher_runs("hpa", &[]).await?;
        let one = ns.until_workers_ready("hpa", 1).await?;
        let scaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hpa"},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "hpa",
                },
                "minReplicas": 3,
                "maxReplicas": 4,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        }))?;
        let scalers = ns.api::<HorizontalPodAutoscaler>();
        scalers.create(&PostParams::default(), &scaler).await?;
        poll("AbleToScale=True", SOON, async || {
            let status = scalers.get("hpa").await?.status.unwrap_or_default();
            let able =
                status.conditions.iter().flatten().any(|condition| {
                    condition.type_ == "AbleToScale" && condition.status == "True"
                });
            Ok(able.then_some(()))
        })
        .await?;
        let three = ns.until_workers_ready("hpa", 3).await?;
        ensure_only_changed(&one, &three, &[1, 2])?;
        let limits = json!({"spec": {"minReplicas": 1, "maxReplicas": 2}});
        scalers
            .patch("hpa", &PatchParams::default(), &Patch::Merge(&limits))
            .await?;
        let two = ns.until_workers_ready("hpa", 2).await?;
        ensure_only_changed(&three, &two, &[2])?;
        assert_eq!(ns.launchers_ever("hpa").len(), 1);
        scalers
            .delete("hpa", &kube::api::DeleteParams::default())
            .await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("hpa").await?;
        Ok(())
    })
    .await;
}
