#!/usr/bin/env bash
# The cluster for development and tests. Needs Linux, root and Go; Debian packages
# that are missing are installed. With CLUSTER=kind it is a kind cluster instead.
#
#   hack/cluster.sh up                 bring it up (again: returns at once)
#   hack/cluster.sh build              only build its programs, which up does when they are missing
#   hack/cluster.sh down               remove it, with all it left on the machine
#   hack/cluster.sh status             its parts and nodes; exit code 0 if healthy
#   hack/cluster.sh kubeconfig         print the path of its kubeconfig
#   hack/cluster.sh kubectl ARGS...    kubectl of the cluster's version, for this cluster
#   hack/cluster.sh kubectl-path       print the path of that kubectl
#   hack/cluster.sh load FILE.tar...   import images (docker archives) into all nodes
#   hack/cluster.sh node-stop NODE     lose a node: kubelet silent, containers dead
#   hack/cluster.sh node-start NODE    have it back
#   hack/cluster.sh kwok N             add N simulated nodes (0 removes them)
#
# Settings from the environment, with their defaults:
#   KUBERNETES=1.36                    a folder of hack/k8s
#   MPI_CLUSTER_DIR=<checkout>/.cluster
#   MPI_CACHE_DIR=~/.cache/mpi-operator          built programs and images
#   MPI_CLUSTER_BRIDGE=mpibr0  MPI_CLUSTER_POD_PREFIX=10.244  MPI_CLUSTER_SERVICE_PREFIX=10.96
#   MPI_CLUSTER_PORT_BASE=26400                  a second cluster needs its own of these five
#   MPI_NODE_MONITOR_GRACE=20s                   a silent node becomes NotReady after this
#   MPI_NODE_TOLERATION_SECONDS=20               and its pods are deleted after this
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=hack/lib/build.sh
source "$HACK/lib/build.sh"
# shellcheck source=hack/lib/images.sh
source "$HACK/lib/images.sh"
# shellcheck source=hack/lib/local.sh
source "$HACK/lib/local.sh"
# shellcheck source=hack/lib/kwok.sh
source "$HACK/lib/kwok.sh"
# shellcheck source=hack/lib/kind.sh
source "$HACK/lib/kind.sh"

usage() { sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# up and down of one cluster never run at the same time; whoever comes second waits.
with_cluster_lock() {
  # Before anything is written: not to root's cache, and not for nothing.
  [[ $CLUSTER != local ]] || need_root
  mkdir -p "$CACHE/lock"
  exec 8>"$CACHE/lock/cluster-$CLUSTER-$BRIDGE"
  flock -n 8 || {
    say "waiting for another hack/cluster.sh on the same cluster"
    flock 8
  }
  "$@"
}

[[ $CLUSTER == local || $CLUSTER == kind ]] || die "CLUSTER=$CLUSTER: it is local or kind"
command=${1:-help}
(($# == 0)) || shift
case $command in
  up | down) with_cluster_lock "${CLUSTER}_$command" ;;
  build) build_programs ;;
  status) "${CLUSTER}_status" ;;
  kubeconfig) echo "$KUBECONFIG_FILE" ;;
  kubectl-path) "${CLUSTER}_kubectl" ;;
  kubectl)
    [[ -f $KUBECONFIG_FILE ]] || die "there is no cluster: hack/cluster.sh up"
    exec "$("${CLUSTER}_kubectl")" --kubeconfig "$KUBECONFIG_FILE" "$@"
    ;;
  load)
    (($# > 0)) || die "load needs the path of a docker archive"
    for archive in "$@"; do
      [[ -f $archive ]] || die "no such file: $archive"
      "${CLUSTER}_load" "$archive"
    done
    ;;
  node-stop | node-start)
    (($# == 1)) || die "usage: hack/cluster.sh $command NODE"
    "${CLUSTER}_${command/-/_}" "$1"
    ;;
  kwok)
    (($# == 1)) || die "usage: hack/cluster.sh kwok N"
    with_cluster_lock kwok_nodes "$1"
    ;;
  help | -h | --help) usage ;;
  *)
    usage >&2
    die "unknown command: $command"
    ;;
esac
