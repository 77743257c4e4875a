//! The operator's own Deployment: who leads, and other flags for a while. Only for tests that run
//! beside no others.

use std::panic::{AssertUnwindSafe, resume_unwind};

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::OPERATOR;
use crate::wait::poll;
use crate::{Cluster, SOON};

impl Cluster {
    /// The operator pod that holds the Lease; `None` if nobody does, or its pod is gone.
    pub async fn leader(&self) -> Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), OPERATOR);
        let lease = leases.get_opt(OPERATOR).await?;
        let holder = lease
            .and_then(|l| l.spec)
            .and_then(|s| s.holder_identity)
            .unwrap_or_default();
        let pods = self.operator_pods().await?;
        Ok(pods
            .iter()
            .map(ResourceExt::name_any)
            .find(|name| holder.starts_with(&format!("{name}_"))))
    }

    /// Waits until an operator pod leads that is not `but`.
    pub async fn until_leads(&self, but: Option<&str>) -> Result<String> {
        poll("another operator pod to lead", SOON, async || {
            Ok(self.leader().await?.filter(|name| Some(&**name) != but))
        })
        .await
    }

    /// Runs `body` while the operator has `flags` behind its own, and takes them off again in any
    /// case.
    pub async fn with_operator_flags(
        &self,
        flags: &[&str],
        body: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = self.operator_flags().await?;
        let mut with = before.clone();
        with.extend(flags.iter().map(|&flag| flag.to_owned()));
        let result = async {
            self.set_operator_flags(&with).await?;
            AssertUnwindSafe(body()).catch_unwind().await.map_or_else(
                |panic| Ok(Err(panic)),
                |result| result.map(Ok::<(), Box<dyn std::any::Any + Send>>),
            )
        }
        .await;
        self.set_operator_flags(&before)
            .await
            .context("giving the operator its own flags back")?;
        match result? {
            Ok(()) => Ok(()),
            Err(panic) => resume_unwind(panic),
        }
    }

    async fn operator_flags(&self) -> Result<Vec<String>> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), OPERATOR);
        let deployment = serde_json::to_value(deployments.get(OPERATOR).await?)?;
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        Ok(serde_json::from_value::<Option<Vec<String>>>(args.clone())?.unwrap_or_default())
    }

    /// Sets the flags and waits until one operator with them is left and leads.
    async fn set_operator_flags(&self, flags: &[String]) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), OPERATOR);
        let patch = json!({"spec": {"template": {"spec": {
            "containers": [{"name": OPERATOR, "args": flags}],
        }}}});
        deployments
            .patch(OPERATOR, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .context("setting the operator's flags")?;
        poll("one ready operator with the flags", SOON, async || {
            let pods = self.operator_pods().await?;
            let [pod] = pods.as_slice() else {
                return Ok(None);
            };
            let has = serde_json::to_value(&pod.spec)?["containers"][0]["args"].clone();
            let ours = has == Value::from(flags.to_vec());
            Ok((ours && crate::mpi::is_ready(pod)).then_some(()))
        })
        .await?;
        self.until_leads(None).await?;
        Ok(())
    }
}
