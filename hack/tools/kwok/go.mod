// kwok (simulated nodes), built by "hack/cluster.sh kwok" only.
module mpi-operator.local/hack/tools/kwok

go 1.26.0

tool sigs.k8s.io/kwok/cmd/kwok

require sigs.k8s.io/kwok v0.7.0
