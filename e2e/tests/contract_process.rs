//! The running operator answers where the contract says: its Lease, its health, its metrics, its
//! roles, and it asks for no right that it must not have.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::{Cluster, SOON, cluster::OPERATOR};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Runs `body` on the cluster, or skips when there is none.
async fn on_cluster(body: impl AsyncFnOnce(&Cluster) -> anyhow::Result<()>) {
    match Cluster::connect().await {
        Ok(Some(cluster)) => body(&cluster).await.unwrap(),
        Ok(None) => {}
        Err(error) => panic!("no cluster: {error:?}"),
    }
}

async fn get(cluster: &Cluster, line: &str) -> anyhow::Result<Value> {
    let mut args: Vec<&str> = line.split_whitespace().collect();
    args.extend(["-o", "json"]);
    Ok(serde_json::from_str(&cluster.kubectl(&args).await?)?)
}

#[tokio::test]
async fn contract_07_37_the_lease_mpi_operator_is_held_by_an_operator_pod() {
    on_cluster(async |cluster| {
        let lease = get(cluster, "get lease mpi-operator -n mpi-operator").await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let pods = cluster.operator_pods().await?;
        assert!(
            pods.iter()
                .any(|p| holder.starts_with(&format!("{}_", p.name_any()))),
            "{holder}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_38_healthz_on_8080_answers_ok() {
    on_cluster(async |cluster| {
        let pods = cluster.operator_pods().await?;
        let pod = pods.first().expect("the operator runs").name_any();
        for path in ["healthz", "healthz/leaderElection"] {
            let url = format!("/api/v1/namespaces/{OPERATOR}/pods/{pod}:8080/proxy/{path}");
            let said = cluster.kubectl(&["get", "--raw", &url]).await?;
            assert_eq!(said.trim(), "ok", "{path}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_40_deployment_and_user_roles_have_the_shipped_names_and_labels() {
    on_cluster(async |cluster| {
        let deployment = get(cluster, "get deployment mpi-operator -n mpi-operator").await?;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["name"], "mpi-operator");
        assert!(container["args"].is_array(), "tools append flags to args");
        get(cluster, "get serviceaccount mpi-operator -n mpi-operator").await?;
        get(cluster, "get clusterrole mpi-operator").await?;
        get(cluster, "get clusterrolebinding mpi-operator").await?;
        let prefix = "rbac.authorization.kubeflow.org/aggregate-to";
        for (name, labels) in [
            ("admin", vec!["kubeflow-admin"]),
            ("edit", vec!["kubeflow-edit", "kubeflow-mpijobs-admin"]),
            ("view", vec!["kubeflow-view"]),
        ] {
            let role = get(cluster, &format!("get clusterrole kubeflow-mpijobs-{name}")).await?;
            for label in labels {
                let key = format!("{prefix}-{label}");
                assert_eq!(role["metadata"]["labels"][&key], "true", "{name}: {key}");
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_42_the_operator_may_neither_exec_nor_read_foreign_secrets() {
    on_cluster(async |cluster| {
        let user = "system:serviceaccount:mpi-operator:mpi-operator";
        for (verb, resource) in [
            ("create", "pods/exec"),
            ("create", "pods"),
            ("list", "secrets"),
            ("watch", "secrets"),
            ("update", "jobs.batch/status"),
        ] {
            // `kubectl auth can-i` answers "no" with exit code 1.
            let can = cluster
                .kubectl(&["auth", "can-i", verb, resource, "--as", user, "-A"])
                .await;
            assert!(can.is_err(), "the operator may {verb} {resource}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_40_the_operator_runs_where_the_restricted_level_is_enforced() {
    on_cluster(async |cluster| {
        let namespace = get(cluster, "get namespace mpi-operator").await?;
        let level = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        assert_eq!(level, "restricted");
        for pod in cluster.operator_pods().await? {
            let spec = serde_json::to_value(&pod.spec)?;
            let security = &spec["securityContext"];
            assert_eq!(security["runAsNonRoot"], true);
            assert_ne!(security["runAsUser"].as_i64().unwrap_or(0), 0);
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
            for container in spec["containers"].as_array().expect("it has containers") {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false);
                assert_eq!(security["readOnlyRootFilesystem"], true);
                assert_eq!(security["capabilities"]["drop"][0], "ALL");
            }
            assert_eq!(e2e::mpi::phase(&pod), "Running");
        }
        Ok(())
    })
    .await;
}

/// A pod of the operator's image in a namespace of its own, which ends by itself: its exit code and
/// log.
async fn operator_ends(args: &[&str]) -> Option<(i32, String)> {
    let mut seen = None;
    e2e::in_namespace("process", async |ns| {
        let deployment = get(&ns.cluster, "get deployment mpi-operator -n mpi-operator").await?;
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "operator"},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "args": args,
            }]},
        }))?;
        ns.api::<Pod>().create(&PostParams::default(), &pod).await?;
        let pod = ns
            .pods
            .until_live("the end of the process", SOON, |all| {
                let ended = |p: &&Pod| matches!(e2e::mpi::phase(p), "Succeeded" | "Failed");
                Ok(all.values().find(ended).cloned())
            })
            .await?;
        let status = serde_json::to_value(&pod.status)?;
        let code = &status["containerStatuses"][0]["state"]["terminated"]["exitCode"];
        let code = i32::try_from(code.as_i64().expect("it has ended"))?;
        seen = Some((code, ns.log(&pod).await?));
        Ok(())
    })
    .await;
    seen
}

#[tokio::test]
async fn contract_07_38_an_operator_that_is_refused_ends_with_a_clear_line() {
    // The account of that namespace has no rights.
    let Some((code, log)) = operator_ends(&["-lock-namespace=default", "-alsologtostderr"]).await
    else {
        return;
    };
    assert_eq!(code, 255, "{log}");
    assert!(
        log.contains("forbidden") || log.contains("refused"),
        "{log}"
    );
}

#[tokio::test]
async fn contract_07_36_version_is_six_lines_and_an_unknown_flag_ends_with_2() {
    let Some((code, log)) = operator_ends(&["--version"]).await else {
        return;
    };
    assert_eq!((code, log.lines().count()), (0, 6), "{log}");
    assert!(log.starts_with("API Version: v2\nVersion: v"), "{log}");
    let (code, log) = operator_ends(&["-no-such-flag"]).await.unwrap();
    assert_eq!(code, 2, "{log}");
    assert!(log.contains("-no-such-flag"), "{log}");
}
