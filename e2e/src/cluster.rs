//! The cluster under test, and the tools that a person at its keyboard has.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::wait::poll;

/// Namespace and name of the operator's Deployment, as shipped.
pub const OPERATOR: &str = "mpi-operator";

/// What a program printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Exit code; None after a signal.
    pub code: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

/// A cluster that runs the operator.
#[derive(Clone)]
pub struct Cluster {
    /// Talks to it as its admin.
    pub client: Client,
    kubeconfig: PathBuf,
    kubectl: String,
}

impl Cluster {
    /// The cluster that the environment names, or `None` (said on stderr) when `MPI_E2E` is unset.
    pub async fn connect() -> Result<Option<Self>> {
        if env::var_os("MPI_E2E").is_none() {
            eprintln!(
                "SKIPPED: MPI_E2E is not set, so there is no cluster to test; `make e2e` sets all up"
            );
            return Ok(None);
        }
        let kubeconfig = env::var_os("MPI_E2E_KUBECONFIG")
            .or_else(|| env::var_os("KUBECONFIG"))
            .map(PathBuf::from)
            .context("MPI_E2E is set, but neither MPI_E2E_KUBECONFIG nor KUBECONFIG")?;
        let read = Kubeconfig::read_from(&kubeconfig)
            .with_context(|| format!("reading {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        Ok(Some(Self {
            client: Client::try_from(config)?,
            kubeconfig,
            kubectl: env::var("MPI_E2E_KUBECTL").unwrap_or_else(|_| "kubectl".to_owned()),
        }))
    }

    /// Runs kubectl and returns what it printed.
    pub async fn kubectl<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        output_of(command).await
    }

    /// Runs `kubectl mpi` with `args`, as kubectl would: the plugin itself, with kubectl in PATH.
    /// None, said on stderr, if `MPI_E2E_PLUGIN` does not name it.
    pub async fn plugin(&self, args: &[&str]) -> Result<Option<Answer>> {
        let Some(plugin) = env::var_os("MPI_E2E_PLUGIN").map(PathBuf::from) else {
            eprintln!("SKIPPED: MPI_E2E_PLUGIN is not set: it names the kubectl plugin");
            return Ok(None);
        };
        // Behind `--` stands the command of a worker.
        let end = args.iter().position(|arg| *arg == "--");
        let (own, rest) = args.split_at(end.unwrap_or(args.len()));
        let mut command = Command::new(&plugin);
        command
            .args(own)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(rest);
        self.answer(command, &plugin).await.map(Some)
    }

    /// Runs `kubectl mpi` by way of kubectl.
    pub async fn kubectl_mpi(&self, args: &[&str]) -> Result<Option<Answer>> {
        let Some(plugin) = env::var_os("MPI_E2E_PLUGIN").map(PathBuf::from) else {
            eprintln!("SKIPPED: MPI_E2E_PLUGIN is not set: it names the kubectl plugin");
            return Ok(None);
        };
        let mut command = Command::new(&self.kubectl);
        command.arg("mpi").args(args);
        command.env("KUBECONFIG", &self.kubeconfig);
        self.answer(command, &plugin).await.map(Some)
    }

    async fn answer(&self, mut command: Command, plugin: &Path) -> Result<Answer> {
        let mut folders: Vec<PathBuf> = [plugin, Path::new(&self.kubectl)]
            .into_iter()
            .filter_map(Path::parent)
            .map(Path::to_owned)
            .collect();
        folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        command.env("PATH", env::join_paths(folders)?);
        let shown = format!("{:?}", command.as_std());
        let output = command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("starting {shown}"))?;
        Ok(Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs `hack/cluster.sh` with `args`.
    pub async fn cluster_sh(&self, args: &[&str]) -> Result<String> {
        let script = env::var_os("MPI_E2E_CLUSTER_SH")
            .context("MPI_E2E_CLUSTER_SH is not set: it names the script that stops nodes")?;
        let mut command = Command::new(script);
        command.args(args);
        output_of(command).await
    }

    /// Names of the real nodes; simulated ones run no programs.
    pub async fn nodes(&self) -> Result<Vec<String>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let all = nodes.list(&ListParams::default()).await?;
        Ok(all
            .iter()
            .filter(|node| !node.annotations().contains_key("kwok.x-k8s.io/node"))
            .map(ResourceExt::name_any)
            .collect())
    }

    /// Whether a node's Ready condition is True.
    pub async fn node_is_ready(&self, name: &str) -> Result<bool> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(name).await?;
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True"))
    }

    /// Puts a label on every real node, or takes it off (`None`).
    pub async fn label_nodes(&self, key: &str, value: Option<&str>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"labels": {key: value}}});
        for name in self.nodes().await? {
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
        Ok(())
    }

    /// The operator's pods, one unless somebody scaled it.
    pub async fn operator_pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), OPERATOR);
        let labelled = ListParams::default().labels("app.kubernetes.io/name=mpi-operator");
        Ok(pods.list(&labelled).await?.items)
    }

    /// Scales the operator's Deployment and waits until that many pods are there and ready.
    pub async fn scale_operator(&self, replicas: i32) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), OPERATOR);
        let patch = json!({"spec": {"replicas": replicas}});
        deployments
            .patch_scale(OPERATOR, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .context("scaling the operator's Deployment")?;
        poll(
            &format!("{replicas} operator pods, all ready"),
            crate::SOON,
            async || {
                let pods = self.operator_pods().await?;
                let ready = pods.iter().filter(|p| crate::mpi::is_ready(p)).count();
                let wanted = usize::try_from(replicas)?;
                Ok((pods.len() == wanted && ready == wanted).then_some(()))
            },
        )
        .await
    }

    /// What the operator wrote in `namespace` up to now, oldest first, each as `verb resource name`;
    /// by the API server's own record. Events are not counted: they are bounded and not state.
    pub async fn operator_writes(&self, namespace: &str) -> Result<Vec<String>> {
        let path = env::var_os("MPI_E2E_AUDIT_LOG")
            .context("MPI_E2E_AUDIT_LOG is not set: it names the API server's record")?;
        let text = tokio::fs::read_to_string(&path).await?;
        let user = format!("system:serviceaccount:{OPERATOR}:{OPERATOR}");
        let mut writes = Vec::new();
        for line in text.lines().filter(|line| line.contains(namespace)) {
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let (verb, object) = (&event["verb"], &event["objectRef"]);
            if event["stage"] == "ResponseComplete"
                && event["user"]["username"] == *user
                && object["namespace"] == namespace
                && object["resource"] != "events"
                && !matches!(verb.as_str(), Some("get" | "list" | "watch"))
            {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let mut resource = text(&object["resource"]);
                if let Some(sub) = object["subresource"].as_str() {
                    resource = format!("{resource}/{sub}");
                }
                writes.push(format!(
                    "{} {resource} {}",
                    text(verb),
                    text(&object["name"])
                ));
            }
        }
        Ok(writes)
    }

    /// What `path` of the API server answers, parsed.
    pub async fn raw(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.kubectl(&["get", "--raw", path]).await?,
        )?)
    }
}

async fn output_of(mut command: Command) -> Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("starting {shown}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(text)
}
