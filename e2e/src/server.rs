//! What the Kubernetes release under test lacks. A promise that rests on it is asserted as far as the
//! release can keep it, and a line says so; the table is docs/versions.md.

use std::io::Write;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::Cluster;
use crate::mpi::IMAGE;

/// What not every supported release does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Rules in CustomResourceDefinitions.
    CelRules,
    /// The Job controller books its pods by a finalizer, which the operator takes off.
    JobTracking,
    /// A Job may ignore the failure of a pod that the platform took.
    PodFailurePolicy,
    /// A Job may wait for the end of a pod before it makes the next one.
    PodReplacementPolicy,
    /// The back-off of one index does not hold the others.
    BackoffLimitPerIndex,
}

impl Cluster {
    /// Whether the server lacks `feature`; if so, `instead` is printed: what is asserted in its place.
    ///
    /// Asked by reading back what it would store. Only the finalizer cannot be asked for.
    pub async fn lacks(&self, feature: Feature, instead: &str) -> Result<bool> {
        let has = match feature {
            Feature::CelRules => {
                let args = ["get", "crd", "mpijobs.kubeflow.org", "-o", "json"];
                let definition = self.kubectl(&args).await?;
                definition.contains("x-kubernetes-validations")
            }
            // On in 1.23, off again in 1.24.
            Feature::JobTracking => self.minor().await? >= 25,
            Feature::PodFailurePolicy => self.keeps("podFailurePolicy").await?,
            Feature::PodReplacementPolicy => self.keeps("podReplacementPolicy").await?,
            Feature::BackoffLimitPerIndex => self.keeps("backoffLimitPerIndex").await?,
        };
        if !has {
            // Not eprintln!, whose lines the harness shows of failed tests only.
            let mut stderr = std::io::stderr();
            writeln!(stderr, "not on this server: {feature:?}: {instead}")?;
        }
        Ok(!has)
    }

    /// Whether the server would store this field of a Job's spec.
    async fn keeps(&self, field: &str) -> Result<bool> {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"generateName": "asked-"},
            "spec": {
                "completionMode": "Indexed", "completions": 1, "parallelism": 1,
                "backoffLimitPerIndex": 1,
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": {"rules": [{
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }]},
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": IMAGE}],
                }},
            },
        }))?;
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), "default");
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let stored = jobs.create(&dry, &job).await?;
        let spec: Value = serde_json::to_value(stored.spec)?;
        Ok(!spec[field].is_null())
    }

    async fn minor(&self) -> Result<u32> {
        let version = self.client.apiserver_version().await?;
        // Some providers write "31+".
        let digits = version.minor.trim_end_matches('+');
        digits
            .parse()
            .with_context(|| format!("minor version {:?}", version.minor))
    }
}
