//! What a user of the operator sees, asserted on a real cluster.
//!
//! A test is an async closure that gets a [`Namespace`] of its own:
//!
//! ```no_run
//! # async fn test() {
//! e2e::in_namespace("pi", async |ns| {
//!     ns.create(&e2e::mpi::pi("pi").workers(2)).await?;
//!     ns.until_succeeded("pi").await?;
//!     Ok(())
//! })
//! .await;
//! # }
//! ```
//!
//! Without `MPI_E2E` in the environment every test says that it skips, and passes. The modules in
//! reading order: [`cluster`] finds the cluster and its tools, [`namespace`] isolates a test and
//! tells what happened when it fails, [`history`] keeps every change of the namespace's objects in
//! the order in which the API server made them, [`wait`] asks questions of that history,
//! [`mpi`] builds MPIJobs and reads their status, [`elastic`] those that shrink and grow,
//! [`operator`] changes the operator's own Deployment for a while, and [`server`] tells what the
//! Kubernetes release lacks.
//!
//! The operator's crate is absent on purpose: nothing here is known that a user could not see.

pub mod cluster;
pub mod elastic;
pub mod history;
pub mod mpi;
pub mod namespace;
pub mod operator;
pub mod server;
pub mod wait;

pub use cluster::Cluster;
pub use namespace::{Namespace, in_namespace};

/// How long a test waits for what takes seconds: the machine may be shared and busy.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(120);

/// How long a test waits for the end of a job.
pub const LATER: std::time::Duration = std::time::Duration::from_secs(300);

/// Issue 5, item 3: a lost worker is Ready again this long after its deletion mark, on a node with
/// room. A bare Indexed Job needs ten seconds to ten minutes.
pub const WORKER_BACK: std::time::Duration = std::time::Duration::from_secs(6);
