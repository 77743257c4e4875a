//! The first five minutes of a user: the pi sample Succeeds with ranks on two hosts on two nodes, a
//! launcher alone Succeeds, and a program that fails is Failed after exactly the tries it was given.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use e2e::mpi::{condition, is_worker_of, node, phase, rank_hosts, sample, tries};
use kube::ResourceExt;

#[tokio::test]
async fn the_pi_sample_succeeds_with_ranks_on_two_workers_on_two_nodes() {
    e2e::in_namespace("pi", async |ns| {
        ns.create(&sample("pi-ok.yaml")?).await?;
        ns.until_succeeded("pi").await?;
        let launchers = ns.launchers_ever("pi");
        assert_eq!(launchers.len(), 1, "one try is enough");
        let log = ns.log(&launchers[0]).await?;
        assert!(log.contains("pi is approximately 3.14159"), "{log}");
        assert_eq!(rank_hosts(&log), ["pi-worker-0", "pi-worker-1"], "{log}");
        let nodes: BTreeSet<String> = ns
            .pods
            .all()
            .iter()
            .filter(|one| is_worker_of(&one.object, "pi"))
            .map(|one| node(&one.object).to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        assert_eq!(nodes.len(), 2, "workers ran on {nodes:?}");
        ns.assert_gate_was_kept("pi", 2)
    })
    .await;
}

#[tokio::test]
async fn a_launcher_alone_succeeds_with_an_empty_hostfile() {
    e2e::in_namespace("alone", async |ns| {
        ns.create(&sample("launcher-only-ok.yaml")?).await?;
        ns.until_succeeded("alone").await?;
        let launchers = ns.launchers_ever("alone");
        assert_eq!(launchers.len(), 1);
        let log = ns.log(&launchers[0]).await?;
        assert_eq!(log, "alone on alone-launcher with 0 hosts\n");
        let pods = ns.pods.all();
        assert!(!pods.iter().any(|one| is_worker_of(&one.object, "alone")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_program_that_exits_1_with_backoff_limit_1_fails_after_exactly_two_tries() {
    e2e::in_namespace("fails", async |ns| {
        ns.create(&sample("program-fails.yaml")?).await?;
        let end = ns.until_failed("fails").await?;
        let failed = condition(&end, "Failed").expect("it is Failed");
        assert!(
            failed.reason.starts_with("BackoffLimitExceeded"),
            "{failed:?}"
        );
        assert!(!failed.message.trim_end().ends_with(':'), "{failed:?}");
        assert!(
            end.data["status"]["completionTime"].is_string(),
            "completionTime comes with the end: {}",
            end.data["status"]
        );
        let launchers = ns.launchers_ever("fails");
        assert_eq!(launchers.len(), 2, "the first try and one retry");
        for pod in &launchers {
            assert_eq!(phase(pod), "Failed", "{}", pod.name_any());
            assert_eq!(
                ns.log(pod).await?,
                "giving up\n",
                "the log of each try stays"
            );
        }
        assert_eq!(tries(&end, "chargedTries"), 2);
        let event = ns.until_event("fails", &failed.reason).await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        ns.assert_gate_was_kept("fails", 1)
    })
    .await;
}

#[tokio::test]
async fn running_flips_at_the_end_and_keeps_the_times_of_its_beginning() {
    e2e::in_namespace("running", async |ns| {
        ns.create(&sample("program-fails.yaml")?).await?;
        let began = ns.until_condition("fails", "Running", "True").await?;
        assert_eq!(began.reason, "MPIJobRunning");
        let end = ns.until_failed("fails").await?;
        let running = condition(&end, "Running").expect("Running stays in the list");
        assert_eq!(running.status, "False");
        assert_eq!(running.last_transition_time, began.last_transition_time);
        assert_eq!(running.last_update_time, began.last_update_time);
        Ok(())
    })
    .await;
}
