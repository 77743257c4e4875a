# The parts of the local cluster and the flags that matter. Sourced by local.sh.
# shellcheck shell=bash

start_etcd() {
  # Nothing here has to survive a power cut, and without fsync a slow disk does not matter.
  start etcd "$(program etcd)" --data-dir "$CLUSTER_DIR/etcd" --unsafe-no-fsync \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
    --initial-cluster "default=http://127.0.0.1:$ETCD_PEER_PORT" --log-level warn
}

start_apiserver() {
  # Who wrote what, and how often: one line for each write. Of the operator also one for each read,
  # which a test compares with its roles.
  cat >"$CLUSTER_DIR/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:mpi-operator:mpi-operator"]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
YAML
  local flags=(
    --etcd-servers "http://127.0.0.1:$ETCD_PORT"
    --secure-port "$API_PORT" --advertise-address "$HOST_IP"
    --client-ca-file "$PKI/ca.crt" --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key"
    --service-cluster-ip-range "$SERVICE_PREFIX.0.0/16"
    --service-account-issuer https://kubernetes.default.svc.cluster.local
    --service-account-key-file "$PKI/service-account.pub" --service-account-signing-key-file "$PKI/service-account.key"
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged
    --kubelet-client-certificate "$PKI/admin.crt" --kubelet-client-key "$PKI/admin.key"
    # Node names resolve nowhere: without this, logs and exec try them first.
    --kubelet-preferred-address-types InternalIP
    # Webhooks are called at the address of a pod; there is no kube-proxy for their service.
    --enable-aggregator-routing
    --default-not-ready-toleration-seconds "$NODE_TOLERATION_SECONDS"
    --default-unreachable-toleration-seconds "$NODE_TOLERATION_SECONDS"
    --audit-policy-file "$CLUSTER_DIR/audit-policy.yaml" --audit-log-path "$AUDIT_LOG" --audit-log-maxsize 1000
  )
  start kube-apiserver "$(program kube-apiserver)" "${flags[@]}"
}

start_controllers() {
  # No election: there is one of each, and it would only delay the start. Their default
  # rates (20 and 50 calls a second) would be what a test of many pods measures.
  start kube-controller-manager "$(program kube-controller-manager)" \
    --kubeconfig "$PKI/controller-manager.kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "$CONTROLLER_MANAGER_PORT" \
    --use-service-account-credentials --service-account-private-key-file "$PKI/service-account.key" \
    --root-ca-file "$PKI/ca.crt" \
    --kube-api-qps 200 --kube-api-burst 400 \
    --node-monitor-grace-period "$NODE_MONITOR_GRACE" --node-monitor-period 2s
  local flags=()
  # Up to 1.22 it also serves without keys, on one port for all clusters of a machine.
  at_least 23 || flags+=(--port 0)
  start kube-scheduler "$(program kube-scheduler)" \
    --kubeconfig "$PKI/scheduler.kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "$SCHEDULER_PORT" \
    --kube-api-qps 200 --kube-api-burst 400 "${flags[@]}"
}

start_coredns() {
  # Short lives: a name that was asked for too early must not stay unknown for long.
  cat >"$CLUSTER_DIR/Corefile" <<COREFILE
.:53 {
    bind $HOST_IP
    errors
    health 127.0.0.1:$COREDNS_HEALTH_PORT
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $PKI/coredns.kubeconfig
        ttl 5
    }
    cache 5
}
COREFILE
  start coredns "$(program coredns)" -conf "$CLUSTER_DIR/Corefile"
}

# Up to 1.29 a kubelet keeps the logs of pods in /var/log/pods and deletes there what is not of a
# pod of its own. So that nodes do not delete each other's, a node of such a release has a mount
# namespace of its own, in which that folder is one of the node's.
start_on_node() { # NODE PART COMMAND...
  local node=$1 part=$2 dir="$CLUSTER_DIR/$1"
  shift 2
  if at_least 30; then
    start "$node.$part" "$@"
  elif [[ $part == containerd ]]; then
    mkdir -p /var/log/pods /var/log/containers "$dir/pod-logs" "$dir/container-logs"
    # shellcheck disable=SC2016  # expanded by that shell
    start "$node.$part" unshare --mount sh -c \
      'mount --bind "$0/pod-logs" /var/log/pods && mount --bind "$0/container-logs" /var/log/containers && exec "$@"' "$dir" "$@"
  else
    start "$node.$part" nsenter --mount="/proc/$(cat "$RUN_DIR/$node.containerd.pid")/ns/mnt" "$@"
  fi
}

start_containerd() { # NODE
  local node=$1 dir="$CLUSTER_DIR/$1" run="$RUN_DIR/$1" n cni_bin=/usr/lib/cni snapshotter=overlayfs
  n=$(node_number "$node")
  [[ -x $cni_bin/bridge ]] || cni_bin=/opt/cni/bin
  # Overlays cannot be stacked on an overlay, as inside a container.
  [[ $(stat -fc %T "$dir") == overlayfs ]] && snapshotter=native
  mkdir -p "$run" "$dir/cni"
  # Addresses are given out in turn, which is on record in dataDir. With one for all nodes the turn
  # would begin anew each time, and a pod would get the address of one that went a moment ago: the
  # neighbours' caches send its packets to the old one for up to a minute.
  cat >"$dir/cni/10-bridge.conflist" <<JSON
{
  "cniVersion": "0.4.0", "name": "$CNI_NETWORK",
  "plugins": [{
    "type": "bridge", "bridge": "$BRIDGE", "isGateway": true,
    "ipam": {
      "type": "host-local", "dataDir": "$RUN_DIR/ipam/$node",
      "ranges": [[{
        "subnet": "$POD_PREFIX.0.0/16", "gateway": "$HOST_IP",
        "rangeStart": "$POD_PREFIX.$n.1", "rangeEnd": "$POD_PREFIX.$n.254"
      }]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
JSON
  cat >"$dir/containerd.toml" <<TOML
version = 2
root = "$dir/containerd"
state = "$run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "$run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/mpi-operator/pause:dev"
  # Without CAP_SYS_RESOURCE runc may not lower a score and fails with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  # Below our folder under /run, where "down" finds them.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni_bin"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "$run/runc"
        SystemdCgroup = false
TOML
  start_on_node "$node" containerd containerd --config "$dir/containerd.toml"
}

start_kubelet() { # NODE
  local node=$1 dir="$CLUSTER_DIR/$1" n flags=()
  n=$(node_number "$node")
  mkdir -p "$dir/kubelet" "$dir/pod-logs"
  : >"$dir/resolv.conf" # pods ask CoreDNS and nobody else
  cat >"$dir/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $(node_ip "$node")
port: $((PORT_BASE + 60 + n))
healthzBindAddress: 127.0.0.1
healthzPort: $((PORT_BASE + 70 + n))
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
$(! at_least 27 || echo "containerRuntimeEndpoint: unix://$(node_socket "$node")")
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$node
enforceNodeAllocatable: []
$(! at_least 35 || echo "failCgroupV1: false")
$(! at_least 30 || echo "podLogsDir: $dir/pod-logs")
failSwapOn: false
volumePluginDir: $dir/plugins
resolvConf: $dir/resolv.conf
clusterDNS: [$HOST_IP]
clusterDomain: cluster.local
makeIPTablesUtilChains: false
# Images are imported and cannot be pulled again: never collect them.
imageGCHighThresholdPercent: 100
# The machine is shared; pods are not evicted because something else fills its disk.
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
maxPods: 250
kubeAPIQPS: 100
kubeAPIBurst: 200
eventRecordQPS: 100
eventBurst: 200
YAML
  # Up to 1.23 the default is Docker; up to 1.26 the socket is a flag.
  at_least 24 || flags+=(--container-runtime remote)
  at_least 27 || flags+=(--container-runtime-endpoint "unix://$(node_socket "$node")")
  start_on_node "$node" kubelet "$(program kubelet)" --config "$dir/kubelet.yaml" \
    --kubeconfig "$PKI/$node.kubeconfig" --root-dir "$dir/kubelet" --cert-dir "$dir/kubelet-pki" \
    --hostname-override "$node" --node-ip "$(node_ip "$node")" "${flags[@]}"
}
