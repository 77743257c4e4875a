//! The ConfigMap `J-config`, which carries hostfile and discover_hosts.sh into the launcher.

use serde_json::{Value, json};

use super::{BuildContext, metadata, object_labels, template_digest};
use crate::api::names;

/// The ConfigMap `J-config` with these two files.
#[must_use]
pub fn config_map(ctx: &BuildContext, hostfile: &str, discover: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            ctx,
            &names::config_map(ctx.name),
            object_labels(ctx),
            Some(&digest(hostfile, discover)),
        ),
        "data": data(hostfile, discover),
    })
}

/// What [`names::CONTENT_ANNOTATION`] says on a ConfigMap with these two files.
#[must_use]
pub fn digest(hostfile: &str, discover: &str) -> String {
    template_digest(&data(hostfile, discover))
}

fn data(hostfile: &str, discover: &str) -> Value {
    json!({ names::HOSTFILE: hostfile, names::DISCOVER_HOSTS: discover })
}
