//! Edits of a user's pod template that both roles share.
//!
//! A missing or null part is filled in. A part of the wrong kind is left as it is, for the API server
//! to refuse with a sentence of its own.

use serde_json::{Map, Value, json};

use super::{BuildContext, Gang};
use crate::api::names;
use crate::api::validate::{RestartPolicy, Role};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// The path at which ssh, as root, refuses keys that others may read. Everywhere else the files
/// belong to root and a user other than root has to be able to read them.
const ROOT_SSH_PATH: &str = "/root/.ssh";

/// Mode 0600.
const MODE_OWNER_ONLY: u32 = 0o600;

/// Annotation of a pod that belongs to a Volcano PodGroup.
const VOLCANO_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Label of a pod that belongs to a PodGroup of scheduler-plugins.
const PLUGINS_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// The user's template, without the parts of `metadata` that name one object.
pub(super) fn template_of(role: &Role) -> Object {
    let mut template = role.template.as_object().cloned().unwrap_or_default();
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["name", "namespace", "finalizers"] {
            metadata.shift_remove(key);
        }
    }
    template
}

/// `parent[key]` as an object, made if missing or null; None if it is of another kind.
pub(super) fn object_at<'a>(parent: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// `parent[key]` as a list, made if missing or null; None if it is of another kind.
pub(super) fn list_at<'a>(parent: &'a mut Object, key: &str) -> Option<&'a mut Vec<Value>> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut()
}

/// The first container: the one that all of this operator's edits concern.
pub(super) fn main_container(spec: &mut Object) -> Option<&mut Object> {
    spec.get_mut("containers")?
        .as_array_mut()?
        .first_mut()?
        .as_object_mut()
}

/// Puts `labels` over the template's own.
pub(super) fn set_labels(template: &mut Object, labels: Object) {
    if let Some(all) = object_at(template, "metadata").and_then(|meta| object_at(meta, "labels")) {
        all.extend(labels);
    }
}

/// Sets one annotation of the template.
pub(super) fn set_annotation(template: &mut Object, key: &str, value: &str) {
    if let Some(all) =
        object_at(template, "metadata").and_then(|meta| object_at(meta, "annotations"))
    {
        all.insert(key.to_owned(), json!(value));
    }
}

/// Takes one annotation off the template.
pub(super) fn remove_annotation(template: &mut Object, key: &str) {
    if let Some(all) = template
        .get_mut("metadata")
        .and_then(|meta| meta.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        all.shift_remove(key);
    }
}

/// What both roles need to be part of the job: DNS name, restart policy, key pair, gang.
pub(super) fn set_common(ctx: &BuildContext, template: &mut Object, restart: RestartPolicy) {
    set_gang(ctx, template);
    let Some(spec) = object_at(template, "spec") else {
        return;
    };
    spec.insert("subdomain".to_owned(), json!(names::service(ctx.name)));
    spec.insert("restartPolicy".to_owned(), json!(restart_text(restart)));
    // With the node's network, the default policy would take the node's resolver, which knows no
    // name of the cluster.
    if is_true(spec, "hostNetwork") {
        spec.insert("dnsPolicy".to_owned(), json!("ClusterFirstWithHostNet"));
    }
    if let Some(volumes) = list_at(spec, "volumes") {
        volumes.push(ssh_volume(ctx));
    }
    if let Some(container) = main_container(spec) {
        add_mount(container, names::SSH_VOLUME, &ctx.job.ssh_path);
    }
}

/// Mounts `volume` at `path` in `container`.
pub(super) fn add_mount(container: &mut Object, volume: &str, path: &str) {
    if let Some(mounts) = list_at(container, "volumeMounts") {
        mounts.push(json!({ "name": volume, "mountPath": path }));
    }
}

/// Appends `name=value` unless the user set `name`, be it by value or by reference. What comes in by
/// `envFrom` cannot be seen from here; an entry of ours stands over it.
pub(super) fn add_env(container: &mut Object, name: &str, value: &str) {
    if let Some(env) = list_at(container, "env")
        && entry(env, name).is_none()
    {
        env.push(json!({ "name": name, "value": value }));
    }
}

/// The entry of `name` that counts: of several, Kubernetes takes the last.
pub(super) fn entry<'a>(env: &'a [Value], name: &str) -> Option<&'a Value> {
    env.iter()
        .rev()
        .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
}

/// Whether `object[key]` is `true`.
pub(super) fn is_true(object: &Object, key: &str) -> bool {
    object.get(key) == Some(&Value::Bool(true))
}

/// The API's word for `restart`.
pub(super) fn restart_text(restart: RestartPolicy) -> &'static str {
    match restart {
        RestartPolicy::Never => "Never",
        RestartPolicy::OnFailure => "OnFailure",
    }
}

/// Hands the pod to the gang scheduler, whatever scheduler the user named.
fn set_gang(ctx: &BuildContext, template: &mut Object) {
    let scheduler = match &ctx.settings.gang {
        None => return,
        Some(Gang::Volcano) => {
            set_annotation(template, VOLCANO_GROUP_ANNOTATION, ctx.name);
            "volcano"
        }
        Some(Gang::SchedulerPlugins { scheduler_name }) => {
            let mut mark = Object::new();
            mark.insert(PLUGINS_GROUP_LABEL.to_owned(), json!(ctx.name));
            set_labels(template, mark);
            scheduler_name
        }
    };
    if let Some(spec) = object_at(template, "spec") {
        spec.insert("schedulerName".to_owned(), json!(scheduler));
    }
}

fn ssh_volume(ctx: &BuildContext) -> Value {
    let mut secret = Object::new();
    secret.insert("secretName".to_owned(), json!(names::secret(ctx.name)));
    if ctx.job.ssh_path == ROOT_SSH_PATH {
        secret.insert("defaultMode".to_owned(), json!(MODE_OWNER_ONLY));
    }
    secret.insert(
        "items".to_owned(),
        json!([
            { "key": names::SSH_PRIVATE_KEY, "path": "id_rsa" },
            { "key": names::SSH_PUBLIC_KEY, "path": "id_rsa.pub" },
            { "key": names::SSH_PUBLIC_KEY, "path": "authorized_keys" },
        ]),
    );
    json!({ "name": names::SSH_VOLUME, "secret": secret })
}
