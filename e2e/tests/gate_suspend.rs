//! A suspended job has no pod, from its first second on; and the launcher of a resumed job waits
//! for the workers like every other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::mpi::{belongs_to, condition, pi};
use e2e::{Namespace, SOON};

async fn release_worker_1(ns: &Namespace, name: &str) -> anyhow::Result<()> {
    let worker = ns
        .pods
        .until("worker 1 in its init container", SOON, |seen| {
            Ok(e2e::wait::workers_at(seen, name).remove(&1).filter(|p| {
                let status = p.status.as_ref();
                let init = status.and_then(|s| s.init_container_statuses.as_ref());
                init.is_some_and(|all| {
                    all.iter()
                        .any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
                })
            }))
        })
        .await?;
    ns.exec_in(&worker, Some("hold"), &["touch", "/tmp/go"])
        .await?;
    Ok(())
}

#[tokio::test]
async fn contract_07_25_a_job_that_is_suspended_from_its_first_second_has_no_pod_until_it_is_resumed()
 {
    e2e::in_namespace("suspended", async |ns| {
        ns.create(&pi("asleep").workers(2).suspended()).await?;
        let told = ns.until_condition("asleep", "Suspended", "True").await?;
        assert_eq!(told.reason, "MPIJobSuspended");
        assert_eq!(told.message, "MPIJob suspended");
        let running = ns.until_condition("asleep", "Running", "False").await?;
        assert_eq!(running.reason, "MPIJobSuspended");
        // Everything else is there.
        ns.until_job("asleep-launcher", "suspended", |job| {
            job.spec.as_ref().is_some_and(|s| s.suspend == Some(true))
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let pods = ns.pods.all();
        assert!(
            !pods.iter().any(|one| belongs_to(&one.object, "asleep")),
            "{pods:?}"
        );
        let object = ns.mpijob_api().get("asleep").await?;
        assert!(
            object.data["status"]["startTime"].is_null(),
            "it never started"
        );
        ns.suspend("asleep", false).await?;
        let end = ns.until_succeeded("asleep").await?;
        let told = condition(&end, "Suspended").expect("it stays in the list");
        assert_eq!(
            (told.status.as_str(), told.reason.as_str()),
            ("False", "MPIJobResumed")
        );
        assert!(end.data["status"]["startTime"].is_string());
        assert_eq!(ns.launchers_ever("asleep").len(), 1);
        ns.assert_gate_was_kept("asleep", 2)
    })
    .await;
}

#[tokio::test]
async fn the_launcher_of_a_resumed_job_waits_for_the_workers() {
    e2e::in_namespace("gate-resume", async |ns| {
        ns.create(
            &pi("again")
                .workers(2)
                .hold_worker(1)
                .when_told("mpirun -n 2 /home/mpiuser/pi"),
        )
        .await?;
        release_worker_1(ns, "again").await?;
        let first = ns.until_launcher_runs("again", &[]).await?;
        ns.suspend("again", true).await?;
        ns.until_condition("again", "Suspended", "True").await?;
        ns.until_no_pods("again").await?;
        ns.suspend("again", false).await?;
        ns.until_condition("again", "WorkersReady", "False").await?;
        ns.no_launcher_for("again", Duration::from_secs(8)).await?;
        release_worker_1(ns, "again").await?;
        let second = ns
            .until_launcher_runs("again", &[e2e::mpi::uid(&first)])
            .await?;
        ns.tell(&second).await?;
        ns.until_succeeded("again").await?;
        assert_eq!(ns.launchers_ever("again").len(), 2);
        ns.assert_gate_was_kept("again", 2)
    })
    .await;
}

#[tokio::test]
async fn suspend_and_resume_in_quick_succession_ends_well() {
    e2e::in_namespace("flip", async |ns| {
        ns.create(&pi("flip").workers(2)).await?;
        for round in 0..3 {
            tokio::time::sleep(Duration::from_millis(700 * round)).await;
            ns.suspend("flip", true).await?;
            ns.suspend("flip", false).await?;
        }
        ns.until_succeeded("flip").await?;
        ns.assert_one_launcher_at_a_time("flip")?;
        ns.assert_gate_was_kept("flip", 2)
    })
    .await;
}
