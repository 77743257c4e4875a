//! Every child object of a table of MPIJobs, as it is sent to the API server.
//!
//! A case is a folder `tests/golden/children/<case>` with `job.yaml` (an MPIJob; its first comment
//! says what the case shows), `settings.yaml` where the operator's flags matter, and the objects in
//! `expected/`. `UPDATE_GOLDEN=1 cargo test --test children_golden` writes them all anew; the
//! difference is then read line by line, since clients of the Go operator rely on these objects.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mpi_operator::api::validate::{decode, validate};
use mpi_operator::plan::build::launcher_job::LauncherParams;
use mpi_operator::plan::build::pod_group::PodGroupParams;
use mpi_operator::plan::build::{
    BuildContext, Gang, Settings, config_map, launcher_job, pod_group, secret, service, worker_job,
};
use mpi_operator::plan::hostfile::{discover_hosts, hostfile};
use serde_json::Value;

/// The uid and the run of every golden job.
const UID: &str = "6f1c7c1e-0000-4000-8000-000000000001";
const RUN: &str = "6f1c7c1e-1";

#[test]
fn children_are_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/children");
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the table of cases")
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() > 10, "only {} cases found", cases.len());

    let mut differences = Vec::new();
    for case in &cases {
        let expected = case.join("expected");
        let children = children(case);
        if update {
            let _ = fs::remove_dir_all(&expected);
            fs::create_dir_all(&expected).unwrap();
            for (name, text) in &children {
                fs::write(expected.join(name), text).unwrap();
            }
            continue;
        }
        let recorded: BTreeMap<String, String> = fs::read_dir(&expected)
            .unwrap_or_else(|error| panic!("{}: {error}", expected.display()))
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(&path).unwrap())
            })
            .collect();
        if recorded != children {
            differences.push(difference(case, &recorded, &children));
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nUPDATE_GOLDEN=1 records what is built now",
        differences.join("\n")
    );
}

/// The child objects of one case by file name.
fn children(case: &Path) -> BTreeMap<String, String> {
    let manifest = yaml(&case.join("job.yaml")).unwrap();
    let metadata = &manifest["metadata"];
    let name = metadata["name"].as_str().unwrap();
    let spec = decode(&manifest["spec"]).unwrap();
    let job = validate(name, &spec)
        .unwrap_or_else(|violations| panic!("{}: {violations:?}", case.display()));
    let settings = settings(case);
    let ctx = BuildContext {
        job: &job,
        name,
        namespace: metadata["namespace"].as_str().unwrap_or("default"),
        uid: UID,
        run: RUN,
        settings: &settings,
    };
    let workers: Vec<u32> = (0..job.workers).collect();
    let launcher = LauncherParams {
        pause: false,
        suspend: job.gated || job.suspend,
        backoff_limit: job.backoff_limit,
        active_deadline_seconds: job.deadline_seconds,
    };
    let gang = PodGroupParams {
        launcher_counts: !job.gated,
        launcher_priority: 0,
        worker_priority: 0,
        queue_annotation: metadata["annotations"]["scheduling.volcano.sh/queue-name"].as_str(),
    };

    let mut children = BTreeMap::new();
    let mut add = |name: &str, body: &Value| {
        let text = serde_json::to_string_pretty(body).unwrap() + "\n";
        children.insert(format!("{name}.json"), text);
    };
    add("service", &service::service(&ctx));
    let files = (
        hostfile(&ctx, &workers, None),
        discover_hosts(&ctx, &workers, None),
    );
    add(
        "config-map",
        &config_map::config_map(&ctx, &files.0, &files.1),
    );
    add("secret", &secret::shell(&ctx));
    if job.worker.is_some() {
        add("worker-job", &worker_job::worker_job(&ctx, job.workers));
    }
    add("launcher-job", &launcher_job::launcher_job(&ctx, &launcher));
    if let Some(group) = pod_group::pod_group(&ctx, &gang) {
        add("pod-group", &group);
    }
    children
}

/// What the operator was started with in this case.
fn settings(case: &Path) -> Settings {
    let flags = yaml(&case.join("settings.yaml")).unwrap_or_default();
    Settings {
        cluster_domain: flags["clusterDomain"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        gang: flags["gangScheduling"].as_str().map(|name| match name {
            "volcano" => Gang::Volcano,
            other => Gang::SchedulerPlugins {
                scheduler_name: other.to_owned(),
            },
        }),
        unreachable_toleration_seconds: flags["unreachableTolerationSeconds"].as_i64(),
    }
}

fn yaml(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")))
}

/// The first line in which each file differs.
fn difference(
    case: &Path,
    recorded: &BTreeMap<String, String>,
    built: &BTreeMap<String, String>,
) -> String {
    let mut text = format!("{}:", case.display());
    let names: std::collections::BTreeSet<&String> = recorded.keys().chain(built.keys()).collect();
    for name in names {
        let lines = |side: &BTreeMap<String, String>| -> Vec<String> {
            side.get(name)
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default()
        };
        let (old, new) = (lines(recorded), lines(built));
        if let Some(at) = (0..old.len().max(new.len())).find(|&at| old.get(at) != new.get(at)) {
            let show = |side: &[String]| side.get(at).cloned().unwrap_or("(end)".to_owned());
            text.push_str(&format!(
                "\n  {name}:{}\n    recorded: {}\n    built:    {}",
                at + 1,
                show(&old).trim(),
                show(&new).trim()
            ));
        }
    }
    text
}
