//! The operator has the rights that it uses, and no other. Last of all tests: it reads the API
//! server's record of what the operator asked for while the others ran.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};

use e2e::Cluster;
use e2e::cluster::OPERATOR;
use serde_json::Value;

const USER: &str = "system:serviceaccount:mpi-operator:mpi-operator";

/// Namespaces of tests in the record from which on it counts as one of the whole suite.
const WHOLE_SUITE: usize = 30;

/// Rights that may be missing in the record, each with its reason: verb, group, resource.
const UNUSED: [(&str, &str, &str, &str); 9] = [
    (
        "delete",
        "kubeflow.org",
        "mpijobs",
        "opt-in: -delete-finished-jobs, or the annotation",
    ),
    (
        "update",
        "kubeflow.org",
        "mpijobs/finalizers",
        "asked for by OwnerReferencesPermissionEnforcement, which this cluster does not run",
    ),
    ("get", "batch", "jobs", "only jobs of the Go operator"),
    ("get", "", "services", "only if a name is taken"),
    ("get", "", "configmaps", "only if a name is taken"),
    (
        "get",
        "",
        "nodes",
        "only if a pod is stuck on a lost node, or a shrink names nobody",
    ),
    (
        "get",
        "scheduling.k8s.io",
        "priorityclasses",
        "only gangs with priority classes",
    ),
    ("*", "scheduling.volcano.sh", "podgroups", "only gangs"),
    ("*", "scheduling.x-k8s.io", "podgroups", "only gangs"),
];

/// One thing that may be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: String,
    group: String,
    /// With `/` and the subresource, if there is one.
    resource: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.verb, self.group, self.resource)
    }
}

impl Right {
    fn reads(&self) -> bool {
        matches!(&*self.verb, "get" | "list" | "watch")
    }

    fn reason_without_use(&self) -> Option<&'static str> {
        UNUSED
            .iter()
            .find(|(verb, group, resource, _)| {
                (*verb == "*" || *verb == self.verb)
                    && *group == self.group
                    && *resource == self.resource
            })
            .map(|(.., reason)| *reason)
    }
}

/// What the operator asked for, by namespace and name.
#[derive(Default)]
struct Record {
    asked: BTreeMap<Right, BTreeSet<(String, String)>>,
    /// Requests that authorization refused.
    refused: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Record {
    fn add(&mut self, event: &Value) {
        if event["user"]["username"] != USER || event["objectRef"].is_null() {
            // Paths without an object, such as /version, are open to every account.
            return;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let mut resource = text(&object["resource"]);
        if let Some(sub) = object["subresource"].as_str() {
            resource = format!("{resource}/{sub}");
        }
        let right = Right {
            verb: text(&event["verb"]),
            group: text(&object["apiGroup"]),
            resource,
        };
        if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            self.refused.insert(right.to_string());
        }
        let namespace = text(&object["namespace"]);
        if namespace.starts_with("e2e-") {
            self.namespaces.insert(namespace.clone());
        }
        let place = (namespace, text(&object["name"]));
        self.asked.entry(right).or_default().insert(place);
    }

    fn read(path: &str) -> anyhow::Result<Self> {
        let mut record = Self::default();
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            // The last line may be half written.
            if line.contains(USER)
                && let Ok(event) = serde_json::from_str(&line)
            {
                record.add(&event);
            }
        }
        Ok(record)
    }
}

/// The rights of a role, with the names that each is limited to.
fn rights(role: &Value) -> BTreeMap<Right, BTreeSet<String>> {
    let strings = |value: &Value| -> Vec<String> {
        serde_json::from_value::<Option<_>>(value.clone())
            .unwrap()
            .unwrap_or_default()
    };
    let mut all: BTreeMap<Right, BTreeSet<String>> = BTreeMap::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    let right = Right {
                        verb,
                        group: group.clone(),
                        resource: resource.clone(),
                    };
                    all.entry(right)
                        .or_default()
                        .extend(strings(&rule["resourceNames"]));
                }
            }
        }
    }
    all
}

async fn role(cluster: &Cluster, args: &str) -> anyhow::Result<Value> {
    let line = format!("get {args} mpi-operator -o json");
    let args: Vec<&str> = line.split_whitespace().collect();
    Ok(serde_json::from_str(&cluster.kubectl(&args).await?)?)
}

#[tokio::test]
async fn contract_07_42_the_operator_uses_the_rights_that_it_has_and_no_other() {
    let Ok(Some(cluster)) = Cluster::connect().await else {
        return;
    };
    let Ok(path) = std::env::var("MPI_E2E_AUDIT_LOG") else {
        eprintln!("SKIPPED: MPI_E2E_AUDIT_LOG is not set: it names the API server's audit log");
        return;
    };
    let record = Record::read(&path).unwrap();
    assert!(
        !record.asked.is_empty(),
        "{path} has nothing of the operator"
    );
    let everywhere = rights(&role(&cluster, "clusterrole").await.unwrap());
    let own = format!("role -n {OPERATOR}");
    let at_home = rights(&role(&cluster, &own).await.unwrap());

    assert!(record.refused.is_empty(), "refused: {:?}", record.refused);
    for (right, places) in &record.asked {
        for (namespace, name) in places {
            let may = |names: &BTreeSet<String>| names.is_empty() || names.contains(name);
            let home = namespace == OPERATOR && at_home.get(right).is_some_and(may);
            assert!(
                home || everywhere.get(right).is_some_and(may),
                "{right} in {namespace} ({name}) is used, but not in a role"
            );
        }
    }
    for absent in ["pods/exec", "jobs/status"] {
        assert!(record.asked.keys().all(|right| right.resource != absent));
    }

    let reads = record.asked.keys().any(Right::reads);
    if !reads {
        eprintln!("SKIPPED in part: {path} holds no reads; the cluster is older than its policy");
    }
    if record.namespaces.len() < WHOLE_SUITE {
        eprintln!(
            "SKIPPED in part: {path} is not of the whole suite, so a right may be unused in it"
        );
        return;
    }
    let unused: Vec<String> = everywhere
        .keys()
        .chain(at_home.keys())
        .filter(|right| reads || !right.reads())
        .filter(|right| !record.asked.contains_key(right))
        .filter(|right| right.reason_without_use().is_none())
        .map(Right::to_string)
        .collect();
    assert!(unused.is_empty(), "granted, but never used: {unused:?}");
}
