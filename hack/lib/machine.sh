# What the local cluster changes on the machine: network and cgroups, up and down. Sourced by local.sh.
# shellcheck shell=bash

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
