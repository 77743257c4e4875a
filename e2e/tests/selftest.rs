//! The library itself works against the cluster: a bare Job, no operator involved, is created,
//! followed, asked and removed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::SOON;
use e2e::mpi::{IMAGE, is_ready, phase};
use k8s_openapi::api::batch::v1::Job;
use kube::api::PostParams;
use serde_json::json;

#[tokio::test]
async fn the_library_follows_a_bare_job_and_runs_commands_in_its_pod() {
    e2e::in_namespace("self", async |ns| {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "bare"},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "securityContext": {"runAsUser": 1000},
                    "command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done; echo done"],
                }],
            }}},
        }))?;
        ns.api::<Job>().create(&PostParams::default(), &job).await?;
        let pod = ns
            .pods
            .until_live("a ready pod", SOON, |all| {
                Ok(all.values().find(|p| is_ready(p)).cloned())
            })
            .await?;
        assert_eq!(ns.exec(&pod, &["id", "-u"]).await?.trim(), "1000");
        assert!(ns.exec(&pod, &["false"]).await.is_err());
        ns.tell(&pod).await?;
        ns.pods
            .until_live("the pod to end", SOON, |all| {
                Ok(all.values().any(|p| phase(p) == "Succeeded").then_some(()))
            })
            .await?;
        assert_eq!(ns.log(&pod).await?, "done\n");
        ns.until_job("bare", "complete", |job| {
            job.status.as_ref().is_some_and(|s| s.succeeded == Some(1))
        })
        .await?;
        let shown = ns.kubectl(&["get", "job", "bare", "-o", "name"]).await?;
        assert_eq!(shown, "job.batch/bare\n");
        Ok(())
    })
    .await;
}
