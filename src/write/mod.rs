//! Steps 5 to 7 of the flow: actions in order, then the status, then the events.
//!
//! The writer chooses nothing. Before each call it asks whether this process still leads, each call
//! has one deadline, and each answer becomes an [`outcome::Outcome`]; repeating is up to the queue.

pub mod actions;
pub mod events;
pub mod outcome;
pub mod ssh_key;
pub mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::client::Body;
use serde_json::Value;

use crate::metrics::Metrics;
use outcome::{Outcome, Reply};

/// One call may take this long. A reply that comes later is treated as lost, and what it did is
/// found by the next pass.
const DEADLINE: Duration = Duration::from_secs(10);

/// Largest answer that is read, in bytes: more than an object may have in etcd.
const MOST_BYTES: usize = 8 << 20;

/// Sends writes to the API server.
#[derive(Clone)]
pub struct Writer {
    #[expect(
        clippy::disallowed_types,
        reason = "the writer is where calls are made"
    )]
    client: kube::Client,
    may_write: Arc<dyn Fn() -> bool + Send + Sync>,
    metrics: Metrics,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

/// The body of a call and how it is meant.
#[derive(Debug)]
enum Payload<'a> {
    None,
    /// No body; only the metadata of the object is wanted.
    Metadata,
    Json(&'a Value),
    Merge(&'a Value),
    Strategic(&'a Value),
    JsonPatch(&'a Value),
}

impl Writer {
    /// A writer that asks `may_write` before each call.
    #[must_use]
    #[expect(
        clippy::disallowed_types,
        reason = "the writer is where calls are made"
    )]
    pub fn new(
        client: kube::Client,
        may_write: Arc<dyn Fn() -> bool + Send + Sync>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            may_write,
            metrics,
        }
    }

    /// One call with its deadline. `resource` is the plural, for metrics.
    async fn call(
        &self,
        method: Method,
        path: &str,
        resource: &'static str,
        payload: Payload<'_>,
    ) -> Reply {
        if !(self.may_write)() {
            return Reply::Failed {
                message: "this process does not lead".to_owned(),
                after: None,
            };
        }
        let accept = if matches!(payload, Payload::Metadata) {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        };
        let (content_type, body) = match payload {
            Payload::None | Payload::Metadata => ("application/json", Vec::new()),
            Payload::Json(value) => ("application/json", value.to_string().into_bytes()),
            Payload::Merge(value) => (
                "application/merge-patch+json",
                value.to_string().into_bytes(),
            ),
            Payload::Strategic(value) => (
                "application/strategic-merge-patch+json",
                value.to_string().into_bytes(),
            ),
            Payload::JsonPatch(value) => (
                "application/json-patch+json",
                value.to_string().into_bytes(),
            ),
        };
        let verb = match method {
            Method::POST => "create",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, accept)
            .body(Body::from(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                return Reply::Failed {
                    message: error.to_string(),
                    after: None,
                };
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "measures the call for its metric"
        )]
        let begun = Instant::now();
        let reply = match tokio::time::timeout(DEADLINE, self.exchange(request)).await {
            Ok(reply) => reply,
            Err(_) => Reply::Failed {
                message: format!("no answer within {} s", DEADLINE.as_secs()),
                after: None,
            },
        };
        self.metrics
            .observe_write(verb, resource, begun.elapsed().as_secs_f64(), reply.label());
        reply
    }

    async fn exchange(&self, request: Request<Body>) -> Reply {
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                return Reply::Failed {
                    message: chain(&error),
                    after: None,
                };
            }
        };
        let (parts, body) = response.into_parts();
        let after = parts
            .headers
            .get(http::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let bytes = match read(body).await {
            Ok(bytes) => bytes,
            // The call was carried out, or was not: the next pass finds out.
            Err(message) => {
                return Reply::Failed {
                    message,
                    after: None,
                };
            }
        };
        Reply::of(parts.status, after, &bytes)
    }

    /// Runs an action of MPIJob `job` in `namespace`.
    pub async fn perform(
        &self,
        namespace: &str,
        job: &str,
        owner: &str,
        action: &crate::action::Action,
    ) -> Outcome {
        actions::perform(
            self,
            &actions::Target {
                namespace,
                job,
                owner,
            },
            action,
        )
        .await
    }
}

async fn read(body: Body) -> Result<Vec<u8>, String> {
    use http_body_util::BodyExt as _;
    let limited = http_body_util::Limited::new(body, MOST_BYTES);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes().to_vec()),
        Err(error) => Err(format!("the answer broke off: {error}")),
    }
}

/// An error with its sources, outermost first.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}
