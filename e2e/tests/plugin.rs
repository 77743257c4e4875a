//! `kubectl mpi`: what it prints, what it changes, how it ends; for an admin, for a viewer, and for
//! somebody who may read MPIJobs only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use anyhow::{Result, bail};
use e2e::cluster::Answer;
use e2e::mpi::{self, WAIT_FOR_GO, job};
use e2e::wait::{poll, workers_at};
use e2e::{Namespace, SOON};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Runs `kubectl mpi` in the namespace of the test. A test without the plugin ends here, and says
/// that it skips.
macro_rules! mpi {
    ($ns:expr, $line:expr) => {
        match run($ns, &$line).await? {
            Some(answer) => answer,
            None => return Ok(()),
        }
    };
}

async fn run(ns: &Namespace, line: &str) -> Result<Option<Answer>> {
    let typed: Vec<&str> = line.split_whitespace().collect();
    let end = typed.iter().position(|arg| *arg == "--");
    let (own, rest) = typed.split_at(end.unwrap_or(typed.len()));
    let args = [own, &["-n", &ns.name], rest].concat();
    ns.cluster.plugin(&args).await
}

/// stdout of an answer that ended well and complained of nothing.
fn fine(answer: &Answer) -> &str {
    assert_eq!((answer.code, &*answer.stderr), (Some(0), ""), "{answer:?}");
    &answer.stdout
}

/// The one line on stderr of an answer that failed.
fn failure(answer: &Answer) -> &str {
    assert_eq!((answer.code, &*answer.stdout), (Some(1), ""), "{answer:?}");
    let line = answer.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(
        line.starts_with("error: ") && !line.contains('\n'),
        "{answer:?}"
    );
    line
}

/// The line of `text` whose first word is `first`.
fn row<'a>(text: &'a str, first: &str) -> &'a str {
    let mut lines = text.lines();
    let found = lines.find(|line| line.split_whitespace().next() == Some(first));
    found.unwrap_or_else(|| panic!("no line begins with {first}:\n{text}"))
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn a_list_shows_jobs_and_a_description_shows_workers_by_index_without_pod_names() {
    e2e::in_namespace("plugin-list", async |ns| {
        let none = mpi!(ns, "list");
        assert_eq!((none.code, &*none.stdout), (Some(0), ""), "{none:?}");
        ns.create(&job("run").workers(2)).await?;
        ns.create(&job("held").workers(3).suspended()).await?;
        ns.until_condition("run", "Running", "True").await?;
        ns.until_condition("held", "Suspended", "True").await?;
        let table = poll("both in the list", SOON, async || {
            let Some(list) = run(ns, "list").await? else {
                return Ok(Some(String::new()));
            };
            let ready = list.stdout.contains("2/2") && list.stdout.contains("Suspended");
            Ok(ready.then(|| fine(&list).to_owned()))
        })
        .await?;
        assert_eq!(
            words(table.lines().next().unwrap()),
            ["NAME", "STATUS", "WORKERS", "TRIES", "AGE"]
        );
        assert_eq!(
            words(row(&table, "run"))[..4],
            ["run", "Running", "2/2", "0/6"]
        );
        assert_eq!(
            words(row(&table, "held"))[..4],
            ["held", "Suspended", "0/3", "0/6"]
        );
        let names = mpi!(ns, "list -o name");
        assert_eq!(
            fine(&names),
            "mpijob.kubeflow.org/held\nmpijob.kubeflow.org/run\n"
        );
        let all: Value = serde_json::from_str(fine(&mpi!(ns, "list -o json")))?;
        assert_eq!(all["items"][1]["metadata"]["name"], "run");
        assert!(all["items"][1]["metadata"]["managedFields"].is_null());
        let everywhere = mpi!(ns, "list -A");
        assert!(
            row(fine(&everywhere), &ns.name).contains("held"),
            "{everywhere:?}"
        );

        let told = mpi!(ns, "describe run");
        let text = fine(&told);
        let pods = ns.until_workers_ready("run", 2).await?;
        for (index, pod) in &pods {
            let line = words(row(text, &index.to_string()))[..3].to_vec();
            assert_eq!(line, [&*index.to_string(), "Ready", mpi::node(pod)]);
            let name = pod.metadata.name.as_deref().unwrap();
            assert!(!text.contains(name), "{name} is not for people: {text}");
            assert!(fine(&mpi!(ns, "describe run -o wide")).contains(name));
        }
        assert!(text.contains("Gate:       open"), "{text}");
        assert_eq!(words(row(text, "newest"))[1], "Running");
        let told: Value = serde_json::from_str(fine(&mpi!(ns, "describe run -o json")))?;
        assert_eq!(told["workers"][1]["state"], "Ready");
        assert_eq!(told["gate"]["open"], true);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_description_names_the_worker_that_no_node_takes_and_the_reason() {
    e2e::in_namespace("plugin-waits", async |ns| {
        let label = format!("mpi-operator.e2e/{}", ns.name);
        ns.create(&job("why").workers(2).worker_node_label(&label))
            .await?;
        ns.until_condition("why", "WorkersReady", "False").await?;
        let told = poll("the reason in the description", SOON, async || {
            let Some(told) = run(ns, "describe why --events").await? else {
                return Ok(Some(None));
            };
            let text = fine(&told).to_owned();
            // In the gate, in both rows, and in an event.
            let everywhere = text.matches("Unschedulable: 0/").count() >= 4;
            Ok((text.contains("closed for") && everywhere).then_some(Some(text)))
        })
        .await?;
        let Some(text) = told else { return Ok(()) };
        assert!(row(&text, "Gate:").contains("waiting for 0-1"), "{text}");
        assert!(row(&text, "0").contains("Unschedulable: 0/"), "{text}");
        assert!(text.contains("Launcher: none"), "{text}");
        let log = mpi!(ns, "logs why");
        assert!(
            failure(&log).contains("has no launcher pod: Unschedulable"),
            "{log:?}"
        );
        let exec = mpi!(ns, "exec why --worker 1 -- true");
        assert!(
            failure(&exec).contains("worker 1 of MPIJob why does not run: Pending"),
            "{exec:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn logs_are_those_of_the_newest_try_of_an_earlier_one_or_of_a_worker() {
    e2e::in_namespace("plugin-logs", async |ns| {
        let script = format!("echo second; {WAIT_FOR_GO}true");
        let tries = job("tries").workers(2).tries("echo first; exit 3", &script);
        let speaking = json!({"command": ["sh", "-c",
            "echo I am $HOSTNAME; exec /usr/sbin/sshd -De -f /home/mpiuser/.sshd_config"]});
        ns.create(&tries.worker_container(speaking)).await?;
        ns.until_tries_ended("tries", 1).await?;
        let first = ns.launchers_ever("tries").first().map(mpi::uid).unwrap();
        ns.until_launcher_runs("tries", &[first]).await?;
        poll("the second line", SOON, async || {
            let Some(log) = run(ns, "logs tries").await? else {
                return Ok(Some(()));
            };
            Ok((log.stdout == "second\n").then_some(()))
        })
        .await?;
        let earlier = mpi!(ns, "logs tries --previous-try 1");
        assert_eq!(fine(&earlier), "first\n");
        let none = mpi!(ns, "logs tries --previous-try 2");
        assert!(
            failure(&none).contains("--previous-try goes up to 1"),
            "{none:?}"
        );
        let worker = mpi!(ns, "logs tries --worker 1 --tail -1");
        assert!(
            fine(&worker).starts_with("I am tries-worker-1\n"),
            "{worker:?}"
        );
        let told = mpi!(ns, "describe tries");
        assert!(
            fine(&told).contains("exit code 3, container launcher"),
            "{told:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn exec_runs_in_the_worker_that_is_named_and_its_exit_code_comes_back() {
    e2e::in_namespace("plugin-exec", async |ns| {
        ns.create(&job("x").workers(2)).await?;
        ns.until_workers_ready("x", 2).await?;
        let said = mpi!(ns, "exec x --worker 1 -- hostname");
        assert_eq!(fine(&said), "x-worker-1\n");
        let args = [
            "exec", "mpijob/x", "-w", "0", "-n", &ns.name, "--", "sh", "-c", "exit 7",
        ];
        let code = ns.cluster.plugin(&args).await?;
        assert_eq!(code.and_then(|answer| answer.code), Some(7));
        let none = mpi!(ns, "exec x --worker 2 -- hostname");
        assert!(
            failure(&none).contains("no pod of worker 2; its workers are 0-1"),
            "{none:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn scale_in_removes_the_workers_that_are_named_and_shows_who_is_left() {
    e2e::in_namespace("plugin-scale-in", async |ns| {
        let elastic = json!({"elasticPolicy": {"minReplicas": 2}});
        ns.create(&job("e").workers(4).spec(elastic)).await?;
        ns.until_workers_ready("e", 4).await?;
        ns.until_launcher_runs("e", &[]).await?;
        for (line, why) in [
            (
                "scale-in e --worker 7",
                "has no worker 7; its workers are 0-3",
            ),
            ("scale-in e -w 0,1,2", "minReplicas is 2"),
            ("scale-in e -w 0,1,2,3", "needs one at least"),
        ] {
            let refused = mpi!(ns, line);
            assert!(failure(&refused).contains(why), "{refused:?}");
        }
        let done = mpi!(ns, "scale-in e --worker 1 --worker 2 --wait");
        assert_eq!(
            fine(&done),
            "mpijob/e: workers before: 0-3 (4)\n\
             mpijob/e: replicas 4 -> 2, leaving: 1-2\n\
             mpijob/e: workers after: 0,3 (2)\n"
        );
        let left: Vec<u32> = workers_at(&ns.pods.all(), "e").into_keys().collect();
        assert_eq!(left, [0, 3]);
        let spec = ns.mpijob_api().get("e").await?.data["spec"].clone();
        assert_eq!(
            spec["elasticPolicy"]["removeFirst"],
            json!(["e-worker-1", "e-worker-2"])
        );
        assert_eq!(spec["mpiReplicaSpecs"]["Worker"]["replicas"], 2);
        let again = mpi!(ns, "scale-in e --worker 1");
        assert!(
            failure(&again).contains("has no worker 1; its workers are 0,3"),
            "{again:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn suspend_and_resume_hold_a_job_and_let_it_go() {
    e2e::in_namespace("plugin-hold", async |ns| {
        ns.create(&job("h").workers(1)).await?;
        ns.until_launcher_runs("h", &[]).await?;
        let held = mpi!(ns, "suspend h");
        assert_eq!(fine(&held), "mpijob/h suspended\n");
        ns.until_condition("h", "Suspended", "True").await?;
        ns.until_no_pods("h").await?;
        let again = mpi!(ns, "suspend h");
        assert_eq!(fine(&again), "mpijob/h is suspended already\n");
        let told = mpi!(ns, "describe h");
        assert!(
            fine(&told).contains("closed; the job is suspended"),
            "{told:?}"
        );
        let refused = mpi!(ns, "scale-in h --worker 0");
        assert!(failure(&refused).contains("is suspended"), "{refused:?}");
        let goes = mpi!(ns, "resume h");
        assert_eq!(fine(&goes), "mpijob/h resumed\n");
        let launcher = ns.until_launcher_runs("h", &[]).await?;
        ns.tell(&launcher).await?;
        ns.until_succeeded("h").await?;
        let ended = mpi!(ns, "suspend h");
        assert!(
            failure(&ended).contains("has ended (Succeeded)"),
            "{ended:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_job_that_is_not_there_is_told_with_its_namespace_and_near_names() {
    e2e::in_namespace("plugin-unknown", async |ns| {
        let none = mpi!(ns, "describe train");
        let line = format!(
            "error: no MPIJob train in namespace {}; there are no MPIJobs there",
            ns.name
        );
        assert_eq!(failure(&none), line);
        ns.create(&job("train").workers(1).suspended()).await?;
        for line in [
            "describe trian",
            "logs trian",
            "suspend trian",
            "scale-in trian -w 0",
        ] {
            let near = mpi!(ns, line);
            assert!(
                failure(&near).ends_with("; did you mean train?"),
                "{near:?}"
            );
        }
        let far = mpi!(ns, "resume something-else");
        assert!(
            failure(&far).ends_with("; there is 1 MPIJob there"),
            "{far:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_not_understood_ends_with_2_and_a_cluster_that_is_not_there_with_1() {
    e2e::in_namespace("plugin-usage", async |ns| {
        for line in [
            "",
            "frobnicate",
            "list --frobnicate",
            "describe",
            "exec x --worker 1",
            "scale-in x",
        ] {
            let answer = mpi!(ns, line);
            assert_eq!(
                (answer.code, &*answer.stdout),
                (Some(2), ""),
                "{line}: {answer:?}"
            );
            assert!(answer.stderr.contains("Usage: kubectl mpi"), "{answer:?}");
        }
        let version = mpi!(ns, "version");
        assert!(fine(&version).starts_with("kubectl-mpi "), "{version:?}");
        let nowhere = mpi!(ns, "list --context no-such-context");
        assert!(failure(&nowhere).contains("no-such-context"), "{nowhere:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn kubectl_finds_the_plugin_in_path() {
    e2e::in_namespace("plugin-path", async |ns| {
        ns.create(&job("p").workers(1).suspended()).await?;
        let args = ["list", "-n", &ns.name, "-o", "name"];
        let Some(list) = ns.cluster.kubectl_mpi(&args).await? else {
            return Ok(());
        };
        assert_eq!(fine(&list), "mpijob.kubeflow.org/p\n");
        Ok(())
    })
    .await;
}

async fn bind(ns: &Namespace, user: &str, roles: &[&str]) -> Result<()> {
    for role in roles {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": format!("{user}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))?;
        ns.api::<RoleBinding>()
            .create(&PostParams::default(), &binding)
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_viewer_sees_all_and_changes_nothing_and_an_editor_does_the_rest() {
    e2e::in_namespace("plugin-rights", async |ns| {
        bind(ns, "viewer", &["view", "kubeflow-mpijobs-view"]).await?;
        bind(ns, "reader", &["kubeflow-mpijobs-view"]).await?;
        bind(ns, "editor", &["edit", "kubeflow-mpijobs-edit"]).await?;
        ns.create(&job("r").workers(2).program(&[
            "sh",
            "-c",
            &format!("echo hello; {WAIT_FOR_GO}"),
        ]))
        .await?;
        ns.until_workers_ready("r", 2).await?;
        ns.until_launcher_runs("r", &[]).await?;
        // Bindings take a moment until they are in force.
        poll("the viewer's rights", SOON, async || {
            let Some(told) = run(ns, "list --as viewer").await? else {
                return Ok(Some(()));
            };
            Ok((told.code == Some(0)).then_some(()))
        })
        .await?;

        let told = mpi!(ns, "describe r --events --as viewer");
        let text = fine(&told);
        assert!(!text.contains("cannot read"), "{text}");
        assert_eq!(words(row(text, "1"))[1], "Ready");
        assert!(text.contains("MPIJobCreated"), "{text}");
        let log = mpi!(ns, "logs r --as viewer");
        assert_eq!(fine(&log), "hello\n");
        for line in ["suspend r", "scale-in r --worker 1"] {
            let refused = mpi!(ns, format!("{line} --as viewer"));
            assert!(
                failure(&refused).contains("cannot change MPIJob r: "),
                "{refused:?}"
            );
            assert!(refused.stderr.contains("forbidden"), "{refused:?}");
        }
        let exec = mpi!(ns, "exec r --worker 0 --as viewer -- true");
        assert_eq!(exec.code, Some(1), "{exec:?}");
        assert!(exec.stderr.contains("pods/exec"), "{exec:?}");

        let told = mpi!(ns, "describe r --events --as reader");
        let text = fine(&told);
        for what in ["pods", "jobs", "events"] {
            assert!(text.contains(&format!("cannot read {what}: ")), "{text}");
        }
        assert!(row(text, "Status:").contains("Running"), "{text}");
        assert!(row(text, "Gate:").contains("open"), "{text}");
        let log = mpi!(ns, "logs r --as reader");
        assert!(failure(&log).contains("cannot read pods: "), "{log:?}");
        let nobody = mpi!(ns, "list --as nobody");
        assert!(
            failure(&nobody).contains("cannot read MPIJobs: "),
            "{nobody:?}"
        );

        let said = mpi!(ns, "exec r --worker 0 --as editor -- hostname");
        assert_eq!(fine(&said), "r-worker-0\n");
        let shrunk = mpi!(ns, "scale-in r --worker 0 --wait --as editor");
        assert!(
            shrunk.stdout.ends_with("mpijob/r: workers after: 1 (1)\n"),
            "{shrunk:?}"
        );
        assert!(
            shrunk
                .stderr
                .starts_with("note: MPIJob r had no elasticPolicy"),
            "{shrunk:?}"
        );
        let held = mpi!(ns, "suspend r --as editor");
        if fine(&held) != "mpijob/r suspended\n" {
            bail!("{held:?}");
        }
        Ok(())
    })
    .await;
}
