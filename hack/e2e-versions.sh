#!/usr/bin/env bash
# A few end-to-end tests on the newest supported Kubernetes, on a cluster of its own beside the
# usual one. After a failure that cluster stays as it is, but in CI.
#
#   hack/e2e-versions.sh                the version that CI runs
#   hack/e2e-versions.sh 1.22           these
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# What depends most on the Job controller of the release: about three minutes in all.
programs=(pi_sample gate_first_start gate_suspend retry_refund worker_loss_deletes retry_restart)
(($# > 0)) || set -- 1.37

# Beside the usual cluster, wherever that one was put.
other_half() { echo "${1%.*}.$(((${1##*.} + 128) % 256))"; }
export MPI_CLUSTER_DIR="$CLUSTER_DIR-versions"
export MPI_CLUSTER_BRIDGE="${BRIDGE}v"
MPI_CLUSTER_POD_PREFIX=$(other_half "$POD_PREFIX")
MPI_CLUSTER_SERVICE_PREFIX=$(other_half "$SERVICE_PREFIX")
export MPI_CLUSTER_POD_PREFIX MPI_CLUSTER_SERVICE_PREFIX
export MPI_CLUSTER_PORT_BASE=$((PORT_BASE - 10000))

for version in "$@"; do
  export KUBERNETES=$version
  "$HACK/e2e.sh" "${programs[@]/#/--test=}"
  "$HACK/cluster.sh" down
done
