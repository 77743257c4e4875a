//! However a worker goes, its index comes back and nothing blocks: evicted, sshd ended or crashed,
//! stuck in Terminating behind somebody's finalizer. A worker that crashes again and again is
//! slowed down, and never the others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::mpi::{MpiJob, condition, is_terminating, job, pi, uid};
use e2e::{LATER, Namespace, WORKER_BACK};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::EvictParams;
use serde_json::json;

/// Three workers, a launcher that waits; worker 1 is lost by `how`; then the job ends well.
async fn lose_worker_1(
    ns: &Namespace,
    how: impl AsyncFn(&Pod) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    lose_worker_1_of(ns, job("lossy").workers(3), how).await
}

/// The same with a job "lossy" of three workers that is a little different.
async fn lose_worker_1_of(
    ns: &Namespace,
    lossy: MpiJob,
    how: impl AsyncFn(&Pod) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ns.create(&lossy).await?;
    let launcher = ns.until_launcher_runs("lossy", &[]).await?;
    let before = ns.until_workers_ready("lossy", 3).await?;
    let took = ns.lose_workers("lossy", &[before[&1].clone()], how).await?;
    // A bare Indexed Job needs at least ten seconds here. The tighter bound is measured where
    // nothing runs beside the test.
    assert!(
        took[0] < WORKER_BACK + Duration::from_secs(3),
        "back after {took:?}"
    );
    let after = ns.until_workers_ready("lossy", 3).await?;
    assert_eq!(uid(&after[&0]), uid(&before[&0]));
    assert_eq!(uid(&after[&2]), uid(&before[&2]));
    ns.assert_nothing_counted("lossy").await?;
    ns.tell(&launcher).await?;
    ns.until_succeeded("lossy").await?;
    Ok(())
}

#[tokio::test]
async fn an_evicted_worker_comes_back() {
    e2e::in_namespace("evicted", async |ns| {
        lose_worker_1(ns, async |pod| {
            ns.api::<Pod>()
                .evict(&pod.name_any(), &EvictParams::default())
                .await?;
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_sshd_ends_with_success_comes_back() {
    e2e::in_namespace("sshd-ends", async |ns| {
        lose_worker_1(ns, async |pod| {
            ns.exec(pod, &["sh", "-c", "kill -TERM 1"]).await.ok();
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_sshd_crashes_comes_back() {
    e2e::in_namespace("sshd-crash", async |ns| {
        lose_worker_1(ns, async |pod| {
            ns.exec(pod, &["sh", "-c", "kill -QUIT 1"]).await.ok();
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_worker_deleted_without_grace_comes_back() {
    e2e::in_namespace("forced", async |ns| {
        lose_worker_1(ns, async |pod| {
            let now = kube::api::DeleteParams::default().grace_period(0);
            ns.api::<Pod>().delete(&pod.name_any(), &now).await?;
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_killed_for_its_memory_comes_back() {
    e2e::in_namespace("oom", async |ns| {
        // When told, PID 1 turns into a program that takes all memory it can get.
        let hungry = json!({
            "command": ["sh", "-c"],
            "args": ["/usr/sbin/sshd -f /home/mpiuser/.sshd_config; \
                      until [ -e /tmp/go ]; do sleep 0.2; done; exec tail /dev/zero"],
            "resources": {"limits": {"memory": "64Mi"}},
        });
        lose_worker_1_of(
            ns,
            job("lossy").workers(3).worker_container(hungry),
            async |pod| ns.tell(pod).await,
        )
        .await?;
        let killed = ns.worker_ever("lossy", 1)[0].clone();
        let states = killed
            .status
            .unwrap_or_default()
            .container_statuses
            .unwrap_or_default();
        let ended = states.first().and_then(|c| c.state.clone()?.terminated);
        let reason = ended.and_then(|t| t.reason);
        assert_eq!(
            reason.as_deref(),
            Some("OOMKilled"),
            "this is what the test is about"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_stuck_in_terminating_blocks_nothing_and_is_reported() {
    e2e::in_namespace("stuck", async |ns| {
        ns.create(
            &pi("stuck")
                .workers(2)
                .when_told("mpirun -n 2 /home/mpiuser/pi"),
        )
        .await?;
        let launcher = ns.until_launcher_runs("stuck", &[]).await?;
        let before = ns.until_workers_ready("stuck", 2).await?;
        ns.hold_pod(&before[&0]).await?;
        let took = ns
            .lose_workers("stuck", &[before[&0].clone()], async |pod| {
                ns.delete_pod(pod).await
            })
            .await?;
        assert!(
            took[0] < WORKER_BACK + Duration::from_secs(3),
            "back after {took:?}"
        );
        let husk = ns.api::<Pod>().get(&before[&0].name_any()).await?;
        assert!(is_terminating(&husk), "the husk is still there");
        let told = ns
            .until_mpijob("stuck", "Degraded with StuckTerminating", LATER, |object| {
                Ok(condition(object, "Degraded")
                    .is_some_and(|c| c.is_true() && c.reason == "StuckTerminating"))
            })
            .await?;
        let told = condition(&told, "Degraded").expect("it was there");
        assert!(told.message.contains(&husk.name_any()), "{told:?}");
        assert!(
            told.message.contains(e2e::namespace::HOLD_FINALIZER),
            "{told:?}"
        );
        ns.until_event("stuck", "StuckTerminating").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("stuck").await?;
        ns.assert_nothing_counted("stuck").await?;
        let husk = ns.api::<Pod>().get(&before[&0].name_any()).await?;
        let finalizers = husk.finalizers();
        assert!(
            finalizers
                .iter()
                .any(|f| f == e2e::namespace::HOLD_FINALIZER),
            "a foreign finalizer is not ours to remove: {finalizers:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_stuck_worker_does_not_keep_a_suspended_job_from_being_resumed() {
    e2e::in_namespace("stuck-resume", async |ns| {
        ns.create(&job("stuck").workers(2)).await?;
        let first = ns.until_launcher_runs("stuck", &[]).await?;
        let before = ns.until_workers_ready("stuck", 2).await?;
        ns.hold_pod(&before[&1]).await?;
        ns.suspend("stuck", true).await?;
        ns.until_condition("stuck", "Suspended", "True").await?;
        ns.suspend("stuck", false).await?;
        let second = ns.until_launcher_runs("stuck", &[uid(&first)]).await?;
        assert!(
            ns.api::<Pod>()
                .get_opt(&before[&1].name_any())
                .await?
                .is_some()
        );
        ns.tell(&second).await?;
        ns.until_succeeded("stuck").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_in_a_crash_loop_is_slowed_down_and_the_others_are_not() {
    e2e::in_namespace("crash-loop", async |ns| {
        // Worker 1 runs for a second, then fails, for ever.
        let looping = job("looping").workers(3).worker_container(json!({
            "command": ["sh", "-c"],
            "args": ["case $HOSTNAME in *-1) sleep 1; exit 7;; esac; \
                      exec /usr/sbin/sshd -De -f /home/mpiuser/.sshd_config"],
        }));
        ns.create(&looping).await?;
        let told = ns
            .until_mpijob("looping", "a crash is told", LATER, |object| {
                Ok(condition(object, "WorkersReady").is_some_and(|c| {
                    c.status == "False" && matches!(c.reason.as_str(), "CrashLooping" | "BackOff")
                }))
            })
            .await?;
        let told = condition(&told, "WorkersReady").expect("it was there");
        assert!(
            told.message.contains('1') && told.message.contains('7'),
            "index and exit code: {told:?}"
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        let pods = ns.worker_ever("looping", 1).len();
        assert!(
            (4..=12).contains(&pods),
            "{pods} pods of the looping worker in a minute"
        );
        let before = e2e::wait::workers_at(&ns.pods.all(), "looping");
        let took = ns
            .lose_workers("looping", &[before[&0].clone()], async |pod| {
                ns.delete_pod(pod).await
            })
            .await?;
        assert!(
            took[0] < WORKER_BACK + Duration::from_secs(3),
            "held by the loop: {took:?}"
        );
        assert_eq!(
            ns.worker_ever("looping", 2).len(),
            1,
            "worker 2 is left alone"
        );
        Ok(())
    })
    .await;
}
