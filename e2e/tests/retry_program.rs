//! A program that fails is retried up to `backoffLimit` times, and the log of each try stays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{condition, job, phase, pi, tries};

#[tokio::test]
async fn a_program_that_fails_once_succeeds_at_its_retry_and_both_logs_stay() {
    e2e::in_namespace("retry", async |ns| {
        let fails_once = pi("twice")
            .workers(2)
            .backoff_limit(1)
            .tries("echo the first; exit 1", "mpirun -n 2 /home/mpiuser/pi");
        ns.create(&fails_once).await?;
        let end = ns.until_succeeded("twice").await?;
        assert_eq!(tries(&end, "chargedTries"), 1);
        let launchers = ns.launchers_ever("twice");
        assert_eq!(launchers.len(), 2);
        assert_eq!(phase(&launchers[0]), "Failed");
        assert_eq!(ns.log(&launchers[0]).await?, "the first\n");
        assert!(ns.log(&launchers[1]).await?.contains("pi is approximately"));
        ns.assert_one_launcher_at_a_time("twice")?;
        ns.assert_gate_was_kept("twice", 2)
    })
    .await;
}

#[tokio::test]
async fn backoff_limit_0_means_one_try() {
    e2e::in_namespace("once", async |ns| {
        ns.create(&job("once").workers(1).backoff_limit(0).script("exit 3"))
            .await?;
        let end = ns.until_failed("once").await?;
        let failed = condition(&end, "Failed").expect("it is Failed");
        assert!(
            failed.reason.starts_with("BackoffLimitExceeded"),
            "{failed:?}"
        );
        assert_eq!(ns.launchers_ever("once").len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_retry_with_on_failure_is_a_new_pod_too() {
    e2e::in_namespace("on-failure", async |ns| {
        let job = job("twice")
            .workers(1)
            .backoff_limit(1)
            .spec(serde_json::json!({"mpiReplicaSpecs": {"Launcher": {"restartPolicy": "OnFailure"}}}))
            .tries("echo the first; exit 1", "echo the second");
        ns.create(&job).await?;
        ns.until_succeeded("twice").await?;
        let launchers = ns.launchers_ever("twice");
        assert_eq!(launchers.len(), 2, "the failed container is not restarted in place");
        assert_eq!(ns.log(&launchers[0]).await?, "the first\n");
        Ok(())
    })
    .await;
}
