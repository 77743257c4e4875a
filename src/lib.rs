//! mpi-operator.
