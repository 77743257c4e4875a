//! The `kubeflow.org/v2beta1` API: types as on the wire, defaults, checks, names and reasons.
//!
//! Nothing here talks to a server or reads a clock. [`mpijob`] holds the wire types,
//! [`validate::validate`] turns a decoded spec into a [`validate::ValidJob`] with every default
//! filled in, [`names`] derives every object name, label and path, and [`reasons`] is the list of
//! all condition types, reasons and event reasons. [`crd`] writes the CustomResourceDefinition.

pub mod crd;
pub mod defaults;
pub mod depth;
pub mod mpijob;
pub mod names;
pub mod reasons;
pub mod validate;
