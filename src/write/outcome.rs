//! API answer -> what it means for the pass.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use crate::api::depth;
use crate::facts::index::Object;
use crate::facts::observed::{JobWarning, NodeFacts};

/// What an action led to.
#[derive(Debug)]
pub enum Outcome {
    /// Done, or there was nothing to do; the object as it stands, where the answer held it.
    Done(Option<Box<Object>>),
    /// The Secret of the job is there and its own.
    SecretSeen,
    /// A node was looked at; None: there is none of this name.
    Node(Option<NodeFacts>),
    /// The warnings of a Job's events.
    Warnings(Vec<JobWarning>),
    /// The values of the priority classes of launcher and worker.
    Priorities(i32, i32),
    /// The object changed or went meanwhile; the watch will tell.
    Stale(String),
    /// The server refused; repeating the same is no use for now.
    Denied {
        /// HTTP status; 409 for a name that a foreign object has.
        code: u16,
        /// The server's sentence.
        message: String,
    },
    /// It did not work out this time.
    Later {
        /// Why.
        message: String,
        /// The server's wish.
        after: Option<Duration>,
    },
}

impl Outcome {
    /// For logs and metrics.
    #[must_use]
    pub fn ok(&self) -> bool {
        !matches!(
            self,
            Self::Stale(_) | Self::Denied { .. } | Self::Later { .. }
        )
    }
}

/// An answer of the API server.
#[derive(Debug)]
pub(super) enum Reply {
    /// 2xx with a JSON body.
    Object(Value),
    /// 404.
    NotFound,
    /// 409: conflict or precondition.
    Conflict { message: String, exists: bool },
    /// 4xx otherwise, but for 408 and 429.
    Refused { code: u16, message: String },
    /// Anything that may work the next time.
    Failed {
        message: String,
        after: Option<Duration>,
    },
}

impl Reply {
    pub(super) fn of(status: StatusCode, after: Option<Duration>, bytes: &[u8]) -> Self {
        let value: Value = match depth::object_from_slice(bytes) {
            Ok(value) => value,
            Err(_) if status.is_success() => {
                return Self::Failed {
                    message: "the answer is no JSON".to_owned(),
                    after,
                };
            }
            Err(_) => Value::Null,
        };
        if status.is_success() {
            return Self::Object(value);
        }
        let message = value["message"]
            .as_str()
            .map_or_else(|| format!("HTTP {status}"), |text| text.to_owned());
        match status.as_u16() {
            404 => Self::NotFound,
            409 => Self::Conflict {
                message,
                exists: value["reason"] == "AlreadyExists",
            },
            408 | 429 => Self::Failed { message, after },
            code @ 400..=499 => Self::Refused { code, message },
            _ => Self::Failed { message, after },
        }
    }

    /// For the metric.
    pub(super) fn label(&self) -> Result<(), &'static str> {
        match self {
            Self::Object(_) => Ok(()),
            Self::NotFound => Err("not_found"),
            Self::Conflict { .. } => Err("conflict"),
            Self::Refused { .. } => Err("refused"),
            Self::Failed { .. } => Err("failed"),
        }
    }

    /// The outcome where nothing special is meant by it.
    pub(super) fn outcome(self, object: impl FnOnce(Value) -> Option<Object>) -> Outcome {
        match self {
            Self::Object(value) => Outcome::Done(object(value).map(Box::new)),
            Self::NotFound => Outcome::Stale("it is gone".to_owned()),
            Self::Conflict { message, .. } => Outcome::Stale(message),
            Self::Refused { code, message } => Outcome::Denied { code, message },
            Self::Failed { message, after } => Outcome::Later { message, after },
        }
    }
}
