//! A namespace of its own for each test, removed at the end. When the test fails, everything that
//! a user could see in it is printed first.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};

use anyhow::{Context, Result, bail};
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace as KubeNamespace, Pod, ServiceAccount};
use kube::api::{
    Api, AttachParams, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams,
    PostParams,
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::history::History;
use crate::mpi::{MpiJob, resource};
use crate::wait::poll;
use crate::{Cluster, SOON};

/// Finalizer that tests put on a pod to make it hang in Terminating.
pub const HOLD_FINALIZER: &str = "e2e.mpi-operator/hold";

/// Where one test runs.
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// The cluster it is in.
    pub cluster: Cluster,
    /// Every change of its pods.
    pub pods: History<Pod>,
    /// Every change of its batch Jobs.
    pub jobs: History<Job>,
    /// Every change of its MPIJobs.
    pub mpijobs: History<DynamicObject>,
    /// Every event in it.
    pub events: History<Event>,
}

/// Runs `body` in a namespace of its own, or skips it when there is no cluster.
///
/// # Panics
/// If `body` fails or panics, after having printed the state of the namespace.
#[allow(
    clippy::panic,
    reason = "a failed test is a panic, and this is where all of them end"
)]
pub async fn in_namespace(prefix: &str, body: impl AsyncFnOnce(&Namespace) -> Result<()>) {
    let cluster = match Cluster::connect().await {
        Ok(Some(cluster)) => cluster,
        Ok(None) => return,
        Err(error) => panic!("no cluster: {error:?}"),
    };
    let ns = match Namespace::create_new(cluster, prefix).await {
        Ok(ns) => ns,
        Err(error) => panic!("no namespace: {error:?}"),
    };
    let result = AssertUnwindSafe(body(&ns)).catch_unwind().await;
    let failed = !matches!(result, Ok(Ok(())));
    if failed {
        eprintln!("--- namespace {} when the test failed ---", ns.name);
        if let Err(error) = ns.print_state().await {
            eprintln!("(the state cannot be read: {error:#})");
        }
        eprintln!("---");
    }
    if failed && std::env::var("MPI_E2E_KEEP").is_ok_and(|v| v == "1") {
        eprintln!("namespace {} is kept, because MPI_E2E_KEEP=1", ns.name);
    } else if let Err(error) = ns.remove().await {
        eprintln!("namespace {} is left behind: {error:#}", ns.name);
    }
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{error:#}"),
        Err(panic) => resume_unwind(panic),
    }
}

impl Namespace {
    async fn create_new(cluster: Cluster, prefix: &str) -> Result<Self> {
        let namespaces: Api<KubeNamespace> = Api::all(cluster.client.clone());
        let wanted = serde_json::from_value(json!({
            "metadata": {
                "generateName": format!("e2e-{prefix}-"),
                "labels": {"mpi-operator.e2e": "true"},
            },
        }))?;
        let name = namespaces
            .create(&PostParams::default(), &wanted)
            .await?
            .name_any();
        // Pods are refused, and the Job controller backs off, until this account exists.
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &name);
        poll("the default service account", SOON, async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        let client = cluster.client.clone();
        Ok(Self {
            pods: History::follow("pods", Api::namespaced(client.clone(), &name)),
            jobs: History::follow("jobs", Api::namespaced(client.clone(), &name)),
            events: History::follow("events", Api::namespaced(client.clone(), &name)),
            mpijobs: History::follow("mpijobs", Api::namespaced_with(client, &name, &resource())),
            name,
            cluster,
        })
    }

    /// Access to objects of type `K` in it.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.name)
    }

    /// Access to MPIJobs in it.
    #[must_use]
    pub fn mpijob_api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), &self.name, &resource())
    }

    /// Creates an MPIJob.
    pub async fn create(&self, job: &MpiJob) -> Result<DynamicObject> {
        self.mpijob_api()
            .create(&PostParams::default(), &job.object()?)
            .await
            .with_context(|| format!("creating MPIJob {}", job.name()))
    }

    /// Merge-patches an MPIJob.
    pub async fn patch(&self, job: &str, patch: Value) -> Result<DynamicObject> {
        self.mpijob_api()
            .patch(job, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("patching MPIJob {job}"))
    }

    /// Suspends or resumes an MPIJob.
    pub async fn suspend(&self, job: &str, suspend: bool) -> Result<()> {
        self.patch(job, json!({"spec": {"runPolicy": {"suspend": suspend}}}))
            .await?;
        Ok(())
    }

    /// Deletes an MPIJob as `kubectl delete --wait=false` does.
    pub async fn delete_mpijob(&self, job: &str) -> Result<()> {
        self.mpijob_api()
            .delete(job, &DeleteParams::background())
            .await
            .with_context(|| format!("deleting MPIJob {job}"))?;
        Ok(())
    }

    /// Deletes a pod as `kubectl delete pod --wait=false` does.
    pub async fn delete_pod(&self, pod: &Pod) -> Result<()> {
        self.api::<Pod>()
            .delete(&pod.name_any(), &DeleteParams::default())
            .await
            .with_context(|| format!("deleting pod {}", pod.name_any()))?;
        Ok(())
    }

    /// kubectl in this namespace.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", &self.name];
        all.extend(args);
        self.cluster.kubectl(&all).await
    }

    /// The log of the main container of a pod.
    pub async fn log(&self, pod: &Pod) -> Result<String> {
        self.api::<Pod>()
            .logs(&pod.name_any(), &LogParams::default())
            .await
            .with_context(|| format!("log of {}", pod.name_any()))
    }

    /// Runs a command in the main container (or `container`) of a pod; what it printed.
    pub async fn exec_in(
        &self,
        pod: &Pod,
        container: Option<&str>,
        command: &[&str],
    ) -> Result<String> {
        let name = pod.name_any();
        let shown = format!("{command:?} in {name}");
        let mut attach = AttachParams::default().stdout(true).stderr(true);
        attach.container = container.map(str::to_owned);
        let mut process = self
            .api::<Pod>()
            .exec(&name, command.iter().copied(), &attach)
            .await
            .with_context(|| shown.clone())?;
        let mut stdout = process.stdout().context("stdout was asked for")?;
        let mut stderr = process.stderr().context("stderr was asked for")?;
        let status = process.take_status().context("status is there once")?;
        let (mut out, mut err) = (String::new(), String::new());
        let both = async {
            tokio::try_join!(
                stdout.read_to_string(&mut out),
                stderr.read_to_string(&mut err)
            )
        };
        tokio::time::timeout(SOON, both)
            .await
            .with_context(|| format!("{shown} does not end"))??;
        let status = status.await.context("the command has no status")?;
        if status.status.as_deref() != Some("Success") {
            bail!(
                "{shown}: {}\n{out}{err}",
                status.message.unwrap_or_default()
            );
        }
        Ok(out)
    }

    /// [`Self::exec_in`] the main container.
    pub async fn exec(&self, pod: &Pod, command: &[&str]) -> Result<String> {
        self.exec_in(pod, None, command).await
    }

    /// Tells a program that waits for `/tmp/go` to go on.
    pub async fn tell(&self, pod: &Pod) -> Result<()> {
        self.exec(pod, &["touch", "/tmp/go"]).await?;
        Ok(())
    }

    /// Puts [`HOLD_FINALIZER`] on a pod.
    pub async fn hold_pod(&self, pod: &Pod) -> Result<()> {
        let patch = json!({"metadata": {"finalizers": [HOLD_FINALIZER]}});
        self.api::<Pod>()
            .patch(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await?;
        Ok(())
    }

    /// Takes [`HOLD_FINALIZER`] off every pod.
    pub async fn release_pods(&self) -> Result<()> {
        let pods = self.api::<Pod>();
        for pod in pods.list(&ListParams::default()).await? {
            if pod.finalizers().iter().any(|f| f == HOLD_FINALIZER) {
                let patch =
                    json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD_FINALIZER]}});
                pods.patch(
                    &pod.name_any(),
                    &PatchParams::default(),
                    &Patch::Strategic(patch),
                )
                .await?;
            }
        }
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        self.release_pods().await?;
        let namespaces: Api<KubeNamespace> = Api::all(self.cluster.client.clone());
        match namespaces
            .delete(&self.name, &DeleteParams::background())
            .await
        {
            // A test that deletes its namespace itself.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn print_state(&self) -> Result<()> {
        let all = ListParams::default();
        match self.mpijob_api().list(&all).await {
            Ok(list) => {
                for job in list {
                    eprintln!("MPIJob {}:", job.name_any());
                    let part = json!({
                        "runPolicy": job.data["spec"]["runPolicy"],
                        "status": job.data["status"],
                    });
                    print_indented(&serde_yaml_ng::to_string(&part)?);
                }
            }
            Err(error) => eprintln!("MPIJobs: {error}"),
        }
        for job in self.api::<Job>().list(&all).await? {
            let spec = job.spec.clone().unwrap_or_default();
            eprintln!(
                "Job {}: suspend {:?} parallelism {:?} completions {:?} backoffLimit {:?}",
                job.name_any(),
                spec.suspend,
                spec.parallelism,
                spec.completions,
                spec.backoff_limit
            );
            print_indented(&serde_yaml_ng::to_string(job.annotations())?);
            print_indented(&serde_yaml_ng::to_string(&job.status)?);
        }
        let pods = self.api::<Pod>().list(&all).await?;
        for pod in &pods {
            self.print_pod(pod).await;
        }
        for row in ["events", "endpointslices"] {
            let sorted = ["get", row, "--sort-by=.metadata.creationTimestamp"];
            eprintln!("{row}:");
            print_indented(&self.kubectl(&sorted).await.unwrap_or_else(said));
        }
        eprintln!("the operator's log:");
        let tail = [
            "logs",
            "-n",
            "mpi-operator",
            "deploy/mpi-operator",
            "--tail=60",
        ];
        print_indented(&self.cluster.kubectl(&tail).await.unwrap_or_else(said));
        Ok(())
    }

    async fn print_pod(&self, pod: &Pod) {
        let status = pod.status.clone().unwrap_or_default();
        let states: Vec<String> = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .flatten()
            .map(|c| {
                let state = serde_json::to_string(&c.state).unwrap_or_default();
                format!("{} {state}", c.name)
            })
            .collect();
        eprintln!(
            "pod {} on {}: {} ready {} created {} deletion {:?} finalizers {:?}: {}",
            pod.name_any(),
            crate::mpi::node(pod),
            crate::mpi::phase(pod),
            crate::mpi::is_ready(pod),
            shown(&pod.metadata.creation_timestamp),
            pod.metadata.deletion_timestamp,
            pod.finalizers(),
            states.join("; ")
        );
        let tail = LogParams {
            tail_lines: Some(20),
            ..LogParams::default()
        };
        if let Ok(log) = self.api::<Pod>().logs(&pod.name_any(), &tail).await {
            print_indented(&log);
        }
    }
}

fn said(error: anyhow::Error) -> String {
    format!("{error:#}")
}

fn shown<T: Debug>(value: &Option<T>) -> String {
    value.as_ref().map(|v| format!("{v:?}")).unwrap_or_default()
}

fn print_indented(text: &str) {
    for line in text.lines() {
        eprintln!("    {line}");
    }
}
