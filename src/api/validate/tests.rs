//! One line a case: what a spec comes to, or the exact texts of what is wrong with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::mpijob::MpiJobSpec;

/// A spec that is as short as a valid one can be, with two workers.
fn minimal() -> Value {
    json!({"mpiReplicaSpecs": {"Launcher": role(None), "Worker": role(Some(2))}})
}

fn role(replicas: Option<i32>) -> Value {
    json!({
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "main", "image": "pi"}]}},
    })
}

/// [`minimal`] with `value` at the JSON pointer `at`; parents are made as needed.
fn with(at: &str, value: Value) -> Value {
    let mut spec = minimal();
    let mut place = &mut spec;
    for key in at.split('/').skip(1) {
        place = match key.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[key],
        };
    }
    *place = value;
    spec
}

fn run(name: &str, spec: &Value) -> Result<ValidJob, Vec<Violation>> {
    match decode(spec) {
        Ok(spec) => validate(name, &spec),
        Err(violation) => Err(vec![violation]),
    }
}

fn valid(spec: &Value) -> ValidJob {
    run("pi", spec).unwrap_or_else(|violations| panic!("{violations:?}\n{spec}"))
}

/// The spec is refused with exactly these texts.
#[track_caller]
fn refused(name: &str, spec: &Value, texts: &[&str]) {
    let violations = run(name, spec).expect_err("the spec was taken");
    let found: Vec<String> = violations.iter().map(Violation::to_string).collect();
    assert_eq!(found, texts, "{spec}");
}

#[track_caller]
fn refuses(at: &str, value: Value, text: &str) {
    refused("pi", &with(at, value), &[text]);
}

/// The spec is taken, with exactly these warnings.
#[track_caller]
fn warns(at: &str, value: Value, texts: &[&str]) -> ValidJob {
    let job = valid(&with(at, value));
    let found: Vec<String> = job.warnings.iter().map(Violation::to_string).collect();
    assert_eq!(found, texts);
    job
}

#[test]
fn unset_fields_have_the_documented_defaults() {
    let launcher = &minimal()["mpiReplicaSpecs"]["Launcher"]["template"];
    let wanted = ValidJob {
        slots: 1,
        launcher_as_worker: false,
        workers: 2,
        implementation: Implementation::OpenMpi,
        gated: true,
        ssh_path: "/root/.ssh".to_owned(),
        clean_pod_policy: CleanPodPolicy::None,
        ttl_seconds: None,
        deadline_seconds: None,
        backoff_limit: None,
        suspend: false,
        scheduling: SchedulingPolicy::default(),
        worker_loss: WorkerLossPolicy::WaitForLauncher,
        launcher: Role {
            template: launcher.clone(),
            restart_policy: RestartPolicy::OnFailure,
        },
        worker: Some(Role {
            template: launcher.clone(),
            restart_policy: RestartPolicy::Never,
        }),
        min_ready: 2,
        max_workers: 2,
        elastic: false,
        remove_first: vec![],
        warnings: vec![],
    };
    assert_eq!(valid(&minimal()), wanted);
    // Null and, but for cleanPodPolicy, the empty text mean the same as nothing.
    for (at, value) in [
        ("/slotsPerWorker", Value::Null),
        ("/runLauncherAsWorker", Value::Null),
        ("/runPolicy", Value::Null),
        ("/runPolicy", json!({})),
        ("/runPolicy/cleanPodPolicy", Value::Null),
        ("/runPolicy/suspend", Value::Null),
        ("/runPolicy/schedulingPolicy", Value::Null),
        ("/runPolicy/workerLossPolicy", json!("")),
        ("/sshAuthMountPath", json!("")),
        ("/launcherCreationPolicy", json!("")),
        ("/mpiImplementation", json!("")),
        ("/mpiReplicaSpecs/Launcher/replicas", json!(1)),
        ("/mpiReplicaSpecs/Launcher/restartPolicy", json!("")),
        ("/mpiReplicaSpecs/Worker/restartPolicy", Value::Null),
        ("/elasticPolicy", Value::Null),
        ("/notAField", json!({"at": "all"})),
    ] {
        assert_eq!(valid(&with(at, value.clone())), wanted, "{at}: {value}");
    }
}

#[test]
fn workers_without_replicas_are_one() {
    let job = valid(&with("/mpiReplicaSpecs/Worker/replicas", Value::Null));
    assert_eq!((job.workers, job.min_ready, job.max_workers), (1, 1, 1));
}

#[test]
fn a_job_may_be_a_launcher_alone() {
    for spec in [
        with("/mpiReplicaSpecs/Worker", Value::Null),
        json!({"mpiReplicaSpecs": {"Launcher": role(None)}}),
    ] {
        let job = valid(&spec);
        assert_eq!((job.workers, job.min_ready, job.max_workers), (0, 0, 0));
        assert_eq!(job.worker, None);
    }
}

#[test]
fn values_that_are_set_are_taken() {
    let job = |at: &str, value| valid(&with(at, value));
    assert_eq!(job("/slotsPerWorker", json!(0)).slots, 0);
    assert!(job("/runLauncherAsWorker", json!(true)).launcher_as_worker);
    assert!(job("/runPolicy/suspend", json!(true)).suspend);
    let policy = |at: &str, value| job(&format!("/runPolicy/{at}"), value);
    assert_eq!(
        policy("ttlSecondsAfterFinished", json!(0)).ttl_seconds,
        Some(0)
    );
    let deadline = policy("activeDeadlineSeconds", json!(i64::MAX));
    assert_eq!(deadline.deadline_seconds, Some(i64::MAX));
    assert_eq!(policy("backoffLimit", json!(3)).backoff_limit, Some(3));
    for (text, wanted) in [
        ("All", CleanPodPolicy::All),
        ("Running", CleanPodPolicy::Running),
        ("None", CleanPodPolicy::None),
    ] {
        assert_eq!(
            policy("cleanPodPolicy", json!(text)).clean_pod_policy,
            wanted
        );
    }
    for (text, wanted) in [
        ("OpenMPI", Implementation::OpenMpi),
        ("Intel", Implementation::Intel),
        ("MPICH", Implementation::Mpich),
    ] {
        assert_eq!(
            job("/mpiImplementation", json!(text)).implementation,
            wanted
        );
    }
    let restart = policy("workerLossPolicy", json!("RestartLauncher"));
    assert_eq!(restart.worker_loss, WorkerLossPolicy::RestartLauncher);
    assert!(!job("/launcherCreationPolicy", json!("AtStartup")).gated);
    assert!(job("/launcherCreationPolicy", json!("WaitForWorkersReady")).gated);
    // The template's own restartPolicy is overridden, never an error.
    job(
        "/mpiReplicaSpecs/Worker/template/spec/restartPolicy",
        json!("Always"),
    );
}

#[test]
fn names_must_make_hostnames() {
    const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    const LONG: &str = "must be no more than 63 characters";
    #[track_caller]
    fn check(name: &str, replicas: i32, why: &[&str]) {
        let spec = with("/mpiReplicaSpecs/Worker/replicas", json!(replicas));
        if why.is_empty() {
            assert!(run(name, &spec).is_ok(), "{name} {replicas}");
            return;
        }
        let last = replicas.max(1) - 1;
        let text = format!(
            "metadata.name: Invalid value: \"{name}\": will not able to create pod and service with invalid DNS label \"{name}-worker-{last}\": {}",
            why.join(", ")
        );
        refused(name, &spec, &[&text]);
    }
    check(&"a".repeat(54), 10, &[]);
    check(&"a".repeat(54), 11, &[LONG]);
    check(&"a".repeat(53), 100, &[]);
    check(&"a".repeat(53), 101, &[LONG]);
    check(&"a".repeat(55), 1, &[LONG]);
    check("a.b", 2, &[LABEL]);
    check("1a", 2, &[LABEL]);
    check("-a", 2, &[LABEL]);
    check("A", 2, &[LABEL]);
    check("", 2, &[LABEL]);
    check("é", 2, &[LABEL]);
    check(&"1".repeat(60), 2, &[LONG, LABEL]);
    check("a-", 2, &[]);
}

#[test]
fn each_rule_has_the_path_and_text_of_the_go_operator() {
    refused(
        "pi",
        &json!({}),
        &["spec.mpiReplicaSpecs: Required value: must have replica specs"],
    );
    refused(
        "pi",
        &Value::Null,
        &["spec.mpiReplicaSpecs: Required value: must have replica specs"],
    );
    let launcher =
        "spec.mpiReplicaSpecs[Launcher]: Required value: must have Launcher replica spec";
    refused("pi", &json!({"mpiReplicaSpecs": {}}), &[launcher]);
    refuses("/mpiReplicaSpecs/Launcher", Value::Null, launcher);
    for role in ["Launcher", "Worker"] {
        for policy in ["Always", "ExitCode", "never"] {
            refuses(
                &format!("/mpiReplicaSpecs/{role}/restartPolicy"),
                json!(policy),
                &format!(
                    "spec.mpiReplicaSpecs[{role}].restartPolicy: Unsupported value: \"{policy}\": supported values: \"Never\", \"OnFailure\""
                ),
            );
        }
        for (at, value) in [
            ("template", Value::Null),
            ("template", json!({})),
            ("template/spec", Value::Null),
            ("template/spec/containers", Value::Null),
            ("template/spec/containers", json!([])),
        ] {
            refuses(
                &format!("/mpiReplicaSpecs/{role}/{at}"),
                value,
                &format!(
                    "spec.mpiReplicaSpecs[{role}].template.spec.containers: Required value: must define at least one container"
                ),
            );
        }
    }
    for replicas in [-1, 0, 2] {
        refuses(
            "/mpiReplicaSpecs/Launcher/replicas",
            json!(replicas),
            &format!(
                "spec.mpiReplicaSpecs[Launcher].replicas: Invalid value: {replicas}: must be 1"
            ),
        );
    }
    for replicas in [i32::MIN, -1, 0] {
        refuses(
            "/mpiReplicaSpecs/Worker/replicas",
            json!(replicas),
            &format!(
                "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: {replicas}: must be greater than or equal to 1"
            ),
        );
    }
    for field in [
        "slotsPerWorker",
        "runPolicy.ttlSecondsAfterFinished",
        "runPolicy.activeDeadlineSeconds",
        "runPolicy.backoffLimit",
    ] {
        refuses(
            &format!("/{}", field.replace('.', "/")),
            json!(-1),
            &format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0"),
        );
    }
    for policy in ["", "none", "Always"] {
        refuses(
            "/runPolicy/cleanPodPolicy",
            json!(policy),
            &format!(
                "spec.runPolicy.cleanPodPolicy: Unsupported value: \"{policy}\": supported values: \"All\", \"None\", \"Running\""
            ),
        );
    }
    refuses(
        "/mpiImplementation",
        json!("openmpi"),
        "spec.mpiImplementation: Unsupported value: \"openmpi\": supported values: \"Intel\", \"MPICH\", \"OpenMPI\"",
    );
}

#[test]
fn rules_of_our_own() {
    refuses(
        "/mpiReplicaSpecs/Worker/replicas",
        json!(2_000_000_000),
        "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 2000000000: must be less than or equal to 100000",
    );
    refuses(
        "/runPolicy/workerLossPolicy",
        json!("Ignore"),
        "spec.runPolicy.workerLossPolicy: Unsupported value: \"Ignore\": supported values: \"RestartLauncher\", \"WaitForLauncher\"",
    );
    for min in [-1, 0, 3] {
        refuses(
            "/elasticPolicy/minReplicas",
            json!(min),
            &format!(
                "spec.elasticPolicy.minReplicas: Invalid value: {min}: must be from 1 to the 2 replicas of Worker"
            ),
        );
    }
    for max in [-1, 1, 100_001] {
        refuses(
            "/elasticPolicy/maxReplicas",
            json!(max),
            &format!(
                "spec.elasticPolicy.maxReplicas: Invalid value: {max}: must be from the 2 replicas of Worker to 100000"
            ),
        );
    }
}

#[test]
fn every_broken_rule_is_reported_in_order() {
    let spec = json!({
        "slotsPerWorker": -1,
        "mpiImplementation": "LAM",
        "runPolicy": {"backoffLimit": -1, "activeDeadlineSeconds": -1, "ttlSecondsAfterFinished": -1, "cleanPodPolicy": "X"},
        "mpiReplicaSpecs": {
            "Worker": {"restartPolicy": "W", "replicas": 0},
            "Launcher": {"restartPolicy": "L", "replicas": 2},
        },
    });
    let violations = run("a.b", &spec).unwrap_err();
    let paths: Vec<&str> = violations.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "metadata.name",
            "spec.mpiReplicaSpecs[Launcher].restartPolicy",
            "spec.mpiReplicaSpecs[Launcher].template.spec.containers",
            "spec.mpiReplicaSpecs[Launcher].replicas",
            "spec.mpiReplicaSpecs[Worker].restartPolicy",
            "spec.mpiReplicaSpecs[Worker].template.spec.containers",
            "spec.mpiReplicaSpecs[Worker].replicas",
            "spec.slotsPerWorker",
            "spec.runPolicy.ttlSecondsAfterFinished",
            "spec.runPolicy.activeDeadlineSeconds",
            "spec.runPolicy.backoffLimit",
            "spec.runPolicy.cleanPodPolicy",
            "spec.mpiImplementation",
        ]
    );
    let message = validation_message(&violations);
    assert!(message.starts_with("Found validation errors: [metadata.name: Invalid value"));
    assert!(message.len() <= MAX_MESSAGE && message.ends_with("..."));
}

#[test]
fn the_message_has_brackets_only_around_several() {
    let one = Violation::new("spec.a", "no");
    let two = [one.clone(), Violation::new("spec.b", "nor")];
    let message = validation_message(std::slice::from_ref(&one));
    assert_eq!(message, "Found validation errors: spec.a: no");
    let message = validation_message(&two);
    assert_eq!(
        message,
        "Found validation errors: [spec.a: no, spec.b: nor]"
    );
    // The cut falls inside of a two-byte character for one of these.
    for pad in 0..2 {
        let text = format!("{}{}", "x".repeat(pad), "é".repeat(2000));
        let message = validation_message(&[Violation::new("spec.a", text)]);
        assert!((1023..=1024).contains(&message.len()) && message.ends_with("é..."));
    }
}

#[test]
fn odd_but_harmless_specs_run_with_a_warning() {
    let job = warns(
        "/launcherCreationPolicy",
        json!("WaitForWorkers"),
        &[
            "spec.launcherCreationPolicy: Unsupported value: \"WaitForWorkers\": supported values: \"AtStartup\", \"WaitForWorkersReady\"; acts as WaitForWorkersReady",
        ],
    );
    assert!(job.gated);
    warns(
        "/mpiReplicaSpecs/Workers",
        json!({"replicas": -3}),
        &["spec.mpiReplicaSpecs[Workers]: Ignored: the roles are \"Launcher\" and \"Worker\""],
    );
    let job = warns(
        "/runPolicy/schedulingPolicy/minAvailable",
        json!(-3),
        &[
            "spec.runPolicy.schedulingPolicy.minAvailable: Invalid value: -3: must be greater than or equal to 0; acts as unset",
        ],
    );
    assert_eq!(job.scheduling.min_available, None);
    let mut alone = with("/elasticPolicy/minReplicas", json!(2));
    alone["mpiReplicaSpecs"]["Worker"] = Value::Null;
    let job = valid(&alone);
    assert!(!job.elastic && job.warnings.len() == 1);
}

#[test]
fn names_that_no_worker_has_are_refused_with_their_place() {
    for (name, why) in [
        (
            "pi-worker-01",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        (
            "po-worker-1",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        (
            "pi-launcher",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        (
            "pi-worker--1",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        (
            "pi-worker-1.pi",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        (
            "",
            "must be the hostname of a worker of this job, pi-worker-<index>",
        ),
        ("pi-worker-100000", "the index must be less than 100000"),
    ] {
        refuses(
            "/elasticPolicy/removeFirst",
            json!(["pi-worker-0", name]),
            &format!("spec.elasticPolicy.removeFirst[1]: Invalid value: \"{name}\": {why}"),
        );
    }
    refuses(
        "/elasticPolicy/removeFirst",
        json!(["pi-worker-1", "pi-worker-0", "pi-worker-1"]),
        "spec.elasticPolicy.removeFirst[2]: Duplicate value: \"pi-worker-1\"",
    );
}

#[test]
fn a_name_beyond_the_room_of_the_worker_job_is_found() {
    let job = valid(&with(
        "/elasticPolicy/removeFirst",
        json!(["pi-worker-9", "pi-worker-10", "pi-worker-3"]),
    ));
    assert_eq!(out_of_range("pi", &job, 11), []);
    let found: Vec<String> = out_of_range("pi", &job, 10)
        .iter()
        .map(Violation::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "spec.elasticPolicy.removeFirst[1]: Invalid value: \"pi-worker-10\": the index must be less than 10, the room of the worker Job"
        ]
    );
}

#[test]
fn elastic_limits_are_taken() {
    let job = valid(&with(
        "/elasticPolicy/removeFirst",
        json!(["pi-worker-4", "pi-worker-0"]),
    ));
    assert_eq!(job.remove_first, [4, 0], "in the order of the list");
    let job = valid(&with(
        "/elasticPolicy",
        json!({"minReplicas": 1, "maxReplicas": 16}),
    ));
    assert_eq!((job.min_ready, job.workers, job.max_workers), (1, 2, 16));
    assert!(job.elastic && valid(&with("/elasticPolicy", json!({}))).elastic);
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    refused(
        "pi",
        &json!("x"),
        &["spec: Invalid value: \"x\": must be an object"],
    );
    refused(
        "pi",
        &json!([]),
        &["spec: Invalid value: []: must be an object"],
    );
    refuses(
        "/slotsPerWorker",
        json!("two"),
        "spec.slotsPerWorker: Invalid value: string \"two\", expected i32",
    );
    refuses(
        "/slotsPerWorker",
        json!(3_000_000_000_i64),
        "spec.slotsPerWorker: Invalid value: integer `3000000000`, expected i32",
    );
    refuses(
        "/mpiReplicaSpecs/Worker/replicas",
        json!(1.5),
        "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: floating point `1.5`, expected i32",
    );
    refuses(
        "/mpiReplicaSpecs/Worker",
        json!(7),
        "spec.mpiReplicaSpecs[Worker]: Invalid value: integer `7`, expected struct ReplicaSpec",
    );
    refuses(
        "/elasticPolicy",
        json!({"removeFirst": ["a", null]}),
        "spec.elasticPolicy.removeFirst[1]: Invalid value: null, expected a string",
    );
    for (at, value, text) in [
        ("", json!("x"), "\"x\": must be an object"),
        (".metadata", json!(1), "1: must be an object"),
        (".metadata.labels", json!([]), "[]: must be an object"),
        (".spec.containers", json!({}), "{}: must be a list"),
        (".spec.volumes", json!("v"), "\"v\": must be a list"),
    ] {
        let violations = run(
            "pi",
            &with(
                &format!("/mpiReplicaSpecs/Worker/template{}", at.replace('.', "/")),
                value,
            ),
        )
        .unwrap_err();
        let wanted = format!("spec.mpiReplicaSpecs[Worker].template{at}: Invalid value: {text}");
        assert_eq!(violations[0].to_string(), wanted);
    }
    let pod = "/mpiReplicaSpecs/Launcher/template/spec/containers/0";
    let path = "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0]";
    refuses(
        pod,
        json!("main"),
        &format!("{path}: Invalid value: \"main\": must be an object"),
    );
    refuses(
        &format!("{pod}/env"),
        json!(["A=b"]),
        &format!("{path}.env[0]: Invalid value: \"A=b\": must be an object"),
    );
    valid(&with(&format!("{pod}/command"), Value::Null));
}

#[test]
fn the_controller_of_a_job_is_told_by_managed_by() {
    fn check(managed_by: Value, wanted: &Management) {
        let spec = decode(&with("/runPolicy/managedBy", managed_by)).unwrap();
        assert_eq!(management(&spec), *wanted);
    }
    assert_eq!(management(&MpiJobSpec::default()), Management::Ours);
    check(Value::Null, &Management::Ours);
    check(json!(""), &Management::Ours);
    check(json!("kubeflow.org/mpi-operator"), &Management::Ours);
    check(json!("kueue.x-k8s.io/multikueue"), &Management::Foreign);
    check(json!("me"), &Management::Unknown("me".to_owned()));
}

/// JSON that has the right fields more often than by chance.
fn any_spec() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..200_001_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "All",
            "None",
            "Never",
            "OnFailure",
            "Intel",
            "AtStartup",
            "pi-worker-1",
            "",
        ])
        .prop_map(Value::from),
        Just(json!([{"name": "main"}])),
        Just(json!({"spec": {"containers": [{"name": "main"}]}})),
    ];
    let key = prop::sample::select(vec![
        "slotsPerWorker",
        "runPolicy",
        "mpiReplicaSpecs",
        "Launcher",
        "Worker",
        "replicas",
        "restartPolicy",
        "template",
        "metadata",
        "labels",
        "spec",
        "containers",
        "env",
        "cleanPodPolicy",
        "backoffLimit",
        "schedulingPolicy",
        "minAvailable",
        "elasticPolicy",
        "minReplicas",
        "maxReplicas",
        "removeFirst",
        "launcherCreationPolicy",
        "mpiImplementation",
    ]);
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((key.clone(), inner), 0..8).prop_map(|entries| {
                entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            }),
        ]
    })
}

/// [`minimal`] with some fields replaced by anything.
fn near_valid() -> impl Strategy<Value = Value> {
    let places = prop::sample::select(vec![
        "/slotsPerWorker",
        "/mpiReplicaSpecs/Worker",
        "/mpiReplicaSpecs/Worker/replicas",
        "/mpiReplicaSpecs/Worker/template",
        "/mpiReplicaSpecs/Launcher/replicas",
        "/mpiReplicaSpecs/Launcher/template/spec/containers/0/env",
        "/runPolicy",
        "/runPolicy/backoffLimit",
        "/elasticPolicy",
        "/elasticPolicy/minReplicas",
        "/elasticPolicy/maxReplicas",
        "/elasticPolicy/removeFirst",
        "/launcherCreationPolicy",
    ]);
    (places, any_spec()).prop_map(|(place, value)| with(place, value))
}

proptest! {
    #[test]
    fn any_json_is_taken_in_range_or_refused_in_short(
        name in "[a-z.0-9-]{0,60}",
        spec in prop_oneof![any_spec(), near_valid()],
    ) {
        match run(&name, &spec) {
            Ok(job) => {
                prop_assert!(job.slots >= 0);
                prop_assert!(job.workers <= 100_000 && job.max_workers <= 100_000);
                prop_assert!(job.min_ready <= job.workers && job.workers <= job.max_workers);
                prop_assert_eq!(job.workers == 0, job.min_ready == 0);
                prop_assert_eq!(job.workers == 0, job.worker.is_none());
                for limit in [job.ttl_seconds, job.backoff_limit, job.scheduling.min_available] {
                    prop_assert!(limit.unwrap_or(0) >= 0);
                }
                for role in [Some(&job.launcher), job.worker.as_ref()].into_iter().flatten() {
                    prop_assert!(role.template["spec"]["containers"][0].is_object());
                }
                for (at, index) in job.remove_first.iter().enumerate() {
                    prop_assert!(*index < 100_000);
                    prop_assert!(!job.remove_first[..at].contains(index));
                }
                prop_assert!(job.warnings.iter().all(|w| w.to_string().len() <= MAX_MESSAGE));
            }
            Err(violations) => {
                prop_assert!(!violations.is_empty());
                prop_assert!(validation_message(&violations).len() <= MAX_MESSAGE);
            }
        }
    }
}
