//! An elastic program: it reads `discover_hosts.sh` again each round and runs mpirun over the hosts
//! that are there. It shrinks by name, grows into the gap and starts with the minimum, in one
//! launcher pod; nobody but the named workers notices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use e2e::elastic::{elastic, ensure_only_changed, remove_first, replicas};
use e2e::history::History;
use e2e::mpi::{condition, uid};
use k8s_openapi::api::core::v1::ConfigMap;

/// What docs/elastic.md says of the time from the ConfigMap into the running launcher.
const PROMISED: Duration = Duration::from_secs(5);

#[tokio::test]
async fn workers_leave_by_name_and_come_back_while_the_program_runs() {
    e2e::in_namespace("elastic", async |ns| {
        let files = History::<ConfigMap>::follow("configmaps", ns.api());
        ns.create(&elastic("el", 4, 1)).await?;
        let launcher = ns.until_launcher_runs("el", &[]).await?;
        let four = ns.until_workers_ready("el", 4).await?;
        ns.until_round(&launcher, &[0, 1, 2, 3]).await?;

        ns.patch("el", remove_first("el", &[1], 3)).await?;
        ns.until_round(&launcher, &[0, 2, 3]).await?;
        let three = ns.until_workers_ready("el", 3).await?;
        ensure_only_changed(&four, &three, &[1])?;

        ns.patch("el", replicas(4)).await?;
        ns.until_round(&launcher, &[0, 1, 2, 3]).await?;
        let again = ns.until_workers_ready("el", 4).await?;
        ensure_only_changed(&three, &again, &[1])?;
        assert_ne!(uid(&four[&1]), uid(&again[&1]));

        // The name has acted; another worker leaves, until the list changes.
        ns.patch("el", replicas(3)).await?;
        ns.until_round(&launcher, &[0, 1, 2]).await?;
        let highest = ns.until_workers_ready("el", 3).await?;
        ensure_only_changed(&again, &highest, &[3])?;
        ns.patch("el", remove_first("el", &[0, 2], 1)).await?;
        ns.until_round(&launcher, &[1]).await?;
        let one = ns.until_workers_ready("el", 1).await?;
        ensure_only_changed(&highest, &one, &[0, 2])?;
        ns.patch("el", replicas(4)).await?;
        ns.until_round(&launcher, &[0, 1, 2, 3]).await?;

        ns.assert_nothing_counted("el").await?;
        let times = ns.refresh_times("el", &launcher, &files).await?;
        println!("from the ConfigMap into the launcher: {times:?}");
        assert!(times.len() >= 6, "{times:?}");
        assert!(times.iter().all(|time| *time <= PROMISED), "{times:?}");
        let object = ns.mpijob_api().get("el").await?;
        assert!(condition(&object, "Degraded").is_none_or(|c| !c.is_true()));
        ns.tell(&launcher).await?;
        ns.until_succeeded("el").await?;
        assert_eq!(ns.launchers_ever("el").len(), 1, "the launcher pod stays");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_launcher_starts_with_the_minimum_and_the_others_join() {
    e2e::in_namespace("minimum", async |ns| {
        ns.create(&elastic("min", 3, 2).hold_worker(1)).await?;
        let launcher = ns.until_launcher_runs("min", &[]).await?;
        ns.until_condition("min", "Running", "True").await?;
        ns.until_round(&launcher, &[0, 2]).await?;
        let object = ns.mpijob_api().get("min").await?;
        let ready = condition(&object, "WorkersReady").expect("it is there");
        assert_eq!(ready.reason, "EnoughReady", "{ready:?}");
        let held = ns.worker_ever("min", 1).pop().expect("it was created");
        ns.exec_in(&held, Some("hold"), &["touch", "/tmp/go"])
            .await?;
        ns.until_round(&launcher, &[0, 1, 2]).await?;
        ns.until_mpijob("min", "all Ready", e2e::SOON, |object| {
            Ok(condition(object, "WorkersReady").is_some_and(|c| c.reason == "AllReady"))
        })
        .await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("min").await?;
        assert_eq!(ns.launchers_ever("min").len(), 1);
        Ok(())
    })
    .await;
}
