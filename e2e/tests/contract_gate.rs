//! The launcher starts behind the gate, ends well beside others that touch its Jobs, and leaves
//! nothing behind. Each test is one line of the contract; the gate's own tests say more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::history::Change;
use e2e::mpi::{belongs_to, is_ready, job, phase, uid};
use e2e::wait::poll;
use e2e::{Namespace, SOON};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

/// Makes a worker unready, or Ready again, and waits until it is.
async fn set_ready(ns: &Namespace, pod: &Pod, ready: bool) -> anyhow::Result<()> {
    let command = if ready { "rm" } else { "touch" };
    ns.exec(pod, &[command, "/tmp/unready"]).await?;
    ns.pods
        .until_live("the worker's readiness", SOON, |all| {
            let pod = all.values().find(|p| uid(*p) == uid(pod));
            Ok(pod.filter(|p| is_ready(p) == ready).map(|_| ()))
        })
        .await
}

#[tokio::test]
async fn contract_07_19_no_try_starts_while_a_worker_is_missing_at_start_retry_and_resume() {
    e2e::in_namespace("line-19", async |ns| {
        let fails_once = job("gate")
            .workers(2)
            .ready_by_file()
            .backoff_limit(3)
            .tries("sleep 4; exit 1", "echo later; sleep 1")
            .spec(json!({"launcherCreationPolicy": "WaitForWorkersReady"}));
        ns.create(&fails_once).await?;
        let first = ns.until_launcher_runs("gate", &[]).await?;
        let workers = ns.until_workers_ready("gate", 2).await?;
        set_ready(ns, &workers[&1], false).await?;
        ns.until_tries_ended("gate", 1).await?;
        ns.no_launcher_for("gate", std::time::Duration::from_secs(12))
            .await?;
        // Suspended and resumed in the wait for a retry: the gate is asked anew. The new workers do
        // not know of the first try, so the next one fails as well.
        ns.suspend("gate", true).await?;
        ns.until_condition("gate", "Suspended", "True").await?;
        // The pod of a try that ended keeps its log.
        ns.pods
            .until_live("only ended pods", SOON, |all| {
                let live = |p: &Pod| !matches!(phase(p), "Succeeded" | "Failed");
                Ok((!all.values().any(live)).then_some(()))
            })
            .await?;
        ns.suspend("gate", false).await?;
        ns.until_succeeded("gate").await?;
        let launchers = ns.launchers_ever("gate");
        assert_eq!(uid(&launchers[0]), uid(&first));
        assert_eq!(launchers.len(), 3);
        ns.assert_one_launcher_at_a_time("gate")?;
        ns.assert_gate_was_kept("gate", 2)?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_28_child_jobs_that_kueue_suspends_are_set_back_while_the_job_runs() {
    e2e::in_namespace("line-28", async |ns| {
        let queued = job("queued").workers(2).metadata(json!({
            "labels": {"kueue.x-k8s.io/queue-name": "any"},
        }));
        ns.create(&queued).await?;
        let first = ns.until_launcher_runs("queued", &[]).await?;
        ns.until_workers_ready("queued", 2).await?;
        let jobs = ns.api::<Job>();
        let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
        for name in ["queued-worker", "queued-launcher"] {
            jobs.patch(name, &PatchParams::default(), &suspend).await?;
        }
        let second = ns.until_launcher_runs("queued", &[uid(&first)]).await?;
        ns.assert_gate_was_kept("queued", 2)?;
        ns.tell(&second).await?;
        ns.until_succeeded("queued").await?;
        // After the end Kueue is left alone: what it suspends then stays suspended.
        jobs.patch("queued-worker", &PatchParams::default(), &suspend)
            .await?;
        ns.create(&job("other").script("true")).await?;
        ns.until_succeeded("other").await?;
        let spec = jobs.get("queued-worker").await?.spec.unwrap_or_default();
        assert_eq!(spec.suspend, Some(true));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_30_a_job_that_is_being_deleted_is_given_nothing_and_leaves_nothing() {
    e2e::in_namespace("line-30", async |ns| {
        let held = job("going").workers(2).metadata(json!({
            "finalizers": ["e2e.mpi-operator/hold"],
        }));
        ns.create(&held).await?;
        ns.until_launcher_runs("going", &[]).await?;
        ns.until_workers_ready("going", 2).await?;
        ns.delete_mpijob("going").await?;
        ns.until_mpijob("going", "a deletion mark", SOON, |o| {
            Ok(o.metadata.deletion_timestamp.is_some())
        })
        .await?;
        let mark = ns.jobs.mark();
        let now = DeleteParams::background();
        ns.api::<Job>().delete("going-launcher", &now).await?;
        ns.api::<Service>().delete("going", &now).await?;
        ns.create(&job("other").script("true")).await?;
        ns.until_succeeded("other").await?;
        assert!(ns.api::<Service>().get_opt("going").await?.is_none());
        let made = ns.jobs.since(mark);
        assert!(
            !made.iter().any(|one| one.change == Change::Added
                && one.object.metadata.name.as_deref() != Some("other-launcher")),
            "a Job was made for an MPIJob that is being deleted"
        );
        ns.patch("going", json!({"metadata": {"finalizers": null}}))
            .await?;
        poll("nothing of it left", SOON, async || {
            let kinds = "mpijobs,jobs,services,secrets,configmaps,pods";
            let all = ns.kubectl(&["get", kinds, "-o", "name"]).await?;
            Ok((!all.contains("/going")).then_some(()))
        })
        .await?;
        assert!(!ns.pods.live().values().any(|p| belongs_to(p, "going")));
        Ok(())
    })
    .await;
}
