//! The Secret `J-ssh`, without its key bytes: those are made where it is created, since a plan holds
//! no randomness.

use serde_json::{Value, json};

use super::{BuildContext, metadata, object_labels};
use crate::api::names;

/// The Secret `J-ssh` without `data`. No content annotation: the keys never change.
#[must_use]
pub fn shell(ctx: &BuildContext) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/ssh-auth",
        "metadata": metadata(ctx, &names::secret(ctx.name), object_labels(ctx), None),
    })
}
