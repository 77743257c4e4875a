//! A job that cannot run says why in the MPIJob itself, and every other job goes on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::SOON;
use e2e::mpi::{self, MpiJob, condition, is_worker_of, job, pi, sample};
use e2e::{Namespace, history::Change};
use serde_json::{Value, json};

/// Specs that validation refuses, and the field that it has to name.
fn invalid() -> Vec<(MpiJob, &'static str)> {
    let worker = |patch: Value| json!({"mpiReplicaSpecs": {"Worker": patch}});
    let launcher = |patch: Value| json!({"mpiReplicaSpecs": {"Launcher": patch}});
    vec![
        (
            pi("no-workers").workers(0),
            "spec.mpiReplicaSpecs[Worker].replicas",
        ),
        (
            pi("two-launchers")
                .workers(1)
                .spec(launcher(json!({"replicas": 2}))),
            "spec.mpiReplicaSpecs[Launcher].replicas",
        ),
        (
            pi("always")
                .workers(1)
                .spec(worker(json!({"restartPolicy": "Always"}))),
            "spec.mpiReplicaSpecs[Worker].restartPolicy",
        ),
        (
            pi("exit-code")
                .workers(1)
                .spec(launcher(json!({"restartPolicy": "ExitCode"}))),
            "spec.mpiReplicaSpecs[Launcher].restartPolicy",
        ),
        (
            pi("slots").workers(1).spec(json!({"slotsPerWorker": -1})),
            "spec.slotsPerWorker",
        ),
        (
            pi("backoff").workers(1).backoff_limit(-1),
            "spec.runPolicy.backoffLimit",
        ),
        (
            pi("clean")
                .workers(1)
                .run_policy(json!({"cleanPodPolicy": "Sometimes"})),
            "spec.runPolicy.cleanPodPolicy",
        ),
        (
            job("no-container").launcher_template(json!({"spec": {"containers": []}})),
            "spec.mpiReplicaSpecs[Launcher].template.spec.containers",
        ),
        (pi("dots.in.name").workers(1), "metadata.name"),
    ]
}

/// The API server may refuse it at once, if it names the field; otherwise an event and a condition
/// have to. Whether it was stored.
async fn is_refused_with(ns: &Namespace, wrong: &MpiJob, field: &str) -> anyhow::Result<bool> {
    let name = wrong.name();
    if let Err(error) = ns.create(wrong).await {
        let text = format!("{error:#}");
        let last = field.rsplit(['.', ']']).next().unwrap_or(field);
        assert!(text.contains(last), "{name}: {field} is not in: {text}");
        return Ok(false);
    }
    let event = ns.until_event(name, "ValidationError").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"), "{name}");
    let said = event.message.unwrap_or_default();
    assert!(said.contains(field), "{name}: {field} is not in: {said}");
    let invalid = ns.until_condition(name, "Invalid", "True").await?;
    assert_eq!(invalid.reason, "ValidationError", "{name}");
    assert!(invalid.message.contains(field), "{name}: {invalid:?}");
    Ok(true)
}

#[tokio::test]
async fn contract_07_04_an_invalid_job_gets_event_and_condition_with_the_field_and_others_go_on() {
    e2e::in_namespace("invalid", async |ns| {
        let mut stored = 0;
        for (wrong, field) in invalid() {
            stored += usize::from(is_refused_with(ns, &wrong, field).await?);
        }
        assert!(
            stored > 0,
            "the server refused all: the operator was not asked"
        );
        ns.create(&pi("other").workers(1).script("echo fine"))
            .await?;
        ns.until_succeeded("other").await?;
        let jobs = ns.jobs.all();
        for (wrong, _) in invalid() {
            let made = jobs.iter().any(|one| {
                let name = one.object.metadata.name.as_deref().unwrap_or_default();
                name.starts_with(&format!("{}-", wrong.name()))
            });
            assert!(!made, "{} is invalid and has Jobs", wrong.name());
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn two_violations_are_told_in_one_event() {
    e2e::in_namespace("two-faults", async |ns| {
        let wrong = pi("wrong")
            .workers(1)
            .spec(json!({"mpiReplicaSpecs": {
                "Worker": {"restartPolicy": "Always"},
                "Launcher": {"restartPolicy": "ExitCode"},
            }}));
        ns.create(&wrong).await?;
        let event = ns.until_event("wrong", "ValidationError").await?;
        let said = event.message.unwrap_or_default();
        assert!(
            said.starts_with("Found validation errors: [spec.mpiReplicaSpecs[Launcher].restartPolicy: Unsupported value: \"ExitCode\": supported values: \"Never\", \"OnFailure\", "),
            "{said}"
        );
        assert!(said.contains("spec.mpiReplicaSpecs[Worker].restartPolicy"), "{said}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_template_that_the_server_refuses_shows_its_sentence_and_heals_by_an_edit() {
    e2e::in_namespace("refused", async |ns| {
        ns.create(&sample("template-refused.yaml")?).await?;
        let invalid = ns.until_condition("refused", "Invalid", "True").await?;
        assert_eq!(invalid.reason, "TemplateRefused");
        assert!(
            invalid.message.contains("no-such-volume") && invalid.message.contains("volumeMounts"),
            "the server's sentence: {invalid:?}"
        );
        assert!(condition(&ns.mpijob_api().get("refused").await?, "Failed").is_none());
        let healed = sample("template-refused.yaml")?.worker_container(json!({"volumeMounts": []}));
        let spec = healed.object()?.data["spec"].clone();
        ns.patch("refused", json!({"spec": spec})).await?;
        let end = ns.until_succeeded("refused").await?;
        assert!(
            !condition(&end, "Invalid").is_some_and(|c| c.is_true()),
            "it is healed"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn with_a_refused_launcher_template_no_worker_is_started() {
    e2e::in_namespace("refused-l", async |ns| {
        let wrong = pi("wrong")
            .workers(1)
            .launcher_container(json!({"volumeMounts": [{"name": "absent", "mountPath": "/x"}]}));
        ns.create(&wrong).await?;
        let invalid = ns.until_condition("wrong", "Invalid", "True").await?;
        assert_eq!(invalid.reason, "TemplateRefused");
        assert!(invalid.message.contains("absent"), "{invalid:?}");
        // A job made later has run to its end: the operator has been round.
        ns.create(&pi("other").workers(1).script("true")).await?;
        ns.until_succeeded("other").await?;
        let workers = ns.pods.all();
        assert!(!workers.iter().any(|one| is_worker_of(&one.object, "wrong")));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_job_deleted_while_it_runs_leaves_nothing_behind() {
    e2e::in_namespace("deleted", async |ns| {
        ns.create(&pi("gone").workers(2).when_told("true")).await?;
        ns.until_condition("gone", "Running", "True").await?;
        ns.delete_mpijob("gone").await?;
        ns.until_no_pods("gone").await?;
        let kinds = "jobs,pods,services,secrets,configmaps,endpointslices,mpijobs";
        e2e::wait::poll("nothing left of the job", SOON, async || {
            let left = ns.kubectl(&["get", kinds, "-o", "name"]).await?;
            let left: Vec<&str> = left.lines().filter(|line| line.contains("/gone")).collect();
            Ok(left.is_empty().then_some(()))
        })
        .await?;
        let mark = ns.pods.mark();
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let again = ns.pods.since(mark);
        assert!(
            !again
                .iter()
                .any(|one| one.change == Change::Added && mpi::belongs_to(&one.object, "gone")),
            "a pod was made after the deletion"
        );
        Ok(())
    })
    .await;
}
