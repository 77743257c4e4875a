//! Step 6 of the flow: one status patch, only on difference.

use http::Method;

use super::outcome::Outcome;
use super::{Payload, Writer};
use crate::action::StatusPatch;
use crate::api::names;
use crate::facts::observed::JobObject;
use crate::watch::slim::{FIELD_MANAGER, SlimMpiJob};

impl Writer {
    /// Writes the status of `job`. The patch is bound to the UID, and to the version, so that a
    /// leader that lost its lease a moment ago cannot undo what the new one wrote.
    pub async fn write_status(&self, job: &JobObject, patch: &StatusPatch) -> Outcome {
        let path = format!(
            "/apis/{}/{}/namespaces/{}/mpijobs/{}/status?fieldManager={FIELD_MANAGER}",
            names::GROUP,
            names::VERSION,
            job.namespace,
            job.name
        );
        let mut body = patch.body.clone();
        body["metadata"] =
            serde_json::json!({ "uid": job.uid, "resourceVersion": job.version.to_string() });
        self.call(Method::PATCH, &path, "mpijobs", Payload::Merge(&body))
            .await
            .outcome(|value| {
                serde_json::from_value::<SlimMpiJob>(value)
                    .ok()
                    .and_then(SlimMpiJob::into_object)
            })
    }
}
