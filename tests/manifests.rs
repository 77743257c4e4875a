//! The shipped manifests: names that tools look for, and rights that must not grow unseen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

fn base(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests")
        .join("base")
        .join(file)
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn document(file: &str) -> Value {
    let mut all = documents(&base(file));
    assert_eq!(all.len(), 1, "{file}");
    all.remove(0)
}

fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect()
}

/// `group/resource verb` for each right.
fn rights(role: &Value) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    rights.insert(format!("{group}/{resource} {verb}"));
                }
            }
        }
    }
    rights
}

#[test]
fn every_manifest_is_listed_and_parses() {
    let listed = document("kustomization.yaml");
    let listed: BTreeSet<&str> = strings(&listed["resources"]).into_iter().collect();
    for entry in fs::read_dir(base("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "kustomization.yaml" {
            continue;
        }
        assert!(listed.contains(name), "{name} is not listed");
        for document in documents(&path) {
            assert!(document["kind"].is_string(), "{name}");
        }
    }
}

#[test]
fn the_operator_has_no_right_that_could_take_over_a_cluster() {
    let role = document("cluster-role.yaml");
    let rights = rights(&role);
    for right in &rights {
        assert!(!right.contains('*'), "{right}");
        assert!(!right.contains("pods/"), "{right}");
    }
    for absent in [
        "/pods create",
        "/pods update",
        "/secrets list",
        "/secrets watch",
        "/secrets update",
        "/secrets patch",
        "/secrets delete",
        "batch/jobs/status update",
        "coordination.k8s.io/leases update",
    ] {
        assert!(!rights.contains(absent), "{absent}");
    }
    for present in [
        "batch/jobs create",
        "batch/jobs patch",
        "/pods patch",
        "/secrets create",
        "/secrets get",
        "kubeflow.org/mpijobs/status patch",
        "kubeflow.org/mpijobs/finalizers update",
    ] {
        assert!(rights.contains(present), "{present}");
    }
}

#[test]
fn each_rule_says_what_for() {
    for file in ["cluster-role.yaml", "role.yaml"] {
        let text = fs::read_to_string(base(file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut explained = false;
        for (number, line) in lines.iter().enumerate() {
            if *line == "- apiGroups:" {
                let before = lines[number - 1];
                explained = before.starts_with("# ")
                    // The second half of the rights on Leases shares one comment.
                    || (explained && file == "role.yaml");
                assert!(explained, "{file}:{} has no comment", number + 1);
            }
        }
    }
}

#[test]
fn elections_need_only_their_own_lease() {
    let role = document("role.yaml");
    assert_eq!(role["kind"], "Role");
    for rule in role["rules"].as_array().unwrap() {
        let creates_only = rule["verbs"] == json!(["create"]);
        assert!(creates_only || rule["resourceNames"] == json!(["mpi-operator"]));
    }
}

#[test]
fn names_and_labels_are_those_that_tools_look_for() {
    for (file, kind) in [
        ("service-account.yaml", "ServiceAccount"),
        ("cluster-role.yaml", "ClusterRole"),
        ("cluster-role-binding.yaml", "ClusterRoleBinding"),
        ("deployment.yaml", "Deployment"),
    ] {
        let object = document(file);
        assert_eq!(object["kind"], kind);
        assert_eq!(object["metadata"]["name"], "mpi-operator", "{file}");
    }
    let labels = &document("kustomization.yaml")["labels"][0];
    assert_eq!(labels["includeSelectors"], true);
    assert_eq!(
        labels["pairs"],
        json!({
            "app": "mpi-operator",
            "app.kubernetes.io/component": "mpijob",
            "app.kubernetes.io/name": "mpi-operator",
            "kustomize.component": "mpi-operator",
        })
    );
}

#[test]
fn user_roles_keep_their_aggregation_labels() {
    const PREFIX: &str = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow";
    let roles = documents(&base("user-cluster-roles.yaml"));
    let label = |role: usize, name: &str| {
        roles[role]["metadata"]["labels"][format!("{PREFIX}-{name}")].clone()
    };
    let names: Vec<_> = roles.iter().map(|r| &r["metadata"]["name"]).collect();
    assert_eq!(
        names,
        [
            "kubeflow-mpijobs-admin",
            "kubeflow-mpijobs-edit",
            "kubeflow-mpijobs-view"
        ]
    );
    assert_eq!(label(0, "admin"), "true");
    assert_eq!(label(1, "edit"), "true");
    assert_eq!(label(1, "mpijobs-admin"), "true");
    assert_eq!(label(2, "view"), "true");
    assert_eq!(
        roles[0]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"]
            [format!("{PREFIX}-mpijobs-admin")],
        "true"
    );
    for verb in ["get", "list", "watch"] {
        assert!(rights(&roles[2]).contains(&format!("kubeflow.org/mpijobs {verb}")));
    }
    assert!(rights(&roles[1]).contains("kubeflow.org/mpijobs/status deletecollection"));
}

#[test]
fn the_operator_pod_passes_the_restricted_level() {
    let spec = document("deployment.yaml")["spec"]["template"]["spec"].clone();
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        spec["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    for container in spec["containers"].as_array().unwrap() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    }
    for absent in ["hostNetwork", "hostPID", "volumes"] {
        assert!(spec[absent].is_null(), "{absent}");
    }
}

#[test]
fn the_deployments_flags_are_flags() {
    use mpi_operator::args::{Parsed, parse};
    let spec = document("deployment.yaml")["spec"]["template"]["spec"].clone();
    let args = strings(&spec["containers"][0]["args"]);
    // The overlay of Kubeflow replaces the flag at this place.
    assert!(args[1].starts_with("--lock-namespace="));
    let parsed = parse(args.into_iter().map(str::to_owned), &|_| None);
    assert!(matches!(parsed, Ok(Parsed::Run(_))), "{parsed:?}");
}
