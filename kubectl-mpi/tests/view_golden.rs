//! What is shown of recorded objects, text for text: scripts and documents rely on it.
//!
//! A case is a file `golden/NAME.yaml` with `now` and `objects` as the API server sends them;
//! beside it lie the texts. `UPDATE_GOLDEN=1` writes those anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubectl_mpi::mpijob::MpiJob;
use kubectl_mpi::pods;
use kubectl_mpi::view::{self, Facts, Read};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join("golden")
}

struct Case {
    objects: Vec<Value>,
    unreadable: Value,
    now: Timestamp,
}

impl Case {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(golden().join(format!("{name}.yaml"))).unwrap();
        let all: Value = serde_yaml_ng::from_str(&text).unwrap();
        Self {
            objects: all["objects"].as_array().unwrap().clone(),
            unreadable: all["unreadable"].clone(),
            now: all["now"].as_str().unwrap().parse().unwrap(),
        }
    }

    fn raw(&self, kind: &str) -> Vec<Value> {
        let found = self.objects.iter().filter(|object| object["kind"] == kind);
        found.cloned().collect()
    }

    fn of<T: DeserializeOwned>(&self, kind: &str) -> Read<T> {
        if let Some(line) = self.unreadable[kind].as_str() {
            return Err(line.to_owned());
        }
        let all = self.raw(kind);
        Ok(all
            .into_iter()
            .map(|object| serde_json::from_value(object).unwrap())
            .collect())
    }

    fn jobs(&self) -> Vec<MpiJob> {
        self.raw("MPIJob").into_iter().map(MpiJob::new).collect()
    }

    fn facts(&self) -> Facts {
        Facts {
            job: self.jobs().remove(0),
            pods: self.of("Pod"),
            jobs: self.of("Job"),
            events: Some(self.of("Event")),
            now: self.now,
        }
    }
}

fn check(file: &str, text: &str) {
    let path = golden().join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, recorded, "{file}");
}

fn describe(name: &str) -> String {
    let case = Case::read(name);
    let shown = view::describe(&case.facts());
    let text = view::text(&shown, false, case.now);
    check(&format!("{name}.txt"), &text);
    text
}

#[test]
fn a_list_says_where_each_job_stands() {
    let case = Case::read("list");
    let jobs = case.jobs();
    check("list.txt", &view::list(&jobs, false, false, case.now));
    check("list.wide.txt", &view::list(&jobs, true, true, case.now));
}

#[test]
fn a_job_that_waits_names_the_worker_and_why() {
    let text = describe("waits");
    let gate = text.lines().find(|line| line.starts_with("Gate:")).unwrap();
    assert!(
        gate.contains("closed for 4m59s; Unschedulable: 1/3"),
        "{gate}"
    );
    let row = text.lines().find(|line| line.starts_with("  2 ")).unwrap();
    assert!(row.contains("Unschedulable: 0/2 nodes"), "{row}");
    // People name indexes; names of pods are for -o wide.
    assert!(!text.contains("train-worker-0-k2x7p"), "{text}");
    let case = Case::read("waits");
    let shown = view::describe(&case.facts());
    check("waits.wide.txt", &view::text(&shown, true, case.now));
    check(
        "waits.json",
        &(serde_json::to_string_pretty(&shown).unwrap() + "\n"),
    );
}

#[test]
fn a_job_that_runs_shows_its_tries_and_a_worker_that_does_not_go() {
    describe("runs");
}

#[test]
fn a_job_that_ended_has_no_gate_and_says_how_each_try_ended() {
    let text = describe("failed");
    assert!(!text.contains("Gate:"), "{text}");
}

#[test]
fn without_rights_on_pods_the_rest_is_shown() {
    let text = describe("no-rights");
    assert!(
        text.contains("cannot read pods: pods is forbidden"),
        "{text}"
    );
    assert!(text.contains("Gate:"), "{text}");
    assert!(
        !text.contains("Workers:\n"),
        "nothing is claimed of workers: {text}"
    );
}

#[test]
fn a_job_of_the_go_operator_is_shown_with_what_it_has() {
    describe("go-operator");
}

#[test]
fn the_log_of_each_try_and_worker_is_found() {
    let case = Case::read("failed");
    let job = case.jobs().remove(0);
    let all = case.of("Pod").unwrap();
    let log = |worker, back| view::log_pod(&job, &all, worker, back).map(pods::name);
    assert_eq!(log(None, 0), Ok("bad-launcher-c"));
    assert_eq!(log(None, 2), Ok("bad-launcher-a"));
    assert_eq!(log(Some(1), 0), Ok("bad-worker-1-qqqqq"));
    assert!(
        log(None, 3)
            .unwrap_err()
            .contains("--previous-try goes up to 2")
    );
    assert!(
        log(Some(5), 0)
            .unwrap_err()
            .contains("no pod of worker 5; its workers are 0-1")
    );
}

#[test]
fn a_command_goes_to_a_worker_that_runs_only() {
    let case = Case::read("waits");
    let job = case.jobs().remove(0);
    let all = case.of("Pod").unwrap();
    let exec = |index| view::exec_pod(&job, &all, index, case.now).map(pods::name);
    assert_eq!(exec(0), Ok("train-worker-0-k2x7p"));
    let refused = exec(2).unwrap_err();
    assert!(
        refused.starts_with("worker 2 of MPIJob train does not run: Pending, Unschedulable"),
        "{refused}"
    );
    let none = view::log_pod(&job, &all, None, 0).unwrap_err();
    assert!(
        none.starts_with("MPIJob train has no launcher pod: Unschedulable"),
        "{none}"
    );
}
