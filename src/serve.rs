//! Health, readiness and metrics over HTTP.
//!
//! The health port is served on standby as well. Nothing here asks the API server: a slow one must
//! not get the operator restarted.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::lease::Leadership;
use crate::metrics::{CONTENT_TYPE, Metrics};

/// How long an own Lease may be over before the process counts as hung. By then it should have
/// ended by itself.
const HUNG_AFTER: Duration = Duration::from_secs(20);

/// What open connections get at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// Whether the operator can do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet, and why, in one line.
    Starting(String),
    /// The caches are filled.
    Ready,
}

/// A port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has it, or we may not.
    #[error("cannot listen on port {port} for {what}: {source}")]
    Bind {
        /// The port.
        port: u16,
        /// What it is for.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It was served and no longer is.
    #[error("stopped serving {what}: {source}")]
    Serve {
        /// What it is for.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl ServeError {
    /// A short word for logs and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "PortTaken",
            Self::Serve { .. } => "ServerEnded",
        }
    }
}

/// Take a port on all addresses, IPv6 included where there is any. Done before anything else is
/// started, so that a taken port ends the process at once.
///
/// # Errors
///
/// [`ServeError::Bind`].
pub async fn bind(port: u16, what: &'static str) -> Result<TcpListener, ServeError> {
    let dual = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await;
    let bound = match dual {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            // A node without IPv6 has no such address.
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        other => other,
    };
    bound.map_err(|source| ServeError::Bind { port, what, source })
}

/// `/healthz`, `/healthz/leaderElection` and `/readyz`.
///
/// Health fails only if an own Lease has been over for more than 20 s. Ready is who has filled
/// caches, and who is on standby: a rollout must go on while the old leader still leads.
pub fn health_router(
    leadership: watch::Receiver<Leadership>,
    readiness: watch::Receiver<Readiness>,
) -> Router {
    let for_ready = leadership.clone();
    let health = move || {
        let now = *leadership.borrow();
        async move { health(now) }
    };
    let ready = move || {
        let answer = ready(*for_ready.borrow(), &readiness.borrow());
        async move { answer }
    };
    Router::new()
        .route("/healthz", get(health.clone()))
        .route("/healthz/leaderElection", get(health))
        .route("/readyz", get(ready))
}

fn health(leadership: Leadership) -> (StatusCode, String) {
    match leadership.expired_for() {
        Some(since) if since > HUNG_AFTER => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("own lease expired {} s ago", since.as_secs()),
        ),
        _ => (StatusCode::OK, "ok".to_owned()),
    }
}

fn ready(leadership: Leadership, readiness: &Readiness) -> (StatusCode, String) {
    match readiness {
        Readiness::Starting(why) if leadership.is_leader() => {
            (StatusCode::SERVICE_UNAVAILABLE, why.clone())
        }
        _ => (StatusCode::OK, "ok".to_owned()),
    }
}

/// `/metrics`.
pub fn metrics_router(metrics: Metrics) -> Router {
    let answer = move || {
        let text = metrics.render();
        async move { ([(header::CONTENT_TYPE, CONTENT_TYPE)], text) }
    };
    Router::new().route("/metrics", get(answer))
}

/// Serve until `shutdown` becomes true (or its sender is dropped), then at most 2 s for what is
/// open.
///
/// # Errors
///
/// [`ServeError::Serve`] if the system takes the port away.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    what: &'static str,
    shutdown: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let mut drain = shutdown.clone();
    let server = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stopped(shutdown).await });
    let late = async {
        let _ = drain.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = server => ended.map_err(|source| ServeError::Serve { what, source }),
        () = late => Ok(()),
    }
}

async fn stopped(mut shutdown: watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    async fn ask(router: Router, path: &str) -> (u16, String, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|v| v.to_str().unwrap().to_owned())
            .unwrap_or_default();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    fn router(leadership: Leadership, readiness: Readiness) -> Router {
        let (_, leadership) = watch::channel(leadership);
        let (_, readiness) = watch::channel(readiness);
        health_router(leadership, readiness)
    }

    #[tokio::test]
    async fn health_is_ok_on_standby_and_without_election() {
        for leadership in [Leadership::standby(), Leadership::alone()] {
            for path in ["/healthz", "/healthz/leaderElection"] {
                let router = router(leadership, Readiness::Starting("x".into()));
                let (status, _, body) = ask(router, path).await;
                assert_eq!((status, body.as_str()), (200, "ok"), "{path}");
            }
        }
    }

    #[tokio::test]
    async fn health_fails_20_seconds_after_an_own_lease_is_over() {
        for (ago, want) in [(5, 200), (19, 200), (22, 500), (600, 500)] {
            let router = router(crate::lease::tests::expired(ago), Readiness::Ready);
            let (status, _, body) = ask(router, "/healthz/leaderElection").await;
            assert_eq!(status, want, "{ago} s ago: {body}");
        }
    }

    #[tokio::test]
    async fn readiness_of_a_leader_waits_for_its_caches_and_says_why() {
        let starting = Readiness::Starting("waiting for the first list of pods".to_owned());
        let (status, _, body) = ask(router(Leadership::alone(), starting.clone()), "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body, "waiting for the first list of pods");
        let (status, _, _) = ask(router(Leadership::standby(), starting), "/readyz").await;
        assert_eq!(status, 200);
        let (status, _, body) = ask(router(Leadership::alone(), Readiness::Ready), "/readyz").await;
        assert_eq!((status, body.as_str()), (200, "ok"));
    }

    #[tokio::test]
    async fn metrics_are_text_and_nothing_else_is_served() {
        let metrics = Metrics::new();
        metrics.job_created();
        let (status, kind, body) = ask(metrics_router(metrics.clone()), "/metrics").await;
        assert_eq!(status, 200);
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        assert!(body.contains("\nmpi_operator_jobs_created_total 1\n"));
        let (status, _, _) = ask(metrics_router(metrics), "/debug/pprof/").await;
        assert_eq!(status, 404);
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = bind(0, "health").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind(port, "health").await.unwrap_err();
        let text = error.to_string();
        let want = format!("cannot listen on port {port} for health: ");
        assert!(text.starts_with(&want), "{text}");
        assert_eq!(error.reason(), "PortTaken");
    }

    #[tokio::test]
    async fn a_real_server_answers_over_ipv4_and_stops_when_told() {
        let listener = bind(0, "health").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, shutdown) = watch::channel(false);
        let router = router(Leadership::standby(), Readiness::Ready);
        let server = tokio::spawn(serve(listener, router, "health", shutdown));
        let answer = tokio::task::spawn_blocking(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // A connection that says nothing does not hold the shutdown up for long.
        let _silent = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        stop.send_replace(true);
        let ended = tokio::time::timeout(Duration::from_secs(5), server).await;
        assert!(matches!(ended, Ok(Ok(Ok(())))));
    }
}
