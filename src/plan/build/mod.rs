//! Pure builders of every child object, as raw JSON.
//!
//! Raw, because a pod template passes through: a pod field that is newer than this operator has to
//! reach the pod. For the same reason nothing here stops at JSON of an unexpected shape; what cannot
//! be edited is handed on as it is, and the API server's refusal tells the user what is wrong.
//!
//! One file for each child: [`service`], [`config_map`], [`secret`], [`worker_job`],
//! [`launcher_job`], [`pod_group`]. What both Jobs share is in `pod`.

mod pod;
mod quantity;
mod sshd;

pub mod config_map;
pub mod digest;
pub mod launcher_job;
pub mod pod_group;
pub mod secret;
pub mod service;
pub mod worker_job;

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::validate::ValidJob;

pub use digest::template_digest;

/// Whose children are built, and for which run.
#[derive(Debug, Clone, Copy)]
pub struct BuildContext<'a> {
    /// The job, checked and with all defaults.
    pub job: &'a ValidJob,
    /// `metadata.name` of the MPIJob.
    pub name: &'a str,
    /// `metadata.namespace` of the MPIJob.
    pub namespace: &'a str,
    /// `metadata.uid` of the MPIJob.
    pub uid: &'a str,
    /// Value of [`names::RUN_LABEL`]: new for each start and each resume.
    pub run: &'a str,
    /// What the operator was started with.
    pub settings: &'a Settings,
}

/// What the operator's flags mean for child objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Appended to every host in the hostfile; empty leaves hosts at `.svc`.
    pub cluster_domain: String,
    /// Gang scheduling, if any.
    pub gang: Option<Gang>,
    /// `tolerationSeconds` of workers for an unreachable node, where the user set none.
    pub unreachable_toleration_seconds: Option<i64>,
}

/// Which gang scheduler places the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gang {
    /// Volcano.
    Volcano,
    /// A scheduler with the coscheduling plugin of scheduler-plugins.
    SchedulerPlugins {
        /// `schedulerName` of the pods.
        scheduler_name: String,
    },
}

/// The ownerReference that every child carries. Without it an object of our name is a foreign one.
#[must_use]
pub fn owner_reference(ctx: &BuildContext) -> Value {
    json!({
        "apiVersion": names::API_VERSION,
        "kind": names::KIND,
        "name": ctx.name,
        "uid": ctx.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Labels of child objects. `app` is what the Go operator set; the other two are what our watches
/// select on.
#[must_use]
pub fn object_labels(ctx: &BuildContext) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert(names::APP_LABEL.to_owned(), json!(ctx.name));
    labels.extend(job_labels(ctx));
    labels
}

/// Labels that the pods of both roles carry, and that other software selects on.
#[must_use]
pub fn job_labels(ctx: &BuildContext) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert(
        names::OPERATOR_NAME_LABEL.to_owned(),
        json!(names::OPERATOR_NAME),
    );
    labels.insert(names::JOB_NAME_LABEL.to_owned(), json!(ctx.name));
    labels
}

/// Labels of the pods of `role`; they stand over the user's.
#[must_use]
pub fn role_labels(ctx: &BuildContext, role: &str) -> Map<String, Value> {
    let mut labels = job_labels(ctx);
    labels.insert(names::JOB_ROLE_LABEL.to_owned(), json!(role));
    labels
}

/// `metadata` of a child object.
fn metadata(
    ctx: &BuildContext,
    name: &str,
    labels: Map<String, Value>,
    content: Option<&str>,
) -> Value {
    let mut metadata = json!({
        "name": name,
        "namespace": ctx.namespace,
        "labels": labels,
    });
    if let (Some(content), Some(fields)) = (content, metadata.as_object_mut()) {
        fields.insert(
            "annotations".to_owned(),
            json!({ names::CONTENT_ANNOTATION: content }),
        );
    }
    if let Some(fields) = metadata.as_object_mut() {
        fields.insert("ownerReferences".to_owned(), json!([owner_reference(ctx)]));
    }
    metadata
}

#[cfg(test)]
pub(crate) mod tests;
