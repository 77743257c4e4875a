//! Action -> one API call, or two where the first answer says so.

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::outcome::{Outcome, Reply};
use super::{Payload, Writer, ssh_key};
use crate::action::{Action, ObjectKind};
use crate::api::names;
use crate::facts::index::{ChildKind, Object};
use crate::facts::observed::{JobWarning, NodeFacts, PREDECESSOR};
use crate::watch::slim::{self, FIELD_MANAGER, SlimJob, SlimNode, SlimPod};

/// Whose action it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// Namespace of the MPIJob.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) job: &'a str,
    /// Its UID.
    pub(super) owner: &'a str,
}

/// Events of a Job that are read at most.
const MOST_EVENTS: usize = 50;

fn plural(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Service => "services",
        ObjectKind::ConfigMap => "configmaps",
        ObjectKind::Secret => "secrets",
        ObjectKind::Job => "jobs",
        ObjectKind::Pod => "pods",
        ObjectKind::PodGroup => "podgroups",
    }
}

fn collection(namespace: &str, kind: ObjectKind, body: &Value) -> String {
    let prefix = match kind {
        ObjectKind::Job => "/apis/batch/v1".to_owned(),
        ObjectKind::PodGroup => {
            format!("/apis/{}", body["apiVersion"].as_str().unwrap_or_default())
        }
        _ => "/api/v1".to_owned(),
    };
    format!("{prefix}/namespaces/{namespace}/{}", plural(kind))
}

/// The facts of an answered object.
fn facts(kind: ObjectKind, value: Value) -> Option<Object> {
    match kind {
        ObjectKind::Job => serde_json::from_value::<SlimJob>(value).ok()?.into_object(),
        ObjectKind::Pod => serde_json::from_value::<SlimPod>(value).ok()?.into_object(),
        ObjectKind::Service | ObjectKind::ConfigMap => {
            let child = if kind == ObjectKind::Service {
                ChildKind::Service
            } else {
                ChildKind::ConfigMap
            };
            let metadata = serde_json::from_value(value.get("metadata")?.clone()).ok()?;
            slim::child_object(child, metadata)
        }
        ObjectKind::Secret | ObjectKind::PodGroup => None,
    }
}

pub(super) async fn perform(writer: &Writer, target: &Target<'_>, action: &Action) -> Outcome {
    let namespace = target.namespace;
    match action {
        Action::Create { kind, name, body } => create(writer, target, *kind, name, body).await,
        Action::CreateSecret {
            name,
            shell,
            look_first,
        } => create_secret(writer, target, name, shell, *look_first).await,
        Action::Patch { kind, name, body } => {
            let path = format!(
                "{}/{name}?fieldManager={FIELD_MANAGER}",
                collection(namespace, *kind, body)
            );
            writer
                .call(Method::PATCH, &path, plural(*kind), Payload::Merge(body))
                .await
                .outcome(|value| facts(*kind, value))
        }
        Action::ReplaceConfigMap {
            name,
            uid,
            data,
            content,
        } => {
            // A merge patch could not drop keys that somebody added.
            let annotation = format!(
                "/metadata/annotations/{}",
                names::CONTENT_ANNOTATION.replace('/', "~1")
            );
            let patch = json!([
                { "op": "test", "path": "/metadata/uid", "value": uid },
                { "op": "add", "path": "/data", "value": data },
                { "op": "add", "path": annotation, "value": content },
            ]);
            let path = format!(
                "{}/{name}?fieldManager={FIELD_MANAGER}",
                collection(namespace, ObjectKind::ConfigMap, &Value::Null)
            );
            writer
                .call(
                    Method::PATCH,
                    &path,
                    "configmaps",
                    Payload::JsonPatch(&patch),
                )
                .await
                .outcome(|value| facts(ObjectKind::ConfigMap, value))
        }
        Action::DeleteJob { name, uid } => {
            // Said outright: the default of this API is to orphan the pods.
            let options = json!({
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "propagationPolicy": "Background",
                "preconditions": { "uid": uid },
            });
            let path = format!(
                "{}/{name}",
                collection(namespace, ObjectKind::Job, &Value::Null)
            );
            delete(writer, &path, "jobs", &options).await
        }
        Action::Retire { pod, uid } => {
            let patch = json!({
                "metadata": {
                    "uid": uid,
                    "$deleteFromPrimitiveList/finalizers": [names::TRACKING_FINALIZER],
                },
            });
            let path = format!(
                "{}/{pod}?fieldManager={FIELD_MANAGER}",
                collection(namespace, ObjectKind::Pod, &Value::Null)
            );
            let reply = writer
                .call(Method::PATCH, &path, "pods", Payload::Strategic(&patch))
                .await;
            if matches!(reply, Reply::Object(_)) {
                writer.metrics.retired();
            }
            match reply {
                // Gone is as good as retired.
                Reply::NotFound | Reply::Conflict { .. } => Outcome::Done(None),
                reply => reply.outcome(|value| facts(ObjectKind::Pod, value)),
            }
        }
        Action::DeletePod { pod, uid, force } => {
            let mut options = json!({
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": { "uid": uid },
            });
            if *force {
                options["gracePeriodSeconds"] = json!(0);
            }
            let path = format!(
                "{}/{pod}",
                collection(namespace, ObjectKind::Pod, &Value::Null)
            );
            delete(writer, &path, "pods", &options).await
        }
        Action::DeletePodGroup { api_version, name } => {
            let path = format!("/apis/{api_version}/namespaces/{namespace}/podgroups/{name}");
            // One that somebody else made is left alone.
            match writer
                .call(Method::GET, &path, "podgroups", Payload::None)
                .await
            {
                Reply::Object(value) if controlled_by(&value, target.owner) => {
                    let options = json!({
                        "kind": "DeleteOptions",
                        "apiVersion": "v1",
                        "preconditions": { "uid": value["metadata"]["uid"] },
                    });
                    delete(writer, &path, "podgroups", &options).await
                }
                Reply::Object(_) | Reply::NotFound => Outcome::Done(None),
                reply => reply.outcome(|_| None),
            }
        }
        Action::LookAtNode { name } => {
            let path = format!("/api/v1/nodes/{name}");
            match writer
                .call(Method::GET, &path, "nodes", Payload::None)
                .await
            {
                Reply::Object(value) => {
                    let node: SlimNode = serde_json::from_value(value).unwrap_or_default();
                    Outcome::Node(Some(node.facts(Timestamp::UNIX_EPOCH)))
                }
                Reply::NotFound => Outcome::Node(None),
                reply => reply.outcome(|_| None),
            }
        }
        Action::ReadJobEvents { uid } => read_events(writer, namespace, uid).await,
        Action::SeekLauncher { name } => seek_launcher(writer, target, name).await,
        Action::ReadPriorities { launcher, worker } => {
            let launcher = priority(writer, launcher.as_deref()).await;
            let worker = priority(writer, worker.as_deref()).await;
            match (launcher, worker) {
                (Ok(launcher), Ok(worker)) => Outcome::Priorities(launcher, worker),
                (Err(outcome), _) | (_, Err(outcome)) => outcome,
            }
        }
        Action::DeleteMpiJob { uid } => {
            let path = format!(
                "/apis/{}/{}/namespaces/{namespace}/mpijobs/{}",
                names::GROUP,
                names::VERSION,
                target.job
            );
            let options = json!({
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "propagationPolicy": "Background",
                "preconditions": { "uid": uid },
            });
            delete(writer, &path, "mpijobs", &options).await
        }
    }
}

async fn delete(writer: &Writer, path: &str, resource: &'static str, options: &Value) -> Outcome {
    match writer
        .call(Method::DELETE, path, resource, Payload::Json(options))
        .await
    {
        // Another UID has the name, or nothing: what was meant is gone.
        Reply::Object(_) | Reply::NotFound | Reply::Conflict { .. } => Outcome::Done(None),
        reply => reply.outcome(|_| None),
    }
}

fn controlled_by(value: &Value, uid: &str) -> bool {
    controller(value).is_some_and(|owner| owner["uid"] == uid)
}

fn controller(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"]
        .as_array()?
        .iter()
        .find(|owner| owner["controller"] == true)
}

async fn create(
    writer: &Writer,
    target: &Target<'_>,
    kind: ObjectKind,
    name: &str,
    body: &Value,
) -> Outcome {
    let collection = collection(target.namespace, kind, body);
    let path = format!("{collection}?fieldManager={FIELD_MANAGER}");
    let reply = writer
        .call(Method::POST, &path, plural(kind), Payload::Json(body))
        .await;
    let Reply::Conflict { exists: true, .. } = reply else {
        return match reply {
            Reply::NotFound if kind == ObjectKind::PodGroup => Outcome::Denied {
                code: 404,
                message: format!(
                    "the server has no PodGroup in {}; install the scheduler's CRDs or start the operator without -gang-scheduling",
                    body["apiVersion"].as_str().unwrap_or_default()
                ),
            },
            // The namespace is being deleted, or gone: nothing to report to anybody.
            Reply::NotFound => Outcome::Later {
                message: "not found".to_owned(),
                after: None,
            },
            reply => reply.outcome(|value| facts(kind, value)),
        };
    };
    // Ours, by an earlier call whose answer was lost or that the watch has not shown; or foreign.
    let path = format!("{collection}/{name}");
    match writer
        .call(Method::GET, &path, plural(kind), Payload::None)
        .await
    {
        Reply::Object(value) if controlled_by(&value, target.owner) => {
            if kind == ObjectKind::PodGroup {
                // Replaced whole: a merge would keep what an edit took out.
                let patch = json!([
                    { "op": "test", "path": "/metadata/uid", "value": value["metadata"]["uid"] },
                    { "op": "add", "path": "/spec", "value": body["spec"] },
                ]);
                let path = format!("{path}?fieldManager={FIELD_MANAGER}");
                return writer
                    .call(
                        Method::PATCH,
                        &path,
                        plural(kind),
                        Payload::JsonPatch(&patch),
                    )
                    .await
                    .outcome(|_| None);
            }
            if value["metadata"]["deletionTimestamp"].is_string() {
                return Outcome::Stale(format!("the old {name} is being deleted"));
            }
            let labelled = value["metadata"]["labels"][names::OPERATOR_NAME_LABEL].is_string();
            if labelled {
                Outcome::Done(facts(kind, value).map(Box::new))
            } else {
                label(writer, &path, kind).await
            }
        }
        Reply::Object(value) => foreign(target, &value),
        reply => reply.outcome(|_| None),
    }
}

/// Makes a child of this MPIJob that the Go operator created visible to our watches.
async fn label(writer: &Writer, path: &str, kind: ObjectKind) -> Outcome {
    let patch = json!({
        "metadata": { "labels": { names::OPERATOR_NAME_LABEL: names::OPERATOR_NAME } },
    });
    let path = format!("{path}?fieldManager={FIELD_MANAGER}");
    writer
        .call(Method::PATCH, &path, plural(kind), Payload::Merge(&patch))
        .await
        .outcome(|value| facts(kind, value))
}

/// The name is taken by an object of somebody else. One of an MPIJob of the same name that was
/// deleted a moment ago goes by itself; it is waited for.
fn foreign(target: &Target<'_>, value: &Value) -> Outcome {
    let predecessor = controller(value).is_some_and(|owner| {
        owner["kind"] == names::KIND && owner["name"] == target.job && owner["uid"] != target.owner
    });
    if predecessor {
        return Outcome::Denied {
            code: PREDECESSOR,
            message: "an earlier MPIJob of this name still has the name".to_owned(),
        };
    }
    Outcome::Denied {
        code: 409,
        message: "the name is taken".to_owned(),
    }
}

async fn create_secret(
    writer: &Writer,
    target: &Target<'_>,
    name: &str,
    shell: &Value,
    look_first: bool,
) -> Outcome {
    let collection = collection(target.namespace, ObjectKind::Secret, shell);
    let path = format!("{collection}/{name}");
    if look_first {
        match secret_owner(writer, &path).await {
            Reply::Object(value) if controlled_by(&value, target.owner) => {
                return Outcome::SecretSeen;
            }
            Reply::Object(value) => return foreign(target, &value),
            Reply::NotFound => {}
            reply => return reply.outcome(|_| None),
        }
    }
    let pair = match ssh_key::generate() {
        Ok(pair) => pair,
        Err(error) => {
            return Outcome::Later {
                message: error.to_string(),
                after: None,
            };
        }
    };
    let mut body = shell.clone();
    body["stringData"] = json!({
        names::SSH_PRIVATE_KEY: pair.private_pem.as_str(),
        names::SSH_PUBLIC_KEY: pair.public_line,
    });
    let create = format!("{collection}?fieldManager={FIELD_MANAGER}");
    match writer
        .call(Method::POST, &create, "secrets", Payload::Json(&body))
        .await
    {
        Reply::Object(_) => Outcome::SecretSeen,
        Reply::Conflict { exists: true, .. } => match secret_owner(writer, &path).await {
            Reply::Object(value) if controlled_by(&value, target.owner) => Outcome::SecretSeen,
            Reply::Object(value) => foreign(target, &value),
            reply => reply.outcome(|_| None),
        },
        Reply::NotFound => Outcome::Later {
            message: "not found".to_owned(),
            after: None,
        },
        reply => reply.outcome(|_| None),
    }
}

/// The metadata of a Secret; its keys are never read.
async fn secret_owner(writer: &Writer, path: &str) -> Reply {
    writer.metadata(path, "secrets").await
}

impl Writer {
    /// GET of an object's metadata alone.
    async fn metadata(&self, path: &str, resource: &'static str) -> Reply {
        self.call(Method::GET, path, resource, Payload::Metadata)
            .await
    }
}

async fn read_events(writer: &Writer, namespace: &str, uid: &str) -> Outcome {
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}%2Ctype%3DWarning&limit={MOST_EVENTS}"
    );
    match writer
        .call(Method::GET, &path, "events", Payload::None)
        .await
    {
        Reply::Object(value) => {
            let mut found: Vec<(String, JobWarning)> = value["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|event| event["reason"] == "FailedCreate")
                .map(|event| {
                    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
                    let at = text("lastTimestamp");
                    (
                        at,
                        JobWarning {
                            reason: text("reason"),
                            message: text("message"),
                        },
                    )
                })
                .collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            Outcome::Warnings(found.into_iter().map(|(_, warning)| warning).collect())
        }
        reply => reply.outcome(|_| None),
    }
}

async fn seek_launcher(writer: &Writer, target: &Target<'_>, name: &str) -> Outcome {
    let path = format!(
        "{}/{name}",
        collection(target.namespace, ObjectKind::Job, &Value::Null)
    );
    match writer.call(Method::GET, &path, "jobs", Payload::None).await {
        Reply::Object(value) if controlled_by(&value, target.owner) => {
            label(writer, &path, ObjectKind::Job).await
        }
        Reply::Object(_) | Reply::NotFound => Outcome::Done(None),
        reply => reply.outcome(|_| None),
    }
}

async fn priority(writer: &Writer, class: Option<&str>) -> Result<i32, Outcome> {
    let Some(class) = class else { return Ok(0) };
    let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{class}");
    match writer
        .call(Method::GET, &path, "priorityclasses", Payload::None)
        .await
    {
        Reply::Object(value) => Ok(value["value"]
            .as_i64()
            .and_then(|value| i32::try_from(value).ok())
            .unwrap_or(0)),
        // An unknown class counts as 0, and without the right to read classes so do all.
        Reply::NotFound | Reply::Refused { code: 403, .. } => Ok(0),
        reply => Err(reply.outcome(|_| None)),
    }
}

/// A node that may not be read, as facts: taken for healthy, so nothing is forced.
#[must_use]
pub fn unknown_node(asked: Timestamp) -> NodeFacts {
    NodeFacts {
        gone: false,
        ready: true,
        out_of_service: false,
        leaving: false,
        asked,
    }
}

/// A node that does not exist, as facts.
#[must_use]
pub fn no_node(asked: Timestamp) -> NodeFacts {
    NodeFacts {
        gone: true,
        ready: false,
        out_of_service: false,
        leaving: true,
        asked,
    }
}
