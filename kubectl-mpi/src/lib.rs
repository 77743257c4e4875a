//! `kubectl mpi`: MPIJobs as a user thinks of them. Workers have indexes, the launcher has tries,
//! and the random suffix of a pod's name is not for people.
//!
//! It talks to the API server alone, with the user's rights, and knows of the operator only what
//! stands in its objects: the MPIJob, and pods and Jobs by their labels. It does not depend on the
//! operator's crate.
//!
//! `logs` and `exec` find the pod and then hand over to `kubectl` by exec(2) ([`handover`]). A
//! plugin has kubectl beside it; and kubectl already has what is long to get right: raw mode and
//! window sizes of a terminal, both streaming protocols, signals, its own flags and messages. The
//! other way would need a WebSocket client and a terminal crate here.
//!
//! The modules in reading order: [`args`] is what was typed; [`run`] does it; [`cluster`] alone
//! calls the API server. The others are pure: [`mpijob`] and [`pods`] read objects, [`view`] turns
//! them into what is shown, [`scale_in`] decides which change removes which workers, [`table`]
//! writes columns and ages.

pub mod args;
pub mod cluster;
pub mod handover;
pub mod mpijob;
pub mod pods;
pub mod run;
pub mod scale_in;
pub mod table;
pub mod view;
