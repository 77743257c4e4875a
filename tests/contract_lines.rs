//! Every line of the contract's checklist (section 7, what a drop-in for the Go operator must do)
//! has a test that is named by it, `contract_07_<line>_<fact>`. Lines that need no cluster have it
//! here; most are end-to-end tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use mpi_operator::api::crd::{CrdFeatures, custom_resource_definition};
use mpi_operator::api::validate::{decode, validate};
use mpi_operator::args::{Parsed, parse};
use mpi_operator::metrics::Metrics;
use serde_json::{Value, json};

/// Lines of the checklist.
const LINES: std::ops::RangeInclusive<u32> = 1..=42;

/// Names of tests by line.
fn tests_by_line() -> BTreeMap<u32, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for folder in ["src", "tests", "e2e/tests"] {
        read(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            &mut found,
        );
    }
    found
}

fn read(folder: &Path, found: &mut BTreeMap<u32, BTreeSet<String>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            for line in fs::read_to_string(&path).unwrap().lines() {
                if let Some((line, name)) = test_name(line) {
                    found.entry(line).or_default().insert(name);
                }
            }
        }
    }
}

/// `(7, "contract_07_07_names_resolve")` of the line `async fn contract_07_07_names_resolve() {`.
fn test_name(line: &str) -> Option<(u32, String)> {
    let line = line.trim_start();
    let rest = line.strip_prefix("async ").unwrap_or(line);
    let rest = rest.strip_prefix("fn contract_07_")?;
    let (number, _) = rest.split_once('_')?;
    let name = rest.split('(').next()?;
    Some((number.parse().ok()?, format!("contract_07_{name}")))
}

#[test]
fn each_line_of_the_contract_has_a_test_that_is_named_by_it() {
    let found = tests_by_line();
    let missing: Vec<u32> = LINES.filter(|line| !found.contains_key(line)).collect();
    assert!(missing.is_empty(), "no test of lines {missing:?}");
    let unknown: Vec<&u32> = found.keys().filter(|line| !LINES.contains(line)).collect();
    assert!(unknown.is_empty(), "there are no lines {unknown:?}");
}

/// A spec with every field that the Go operator serves.
fn every_field() -> Value {
    let role = |policy: &str, replicas: u32| {
        json!({
            "replicas": replicas,
            "restartPolicy": policy,
            "template": {
                "metadata": {
                    "name": "n", "namespace": "n", "finalizers": ["example.com/f"],
                    "labels": {"a": "b"}, "annotations": {"a": "b"},
                },
                "spec": {"containers": [{"name": "main", "image": "pi"}]},
            },
        })
    };
    json!({
        "slotsPerWorker": 2,
        "runLauncherAsWorker": true,
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "MPICH",
        "runPolicy": {
            "cleanPodPolicy": "Running",
            "ttlSecondsAfterFinished": 1,
            "activeDeadlineSeconds": 2,
            "backoffLimit": 3,
            "suspend": true,
            "managedBy": "kubeflow.org/mpi-operator",
            "schedulingPolicy": {
                "minAvailable": 1,
                "queue": "q",
                "minResources": {"cpu": "1"},
                "priorityClass": "p",
                "scheduleTimeoutSeconds": 4,
            },
        },
        "mpiReplicaSpecs": {"Launcher": role("OnFailure", 1), "Worker": role("Never", 2)},
    })
}

/// Every field of `value` has a place in `schema`.
fn fits(value: &Value, schema: &Value, path: &str) {
    let free = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let own = &schema["properties"][key];
                let place = if own.is_null() {
                    &schema["additionalProperties"]
                } else {
                    own
                };
                if place.is_null() {
                    assert!(free, "{path}.{key} would be lost");
                    continue;
                }
                fits(value, place, &format!("{path}.{key}"));
            }
        }
        Value::Array(items) => {
            for item in items {
                fits(item, &schema["items"], path);
            }
        }
        _ => {}
    }
}

#[test]
fn contract_07_01_the_definition_has_every_field_of_the_go_operator() {
    let status = json!({
        "conditions": [{
            "type": "Running", "status": "True", "reason": "r", "message": "m",
            "lastUpdateTime": "2030-01-01T00:00:00Z", "lastTransitionTime": "2030-01-01T00:00:00Z",
        }],
        "replicaStatuses": {"Worker": {
            "active": 1, "succeeded": 2, "failed": 3, "selector": "a=b",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }},
        "startTime": "2030-01-01T00:00:00Z",
        "completionTime": "2030-01-01T00:00:00Z",
        "lastReconcileTime": "2030-01-01T00:00:00Z",
    });
    let object = json!({"spec": every_field(), "status": status});
    for cel in [true, false] {
        let definition = custom_resource_definition(CrdFeatures { cel });
        assert_eq!(definition["metadata"]["name"], "mpijobs.kubeflow.org");
        assert_eq!(definition["spec"]["group"], "kubeflow.org");
        assert_eq!(definition["spec"]["scope"], "Namespaced");
        let names = &definition["spec"]["names"];
        assert_eq!(
            [
                &names["kind"],
                &names["listKind"],
                &names["plural"],
                &names["singular"]
            ],
            ["MPIJob", "MPIJobList", "mpijobs", "mpijob"]
        );
        let versions = definition["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1);
        let version = &versions[0];
        assert_eq!(version["name"], "v2beta1");
        assert_eq!(
            (&version["served"], &version["storage"]),
            (&json!(true), &json!(true))
        );
        assert!(version["subresources"]["status"].is_object());
        fits(&object, &version["schema"]["openAPIV3Schema"], "");
    }
}

#[test]
fn contract_07_01_an_object_of_the_go_operator_decodes() {
    let mut spec = every_field();
    let spec = decode(&spec.take()).unwrap_or_else(|error| panic!("{error}"));
    let job = validate("pi", &spec).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!((job.workers, job.slots, job.gated), (2, 2, false));
}

#[test]
fn contract_07_36_every_flag_of_the_go_operator_is_taken_in_go_syntax() {
    let config = |args: &[&str], variable: Option<&str>| {
        let env = |name: &str| {
            (name == "KUBEFLOW_NAMESPACE")
                .then(|| variable.map(str::to_owned))
                .flatten()
        };
        match parse(args.iter().map(|&arg| arg.to_owned()), &env) {
            Ok(Parsed::Run(config)) => *config,
            other => panic!("{args:?}: {other:?}"),
        }
    };
    for flag in [
        "namespace",
        "lock-namespace",
        "gang-scheduling",
        "cluster-domain",
        "threadiness",
        "monitoring-port",
        "kube-api-qps",
        "kube-api-burst",
        "controller-queue-rate-limit",
        "controller-queue-burst",
        "master",
        "kubeConfig",
        "v",
        "vmodule",
        "stderrthreshold",
        "alsologtostderrthreshold",
        "log_dir",
        "log_file",
        "log_file_max_size",
        "log_backtrace_at",
    ] {
        let value = match flag {
            "master" => "http://127.0.0.1:8001",
            "namespace" | "lock-namespace" | "gang-scheduling" | "cluster-domain" => "some",
            "vmodule" => "a=1",
            "log_backtrace_at" => "a.go:1",
            _ => "7",
        };
        let forms = [
            config(&[&format!("-{flag}={value}")], None),
            config(&[&format!("--{flag}={value}")], None),
            config(&[&format!("-{flag}"), value], None),
            config(&[&format!("--{flag}"), value], None),
        ];
        assert!(forms.iter().all(|one| *one == forms[0]), "-{flag}");
        assert!(forms[0].ignored_arguments.is_empty(), "-{flag}");
    }
    for flag in [
        "logtostderr",
        "alsologtostderr",
        "legacy_stderr_threshold_behavior",
        "add_dir_header",
        "skip_headers",
        "skip_log_headers",
        "one_output",
    ] {
        config(&[&format!("-{flag}")], None);
        config(&[&format!("--{flag}=false")], None);
    }
    assert!(matches!(
        parse(["-version".to_owned()].into_iter(), &|_| None),
        Ok(Parsed::Version)
    ));
    assert!(parse(["-no-such-flag".to_owned()].into_iter(), &|_| None).is_err());
    let namespace = |args: &[&str]| config(args, Some("from-env")).namespace;
    assert_eq!(namespace(&[]).as_deref(), Some("from-env"));
    assert_eq!(namespace(&["-namespace=flag"]).as_deref(), Some("flag"));
}

#[test]
fn contract_07_39_the_five_metrics_have_names_types_and_labels_and_job_info_ends_with_its_job() {
    let metrics = Metrics::new();
    metrics.set_job_info("default", "pi-launcher");
    metrics.set_job_info("default", "gone-launcher");
    metrics.remove_job_info("default", "gone-launcher");
    let text = metrics.render();
    for line in [
        "# HELP mpi_operator_jobs_created_total Counts number of MPI jobs created",
        "# TYPE mpi_operator_jobs_created_total counter",
        "# HELP mpi_operator_jobs_successful_total Counts number of MPI jobs successful",
        "# TYPE mpi_operator_jobs_successful_total counter",
        "# HELP mpi_operator_jobs_failed_total Counts number of MPI jobs failed",
        "# TYPE mpi_operator_jobs_failed_total counter",
        "# HELP mpi_operator_job_info Information about MPIJob",
        "# TYPE mpi_operator_job_info gauge",
        "mpi_operator_job_info{launcher=\"pi-launcher\",namespace=\"default\"} 1",
        "# TYPE mpi_operator_is_leader gauge",
        "# HELP mpi_operator_is_leader Is this client the leader of this mpi-operator client set?",
        "mpi_operator_is_leader 0",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains("gone-launcher"));
}
