//! The headless Service `J`, which gives worker hostnames their DNS records.

use serde_json::{Value, json};

use super::{BuildContext, job_labels, metadata, object_labels, template_digest};
use crate::api::names;

/// The Service `J`: headless, without ports.
#[must_use]
pub fn service(ctx: &BuildContext) -> Value {
    // The run as a label too: the watch of Services sees metadata alone.
    let mut labels = object_labels(ctx);
    labels.insert(names::RUN_LABEL.to_owned(), json!(ctx.run));
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(ctx, &names::service(ctx.name), labels, Some(&digest(ctx))),
        "spec": {
            "clusterIP": "None",
            "selector": selector(ctx),
            "publishNotReadyAddresses": ctx.job.launcher_as_worker,
        },
    })
}

/// Merge patch that points an existing Service at the run of `ctx`.
#[must_use]
pub fn patch(ctx: &BuildContext) -> Value {
    json!({
        "metadata": {
            "labels": { names::RUN_LABEL: ctx.run },
            "annotations": { names::CONTENT_ANNOTATION: digest(ctx) },
        },
        "spec": {
            "selector": selector(ctx),
            "publishNotReadyAddresses": ctx.job.launcher_as_worker,
        },
    })
}

/// What [`names::CONTENT_ANNOTATION`] says on a Service that serves the run of `ctx`.
#[must_use]
pub fn digest(ctx: &BuildContext) -> String {
    template_digest(&json!([selector(ctx), ctx.job.launcher_as_worker]))
}

/// Both roles by name, narrowed to one run: a pod of an earlier run that never finishes terminating
/// has the hostname of its replacement and must not stand beside it in DNS.
///
/// The launcher carries the run label only where it is a rank host; elsewhere nothing resolves it.
fn selector(ctx: &BuildContext) -> Value {
    let mut selector = job_labels(ctx);
    selector.insert(names::RUN_LABEL.to_owned(), json!(ctx.run));
    Value::Object(selector)
}
