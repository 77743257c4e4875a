//! An MPIJob's status, times, events and pods follow its life as the contract says. Each test is one
//! line of the contract.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::history::Change;
use e2e::mpi::{active, belongs_to, condition, is_launcher_of, is_terminating, is_worker_of};
use e2e::mpi::{job, pi, tries, uid};
use e2e::wait::{poll, workers_at};
use e2e::{Namespace, SOON};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// Waits until the operator has taken a job that was made now to its end: whatever it had to do for
/// earlier changes, it has done.
async fn operator_has_been_round(ns: &Namespace, name: &str) -> anyhow::Result<()> {
    ns.create(&job(name).script("true")).await?;
    ns.until_succeeded(name).await?;
    Ok(())
}

#[tokio::test]
async fn contract_07_20_the_conditions_of_a_success_have_the_reasons_and_messages_of_the_contract()
{
    e2e::in_namespace("conditions", async |ns| {
        ns.create(&job("good").workers(1)).await?;
        ns.until_condition("good", "Running", "True").await?;
        let launcher = ns.until_launcher_runs("good", &[]).await?;
        ns.tell(&launcher).await?;
        let end = ns.until_succeeded("good").await?;
        let name = format!("{}/good", ns.name);
        for (type_, status, reason, message) in [
            (
                "Created",
                "True",
                "MPIJobCreated",
                format!("MPIJob {name} is created."),
            ),
            (
                "Running",
                "False",
                "MPIJobRunning",
                format!("MPIJob {name} is running."),
            ),
            (
                "Succeeded",
                "True",
                "MPIJobSucceeded",
                format!("MPIJob {name} successfully completed."),
            ),
        ] {
            let found = condition(&end, type_).unwrap_or_else(|| panic!("{type_} is missing"));
            assert_eq!(found.status, status, "{type_}");
            assert_eq!(found.reason, reason, "{type_}");
            assert_eq!(found.message, message, "{type_}");
            assert!(!found.last_update_time.is_empty(), "{type_}");
            assert!(!found.last_transition_time.is_empty(), "{type_}");
        }
        assert!(condition(&end, "Failed").is_none());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_21_running_is_set_only_with_the_launcher_and_all_workers_running() {
    e2e::in_namespace("running", async |ns| {
        ns.create(&job("run").workers(2)).await?;
        ns.until_condition("run", "Running", "True").await?;
        let running = ns
            .pods
            .live()
            .values()
            .filter(|p| belongs_to(p, "run") && e2e::mpi::phase(p) == "Running")
            .count();
        assert_eq!(running, 3);
        // It is sticky: a lost worker does not clear it.
        let workers = ns.until_workers_ready("run", 2).await?;
        ns.lose_workers("run", &[workers[&0].clone()], async |pod| {
            ns.delete_pod(pod).await
        })
        .await?;
        operator_has_been_round(ns, "other").await?;
        let all = ns.mpijobs.all();
        let mut seen = all
            .iter()
            .filter(|one| one.object.name_any() == "run")
            .filter_map(|one| condition(&one.object, "Running"))
            .map(|c| c.status)
            .collect::<Vec<_>>();
        seen.dedup();
        assert!(seen == ["True"] || seen == ["False", "True"], "{seen:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_22_the_end_is_set_once_with_completion_time_and_never_changes() {
    e2e::in_namespace("once", async |ns| {
        ns.create(
            &pi("once")
                .workers(2)
                .run_policy(json!({"cleanPodPolicy": "All"})),
        )
        .await?;
        ns.until_succeeded("once").await?;
        operator_has_been_round(ns, "other").await?;
        let ends: BTreeSet<String> = ns
            .mpijobs
            .all()
            .iter()
            .filter(|one| one.object.name_any() == "once")
            .filter_map(|one| {
                let end = condition(&one.object, "Succeeded")?;
                let at = &one.object.data["status"]["completionTime"];
                Some(format!("{end:?} {at}"))
            })
            .collect();
        assert_eq!(ends.len(), 1, "{ends:?}");
        let only = ends.first().expect("there is one");
        assert!(
            only.contains("\"True\"") && !only.ends_with("null"),
            "{only}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_23_start_time_is_set_at_the_start_and_again_at_resume() {
    e2e::in_namespace("start-time", async |ns| {
        ns.create(&job("timed").workers(1).suspended()).await?;
        let asleep = ns
            .until_mpijob("timed", "Suspended", SOON, |o| {
                Ok(condition(o, "Suspended").is_some())
            })
            .await?;
        assert!(asleep.data["status"]["startTime"].is_null());
        ns.suspend("timed", false).await?;
        let has_start =
            |object: &kube::api::DynamicObject| object.data["status"]["startTime"].is_string();
        let first = ns
            .until_mpijob("timed", "startTime", SOON, |o| Ok(has_start(o)))
            .await?;
        ns.until_condition("timed", "Running", "True").await?;
        ns.suspend("timed", true).await?;
        ns.until_condition("timed", "Suspended", "True").await?;
        ns.until_no_pods("timed").await?;
        // The time has a resolution of one second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        ns.suspend("timed", false).await?;
        ns.until_mpijob("timed", "a later startTime", SOON, |object| {
            let (old, new) = (
                &first.data["status"]["startTime"],
                &object.data["status"]["startTime"],
            );
            Ok(new.as_str() > old.as_str())
        })
        .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_24_replica_statuses_count_every_pod_that_holds_resources() {
    e2e::in_namespace("counts", async |ns| {
        ns.create(&job("count").workers(2)).await?;
        ns.until_mpijob("count", "1 launcher and 2 workers active", SOON, |object| {
            Ok(active(object, "Launcher") == 1 && active(object, "Worker") == 2)
        })
        .await?;
        // While suspended, the counts stay above 0 until the pods are gone.
        let workers = ns.until_workers_ready("count", 2).await?;
        ns.hold_pod(&workers[&0]).await?;
        ns.suspend("count", true).await?;
        ns.until_condition("count", "Suspended", "True").await?;
        ns.release_pods().await?;
        ns.until_no_pods("count").await?;
        let zero = ns
            .until_mpijob("count", "nothing active", SOON, |object| {
                Ok(active(object, "Launcher") == 0 && active(object, "Worker") == 0)
            })
            .await?;
        assert!(condition(&zero, "Suspended").is_some_and(|c| c.is_true()));
        ns.suspend("count", false).await?;
        let launcher = ns.until_launcher_runs("count", &[]).await?;
        ns.tell(&launcher).await?;
        let end = ns.until_succeeded("count").await?;
        let launcher = &end.data["status"]["replicaStatuses"]["Launcher"];
        assert_eq!(launcher["succeeded"], 1, "{launcher}");
        // cleanPodPolicy None: the workers run on, and hold what they hold.
        ns.until_mpijob("count", "2 workers active after the end", SOON, |object| {
            Ok(active(object, "Worker") == 2 && active(object, "Launcher") == 0)
        })
        .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_25_suspend_deletes_every_pod_whatever_clean_pod_policy_says() {
    e2e::in_namespace("suspend", async |ns| {
        ns.create(
            &job("rest")
                .workers(2)
                .run_policy(json!({"cleanPodPolicy": "None"})),
        )
        .await?;
        ns.until_condition("rest", "Running", "True").await?;
        ns.suspend("rest", true).await?;
        let told = ns.until_condition("rest", "Suspended", "True").await?;
        assert_eq!(told.reason, "MPIJobSuspended");
        let running = ns.until_condition("rest", "Running", "False").await?;
        assert_eq!(running.reason, "MPIJobSuspended");
        ns.until_no_pods("rest").await?;
        let mark = ns.pods.mark();
        operator_has_been_round(ns, "other").await?;
        let made = ns.pods.since(mark);
        assert!(
            !made
                .iter()
                .any(|one| one.change == Change::Added && belongs_to(&one.object, "rest")),
            "a pod was made while suspended"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_26_a_job_that_had_started_is_resumed_and_succeeds_with_the_same_keys() {
    e2e::in_namespace("resume", async |ns| {
        ns.create(&job("resume").workers(2)).await?;
        let first = ns.until_launcher_runs("resume", &[]).await?;
        let keys = ns.api::<Secret>().get("resume-ssh").await?;
        ns.suspend("resume", true).await?;
        ns.until_no_pods("resume").await?;
        ns.suspend("resume", false).await?;
        let second = ns.until_launcher_runs("resume", &[uid(&first)]).await?;
        // Contract 7.12: one key pair for the life of the job.
        let after = ns.api::<Secret>().get("resume-ssh").await?;
        assert_eq!(uid(&keys), uid(&after));
        assert_eq!(keys.data, after.data);
        ns.tell(&second).await?;
        let end = ns.until_succeeded("resume").await?;
        assert_eq!(
            tries(&end, "chargedTries"),
            0,
            "a suspension is not a failed try"
        );
        assert_eq!(ns.launchers_ever("resume").len(), 2);
        ns.assert_one_launcher_at_a_time("resume")?;
        ns.assert_gate_was_kept("resume", 2)
    })
    .await;
}

#[tokio::test]
async fn contract_07_12_the_key_pair_stays_over_a_retry() {
    e2e::in_namespace("keys", async |ns| {
        ns.create(
            &job("keys")
                .workers(1)
                .backoff_limit(1)
                .tries("sleep 2; exit 1", "true"),
        )
        .await?;
        ns.until_launcher_runs("keys", &[]).await?;
        let before = ns.api::<Secret>().get("keys-ssh").await?;
        ns.until_succeeded("keys").await?;
        let after = ns.api::<Secret>().get("keys-ssh").await?;
        assert_eq!(
            before.metadata.resource_version,
            after.metadata.resource_version
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_27_template_edits_made_while_suspended_reach_launcher_and_workers() {
    e2e::in_namespace("edits", async |ns| {
        ns.create(&job("edit").workers(1)).await?;
        ns.until_launcher_runs("edit", &[]).await?;
        ns.suspend("edit", true).await?;
        ns.until_no_pods("edit").await?;
        // What Kueue changes, and what no running Job's template takes.
        let edited = job("edit")
            .workers(1)
            .script("echo edited; sleep 1")
            .launcher_container(json!({"env": [{"name": "EDITED", "value": "yes"}]}))
            .worker_container(json!({"env": [{"name": "EDITED", "value": "yes"}]}));
        let extra = json!({
            "metadata": {"labels": {"example.com/edited": "yes"}},
            "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        });
        let edited = edited
            .launcher_template(extra.clone())
            .worker_template(extra);
        ns.patch("edit", json!({"spec": edited.object()?.data["spec"]}))
            .await?;
        ns.suspend("edit", false).await?;
        ns.until_succeeded("edit").await?;
        let launcher = ns
            .launchers_ever("edit")
            .pop()
            .expect("there was a launcher");
        let worker = ns.worker_ever("edit", 0).pop().expect("there was a worker");
        assert_eq!(ns.log(&launcher).await?, "edited\n");
        for pod in [&launcher, &worker] {
            let spec = pod.spec.clone().unwrap_or_default();
            assert_eq!(pod.labels()["example.com/edited"], "yes");
            assert_eq!(
                spec.node_selector.unwrap_or_default()["kubernetes.io/os"],
                "linux"
            );
            let env = spec.containers[0].env.clone().unwrap_or_default();
            assert!(env.iter().any(|e| e.name == "EDITED"));
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_29_a_job_managed_by_somebody_else_is_not_touched() {
    e2e::in_namespace("managed", async |ns| {
        let foreign = pi("foreign")
            .workers(1)
            .run_policy(json!({"managedBy": "kueue.x-k8s.io/multikueue"}));
        let created = ns.create(&foreign).await?;
        let ours = pi("ours")
            .workers(1)
            .script("true")
            .run_policy(json!({"managedBy": "kubeflow.org/mpi-operator"}));
        ns.create(&ours).await?;
        ns.until_succeeded("ours").await?;
        let after = ns.mpijob_api().get("foreign").await?;
        assert_eq!(
            created.resource_version(),
            after.resource_version(),
            "it was written"
        );
        let kinds = "jobs,pods,services,secrets,configmaps";
        let all = ns.kubectl(&["get", kinds, "-o", "name"]).await?;
        assert!(!all.contains("/foreign"), "{all}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_32_a_finished_job_never_runs_again_after_its_launcher_job_is_deleted() {
    e2e::in_namespace("never", async |ns| {
        ns.create(&pi("never").workers(1).script("true")).await?;
        let end = ns.until_succeeded("never").await?;
        ns.api::<Job>()
            .delete("never-launcher", &DeleteParams::background())
            .await?;
        never_again(ns, &end.data["status"]).await
    })
    .await;
}

#[tokio::test]
async fn contract_07_32_a_finished_job_never_runs_again_after_its_ttl() {
    e2e::in_namespace("ttl", async |ns| {
        let job = pi("never").workers(1).script("true");
        ns.create(&job.run_policy(json!({"ttlSecondsAfterFinished": 0})))
            .await?;
        let end = ns.until_succeeded("never").await?;
        never_again(ns, &end.data["status"]).await
    })
    .await;
}

async fn never_again(ns: &Namespace, status: &Value) -> anyhow::Result<()> {
    poll("the launcher Job gone", SOON, async || {
        let job = ns.api::<Job>().get_opt("never-launcher").await?;
        Ok(job.is_none().then_some(()))
    })
    .await?;
    // An edit makes the operator look at it again.
    ns.patch(
        "never",
        json!({"metadata": {"annotations": {"example.com/look": "again"}}}),
    )
    .await?;
    operator_has_been_round(ns, "other").await?;
    assert_eq!(ns.launchers_ever("never").len(), 1);
    assert!(ns.api::<Job>().get_opt("never-launcher").await?.is_none());
    let after = ns.mpijob_api().get("never").await?;
    for field in ["completionTime", "startTime"] {
        assert_eq!(after.data["status"][field], status[field]);
    }
    assert!(condition(&after, "Succeeded").is_some_and(|c| c.is_true()));
    Ok(())
}

#[tokio::test]
async fn contract_07_33_a_job_grows_and_shrinks_without_touching_the_other_workers() {
    e2e::in_namespace("scale", async |ns| {
        ns.create(&job("scale").workers(2)).await?;
        let launcher = ns.until_launcher_runs("scale", &[]).await?;
        let two = ns.until_workers_ready("scale", 2).await?;
        let to = |n: i32| json!({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": n}}}});
        ns.patch("scale", to(4)).await?;
        let four = ns.until_workers_ready("scale", 4).await?;
        ns.patch("scale", to(3)).await?;
        let three = ns.until_workers_ready("scale", 3).await?;
        assert_eq!(
            three.keys().copied().collect::<Vec<_>>(),
            [0, 1, 2],
            "the highest goes"
        );
        for index in [0, 1] {
            assert_eq!(uid(&two[&index]), uid(&four[&index]));
        }
        for index in [0, 1, 2] {
            assert_eq!(uid(&four[&index]), uid(&three[&index]));
        }
        ns.assert_nothing_counted("scale").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("scale").await?;
        assert_eq!(ns.launchers_ever("scale").len(), 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_34_each_event_is_sent_once_per_transition() {
    e2e::in_namespace("events", async |ns| {
        ns.create(&job("event").workers(2)).await?;
        ns.until_condition("event", "Running", "True").await?;
        ns.suspend("event", true).await?;
        ns.until_no_pods("event").await?;
        ns.suspend("event", false).await?;
        let launcher = ns.until_launcher_runs("event", &[]).await?;
        ns.until_condition("event", "Running", "True").await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("event").await?;
        ns.until_event("event", "MPIJobSucceeded").await?;
        operator_has_been_round(ns, "other").await?;
        for (reason, count) in [
            ("MPIJobCreated", 1),
            ("MPIJobRunning", 2),
            ("MPIJobSuspended", 1),
            ("MPIJobResumed", 1),
            ("MPIJobSucceeded", 1),
        ] {
            assert_eq!(ns.event_count("event", reason), count, "events {reason}");
        }
        let event = ns.until_event("event", "MPIJobRunning").await?;
        assert_eq!(
            event.message,
            Some(format!("MPIJob {}/event is running", ns.name))
        );
        let source = event.source.clone().unwrap_or_default();
        assert_eq!(source.component.as_deref(), Some("mpi-job-controller"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_20_a_job_that_takes_too_long_fails_with_deadline_exceeded() {
    e2e::in_namespace("deadline", async |ns| {
        ns.create(
            &job("late")
                .workers(1)
                .run_policy(json!({"activeDeadlineSeconds": 6})),
        )
        .await?;
        let end = ns.until_failed("late").await?;
        let failed = condition(&end, "Failed").expect("it is Failed");
        assert_eq!(failed.reason, "DeadlineExceeded");
        assert_eq!(
            failed.message,
            "Job was active longer than specified deadline"
        );
        assert!(end.data["status"]["completionTime"].is_string());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_deadline_does_not_run_while_the_gate_holds_the_first_start() {
    e2e::in_namespace("deadline-gate", async |ns| {
        let held = job("held")
            .workers(1)
            .hold_worker(0)
            .script("true")
            .run_policy(json!({"activeDeadlineSeconds": 10}));
        ns.create(&held).await?;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let worker = ns
            .pods
            .until("the held worker", SOON, |seen| {
                Ok(workers_at(seen, "held").remove(&0))
            })
            .await?;
        ns.exec_in(&worker, Some("hold"), &["touch", "/tmp/go"])
            .await?;
        ns.until_succeeded("held").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn suspending_a_finished_job_changes_nothing() {
    e2e::in_namespace("finished", async |ns| {
        ns.create(&pi("done").workers(1).script("true")).await?;
        let end = ns.until_succeeded("done").await?;
        ns.suspend("done", true).await?;
        operator_has_been_round(ns, "other").await?;
        let after = ns.mpijob_api().get("done").await?;
        assert!(condition(&after, "Suspended").is_none());
        assert_eq!(
            end.data["status"]["completionTime"],
            after.data["status"]["completionTime"]
        );
        let live = ns.pods.live();
        assert!(
            live.values()
                .any(|p| is_worker_of(p, "done") && !is_terminating(p))
        );
        assert!(live.values().any(|p| is_launcher_of(p, "done")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_31_launcher_pods_go_with_policy_all_only_where_asked() {
    e2e::in_namespace("clean-launcher", async |ns| {
        let all = |name: &str| {
            pi(name)
                .workers(1)
                .script("true")
                .run_policy(json!({"cleanPodPolicy": "All"}))
        };
        let asked = json!({"annotations": {"mpi-operator.kubeflow.org/clean-launcher": "true"}});
        ns.create(&all("asked").metadata(asked)).await?;
        ns.create(&all("plain")).await?;
        ns.until_succeeded("asked").await?;
        ns.until_succeeded("plain").await?;
        ns.until_no_pods("asked").await?;
        // The Job stays as the record of the tries.
        ns.until_job("asked-launcher", "there", |_| true).await?;
        operator_has_been_round(ns, "other").await?;
        let live = ns.pods.live();
        assert!(live.values().any(|p| is_launcher_of(p, "plain")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_18_the_time_to_live_deletes_the_job_itself_only_where_asked() {
    e2e::in_namespace("delete-ttl", async |ns| {
        let short = |name: &str| {
            pi(name)
                .workers(1)
                .script("true")
                .run_policy(json!({"ttlSecondsAfterFinished": 3}))
        };
        let asked = json!({"annotations": {"mpi-operator.kubeflow.org/delete-after-ttl": "true"}});
        ns.create(&short("asked").metadata(asked)).await?;
        ns.create(&short("plain")).await?;
        ns.until_succeeded("asked").await?;
        ns.until_succeeded("plain").await?;
        poll("nothing of it left", SOON, async || {
            let kinds = "mpijobs,jobs,services,secrets,configmaps,pods";
            let all = ns.kubectl(&["get", kinds, "-o", "name"]).await?;
            Ok((!all.contains("/asked")).then_some(()))
        })
        .await?;
        poll("the launcher Job of the other gone", SOON, async || {
            let job = ns.api::<Job>().get_opt("plain-launcher").await?;
            Ok(job.is_none().then_some(()))
        })
        .await?;
        operator_has_been_round(ns, "other").await?;
        assert!(ns.mpijob_api().get_opt("plain").await?.is_some());
        Ok(())
    })
    .await;
}
