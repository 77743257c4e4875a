#!/usr/bin/env bash
# The end-to-end tests (crate e2e) on the local cluster, against the operator of this
# checkout running as a Deployment.
#
#   hack/e2e.sh                             all of them
#   hack/e2e.sh suspend --nocapture         those with "suspend" in their name
#   hack/e2e.sh --test=pi_sample            those of e2e/tests/pi_sample.rs; may come several times
#   KUBERNETES=1.22 hack/e2e.sh             on another release, one of hack/k8s
#
# After a failure the cluster stays as it is, to look at. In CI (CI=true) it is always
# removed in the end, so that nothing goes on running.
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

if [[ ${CI:-} == true ]]; then
  trap '"$HACK/cluster.sh" down' EXIT
fi

programs=()
while [[ ${1:-} == --test=* ]]; do
  program=${1#--test=}
  [[ -f $REPO/e2e/tests/$program.rs ]] || die "no e2e/tests/$program.rs"
  programs+=(--test "$program")
  shift
done

"$HACK/cluster.sh" up
"$HACK/cluster.sh" load "$("$HACK/images.sh" openmpi)"
"$HACK/deploy.sh"

export KUBECONFIG=$KUBECONFIG_FILE
# What the tests may use besides the API: a lost node, the count of writes, kubectl, its plugin.
export MPI_E2E=1
export MPI_E2E_KUBECONFIG=$KUBECONFIG_FILE
export MPI_E2E_CLUSTER_SH="$HACK/cluster.sh"
export MPI_E2E_AUDIT_LOG=$AUDIT_LOG
MPI_E2E_KUBECTL=$("$HACK/cluster.sh" kubectl-path)
export MPI_E2E_KUBECTL

cd "$REPO"
say "building the kubectl plugin"
# With the same packages as below: another choice would mean other features, and a second build of
# kube. The plugin's own tests run once more by that, in less than a second.
packages=(--package e2e --package kubectl-mpi)
cargo build --locked "${packages[@]}" || die "the kubectl plugin does not build"
export MPI_E2E_PLUGIN="${CARGO_TARGET_DIR:-$REPO/target}/debug/kubectl-mpi"

# Said by the server itself: with CLUSTER=kind the version is not ours to choose.
version=$("$HACK/cluster.sh" kubectl get --raw /version | sed -n 's/^ *"gitVersion": "\(.*\)",$/\1/p')
say "running the end-to-end tests on Kubernetes $version"
if ! cargo test --locked "${packages[@]}" --no-fail-fast "${programs[@]}" -- "$@"; then
  echo "---- operator log ----" >&2
  "$HACK/cluster.sh" kubectl --namespace mpi-operator logs deployment/mpi-operator --tail 200 >&2 || true
  echo "---- pods ----" >&2
  "$HACK/cluster.sh" kubectl get pods --all-namespaces -o wide >&2 || true
  [[ ${CI:-} == true ]] || echo "The cluster is still up: export KUBECONFIG=$KUBECONFIG_FILE" >&2
  die "end-to-end tests failed on Kubernetes $version"
fi
