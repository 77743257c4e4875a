//! The API server, asked as the user. Every error here is one line.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::Global;
use crate::mpijob::{MpiJob, near};
use crate::pods;

/// Who changed a field, in `managedFields`.
const FIELD_MANAGER: &str = "kubectl-mpi";

/// How many near names are shown.
const MOST_NEAR: usize = 5;

/// Why an answer did not come.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cluster to ask.
    #[error("no cluster: {0}")]
    NoCluster(String),
    /// There is no such MPIJob.
    #[error("no MPIJob {name} in namespace {namespace}{hint}")]
    NoJob {
        /// What was typed.
        name: String,
        /// Where it was looked for.
        namespace: String,
        /// Near names, or how many jobs there are.
        hint: String,
    },
    /// The cluster does not know MPIJobs.
    #[error("this cluster knows no MPIJobs: the definition mpijobs.kubeflow.org is not installed")]
    NoDefinition,
    /// The object changed since it was looked at.
    #[error("cannot {what}: it changed at the same moment, again and again")]
    Conflict {
        /// The call.
        what: String,
    },
    /// Anything else.
    #[error("cannot {what}: {why}")]
    Call {
        /// The call.
        what: String,
        /// The server's sentence, or what the network said.
        why: String,
    },
}

/// A cluster, and the namespace that is meant.
pub struct Cluster {
    client: Client,
    /// From `-n`, or the context's.
    pub namespace: String,
    timeout: Option<Duration>,
}

fn mpijobs() -> ApiResource {
    let kind = GroupVersionKind::gvk("kubeflow.org", "v2beta1", "MPIJob");
    ApiResource::from_gvk_with_plural(&kind, "mpijobs")
}

impl Cluster {
    /// Reads the kubeconfig as kubectl does, or the pod's own account if there is none.
    ///
    /// # Errors
    /// If there is no usable configuration. Nothing is asked yet.
    pub async fn connect(global: &Global) -> Result<Self, Error> {
        let told = |error: &dyn std::error::Error| Error::NoCluster(chain(error));
        let options = KubeConfigOptions {
            context: global.context.clone(),
            ..KubeConfigOptions::default()
        };
        let read = match &global.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let mut config = match read {
            Ok(file) => Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|error| told(&error))?,
            Err(error) if global.kubeconfig.is_some() || global.context.is_some() => {
                return Err(told(&error));
            }
            Err(error) => Config::incluster().map_err(|_| told(&error))?,
        };
        if let Some(user) = &global.as_user {
            config.auth_info.impersonate = Some(user.clone());
        }
        if !global.as_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(global.as_groups.clone());
        }
        let namespace = global.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self {
            client: Client::try_from(config).map_err(|error| told(&error))?,
            namespace,
            timeout: global.request_timeout,
        })
    }

    fn jobs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &mpijobs())
    }

    /// Waits for one answer, for as long as the user said.
    async fn answer<T>(
        &self,
        what: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        let result = match self.timeout {
            None => call.await,
            Some(limit) => tokio::time::timeout(limit, call)
                .await
                .map_err(|_| Failed {
                    code: None,
                    error: Error::Call {
                        what: what.to_owned(),
                        why: format!("no answer within {limit:?} (--request-timeout)"),
                    },
                })?,
        };
        result.map_err(|error| failed(what, &error))
    }

    /// MPIJobs of the namespace, or of all.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn list(&self, all_namespaces: bool) -> Result<Vec<MpiJob>, Error> {
        let api = if all_namespaces {
            Api::all_with(self.client.clone(), &mpijobs())
        } else {
            self.jobs()
        };
        let every = ListParams::default();
        let list = self
            .answer("read MPIJobs", api.list(&every))
            .await
            .map_err(|failed| match failed.code {
                Some(404) => Error::NoDefinition,
                _ => failed.error,
            })?;
        list.items.into_iter().map(job).collect()
    }

    /// One MPIJob.
    ///
    /// # Errors
    /// If it is not there, or cannot be read.
    pub async fn get(&self, name: &str) -> Result<MpiJob, Error> {
        let what = format!("read MPIJob {name}");
        match self.answer(&what, self.jobs().get(name)).await {
            Ok(object) => job(object),
            Err(failed) if failed.code == Some(404) => Err(self.no_job(name).await),
            Err(failed) => Err(failed.error),
        }
    }

    /// Says which jobs there are instead.
    async fn no_job(&self, name: &str) -> Error {
        let hint = match self.list(false).await {
            Err(Error::NoDefinition) => return Error::NoDefinition,
            // Whoever may read one job only gets no hint.
            Err(_) => String::new(),
            Ok(jobs) => {
                let names: Vec<&str> = jobs.iter().map(MpiJob::name).collect();
                let mut near = near(name, &names);
                near.truncate(MOST_NEAR);
                match (near.is_empty(), names.len()) {
                    (false, _) => format!("; did you mean {}?", near.join(", ")),
                    (true, 0) => "; there are no MPIJobs there".to_owned(),
                    (true, 1) => "; there is 1 MPIJob there".to_owned(),
                    (true, count) => format!("; there are {count} MPIJobs there"),
                }
            }
        };
        Error::NoJob {
            name: name.to_owned(),
            namespace: self.namespace.clone(),
            hint,
        }
    }

    /// Objects of type `K`, called `what`, that carry the labels of MPIJob `job`.
    ///
    /// # Errors
    /// One line that says why they cannot be read.
    pub async fn of_job<K>(&self, what: &str, job: &str) -> Result<Vec<K>, String>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let labelled = ListParams::default().labels(&pods::selector(job));
        let list = self
            .answer(&format!("read {what}"), api.list(&labelled))
            .await;
        list.map(|list| list.items)
            .map_err(|failed| failed.error.to_string())
    }

    /// Events about an MPIJob.
    ///
    /// # Errors
    /// One line that says why they cannot be read.
    pub async fn events(&self, job: &MpiJob) -> Result<Vec<Event>, String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = format!(
            "involvedObject.kind=MPIJob,involvedObject.uid={}",
            job.uid()
        );
        let about = ListParams::default().fields(&about);
        let list = self.answer("read events", api.list(&about)).await;
        list.map(|list| list.items)
            .map_err(|failed| failed.error.to_string())
    }

    /// Merge-patches an MPIJob. None: it changed since the version that the patch carries.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn patch(&self, name: &str, patch: &Value) -> Result<Option<MpiJob>, Error> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let jobs = self.jobs();
        let patch = Patch::Merge(patch);
        let call = jobs.patch(name, &params, &patch);
        match self.answer(&format!("change MPIJob {name}"), call).await {
            Ok(object) => job(object).map(Some),
            Err(failed) if failed.code == Some(409) => Ok(None),
            Err(failed) => Err(failed.error),
        }
    }
}

struct Failed {
    code: Option<u16>,
    error: Error,
}

fn failed(what: &str, error: &kube::Error) -> Failed {
    let (code, why) = match error {
        kube::Error::Api(status) => (Some(status.code), status.message.clone()),
        other => (None, chain(other)),
    };
    let what = what.to_owned();
    Failed {
        code,
        error: Error::Call { what, why },
    }
}

/// An error and its causes; a cause that the text before it tells already is left out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let told = next.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = next.source();
    }
    text
}

fn job(object: DynamicObject) -> Result<MpiJob, Error> {
    let mut value = serde_json::to_value(object).map_err(|error| Error::Call {
        what: "read an MPIJob".to_owned(),
        why: error.to_string(),
    })?;
    // Items of a list may come without them.
    let fields = [("apiVersion", "kubeflow.org/v2beta1"), ("kind", "MPIJob")];
    for (field, text) in fields {
        if value[field].is_null() {
            value[field] = text.into();
        }
    }
    Ok(MpiJob::new(value))
}
