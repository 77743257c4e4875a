//! mpi-operator: a Kubernetes operator that serves the `kubeflow.org/v2beta1` MPIJob.
//!
//! The flow, in the order of the modules: [`watch`] turns the API server's streams into changes;
//! [`facts`] indexes them by owner UID and wakes the [`queue`]; [`reconcile`] takes one MPIJob at a
//! time, asks [`plan`] what to do, and hands the [`action`]s to [`write`](mod@write), which also
//! writes the status and then the events. [`plan`] is pure; nothing else decides. [`api`] is what
//! all of them speak. [`runtime`] starts and ends the tasks; [`args`], [`lease`], [`metrics`] and
//! [`serve`] are the process around it.

pub mod api;

pub mod watch;

pub mod facts;

pub mod queue;

pub mod reconcile;

pub mod plan;

pub mod action;

pub mod write;

pub mod args;
pub mod lease;
pub mod metrics;
pub mod runtime;
pub mod serve;
