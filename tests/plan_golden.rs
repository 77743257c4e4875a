//! Whole plans of a table of snapshots.
//!
//! A case is a folder `tests/golden/plan/<case>` with `observed.yaml` (the time, what the process
//! knows already, the objects as a watch shows them; its first comment says what the case shows) and
//! `plan.json`. `UPDATE_GOLDEN=1 cargo test --test plan_golden` writes the plans anew; the difference
//! is then read line by line. Bodies of creates are left out but for the few fields that the planner
//! decides; the rest of them is in the golden children.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use mpi_operator::action::{Action, Plan};
use mpi_operator::facts::index::{Change, Index, Key};
use mpi_operator::plan::{Options, plan};
use serde_json::{Map, Value, json};

#[test]
fn plans_are_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plan");
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the table of cases")
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 8, "only {} cases found", cases.len());
    let mut differences = Vec::new();
    for case in &cases {
        let made = serde_json::to_string_pretty(&shown(&plan_of(case))).unwrap() + "\n";
        let file = case.join("plan.json");
        if update {
            fs::write(&file, made).unwrap();
            continue;
        }
        let recorded = fs::read_to_string(&file).unwrap_or_default();
        if let Some(text) = difference(&recorded, &made) {
            differences.push(format!("{}:\n{text}", case.display()));
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nUPDATE_GOLDEN=1 records what is planned now",
        differences.join("\n")
    );
}

/// The plan for the snapshot of a case, through the decoders and the index.
fn plan_of(case: &Path) -> Plan {
    let text = fs::read_to_string(case.join("observed.yaml")).unwrap();
    assert!(text.starts_with("# "), "{} says nothing", case.display());
    let world: Value = serde_yaml_ng::from_str(&text).unwrap();
    let now: Timestamp = world["now"].as_str().unwrap().parse().unwrap();
    let mut index = Index::default();
    let key = Key::from(support::UID);
    for object in world["objects"].as_array().unwrap() {
        let kind = object["kind"].as_str().unwrap();
        let decoded = support::operator::decode(kind, object)
            .unwrap_or_else(|| panic!("{}: {object}", case.display()));
        index.apply(Change::Seen(Box::new(decoded)), now);
    }
    if world["secretSeen"] == true {
        index.secret_seen(&key, now);
    }
    let observed = index.observe(&key).expect("an MPIJob");
    plan(&observed, &Options::default(), now)
}

fn shown(plan: &Plan) -> Value {
    let actions = |list: &[Action]| list.iter().map(action).collect::<Vec<_>>();
    let events: Vec<String> = plan
        .events
        .iter()
        .map(|note| {
            let kind = if note.warning { "Warning" } else { "Normal" };
            format!("{kind} {}: {}", note.reason, note.message)
        })
        .collect();
    json!({
        "actions": actions(&plan.actions),
        "background": actions(&plan.background),
        "status": plan.status.as_ref().map(|patch| patch.body["status"].clone()),
        "events": events,
        "lookAgain": plan.look_again.map(|at| at.to_string()),
    })
}

fn action(action: &Action) -> Value {
    match action {
        Action::Create { kind, name, body } => {
            let mut spec = body["spec"].as_object().cloned().unwrap_or_default();
            spec.shift_remove("template");
            let content = body.get("data").cloned().unwrap_or_else(|| decided(&spec));
            json!({ "create": format!("{} {name}", kind.as_str()), "with": content })
        }
        Action::CreateSecret {
            name, look_first, ..
        } => json!({ "createSecret": name, "lookFirst": look_first }),
        Action::Patch { kind, name, body } => {
            json!({ "patch": format!("{} {name}", kind.as_str()), "with": body })
        }
        Action::DeleteJob { name, uid } => json!({ "deleteJob": name, "uid": uid }),
        Action::Retire { pod, uid } => json!({ "retire": pod, "uid": uid }),
        Action::DeletePod { pod, uid, force } => {
            json!({ "deletePod": pod, "uid": uid, "force": force })
        }
        other => json!(format!("{other:?}")),
    }
}

fn decided(spec: &Map<String, Value>) -> Value {
    let keys = [
        "suspend",
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "selector",
    ];
    keys.iter()
        .filter_map(|key| Some(((*key).to_owned(), spec.get(*key)?.clone())))
        .collect::<Map<_, _>>()
        .into()
}

/// The first line that differs.
fn difference(recorded: &str, made: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), made.lines().collect());
    let at = (0..old.len().max(new.len())).find(|&at| old.get(at) != new.get(at))?;
    let line = |side: &[&str]| {
        side.get(at)
            .map_or("(end)".to_owned(), |l| l.trim().to_owned())
    };
    Some(format!(
        "  line {}\n    recorded: {}\n    planned:  {}",
        at + 1,
        line(&old),
        line(&new)
    ))
}
