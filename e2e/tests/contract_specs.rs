//! Specs as users of the Go operator wrote them are served, stored as they were written, and run.
//! Each test is one line of the contract.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{condition, job, pi};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

#[tokio::test]
async fn contract_07_01_the_server_stores_every_field_of_the_go_operator() {
    e2e::in_namespace("fields", async |ns| {
        let definition = ns
            .cluster
            .kubectl(&["get", "crd", "mpijobs.kubeflow.org", "-o", "json"])
            .await?;
        let definition: serde_json::Value = serde_json::from_str(&definition)?;
        assert_eq!(definition["status"]["storedVersions"], json!(["v2beta1"]));
        assert_eq!(definition["spec"]["conversion"]["strategy"], "None");
        let meta = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}});
        let all = job("all")
            .workers(2)
            .spec(json!({
                "slotsPerWorker": 2,
                "runLauncherAsWorker": true,
                "launcherCreationPolicy": "AtStartup",
                "mpiImplementation": "Intel",
            }))
            .run_policy(json!({
                "cleanPodPolicy": "Running",
                "ttlSecondsAfterFinished": 1,
                "activeDeadlineSeconds": 2,
                "backoffLimit": 3,
                "suspend": true,
                "managedBy": "kubeflow.org/mpi-operator",
                "schedulingPolicy": {
                    "minAvailable": 1, "queue": "q", "minResources": {"cpu": "1"},
                    "priorityClass": "p", "scheduleTimeoutSeconds": 4,
                },
            }))
            .spec(json!({"mpiReplicaSpecs": {
                "Launcher": {"restartPolicy": "OnFailure"}, "Worker": {"restartPolicy": "Never"},
            }}))
            .launcher_template(meta.clone())
            .worker_template(meta)
            .worker_container(json!({"ports": [{"containerPort": 2222, "protocol": "TCP"}]}));
        let stored = ns.create(&all).await?;
        assert_eq!(stored.data["spec"], all.object()?.data["spec"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_02_the_operator_writes_no_default_into_the_spec() {
    e2e::in_namespace("defaults", async |ns| {
        let stored = ns.create(&pi("plain").workers(1).script("true")).await?;
        let end = ns.until_succeeded("plain").await?;
        assert_eq!(end.data["spec"], stored.data["spec"]);
        assert_eq!(end.metadata.generation, Some(1));
        // The server's defaults are those of the definition, and none inside an omitted runPolicy.
        let spec = &stored.data["spec"];
        assert_eq!(spec["slotsPerWorker"], 1);
        assert_eq!(spec["mpiImplementation"], "OpenMPI");
        assert_eq!(spec["runLauncherAsWorker"], false);
        assert!(spec["runPolicy"].is_null());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_03_odd_but_legal_specs_run() {
    e2e::in_namespace("odd", async |ns| {
        let alone = job("alone").script("test ! -s /etc/mpi/hostfile");
        let nulled = job("nulled")
            .script("true")
            .spec(json!({"mpiReplicaSpecs": {"Worker": null}}));
        let policy = json!({"spec": {"restartPolicy": "Always"}});
        let overridden = job("overridden")
            .workers(1)
            .script("true")
            .launcher_template(policy.clone())
            .worker_template(policy);
        let extra = job("extra").script("true").spec(json!({"mpiReplicaSpecs": {
            "Evaluator": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "never", "image": "never"},
            ]}}},
        }}));
        let no_slots = job("no-slots")
            .script("grep -q slots=0 /etc/mpi/hostfile")
            .workers(1)
            .spec(json!({"slotsPerWorker": 0}));
        let jobs = [alone, nulled, overridden, extra, no_slots];
        for job in &jobs {
            ns.create(job).await?;
        }
        // No command: the image's own. This one has none, so that the pod cannot start is all
        // that can be seen; the MPIJob itself is not refused.
        let bare = job("bare").launcher_container(json!({"command": null}));
        ns.create(&bare).await?;
        for job in &jobs {
            ns.until_succeeded(job.name()).await?;
        }
        let pods = ns.pods.live();
        assert!(!pods.values().any(|p| is_of_image(p, "never")));
        let bare = ns.until_condition("bare", "Created", "True").await?;
        assert_eq!(bare.reason, "MPIJobCreated");
        let object = ns.mpijob_api().get("bare").await?;
        assert!(!condition(&object, "Invalid").is_some_and(|c| c.is_true()));
        Ok(())
    })
    .await;
}

fn is_of_image(pod: &Pod, image: &str) -> bool {
    pod.spec
        .iter()
        .flat_map(|s| &s.containers)
        .any(|c| c.image.as_deref() == Some(image))
}

#[tokio::test]
async fn contract_07_04_what_the_go_operator_refuses_is_refused_with_its_text() {
    e2e::in_namespace("refused", async |ns| {
        let wrong = job("wrong")
            .workers(0)
            .spec(json!({"mpiReplicaSpecs": {"Launcher": {"replicas": 2}}}))
            .run_policy(json!({"cleanPodPolicy": "Sometimes"}));
        ns.create(&wrong).await?;
        let event = ns.until_event("wrong", "ValidationError").await?;
        assert_eq!(
            event.message.as_deref(),
            Some(
                "Found validation errors: [\
                 spec.mpiReplicaSpecs[Launcher].replicas: Invalid value: 2: must be 1, \
                 spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0: \
                 must be greater than or equal to 1, \
                 spec.runPolicy.cleanPodPolicy: Unsupported value: \"Sometimes\": \
                 supported values: \"All\", \"None\", \"Running\"]"
            )
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_29_an_unknown_manager_is_told_and_left_alone_and_an_empty_one_is_ours() {
    e2e::in_namespace("manager", async |ns| {
        let by = |name: &str, manager: &str| {
            job(name)
                .script("true")
                .run_policy(json!({"managedBy": manager}))
        };
        ns.create(&by("empty", "")).await?;
        ns.until_succeeded("empty").await?;
        let made = ns.create(&by("typo", "kubeflow.org/mpi-operators")).await?;
        let event = ns.until_event("typo", "ValidationError").await?;
        let said = event.message.unwrap_or_default();
        assert!(said.contains("spec.runPolicy.managedBy"), "{said}");
        ns.create(&by("other", "kubeflow.org/mpi-operator")).await?;
        ns.until_succeeded("other").await?;
        let after = ns.mpijob_api().get("typo").await?;
        assert_eq!(
            after.metadata.resource_version,
            made.metadata.resource_version
        );
        assert_eq!(ns.event_count("typo", "ValidationError"), 1);
        let all = ns.kubectl(&["get", "jobs,pods", "-o", "name"]).await?;
        assert!(!all.contains("/typo"), "{all}");
        Ok(())
    })
    .await;
}
