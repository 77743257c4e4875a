//! The program itself against an API server that answers everything in one way: exit codes, the
//! line that says why, and which kubeconfig counts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use serde_json::json;

/// An API server that answers every request with this code; its URL. It ends with the test program.
fn server(code: u16, reason: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            // All requests that come here are GETs, which end at the first empty line.
            let _ = lines.map_while(Result::ok).find(String::is_empty);
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
                "message": format!("the test says {reason}"), "reason": reason, "code": code,
            });
            let body = body.to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

/// Runs the operator with its health port wherever there is room; exit code and log.
fn run(args: &[&str], kubeconfig: Option<&str>) -> (Option<i32>, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let health = format!("-health-port={}", port.local_addr().unwrap().port());
    drop(port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpi-operator"));
    command
        .args(args)
        .arg(health)
        .env_remove("KUBECONFIG")
        .env_remove("KUBEFLOW_NAMESPACE")
        .env_remove("RUST_LOG");
    if let Some(path) = kubeconfig {
        command.env("KUBECONFIG", path);
    }
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), log)
}

#[test]
fn contract_07_38_without_the_definition_it_ends_with_1_and_says_so() {
    let master = format!("-master={}", server(404, "NotFound"));
    let (code, log) = run(&[&master], None);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("CRD doesn't exist. Exiting"), "{log}");
}

#[test]
fn contract_07_38_when_access_is_refused_it_ends_with_255_and_says_so() {
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden")] {
        let master = format!("-master={}", server(code, reason));
        let (code, log) = run(&["-namespace", "team-a", &master], None);
        assert_eq!(code, Some(255), "{log}");
        assert!(log.contains(&format!("the test says {reason}")), "{log}");
    }
}

#[test]
fn contract_07_36_kubeconfig_of_the_environment_wins_over_the_flag() {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server(404, "NotFound")}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    let path = format!("{}/kubeconfig.json", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, config.to_string()).unwrap();
    let (code, log) = run(&["-kubeConfig=/no/such/file"], Some(&path));
    assert_eq!(code, Some(1), "{log}");
    let (code, log) = run(&["-kubeConfig", &path], None);
    assert_eq!(code, Some(1), "{log}");
    let (code, log) = run(&["-kubeConfig=/no/such/file"], None);
    assert_eq!(code, Some(255), "{log}");
    assert!(log.contains("/no/such/file"), "{log}");
}

#[test]
fn contract_07_38_a_taken_health_port_ends_it_with_255() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = Command::new(env!("CARGO_BIN_EXE_mpi-operator"))
        .arg(format!("-health-port={port}"))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{log}");
    assert!(log.contains(&port.to_string()), "{log}");
}
