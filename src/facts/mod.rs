//! Step 2 of the flow: what the watches said, indexed by owner UID.
//!
//! [`index::Index`] takes [`index::Change`]s and answers with the MPIJobs they touch;
//! [`observed::Observed`] is the immutable snapshot of one MPIJob that the planner gets. Nothing
//! here talks to a server; the answers to our own writes come in by the same door as watch events,
//! so a pass that follows a write sees it even when the watch lags.

pub mod index;
pub mod observed;
