//! With `-gang-scheduling` the operator writes the PodGroup that a gang scheduler reads, keeps it in
//! line and removes it. Not beside other tests: the operator gets other flags for a while, and every
//! job that runs then is a gang.
//!
//! No gang scheduler runs here, only the definitions of its PodGroup. Pods that ask for volcano stay
//! Pending; with scheduler-plugins the name of the scheduler is free, so the cluster's own takes the
//! pods.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::mpi::{belongs_to, condition, job, uid};
use e2e::wait::{poll, workers_at};
use e2e::{Namespace, SOON};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// Group, version and sample of a kind of PodGroup.
type Kind = (&'static str, &'static str, &'static str);
const VOLCANO: Kind = ("scheduling.volcano.sh", "v1beta1", "pod-group-volcano.yaml");
const PLUGINS: Kind = (
    "scheduling.x-k8s.io",
    "v1alpha1",
    "pod-group-scheduler-plugins.yaml",
);

/// PodGroups of this kind in the namespace.
fn groups(ns: &Namespace, kind: Kind) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.0, kind.1, "PodGroup"),
        "podgroups",
    );
    Api::namespaced_with(ns.cluster.client.clone(), &ns.name, &resource)
}

async fn define(ns: &Namespace, kind: Kind) -> anyhow::Result<()> {
    let file = format!("{}/samples/{}", env!("CARGO_MANIFEST_DIR"), kind.2);
    ns.kubectl(&["apply", "-f", &file]).await?;
    let name = format!("crd/podgroups.{}", kind.0);
    let wait = [
        "wait",
        "--for=condition=Established",
        &name,
        "--timeout=60s",
    ];
    ns.kubectl(&wait).await?;
    Ok(())
}

async fn undefine(ns: &Namespace, kind: Kind) -> anyhow::Result<()> {
    let name = format!("podgroups.{}", kind.0);
    ns.kubectl(&["delete", "crd", &name, "--ignore-not-found"])
        .await?;
    Ok(())
}

/// Runs `body` while the operator schedules gangs by `scheduler`.
async fn with_gang(
    prefix: &str,
    kind: Kind,
    scheduler: &str,
    body: impl AsyncFnOnce(&Namespace) -> anyhow::Result<()>,
) {
    let _alone = ALONE.lock().await;
    e2e::in_namespace(prefix, async |ns| {
        define(ns, kind).await?;
        let flag = format!("-gang-scheduling={scheduler}");
        let cluster = ns.cluster.clone();
        let result = cluster
            .with_operator_flags(&[&flag], async || body(ns).await)
            .await;
        undefine(ns, kind).await?;
        result
    })
    .await;
}

/// The PodGroup `name` once `field` of its spec is `value`.
async fn until_spec(
    groups: &Api<DynamicObject>,
    name: &str,
    field: &str,
    value: Value,
) -> anyhow::Result<DynamicObject> {
    let mut last = Value::Null;
    let found = poll(
        &format!("{field} {value} of PodGroup {name}"),
        SOON,
        async || {
            let group = groups.get_opt(name).await?;
            last = group
                .as_ref()
                .map_or(Value::Null, |g| g.data["spec"].clone());
            Ok(group.filter(|g| g.data["spec"][field] == value))
        },
    )
    .await;
    found.map_err(|error| error.context(format!("the spec is {last}")))
}

async fn until_gone(groups: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    poll(&format!("PodGroup {name} gone"), SOON, async || {
        Ok(groups.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

fn scheduler(pod: &Pod) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    spec.scheduler_name.unwrap_or_default()
}

fn owned_by(group: &DynamicObject, job: &DynamicObject) {
    assert_eq!(
        serde_json::to_value(&group.metadata.owner_references).unwrap(),
        json!([{
            "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": job.name_any(),
            "uid": uid(job), "controller": true, "blockOwnerDeletion": true,
        }])
    );
}

#[tokio::test]
async fn contract_07_35_the_pod_group_of_volcano_has_the_fields_of_the_go_operator() {
    with_gang("volcano", VOLCANO, "volcano", async |ns| {
        let groups = groups(ns, VOLCANO);
        let scheduling = json!({"schedulingPolicy": {
            "queue": "from-policy", "priorityClass": "high", "scheduleTimeoutSeconds": 9,
        }});
        let made = ns
            .create(&job("gang").workers(3).run_policy(scheduling))
            .await?;
        // The launcher is held, so the gang is its workers.
        let group = until_spec(&groups, "gang", "minMember", json!(3)).await?;
        owned_by(&group, &made);
        assert_eq!(
            group.data["spec"],
            json!({
                "minMember": 3,
                "minResources": {"cpu": "30m", "memory": "48Mi"},
                "queue": "from-policy",
                "priorityClassName": "high",
            })
        );
        let workers = ns
            .pods
            .until("3 worker pods", SOON, |seen| {
                let workers = workers_at(seen, "gang");
                Ok((workers.len() == 3).then_some(workers))
            })
            .await?;
        for pod in workers.values() {
            assert_eq!(scheduler(pod), "volcano");
            assert_eq!(pod.annotations()["scheduling.k8s.io/group-name"], "gang");
        }
        // Edits are followed.
        let to = |min: i32| {
            json!({"spec": {"runPolicy": {"schedulingPolicy": {
                "minAvailable": min, "queue": null, "minResources": {"cpu": "7"},
            }}}})
        };
        ns.patch("gang", to(2)).await?;
        let group = until_spec(&groups, "gang", "minMember", json!(2)).await?;
        assert_eq!(group.data["spec"]["minResources"], json!({"cpu": "7"}));
        assert!(group.data["spec"]["queue"].is_null());
        let queue = json!({"scheduling.volcano.sh/queue-name": "from-annotation"});
        ns.patch("gang", json!({"metadata": {"annotations": queue}}))
            .await?;
        until_spec(&groups, "gang", "queue", json!("from-annotation")).await?;
        // A launcher that starts at once is part of the gang from the beginning.
        let at_once = job("at-once")
            .workers(1)
            .spec(json!({"launcherCreationPolicy": "AtStartup"}));
        ns.create(&at_once).await?;
        until_spec(&groups, "at-once", "minMember", json!(2)).await?;
        let launcher = ns
            .pods
            .until_live("a launcher pod", SOON, |all| {
                let launcher = |p: &&Pod| e2e::mpi::is_launcher_of(p, "at-once");
                Ok(all.values().find(launcher).cloned())
            })
            .await?;
        assert_eq!(scheduler(&launcher), "volcano");
        assert_eq!(
            launcher.annotations()["scheduling.k8s.io/group-name"],
            "at-once"
        );
        ns.suspend("gang", true).await?;
        until_gone(&groups, "gang").await?;
        ns.until_no_pods("gang").await?;
        ns.suspend("gang", false).await?;
        until_spec(&groups, "gang", "minMember", json!(2)).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_35_the_pod_group_of_scheduler_plugins_follows_the_job_to_its_end() {
    with_gang("plugins", PLUGINS, "default-scheduler", async |ns| {
        let groups = groups(ns, PLUGINS);
        let made = ns.create(&job("gang").workers(2).hold_worker(1)).await?;
        let group = until_spec(&groups, "gang", "minMember", json!(2)).await?;
        owned_by(&group, &made);
        assert_eq!(
            group.data["spec"],
            json!({
                "minMember": 2,
                "minResources": {"cpu": "20m", "memory": "32Mi"},
                "scheduleTimeoutSeconds": 0,
            })
        );
        let held = ns
            .pods
            .until("worker 1", SOON, |seen| {
                Ok(workers_at(seen, "gang")
                    .remove(&1)
                    .filter(|p| !e2e::mpi::node(p).is_empty()))
            })
            .await?;
        poll("worker 1 let go", SOON, async || {
            let go = ["touch", "/tmp/go"];
            Ok(ns.exec_in(&held, Some("hold"), &go).await.ok())
        })
        .await?;
        // Released, the launcher counts.
        let launcher = ns.until_launcher_runs("gang", &[]).await?;
        let group = until_spec(&groups, "gang", "minMember", json!(3)).await?;
        assert_eq!(group.data["spec"]["minResources"]["cpu"], "30m");
        for pod in ns.pods.live().values().filter(|p| belongs_to(p, "gang")) {
            assert_eq!(scheduler(pod), "default-scheduler");
            assert_eq!(pod.labels()["scheduling.x-k8s.io/pod-group"], "gang");
        }
        let policy = json!({"minAvailable": 1, "scheduleTimeoutSeconds": 77});
        let policy = json!({"spec": {"runPolicy": {"schedulingPolicy": policy}}});
        ns.patch("gang", policy).await?;
        let group = until_spec(&groups, "gang", "minMember", json!(1)).await?;
        assert_eq!(group.data["spec"]["scheduleTimeoutSeconds"], 77);
        ns.suspend("gang", true).await?;
        until_gone(&groups, "gang").await?;
        ns.until_no_pods("gang").await?;
        assert_eq!(ns.launchers_ever("gang")[0].uid(), launcher.uid());

        for (name, policy) in [("none", "None"), ("run", "Running"), ("all", "All")] {
            let policy = json!({"cleanPodPolicy": policy});
            ns.create(&job(name).workers(1).run_policy(policy)).await?;
            let launcher = ns.until_launcher_runs(name, &[]).await?;
            until_spec(&groups, name, "minMember", json!(2)).await?;
            ns.tell(&launcher).await?;
            ns.until_succeeded(name).await?;
        }
        until_gone(&groups, "run").await?;
        until_gone(&groups, "all").await?;
        assert!(groups.get_opt("none").await?.is_some());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_35_a_missing_definition_is_told_in_the_job_and_other_work_goes_on() {
    let _alone = ALONE.lock().await;
    e2e::in_namespace("no-gang", async |ns| {
        undefine(ns, VOLCANO).await?;
        let cluster = ns.cluster.clone();
        cluster
            .with_operator_flags(&["-gang-scheduling", "volcano"], async || {
                ns.create(&job("why").workers(1)).await?;
                let told = ns
                    .until_mpijob("why", "a condition names the PodGroup", SOON, |object| {
                        Ok(says_pod_group(object))
                    })
                    .await;
                told?;
                // The operator itself goes on: a spec that is wrong is told.
                ns.create(&job("wrong").workers(0)).await?;
                ns.until_condition("wrong", "Invalid", "True").await?;
                // And the job gets its PodGroup once the definition is there.
                define(ns, VOLCANO).await?;
                let found = until_spec(&groups(ns, VOLCANO), "why", "minMember", json!(1)).await;
                undefine(ns, VOLCANO).await?;
                found?;
                Ok(())
            })
            .await
    })
    .await;
}

fn says_pod_group(object: &DynamicObject) -> bool {
    condition(object, "Degraded").is_some_and(|c| c.is_true() && c.message.contains("PodGroup"))
}
