# Simulated nodes, for scale: objects that kwok plays the kubelet of. Sourced.
# shellcheck shell=bash

kwok_nodes() { # N, counted from kwok-0; more or fewer than before is fine
  local n=$1 i
  [[ $n =~ ^[0-9]+$ ]] || die "kwok N: a number of nodes, not $n"
  [[ $CLUSTER == local ]] || die "simulated nodes are made in the local cluster only"
  is_healthy || die "there is no healthy cluster: hack/cluster.sh up"
  if ((n > 0)); then
    build_kwok
    if ! is_running kwok; then
      # Addresses nobody answers at: inside the pods' network, so that nothing is sent
      # elsewhere, and outside of both nodes' ranges.
      start kwok "$(program kwok)" --kubeconfig "$KUBECONFIG_FILE" --config "$HACK/lib/kwok-stages.yaml" \
        --manage-nodes-with-label-selector type=kwok \
        --node-ip "$POD_PREFIX.254.1" --cidr "$POD_PREFIX.128.0/18" --node-lease-duration-seconds 40
    fi
  fi
  # Too many ones go first, together with their pods.
  kctl get nodes -l type=kwok -o name | while read -r i; do
    ((${i#node/kwok-} < n)) || echo "$i"
  done | xargs -r "$(program kubectl)" --kubeconfig "$KUBECONFIG_FILE" delete --wait=false >/dev/null
  for ((i = 0; i < n; i++)); do
    # The taint keeps pods away that do not ask for simulated nodes.
    cat <<YAML
---
apiVersion: v1
kind: Node
metadata:
  name: kwok-$i
  labels: {type: kwok, kubernetes.io/hostname: kwok-$i, kubernetes.io/os: linux, kubernetes.io/role: agent}
  annotations: {kwok.x-k8s.io/node: fake}
spec:
  taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]
YAML
  done >"$CLUSTER_DIR/kwok-nodes.yaml"
  if ((n == 0)); then
    if is_running kwok; then
      kill -KILL "$(cat "$RUN_DIR/kwok.pid")"
      rm -f "$RUN_DIR/kwok.pid"
    fi
    say "no simulated nodes"
    return 0
  fi
  kctl apply --server-side -f "$CLUSTER_DIR/kwok-nodes.yaml" >"$LOG/kwok-nodes.log" 2>&1 || {
    show_log "$LOG/kwok-nodes.log"
    die "could not create the simulated nodes"
  }
  wait_for kwok 120 node_is_ready "kwok-$((n - 1))"
  say "$n simulated nodes: nodeSelector type: kwok, toleration kwok.x-k8s.io/node=fake:NoSchedule"
}
