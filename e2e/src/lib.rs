//! What a user of the operator sees, asserted on a real cluster.
