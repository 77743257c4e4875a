//! What people type: `kubectl get`, `wait`, `logs`, `scale`, `explain`, `apply` work on MPIJobs as
//! they expect, and the selectors of scripts in the wild find the pods.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{job, pi};
use e2e::wait::poll;
use e2e::{Namespace, SOON};

async fn kubectl(ns: &Namespace, line: &str) -> anyhow::Result<String> {
    ns.kubectl(&line.split_whitespace().collect::<Vec<_>>())
        .await
}

#[tokio::test]
async fn kubectl_get_shows_status_workers_tries_and_age() {
    e2e::in_namespace("columns", async |ns| {
        ns.create(&job("col").workers(2)).await?;
        ns.until_condition("col", "Running", "True").await?;
        let row = poll("the row of a running job", SOON, async || {
            let table = kubectl(ns, "get mpijobs").await?;
            let row = table.lines().nth(1).unwrap_or_default().to_owned();
            Ok(row.contains("2/2").then_some(table))
        })
        .await?;
        let head = row.lines().next().unwrap_or_default().to_uppercase();
        for column in ["NAME", "STATUS", "WORKERS", "AGE"] {
            assert!(head.contains(column), "{row}");
        }
        assert!(row.contains("Running"), "{row}");
        for short in ["mj", "mpij"] {
            let named = kubectl(ns, &format!("get {short} -o name")).await?;
            assert_eq!(named, "mpijob.kubeflow.org/col\n");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn kubectl_wait_and_logs_and_the_selectors_of_scripts_work() {
    e2e::in_namespace("scripts", async |ns| {
        ns.create(&pi("pi").workers(2).when_told("mpirun -n 2 /home/mpiuser/pi")).await?;
        let launcher = ns.until_launcher_runs("pi", &[]).await?;
        let workers = "training.kubeflow.org/job-name=pi,training.kubeflow.org/job-role=worker";
        kubectl(ns, &format!("wait --for=condition=ready pod -l {workers} --timeout=60s")).await?;
        ns.tell(&launcher).await?;
        kubectl(ns, "wait --for=condition=Succeeded mpijob/pi --timeout=180s").await?;
        for line in [
            "logs job/pi-launcher",
            "logs -l training.kubeflow.org/job-name=pi,training.kubeflow.org/job-role=launcher --tail=-1",
            "logs -l job-name=pi-launcher --tail=-1",
        ] {
            let log = kubectl(ns, line).await?;
            assert!(log.contains("pi is approximately 3.14"), "{line}: {log}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn kubectl_scale_changes_the_number_of_workers() {
    e2e::in_namespace("kubectl-scale", async |ns| {
        ns.create(&job("scale").workers(1)).await?;
        ns.until_launcher_runs("scale", &[]).await?;
        kubectl(ns, "scale mpijob/scale --replicas=2").await?;
        ns.until_workers_ready("scale", 2).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn kubectl_describe_alone_answers_why_a_job_does_not_run() {
    e2e::in_namespace("describe", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.create(&job("why").workers(2).worker_node_label(&label))
            .await?;
        ns.until_condition("why", "WorkersReady", "False").await?;
        poll("the reason in kubectl describe", SOON, async || {
            let text = kubectl(ns, "describe mpijob why").await?;
            Ok((text.contains("Unschedulable") && text.contains("node")).then_some(()))
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn kubectl_explain_and_client_side_apply_work() {
    e2e::in_namespace("explain", async |ns| {
        let text = kubectl(ns, "explain mpijob.spec.runPolicy.cleanPodPolicy").await?;
        assert!(text.contains("None") && text.contains("Running"), "{text}");
        let file = format!(
            "{}/samples/launcher-only-ok.yaml",
            env!("CARGO_MANIFEST_DIR")
        );
        ns.kubectl(&["apply", "-f", &file]).await?;
        ns.until_succeeded("alone").await?;
        let again = ns.kubectl(&["apply", "-f", &file]).await?;
        assert!(again.contains("unchanged"), "{again}");
        Ok(())
    })
    .await;
}
