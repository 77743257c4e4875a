//! What the definition promises, and that its YAML says the same as its JSON.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{CrdFeatures, custom_resource_definition, to_yaml};

fn definition() -> &'static Value {
    static DEFINITION: LazyLock<Value> =
        LazyLock::new(|| custom_resource_definition(CrdFeatures { cel: true }));
    &DEFINITION
}

/// The schema at `path`, where `*` stands for the items of a list or the values of a map.
fn at(path: &str) -> Value {
    let mut pointer = "/spec/versions/0/schema/openAPIV3Schema".to_owned();
    for part in path.split('.') {
        let here = definition().pointer(&pointer).unwrap();
        pointer.push_str(&match part {
            "*" if here.get("items").is_some() => "/items".to_owned(),
            "*" => "/additionalProperties".to_owned(),
            field => format!("/properties/{field}"),
        });
    }
    definition()
        .pointer(&pointer)
        .unwrap_or_else(|| panic!("no schema at {path}"))
        .clone()
}

const POD: &str = "spec.mpiReplicaSpecs.*.template.spec";

#[test]
fn yaml_says_the_same_as_json() {
    for cel in [true, false] {
        let definition = custom_resource_definition(CrdFeatures { cel });
        let read: Value = serde_yaml_ng::from_str(&to_yaml(&definition)).unwrap();
        assert_eq!(read, definition);
    }
}

#[test]
fn yaml_quotes_what_would_be_read_as_something_else() {
    let odd = json!({
        "y": "no", "a": ["", "1", "1.5", "~", "null", "- x", "a: b", "a #b", "é\n\"\\\u{1}", "x".repeat(300)],
        "nested": [[{"k": "v".repeat(300)}, 1], {}, [], {"on": null, "z": {"big": "w".repeat(300), "t": true}}],
    });
    let read: Value = serde_yaml_ng::from_str(&to_yaml(&odd)).unwrap();
    assert_eq!(read, odd);
}

#[test]
fn the_crd_has_exactly_the_documented_defaults() {
    let mut found = Vec::new();
    collect(definition(), "", "default", &mut found);
    let found: Vec<(String, Value)> = found
        .into_iter()
        .map(|(path, value)| {
            let start = path.find("/spec/properties").or(path.find("/status/"));
            let path = path[start.unwrap_or(0)..].replace("/properties", "");
            (path.replace("/additionalProperties", "/*"), value)
        })
        .collect();
    let pod = "/spec/mpiReplicaSpecs/*/template/spec";
    let mut wanted = vec![
        ("/spec/slotsPerWorker".to_owned(), json!(1)),
        ("/spec/runLauncherAsWorker".to_owned(), json!(false)),
        ("/spec/runPolicy/suspend".to_owned(), json!(false)),
        ("/spec/sshAuthMountPath".to_owned(), json!("/root/.ssh")),
        (
            "/spec/launcherCreationPolicy".to_owned(),
            json!("WaitForWorkersReady"),
        ),
        ("/spec/mpiImplementation".to_owned(), json!("OpenMPI")),
        (
            format!("{pod}/containers/items/ports/items/protocol"),
            json!("TCP"),
        ),
        (
            format!("{pod}/initContainers/items/ports/items/protocol"),
            json!("TCP"),
        ),
        (format!("{pod}/imagePullSecrets/items/name"), json!("")),
    ];
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut found = found;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, wanted);
}

fn collect(node: &Value, path: &str, keyword: &str, found: &mut Vec<(String, Value)>) {
    match node {
        Value::Object(map) => {
            for (key, value) in map {
                if key == keyword && !path.ends_with("/properties") {
                    found.push((path.to_owned(), value.clone()));
                } else {
                    collect(value, &format!("{path}/{key}"), keyword, found);
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(value, &format!("{path}/{index}"), keyword, found);
            }
        }
        _ => {}
    }
}

#[test]
fn lists_merge_by_the_keys_of_kubernetes() {
    fn check(path: &str, keys: &[&str]) {
        let list = at(&format!("{POD}.{path}"));
        assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
        assert_eq!(list["x-kubernetes-list-map-keys"], json!(keys), "{path}");
        let items = &list["items"];
        for key in keys {
            let required = items["required"]
                .as_array()
                .is_some_and(|r| r.contains(&json!(key)));
            let default = items["properties"][key].get("default").is_some();
            assert!(required || default, "{path}: {key} can be left out");
        }
    }
    for containers in ["containers", "initContainers"] {
        check(containers, &["name"]);
        check(&format!("{containers}.*.env"), &["name"]);
        check(
            &format!("{containers}.*.ports"),
            &["containerPort", "protocol"],
        );
        check(&format!("{containers}.*.volumeMounts"), &["mountPath"]);
        check(&format!("{containers}.*.volumeDevices"), &["devicePath"]);
        check(&format!("{containers}.*.resources.claims"), &["name"]);
    }
    check("ephemeralContainers", &["name"]);
    check("volumes", &["name"]);
    check("imagePullSecrets", &["name"]);
    check("hostAliases", &["ip"]);
    check("schedulingGates", &["name"]);
    check("resourceClaims", &["name"]);
    check(
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    );
    let tolerations = at(&format!("{POD}.tolerations"));
    assert_eq!(tolerations["x-kubernetes-list-type"], "atomic");
}

#[test]
fn a_quantity_may_be_a_number() {
    for path in [
        "spec.runPolicy.schedulingPolicy.minResources.*".to_owned(),
        format!("{POD}.containers.*.resources.limits.*"),
        format!("{POD}.containers.*.resources.requests.*"),
        format!("{POD}.volumes.*.emptyDir.sizeLimit"),
    ] {
        let schema = at(&path);
        assert_eq!(schema["x-kubernetes-int-or-string"], true, "{path}");
        assert!(schema.get("type").is_none(), "{path}");
    }
}

#[test]
fn only_fields_that_the_go_operator_lacks_have_bounds() {
    for keyword in ["minimum", "maximum", "maxItems", "maxLength"] {
        let mut found = Vec::new();
        collect(definition(), "", keyword, &mut found);
        assert!(!found.is_empty());
        for (path, _) in found {
            assert!(path.contains("/elasticPolicy/"), "{keyword} at {path}");
        }
    }
}

#[test]
fn rules_are_absent_without_cel() {
    let without = custom_resource_definition(CrdFeatures { cel: false }).to_string();
    assert!(!without.contains("x-kubernetes-validations"));
    assert!(
        definition()
            .to_string()
            .contains("x-kubernetes-validations")
    );
}
