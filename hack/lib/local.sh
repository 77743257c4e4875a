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

# shellcheck source=hack/lib/processes.sh
source "$HACK/lib/processes.sh"
# shellcheck source=hack/lib/keys.sh
source "$HACK/lib/keys.sh"
# shellcheck source=hack/lib/machine.sh
source "$HACK/lib/machine.sh"
# shellcheck source=hack/lib/parts.sh
source "$HACK/lib/parts.sh"

need_root() {
  [[ $(uname -s) == Linux ]] || die "the local cluster needs Linux (elsewhere: CLUSTER=kind with Docker and kind)"
  ((EUID == 0)) || die "the local cluster needs root: run with sudo (or use CLUSTER=kind with Docker and kind)"
}

check_machine() {
  command -v go >/dev/null || die "go is missing: install Go 1.26 or newer (the cluster's programs are built from Go modules)"
  need_programs containerd=containerd runc=runc ip=iproute2 iptables=iptables openssl=openssl \
    flock=util-linux nsenter=util-linux /usr/lib/cni/bridge=containernetworking-plugins
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

owner() { # the folder of the cluster on this bridge
  local dir
  dir=$(cat "$RUN_DIR/owner" 2>/dev/null) || true
  # What is below this folder is unmounted and deleted: anything odd in the file counts as none.
  [[ $dir == /*/?* && $dir != */ ]] || dir=$CLUSTER_DIR
  echo "$dir"
}

# Removes a cluster: ours, or one that another run left on this bridge. Reads only
# what is really there, so it can be run after any crash and any number of times.
remove() {
  local dir pids file tries
  dir=$(owner)
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
    say "removing what an earlier cluster left ($(owner))"
    remove
  fi

  mkdir -p "$CLUSTER_DIR" "$RUN_DIR"
  : >"$CLUSTER_DIR/.mpi-cluster"
  echo "$CLUSTER_DIR" >"$RUN_DIR/owner.tmp"
  mv "$RUN_DIR/owner.tmp" "$RUN_DIR/owner"
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
  echo "cluster folder: $(owner)"
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
