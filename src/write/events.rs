//! Step 7 of the flow: events, only after the status that they tell of was written.
//!
//! A lost event is lost: repeating it could tell it twice, and the status says the same.

use http::Method;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::outcome::{Outcome, Reply};
use super::{Payload, Writer};
use crate::action::EventNote;
use crate::api::names;
use crate::api::validate::{MAX_MESSAGE, cut_bytes};
use crate::facts::observed::JobObject;

/// `source.component` and `reportingComponent`, as in the Go operator.
const COMPONENT: &str = "mpi-job-controller";

impl Writer {
    /// Writes one event on the MPIJob.
    pub async fn write_event(&self, job: &JobObject, note: &EventNote, now: Timestamp) -> Outcome {
        let mut hash = Sha256::new();
        hash.update(format!("{}/{}/{}", job.uid, note.reason, note.message));
        if !note.once {
            hash.update(now.as_nanosecond().to_string());
        }
        let digest: String = hash
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let message = cut_bytes(note.message.clone(), MAX_MESSAGE);
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": format!("{}.{digest}", job.name), "namespace": job.namespace },
            "involvedObject": {
                "apiVersion": names::API_VERSION,
                "kind": names::KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
                "resourceVersion": job.version.to_string(),
            },
            "type": if note.warning { "Warning" } else { "Normal" },
            "reason": note.reason,
            "message": message,
            "source": { "component": COMPONENT },
            "reportingComponent": COMPONENT,
            "reportingInstance": "",
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        });
        let path = format!("/api/v1/namespaces/{}/events", job.namespace);
        match self
            .call(Method::POST, &path, "events", Payload::Json(&event))
            .await
        {
            // A note that is there once was told already.
            Reply::Conflict { exists: true, .. } => Outcome::Done(None),
            reply => reply.outcome(|_| None),
        }
    }
}
