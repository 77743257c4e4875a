//! Builders against single facts; whole objects are in the golden tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::launcher_job::{LauncherParams, launcher_job};
use super::pod_group::{PodGroupParams, pod_group};
use super::worker_job::{headroom, probe_is_ours, worker_job};
use super::{BuildContext, Gang, Settings};
use crate::api::mpijob::SchedulingPolicy;
use crate::api::names;
use crate::api::validate::{
    CleanPodPolicy, Implementation, RestartPolicy, Role, ValidJob, WorkerLossPolicy,
};

/// A job of `workers` workers (0: launcher-only) with nothing but defaults.
pub(crate) fn job(workers: u32) -> ValidJob {
    let role = |image: &str, restart_policy| Role {
        template: json!({"spec": {"containers": [{"name": "mpi", "image": image}]}}),
        restart_policy,
    };
    ValidJob {
        slots: 1,
        launcher_as_worker: false,
        workers,
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
        launcher: role("launcher:1", RestartPolicy::OnFailure),
        worker: (workers > 0).then(|| role("worker:1", RestartPolicy::Never)),
        min_ready: workers,
        max_workers: workers,
        elastic: false,
        remove_first: Vec::new(),
        warnings: Vec::new(),
    }
}

/// Runs `check` in the context of MPIJob `default/pi`.
pub(crate) fn with_ctx<T>(
    job: &ValidJob,
    domain: &str,
    check: impl FnOnce(&BuildContext) -> T,
) -> T {
    let settings = Settings {
        cluster_domain: domain.to_owned(),
        ..Settings::default()
    };
    with_settings(job, &settings, check)
}

fn with_settings<T>(
    job: &ValidJob,
    settings: &Settings,
    check: impl FnOnce(&BuildContext) -> T,
) -> T {
    check(&BuildContext {
        job,
        name: "pi",
        namespace: "default",
        uid: "1234",
        run: "run-1",
        settings,
    })
}

const HELD: LauncherParams = LauncherParams {
    pause: false,
    suspend: true,
    backoff_limit: None,
    active_deadline_seconds: None,
};

fn gang_job(workers: u32, launcher_cpu: &str, worker_cpu: &str) -> ValidJob {
    let mut job = job(workers);
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    job.launcher.template["spec"]["containers"][0]["resources"] = resources(launcher_cpu);
    if let Some(worker) = &mut job.worker {
        worker.template["spec"]["containers"][0]["resources"] = resources(worker_cpu);
    }
    job
}

fn group(job: &ValidJob, launcher_counts: bool, priorities: (i32, i32)) -> Value {
    let settings = Settings {
        gang: Some(Gang::Volcano),
        ..Settings::default()
    };
    let params = PodGroupParams {
        launcher_counts,
        launcher_priority: priorities.0,
        worker_priority: priorities.1,
        queue_annotation: Some("from-annotation"),
    };
    with_settings(job, &settings, |ctx| {
        pod_group(ctx, &params).expect("gang scheduling is on")["spec"].take()
    })
}

#[test]
fn held_launcher_does_not_count_in_the_gang() {
    let job = gang_job(3, "500m", "1");
    let held = group(&job, false, (0, 0));
    assert_eq!(
        (&held["minMember"], &held["minResources"]["cpu"]),
        (&json!(3), &json!("3"))
    );
    let open = group(&job, true, (0, 0));
    assert_eq!(
        (&open["minMember"], &open["minResources"]["cpu"]),
        (&json!(4), &json!("3500m"))
    );
}

#[test]
fn min_available_counts_the_most_important_pods_first() {
    let mut job = gang_job(3, "500m", "1");
    job.scheduling.min_available = Some(2);
    // Equal priority, or a launcher above its workers: the launcher and one worker.
    assert_eq!(group(&job, true, (0, 0))["minResources"]["cpu"], "1500m");
    assert_eq!(group(&job, true, (9, 0))["minResources"]["cpu"], "1500m");
    // Workers above the launcher: two workers.
    assert_eq!(group(&job, true, (0, 9))["minResources"]["cpu"], "2");
}

#[test]
fn min_available_beyond_the_workers_waits_for_no_held_launcher() {
    let mut job = gang_job(3, "500m", "1");
    job.scheduling.min_available = Some(4);
    assert_eq!(group(&job, false, (0, 0))["minMember"], 3);
    assert_eq!(group(&job, true, (0, 0))["minMember"], 4);
}

#[test]
fn negative_min_available_is_zero_and_asks_for_nothing() {
    let mut job = gang_job(3, "500m", "1");
    job.scheduling.min_available = Some(-5);
    let spec = group(&job, true, (0, 0));
    assert_eq!(spec["minMember"], 0);
    assert_eq!(spec.get("minResources"), None);
}

#[test]
fn launcher_only_gang_is_its_launcher() {
    let job = gang_job(0, "500m", "1");
    let spec = group(&job, false, (0, 0));
    assert_eq!(
        (&spec["minMember"], &spec["minResources"]["cpu"]),
        (&json!(1), &json!("500m"))
    );
}

#[test]
fn limits_stand_in_for_requests_and_given_resources_stand_as_they_are() {
    let mut job = job(2);
    job.worker.as_mut().unwrap().template["spec"]["containers"] = json!([
        {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "nvidia.com/gpu": 1}}},
        {"resources": {"limits": {"memory": "512Mi"}}},
        {"resources": "odd"},
    ]);
    assert_eq!(
        group(&job, false, (0, 0))["minResources"],
        json!({"cpu": "2", "nvidia.com/gpu": "2", "memory": "1Gi"})
    );
    job.scheduling.min_resources = Some(json!({"cpu": "7"}));
    assert_eq!(
        group(&job, false, (0, 0))["minResources"],
        json!({"cpu": "7"})
    );
}

#[test]
fn queue_of_the_policy_stands_over_the_annotation() {
    let mut job = job(1);
    assert_eq!(group(&job, false, (0, 0))["queue"], "from-annotation");
    job.scheduling.queue = Some("from-policy".to_owned());
    assert_eq!(group(&job, false, (0, 0))["queue"], "from-policy");
}

#[test]
fn headroom_takes_the_room_that_the_name_leaves() {
    assert_eq!(headroom(2, 2, 2), 10_000);
    assert_eq!(headroom(2, 9_999, 0), 10_000);
    // C above R: ten thousand workers fill the largest power.
    assert_eq!(headroom(2, 10_000, 0), 10_000);
    assert_eq!(headroom(2, 20_000, 0), 20_000);
    // `-worker-` and one, two, three digits.
    assert_eq!(headroom(54, 3, 3), 10);
    assert_eq!(headroom(54, 10, 10), 10);
    assert_eq!(headroom(53, 3, 3), 100);
    assert_eq!(headroom(52, 3, 3), 1_000);
    // The most workers do not fit, those of now do.
    assert_eq!(headroom(54, 3, 16), 3);
    assert_eq!(headroom(2, 3, 16_000), 16_000);
    // No worker hostname fits at all; such a job is refused before.
    assert_eq!(headroom(55, 1, 1), 1);
    assert_eq!(headroom(usize::MAX / 2, 1, 1), 1);
}

#[test]
fn shared_process_space_gets_no_pre_stop() {
    for field in ["hostPID", "shareProcessNamespace"] {
        let mut job = job(1);
        job.worker.as_mut().unwrap().template["spec"][field] = json!(true);
        with_ctx(&job, "", |ctx| {
            let body = worker_job(ctx, 1);
            let main = &body["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(main["command"], json!(["/usr/sbin/sshd", "-De"]));
            assert_eq!(main.get("lifecycle"), None, "{field}");
        });
    }
}

#[test]
fn unreachable_toleration_is_added_only_where_the_user_has_none() {
    let ours = json!({
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    });
    let settings = Settings {
        unreachable_toleration_seconds: Some(30),
        ..Settings::default()
    };
    let other = json!({"key": "gpu", "operator": "Exists"});
    for (given, added) in [
        (json!(null), true),
        (json!([other]), true),
        (json!([{"operator": "Exists"}]), false),
        (
            json!([{"operator": "Exists", "effect": "NoSchedule"}]),
            true,
        ),
        (
            json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]),
            false,
        ),
    ] {
        let mut job = job(1);
        job.worker.as_mut().unwrap().template["spec"]["tolerations"] = given.clone();
        with_settings(&job, &settings, |ctx| {
            let body = worker_job(ctx, 1);
            let all = body["spec"]["template"]["spec"]["tolerations"]
                .as_array()
                .unwrap();
            assert_eq!(all.contains(&ours), added, "{given}");
            assert_eq!(
                all.len(),
                given.as_array().map_or(0, Vec::len) + usize::from(added)
            );
        });
    }
}

#[test]
fn probe_mark_of_another_pod_is_taken_off() {
    let mut job = job(1);
    job.worker.as_mut().unwrap().template["metadata"] =
        json!({"annotations": {"mpi-operator.kubeflow.org/readiness-probe": "added"}});
    with_ctx(&job, "", |ctx| {
        assert!(!probe_is_ours(&worker_job(ctx, 1)["spec"]["template"]));
    });
    job.worker.as_mut().unwrap().template["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 2222}]);
    with_ctx(&job, "", |ctx| {
        assert!(probe_is_ours(&worker_job(ctx, 1)["spec"]["template"]));
    });
}

/// Digests tell a user's edits apart from flags of the operator.
#[test]
fn digests_follow_the_templates_and_not_the_flags() {
    let plain = job(1);
    let mut edited = job(1);
    edited.worker.as_mut().unwrap().template["spec"]["nodeSelector"] = json!({"a": "b"});
    edited.launcher.template["spec"]["nodeSelector"] = json!({"a": "b"});
    let digests = |job: &ValidJob, domain: &str| {
        with_ctx(job, domain, |ctx| {
            (
                super::worker_job::digest(ctx),
                super::launcher_job::digest(ctx),
            )
        })
    };
    assert_eq!(digests(&plain, ""), digests(&plain, "example.org"));
    assert_ne!(digests(&plain, "").0, digests(&edited, "").0);
    assert_ne!(digests(&plain, "").1, digests(&edited, "").1);
}

/// Any JSON, down to three levels, with the keys that the builders edit among its keys.
fn odd_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/-]{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        3 => prop::sample::select(vec![
            "metadata", "labels", "annotations", "spec", "containers", "env", "name", "command",
            "args", "ports", "volumes", "volumeMounts", "dnsConfig", "searches", "lifecycle",
            "preStop", "tolerations", "resources", "requests", "limits", "hostNetwork",
        ]).prop_map(str::to_owned),
        1 => "[a-z]{1,6}",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn headroom_fits_the_name(name_len in 1_usize..=54, wanted in 0_u32..30_000, max in 0_u32..30_000) {
        let fits = |count: u32| {
            name_len + "-worker-".len() + count.saturating_sub(1).to_string().len() <= 63
        };
        prop_assume!(fits(wanted));
        let completions = headroom(name_len, wanted, max);
        let most = wanted.max(max);
        prop_assert!(completions >= wanted);
        prop_assert!(fits(completions));
        let power = [10, 100, 1_000, 10_000].contains(&completions);
        if completions > most {
            prop_assert!(power);
            // The next power is beyond the limit or does not fit.
            prop_assert!(completions == 10_000 || !fits(completions * 10));
        } else {
            prop_assert!(completions == most || (completions == wanted && !fits(most)));
            prop_assert!(![10, 100, 1_000, 10_000].iter().any(|&p| p > most && fits(p)));
        }
    }

    #[test]
    fn user_labels_stay_and_operator_labels_win(
        user in prop::collection::btree_map(
            prop_oneof![
                "[a-z]{1,5}/[a-z]{1,5}",
                Just(names::OPERATOR_NAME_LABEL.to_owned()),
                Just(names::JOB_NAME_LABEL.to_owned()),
                Just(names::JOB_ROLE_LABEL.to_owned()),
                Just(names::RUN_LABEL.to_owned()),
            ],
            "[a-z]{0,5}",
            0..8,
        ),
        unknown in odd_json(),
    ) {
        let mut job = job(2);
        let template = json!({
            "metadata": {"labels": user, "name": "dropped", "finalizers": ["dropped/too"]},
            "spec": {
                "containers": [{"name": "mpi", "futureField": unknown}, {"name": "side"}],
                "futureField": unknown,
            },
            "futureField": unknown,
        });
        job.worker.as_mut().unwrap().template = template.clone();
        job.launcher.template = template.clone();
        let bodies = with_ctx(&job, "", |ctx| [worker_job(ctx, 2), launcher_job(ctx, &HELD)]);
        for (body, role) in bodies.iter().zip(["worker", "launcher"]) {
            let pod = &body["spec"]["template"];
            let labels = pod["metadata"]["labels"].as_object().unwrap();
            prop_assert_eq!(&labels[names::OPERATOR_NAME_LABEL], "mpi-operator");
            prop_assert_eq!(&labels[names::JOB_NAME_LABEL], "pi");
            prop_assert_eq!(&labels[names::JOB_ROLE_LABEL], role);
            if role == "worker" {
                prop_assert_eq!(&labels[names::RUN_LABEL], "run-1");
            }
            for (key, value) in &user {
                prop_assert!(labels.contains_key(key));
                if key.len() <= 11 {
                    prop_assert_eq!(&labels[key], value);
                }
            }
            prop_assert_eq!(pod["metadata"].get("name"), None);
            prop_assert_eq!(pod["metadata"].get("finalizers"), None);
            prop_assert_eq!(&pod["futureField"], &unknown);
            prop_assert_eq!(&pod["spec"]["futureField"], &unknown);
            prop_assert_eq!(&pod["spec"]["containers"][0]["futureField"], &unknown);
            prop_assert_eq!(&pod["spec"]["containers"][1], &template["spec"]["containers"][1]);
        }
    }

    #[test]
    fn odd_templates_are_built_without_a_panic(template in odd_json()) {
        let mut job = job(2);
        job.worker.as_mut().unwrap().template = template.clone();
        job.launcher.template = template;
        let settings = Settings {
            gang: Some(Gang::Volcano),
            unreachable_toleration_seconds: Some(1),
            ..Settings::default()
        };
        with_settings(&job, &settings, |ctx| {
            let _ = worker_job(ctx, 2);
            let _ = launcher_job(ctx, &HELD);
        });
        group(&job, true, (0, 0));
    }
}
