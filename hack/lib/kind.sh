# The same commands on a kind cluster (CLUSTER=kind), for machines with Docker. Sourced.
# shellcheck shell=bash

kind_check() {
  command -v docker >/dev/null || die "CLUSTER=kind: docker is missing"
  command -v kind >/dev/null || die "CLUSTER=kind: kind is missing"
  command -v kubectl >/dev/null || die "CLUSTER=kind: kubectl is missing"
  docker info >/dev/null 2>&1 || die "CLUSTER=kind: docker does not answer (is it running, may you use it?)"
}

kind_exists() { kind get clusters 2>/dev/null | grep -qxF "$KIND_NAME"; }
kind_kubectl() { command -v kubectl || die "kubectl is missing"; }

kind_up() {
  kind_check
  mkdir -p "$CLUSTER_DIR/log"
  if kind_exists; then
    say "the kind cluster $KIND_NAME is already up"
  else
    say "making the kind cluster $KIND_NAME"
    # Set by the user where the release that kind brings is not the wanted one.
    kind create cluster --name "$KIND_NAME" --kubeconfig "$KUBECONFIG_FILE" --wait 120s \
      ${MPI_KIND_IMAGE:+--image "$MPI_KIND_IMAGE"} --config - <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
- role: worker
- role: worker
YAML
  fi
  kind export kubeconfig --name "$KIND_NAME" --kubeconfig "$KUBECONFIG_FILE"
}

kind_down() {
  kind_check
  kind delete cluster --name "$KIND_NAME" --kubeconfig "$KUBECONFIG_FILE"
}

kind_status() {
  kind_check
  kind_exists || die "there is no kind cluster $KIND_NAME"
  kubectl --kubeconfig "$KUBECONFIG_FILE" get nodes -o wide
}

kind_load() {
  kind_check
  kind load image-archive --name "$KIND_NAME" "$1"
}

# A node of kind is a container: paused, it is silent, and so are its pods.
kind_node_stop() { docker pause "$1" >/dev/null; }
kind_node_start() { docker unpause "$1" >/dev/null; }
