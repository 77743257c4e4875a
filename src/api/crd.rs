//! CRD.
