# A Kubernetes cluster on this machine: control plane as processes, two kubelets,
# each with a containerd of its own. No container engine is needed. Sourced.
# shellcheck shell=bash

# Sockets, pid files and mounts of one cluster live under /run: short paths (a socket's
# is limited to 107 bytes) and gone after a reboot. "owner" in it names the cluster folder,
# which is how a later checkout finds and removes what a dead one left.
RUN_DIR="/run/mpi-cluster-$BRIDGE"
CGROUP="mpi-cluster-$BRIDGE"
CNI_NETWORK="mpi-$BRIDGE"
IPTABLES_COMMENT="mpi-cluster:$BRIDGE"
NODES=(node-1 node-2)

HOST_IP="$POD_PREFIX.0.1" # the bridge: gateway and name server of all pods
SERVICE_IP="$SERVICE_PREFIX.0.1"
API_PORT=$((PORT_BASE + 43))
ETCD_PORT=$((PORT_BASE + 79))
ETCD_PEER_PORT=$((PORT_BASE + 80))
CONTROLLER_MANAGER_PORT=$((PORT_BASE + 57))
SCHEDULER_PORT=$((PORT_BASE + 59))
COREDNS_HEALTH_PORT=$((PORT_BASE + 53))

# Pods of a lost node are deleted after this long; Kubernetes' own default is 300.
NODE_TOLERATION_SECONDS=${MPI_NODE_TOLERATION_SECONDS:-20}

LOG="$CLUSTER_DIR/log"
PKI="$CLUSTER_DIR/pki"

node_number() { echo "${1#node-}"; }
node_ip() { echo "$POD_PREFIX.255.$(node_number "$1")"; }
node_socket() { echo "$RUN_DIR/$1/containerd.sock"; }
local_kubectl() { program kubectl; }
kctl() { "$(program kubectl)" --kubeconfig "$KUBECONFIG_FILE" "$@"; }

# ---- processes ----

# Every process carries this in its environment (containerd hands it on to its shims),
# so that ours are found by it and by nothing else, even after pid files are lost.
MARK="MPI_CLUSTER_RUN=$RUN_DIR"

start() { # NAME COMMAND...
  local name=$1
  shift
  # 8 is the lock of this script: a process that kept it open would hold it for ever.
  env "$MARK" setsid "$@" >"$LOG/$name.log" 2>&1 </dev/null 8>&- 9>&- &
  echo $! >"$RUN_DIR/$name.pid"
}

is_ours() { # PID; one that has just ended, or may not be looked at, is not
  grep -qszxF "$MARK" "/proc/$1/environ"
}

is_running() { # NAME
  local pid
  pid=$(cat "$RUN_DIR/$1.pid" 2>/dev/null) && [[ -n $pid ]] && is_ours "$pid"
}

our_pids() {
  { grep -lszxF "$MARK" /proc/[0-9]*/environ || true; } | cut -d/ -f3
}

# Waits until COMMAND succeeds. A process that died, or time over, ends the run with
# the name of the part, the end of its log and what to do.
wait_for() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 started=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    if ! is_running "$name"; then
      show_log "$LOG/$name.log"
      die "$name has ended during start-up. Logs: $LOG. Clean up with: hack/cluster.sh down"
    fi
    if ((SECONDS - started >= limit)); then
      show_log "$LOG/$name.log"
      die "$name is not ready after $limit s. Logs: $LOG. Clean up with: hack/cluster.sh down"
    fi
    sleep 0.2
  done
}

# ---- keys ----

make_ca() {
  openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/ca.key" &&
    openssl req -x509 -new -key "$PKI/ca.key" -subj "/CN=mpi-cluster" -days 3650 -out "$PKI/ca.crt"
}

make_cert() { # NAME SUBJECT [SUBJECT_ALT_NAMES]
  local name=$1 subject=$2 names=${3:-}
  {
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [[ -z $names ]] || echo "subjectAltName=$names"
  } >"$PKI/$name.ext"
  openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/$name.key" &&
    openssl req -new -key "$PKI/$name.key" -subj "$subject" -out "$PKI/$name.csr" &&
    openssl x509 -req -in "$PKI/$name.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
      -days 3650 -extfile "$PKI/$name.ext" -out "$PKI/$name.crt"
}

make_kubeconfig() { # NAME OUTPUT: keys inside, so that the file can be copied anywhere
  cat >"$2" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: mpi
  cluster:
    server: https://127.0.0.1:$API_PORT
    certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 <"$PKI/$1.crt")
    client-key-data: $(base64 -w0 <"$PKI/$1.key")
contexts:
- name: mpi
  context: {cluster: mpi, user: $1}
current-context: mpi
YAML
  chmod 600 "$2"
}

make_pki() {
  local node
  make_ca
  make_cert apiserver /CN=kube-apiserver \
    "IP:127.0.0.1,IP:$SERVICE_IP,IP:$HOST_IP,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  make_cert admin /O=system:masters/CN=admin
  make_cert controller-manager /CN=system:kube-controller-manager
  make_cert scheduler /CN=system:kube-scheduler
  # Read-only by what it asks for; not worth roles of its own in a cluster for tests.
  make_cert coredns /O=system:masters/CN=coredns
  for node in "${NODES[@]}"; do
    make_cert "$node" "/O=system:nodes/CN=system:node:$node"
  done
  openssl genrsa -out "$PKI/service-account.key" 2048
  openssl rsa -in "$PKI/service-account.key" -pubout -out "$PKI/service-account.pub"
  make_kubeconfig admin "$KUBECONFIG_FILE"
  for node in controller-manager scheduler coredns "${NODES[@]}"; do
    make_kubeconfig "$node" "$PKI/$node.kubeconfig"
  done
}

# ---- network ----

rule() { # TABLE CHAIN MATCH...: rules are found again by their comment
  local table=$1 chain=$2
  shift 2
  iptables -w -t "$table" -I "$chain" -m comment --comment "$IPTABLES_COMMENT" "$@"
}

network_up() {
  local node
  ip link add "$BRIDGE" type bridge
  ip addr add "$HOST_IP/16" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  for node in "${NODES[@]}"; do
    # Not 127.x, which a kubelet refuses as a node's address.
    ip addr add "$(node_ip "$node")/32" dev lo
  done
  # A service address that nothing translates must fail at once and never leave the machine.
  ip route add unreachable "$SERVICE_PREFIX.0.0/16"
  cat /proc/sys/net/ipv4/ip_forward >"$RUN_DIR/ip_forward"
  echo 1 >/proc/sys/net/ipv4/ip_forward
  # The one service that pods need is the API server's. Others are headless here, so there
  # is no kube-proxy, whose chains two clusters on one machine would share.
  rule nat PREROUTING -i "$BRIDGE" -d "$SERVICE_IP" -p tcp --dport 443 -j DNAT --to-destination "$HOST_IP:$API_PORT"
  # Inserted first, so it ends up behind the accept: pods reach each other, and nothing else.
  rule filter FORWARD -i "$BRIDGE" -j REJECT
  rule filter FORWARD -i "$BRIDGE" -o "$BRIDGE" -j ACCEPT
}

network_down() {
  local table line node
  for table in nat filter; do
    # -S prints each rule as the arguments that would add it; -D in place of -A removes it.
    iptables -w -t "$table" -S 2>/dev/null | grep -F -- "$IPTABLES_COMMENT" | sed 's/^-A /-D /; s/"//g' |
      while read -r line; do
        # shellcheck disable=SC2086  # the line is a list of arguments
        iptables -w -t "$table" $line || true
      done
  done
  ip link del "$BRIDGE" 2>/dev/null || true
  ip route del unreachable "$SERVICE_PREFIX.0.0/16" 2>/dev/null || true
  for node in "${NODES[@]}"; do
    ip addr del "$(node_ip "$node")/32" dev lo 2>/dev/null || true
  done
  # A pod's results are named NETWORK-SANDBOX-INTERFACE; its loopback's network is not ours alone.
  local result sandbox
  for result in /var/lib/cni/results/"$CNI_NETWORK"-*; do
    sandbox=${result##*/"$CNI_NETWORK"-}
    [[ ! -e $result ]] || rm -f /var/lib/cni/results/*-"${sandbox%-*}"-*
  done
  if [[ $(cat "$RUN_DIR/ip_forward" 2>/dev/null) == 0 ]] && ! compgen -G '/run/mpi-cluster-*/owner' | grep -qv "^$RUN_DIR/"; then
    echo 0 >/proc/sys/net/ipv4/ip_forward
  fi
}

# ---- cgroups ----

is_cgroup_v2() { [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; }

# All places where a cgroup of ours can be: one per hierarchy with version 1 (and with
# version 2 mounted beside it, as systemd and runc do).
cgroup_mounts() {
  local dir
  if is_cgroup_v2; then
    echo /sys/fs/cgroup
  else
    for dir in /sys/fs/cgroup/*; do
      [[ -f $dir/cgroup.procs && ! -L $dir ]] && echo "$dir"
    done
  fi
  return 0
}

cgroups_up() { # the kubelets want their root cgroups to exist
  local mount path node file
  while read -r mount; do
    for path in "$CGROUP" "${NODES[@]/#/$CGROUP/}"; do
      mkdir -p "$mount/$path"
      if is_cgroup_v2; then
        for node in cpuset cpu io memory pids hugetlb; do
          echo "+$node" >"$(dirname "$mount/$path")/cgroup.subtree_control" 2>/dev/null || true
        done
      elif [[ -f $mount/$path/cpuset.cpus ]]; then
        # A new cpuset is empty in version 1, and nothing can run in an empty one.
        for file in cpuset.cpus cpuset.mems; do
          cat "$(dirname "$mount/$path")/$file" >"$mount/$path/$file"
        done
      fi
    done
  done < <(cgroup_mounts)
}

kill_cgroup() { # PATH below each hierarchy: kills everything in it, however deep
  local mount procs pids tries
  for tries in {1..50}; do
    pids=$(while read -r mount; do
      [[ -d $mount/$1 ]] || continue
      find "$mount/$1" -name cgroup.procs | while read -r procs; do cat "$procs" 2>/dev/null || true; done
    done < <(cgroup_mounts) | sort -un)
    [[ -n $pids ]] || return 0
    # shellcheck disable=SC2086  # one argument per pid
    kill -KILL $pids 2>/dev/null || true
    sleep 0.1
  done
  return "$((tries > 0))"
}

cgroups_down() {
  local mount dir
  while read -r mount; do
    [[ -d $mount/$CGROUP ]] || continue
    find "$mount/$CGROUP" -depth -type d | while read -r dir; do rmdir "$dir" 2>/dev/null || true; done
  done < <(cgroup_mounts)
}

# ---- the parts ----

start_etcd() {
  # Nothing here has to survive a power cut, and without fsync a slow disk does not matter.
  start etcd "$(program etcd)" --data-dir "$CLUSTER_DIR/etcd" --unsafe-no-fsync \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
    --initial-cluster "default=http://127.0.0.1:$ETCD_PEER_PORT" --log-level warn
}

start_apiserver() {
  # Who wrote what, and how often: one line for each write, none for reads.
  cat >"$CLUSTER_DIR/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
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
  # No election: there is one of each, and it would only delay the start.
  start kube-controller-manager "$(program kube-controller-manager)" \
    --kubeconfig "$PKI/controller-manager.kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "$CONTROLLER_MANAGER_PORT" \
    --use-service-account-credentials --service-account-private-key-file "$PKI/service-account.key" \
    --root-ca-file "$PKI/ca.crt" \
    --node-monitor-grace-period "$NODE_MONITOR_GRACE" --node-monitor-period 2s
  start kube-scheduler "$(program kube-scheduler)" \
    --kubeconfig "$PKI/scheduler.kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "$SCHEDULER_PORT"
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

start_containerd() { # NODE
  local node=$1 dir="$CLUSTER_DIR/$1" run="$RUN_DIR/$1" n cni_bin=/usr/lib/cni snapshotter=overlayfs
  n=$(node_number "$node")
  [[ -x $cni_bin/bridge ]] || cni_bin=/opt/cni/bin
  # Overlays cannot be stacked on an overlay, as inside a container.
  [[ $(stat -fc %T "$dir") == overlayfs ]] && snapshotter=native
  mkdir -p "$run" "$dir/cni"
  cat >"$dir/cni/10-bridge.conflist" <<JSON
{
  "cniVersion": "0.4.0", "name": "$CNI_NETWORK",
  "plugins": [{
    "type": "bridge", "bridge": "$BRIDGE", "isGateway": true,
    "ipam": {
      "type": "host-local", "dataDir": "$RUN_DIR/ipam",
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
  start "$node.containerd" containerd --config "$dir/containerd.toml"
}

start_kubelet() { # NODE
  local node=$1 dir="$CLUSTER_DIR/$1" n minor
  n=$(node_number "$node")
  minor=${KUBERNETES#1.}
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
containerRuntimeEndpoint: unix://$(node_socket "$node")
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$node
enforceNodeAllocatable: []
$( ((minor < 35)) || echo "failCgroupV1: false")
failSwapOn: false
podLogsDir: $dir/pod-logs
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
  start "$node.kubelet" "$(program kubelet)" --config "$dir/kubelet.yaml" \
    --kubeconfig "$PKI/$node.kubeconfig" --root-dir "$dir/kubelet" --cert-dir "$dir/kubelet-pki" \
    --hostname-override "$node" --node-ip "$(node_ip "$node")"
}

# ---- up, down, status ----

check_machine() {
  [[ $(uname -s) == Linux ]] || die "the local cluster needs Linux (elsewhere: CLUSTER=kind with Docker and kind)"
  ((EUID == 0)) || die "the local cluster needs root: run with sudo (or use CLUSTER=kind with Docker and kind)"
  command -v go >/dev/null || die "go is missing: install Go 1.26 or newer (the cluster's programs are built from Go modules)"
  need_programs containerd=containerd runc=runc ip=iproute2 iptables=iptables openssl=openssl \
    flock=util-linux /usr/lib/cni/bridge=containernetworking-plugins
}

# What a running cluster was made with: another value means it has to be made anew.
settings() {
  echo "kubernetes=$(program kube-apiserver) dir=$CLUSTER_DIR pods=$POD_PREFIX services=$SERVICE_PREFIX ports=$PORT_BASE" \
    "grace=$NODE_MONITOR_GRACE toleration=$NODE_TOLERATION_SECONDS"
}

parts() {
  local node
  echo etcd kube-apiserver kube-controller-manager kube-scheduler coredns
  for node in "${NODES[@]}"; do echo "$node.containerd $node.kubelet"; done
}

is_healthy() {
  local part ready
  [[ $(cat "$RUN_DIR/settings" 2>/dev/null) == "$(settings)" ]] || return 1
  for part in $(parts); do is_running "$part" || return 1; done
  kctl get --raw /readyz --request-timeout=5s >/dev/null 2>&1 || return 1
  ready=$(kctl get nodes "${NODES[@]}" --request-timeout=5s 2>/dev/null \
    -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep -c True) || true
  ((ready == ${#NODES[@]}))
}

mounts_below() { # DIR... -> mount points, deepest first
  local dir
  for dir in "$@"; do
    awk -v dir="$dir/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo
  done | sort -ru
}

# Removes a cluster: ours, or one that another run left on this bridge. Reads only
# what is really there, so it can be run after any crash and any number of times.
remove() {
  local dir pids file tries
  dir=$(cat "$RUN_DIR/owner" 2>/dev/null || echo "$CLUSTER_DIR")
  # Kubelets first, or they would start again what is killed after them.
  for file in "$RUN_DIR"/*.kubelet.pid; do
    [[ -f $file ]] && is_ours "$(cat "$file")" && kill -KILL "$(cat "$file")"
  done
  kill_cgroup "$CGROUP" || die "processes in the cgroup $CGROUP cannot be killed: see /sys/fs/cgroup/*/$CGROUP"
  for tries in {1..50}; do
    pids=$(our_pids)
    [[ -n $pids ]] || break
    # shellcheck disable=SC2086  # one argument per pid
    kill -KILL $pids 2>/dev/null || true
    sleep 0.1
  done
  [[ -z $pids ]] || die "processes cannot be killed after $tries tries: $pids"
  # A shim's socket is outside our folder, under a name that only its bundle tells.
  for file in "$RUN_DIR"/*/containerd/io.containerd.runtime.v2.task/k8s.io/*/address; do
    [[ -f $file ]] && rm -f "$(sed 's|^unix://||' "$file")"
  done
  local point
  while read -r point; do
    umount -l "$(printf '%b' "$point")" || true
  done < <(mounts_below "$RUN_DIR" "$dir")
  network_down
  cgroups_down
  find /var/log/containers -maxdepth 1 -type l -lname "$dir/*" -delete 2>/dev/null || true
  # Only a folder with our mark is removed, and never what is mounted in it.
  if [[ -f $dir/.mpi-cluster ]]; then
    find "$dir" -mindepth 1 -maxdepth 1 ! -name .mpi-cluster ! -name keep -exec rm -rf --one-file-system {} +
    rm -f "$dir/.mpi-cluster"
    rmdir "$dir" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$RUN_DIR"
}

is_left() { # anything of a cluster on this bridge
  [[ -e $RUN_DIR || -e $CLUSTER_DIR/.mpi-cluster || -e /sys/class/net/$BRIDGE ]] && return 0
  [[ -n $(our_pids) ]]
}

local_up() {
  check_machine
  build_programs
  with_cache_lock image-pause make_pause
  if is_healthy; then
    say "the cluster is already up: Kubernetes $(k8s_version), ${NODES[*]}"
    return 0
  fi
  if is_left; then
    say "removing what an earlier cluster left ($(cat "$RUN_DIR/owner" 2>/dev/null || echo "$CLUSTER_DIR"))"
    remove
  fi

  mkdir -p "$CLUSTER_DIR" "$RUN_DIR"
  : >"$CLUSTER_DIR/.mpi-cluster"
  echo "$CLUSTER_DIR" >"$RUN_DIR/owner"
  mkdir -p "$LOG" "$PKI" "${NODES[@]/#/$CLUSTER_DIR/}"

  say "starting Kubernetes $(k8s_version): keys, network, etcd, API server"
  if ! (set -e; make_pki) >"$LOG/pki.log" 2>&1; then
    show_log "$LOG/pki.log"
    die "could not make the cluster's keys with openssl"
  fi
  if ! (set -e; network_up) >"$LOG/network.log" 2>&1; then
    show_log "$LOG/network.log"
    die "could not set up the bridge $BRIDGE (is $POD_PREFIX.0.0/16 in use? set MPI_CLUSTER_POD_PREFIX)"
  fi
  cgroups_up
  local node
  for node in "${NODES[@]}"; do start_containerd "$node"; done
  start_etcd
  start_apiserver
  wait_for kube-apiserver 90 kctl get --raw /readyz

  say "starting controllers, scheduler, CoreDNS and the kubelets of ${NODES[*]}"
  start_controllers
  start_coredns
  local pause
  pause=$(pause_archive)
  for node in "${NODES[@]}"; do
    wait_for "$node.containerd" 60 ctr --address "$(node_socket "$node")" version
    # Before the kubelet: no pod can start without it.
    load_into "$node" "$pause"
    start_kubelet "$node"
  done
  wait_for coredns 60 http_ok 127.0.0.1 "$COREDNS_HEALTH_PORT" /health
  wait_for kube-controller-manager 60 kctl get serviceaccount default
  for node in "${NODES[@]}"; do
    wait_for "$node.kubelet" 120 node_is_ready "$node"
  done
  settings >"$RUN_DIR/settings"
  say "the cluster is up: Kubernetes $(k8s_version), ${NODES[*]} are Ready"
}

# No curl: it may not be installed, and a status line is all that is wanted.
http_ok() { # HOST PORT PATH
  exec 3<>"/dev/tcp/$1/$2" || return 1
  printf 'GET %s HTTP/1.0\r\n\r\n' "$3" >&3
  head -n1 <&3 | grep -q ' 200 '
}

node_is_ready() {
  [[ $(kctl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == True ]]
}

local_down() {
  ((EUID == 0)) || die "the local cluster needs root: run with sudo"
  if is_left; then
    remove
    say "the cluster is down"
  else
    say "there is no cluster"
  fi
}

local_status() {
  local part
  if [[ ! -e $RUN_DIR/owner ]]; then
    echo "no cluster on bridge $BRIDGE"
    return 1
  fi
  echo "cluster folder: $(cat "$RUN_DIR/owner")"
  for part in $(parts); do
    if is_running "$part"; then
      printf '  %-26s running, pid %s\n' "$part" "$(cat "$RUN_DIR/$part.pid")"
    else
      printf '  %-26s NOT RUNNING, see %s\n' "$part" "$LOG/$part.log"
    fi
  done
  kctl get nodes -o wide --request-timeout=5s || return 1
  is_healthy
}

# ---- images and nodes ----

load_into() { # NODE ARCHIVE
  local log="$LOG/load-$1.log"
  if ! ctr --address "$(node_socket "$1")" --namespace k8s.io images import "$2" >"$log" 2>&1; then
    show_log "$log"
    die "could not import $2 into $1"
  fi
}

local_load() { # ARCHIVE: into all nodes, unless it is there already
  local archive=$1 node sum pids=() pid
  sum=$(stat -c '%i-%s-%Y' "$archive")
  for node in "${NODES[@]}"; do
    grep -qxF "$archive $sum" "$CLUSTER_DIR/$node/loaded" 2>/dev/null && continue
    (load_into "$node" "$archive" && echo "$archive $sum" >>"$CLUSTER_DIR/$node/loaded") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  ((${#pids[@]} == 0)) || say "loaded ${archive##*/} into ${#pids[@]} nodes"
}

known_node() { [[ " ${NODES[*]} " == *" $1 "* ]] || die "no node $1: there are ${NODES[*]}"; }

# The node is lost: its kubelet says nothing any more and its containers are dead.
# Stopped, not killed, so that it comes back as the same process with what it knew.
local_node_stop() {
  known_node "$1"
  is_running "$1.kubelet" || die "the kubelet of $1 is not running"
  kill -STOP "$(cat "$RUN_DIR/$1.kubelet.pid")"
  kill_cgroup "$CGROUP/$1" || die "containers of $1 cannot be killed"
  say "$1 is stopped"
}

local_node_start() {
  known_node "$1"
  is_running "$1.kubelet" || die "the kubelet of $1 is not running"
  kill -CONT "$(cat "$RUN_DIR/$1.kubelet.pid")"
  say "$1 goes on"
}
