//! The committed definitions are what the types say, small enough for plain `kubectl apply`, and
//! structural, which an API server only finds out when they are applied.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::path::Path;

use mpi_operator::api::crd::{CrdFeatures, GENERATED, custom_resource_definition, to_yaml};
use serde_json::Value;

/// `kubectl apply` keeps the object as JSON in an annotation; all annotations have 256 KiB.
const MAX_SIZE: usize = 256_000;

const ALL: [(&str, CrdFeatures); 2] = [
    (
        "manifests/base/kubeflow.org_mpijobs.yaml",
        CrdFeatures { cel: true },
    ),
    (
        "manifests/crd-without-cel/kubeflow.org_mpijobs.yaml",
        CrdFeatures { cel: false },
    ),
];

#[test]
fn committed_files_are_generated_from_the_types() {
    for (file, features) in ALL {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let generated = format!(
            "{GENERATED}\n{}",
            to_yaml(&custom_resource_definition(features))
        );
        assert!(
            committed == generated,
            "{file} is not what src/api says: run `make crd`"
        );
    }
}

#[test]
fn definitions_fit_into_an_annotation() {
    for (file, features) in ALL {
        let definition = custom_resource_definition(features);
        for text in [definition.to_string(), to_yaml(&definition)] {
            assert!(text.len() < MAX_SIZE, "{file}: {} bytes", text.len());
        }
    }
}

#[test]
fn schemas_are_structural() {
    for (_, features) in ALL {
        structural(&schema(features), "");
    }
}

fn schema(features: CrdFeatures) -> Value {
    custom_resource_definition(features)
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .cloned()
        .unwrap()
}

/// The rules of structural schemas, for `node` and all below it.
fn structural(node: &Value, path: &str) {
    let node = node.as_object().unwrap();
    let is_set = |keyword| node.get(keyword) == Some(&Value::Bool(true));
    let int_or_string = is_set("x-kubernetes-int-or-string");
    let type_ = node.get("type").and_then(Value::as_str);
    assert!(
        type_.is_some() != int_or_string,
        "{path}: has either a type or int-or-string"
    );
    for (keyword, value) in node {
        match keyword.as_str() {
            "properties" => {
                assert_eq!(type_, Some("object"), "{path}");
                assert!(!node.contains_key("additionalProperties"), "{path}");
                for (field, schema) in value.as_object().unwrap() {
                    structural(schema, &format!("{path}.{field}"));
                }
            }
            "items" => structural(value, &format!("{path}[]")),
            "additionalProperties" => {
                assert!(
                    !is_set("x-kubernetes-preserve-unknown-fields"),
                    "{path}: the map already takes every key"
                );
                structural(value, &format!("{path}{{}}"));
            }
            "required" => {
                for field in value.as_array().unwrap() {
                    let field = field.as_str().unwrap();
                    assert!(node["properties"].get(field).is_some(), "{path}.{field}");
                }
            }
            "anyOf" => assert!(int_or_string, "{path}: anyOf outside of int-or-string"),
            "description"
            | "type"
            | "format"
            | "enum"
            | "default"
            | "minimum"
            | "maximum"
            | "maxLength"
            | "maxItems"
            | "pattern"
            | "x-kubernetes-int-or-string"
            | "x-kubernetes-preserve-unknown-fields"
            | "x-kubernetes-list-type"
            | "x-kubernetes-list-map-keys"
            | "x-kubernetes-map-type"
            | "x-kubernetes-validations" => {}
            other => panic!("{path}: the API server does not take {other}"),
        }
    }
    assert_eq!(type_ == Some("array"), node.contains_key("items"), "{path}");
}

#[test]
fn objects_of_the_pod_template_keep_unknown_fields() {
    fn walk(node: &Value, path: &str) {
        let keeps = node.get("x-kubernetes-preserve-unknown-fields").is_some();
        let is_map = node.get("additionalProperties").is_some();
        assert_eq!(keeps, node["type"] == "object" && !is_map, "{path}");
        for (field, schema) in node["properties"].as_object().into_iter().flatten() {
            walk(schema, &format!("{path}.{field}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(schema) = node.get(inner) {
                walk(schema, &format!("{path}.{inner}"));
            }
        }
    }
    let schema = schema(CrdFeatures { cel: true });
    let role = &schema["properties"]["spec"]["properties"]["mpiReplicaSpecs"];
    let template = &role["additionalProperties"]["properties"]["template"];
    walk(template, "template");
}

#[test]
fn fields_have_descriptions() {
    fn check(node: &Value, path: &str, depth: usize) {
        for (field, schema) in node["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{field}");
            let description = schema["description"].as_str().unwrap_or_default();
            assert!(
                description.ends_with('.') || path == ".metadata",
                "{path}: description {description:?}"
            );
            if depth > 0 {
                check(schema, &path, depth - 1);
            }
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(schema) = node.get(inner) {
                check(schema, path, depth);
            }
        }
    }
    // Down to the fields of a container; what is below differs between its kinds.
    check(&schema(CrdFeatures { cel: true }), "", 5);
}
