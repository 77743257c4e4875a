# The processes of the local cluster: started, recognised, waited for. Sourced by local.sh.
# shellcheck shell=bash

# Every process carries this in its environment (containerd hands it on to its shims),
# so that ours are found by it and by nothing else, even after pid files are lost.
MARK="MPI_CLUSTER_RUN=$RUN_DIR"

start() { # NAME COMMAND...
  local name=$1
  shift
  # 8 is the lock of this script: a process that kept it open would hold it for ever.
  env "$MARK" setsid "$@" >"$LOG/$name.log" 2>&1 </dev/null 8>&- 9>&- &
  local pid=$! tries
  echo "$pid" >"$RUN_DIR/$name.pid"
  # Not ours before it has become the program: until then nobody may judge it.
  for ((tries = 0; tries < 100; tries++)); do
    is_ours "$pid" && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.02
  done
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

# Waits until COMMAND succeeds. A process that ended, or time over, ends the run with
# the name of the part, the end of its log and what to do.
wait_for() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 started=$SECONDS file
  shift 2
  until "$@" >/dev/null 2>&1; do
    # Any of them: an API server waits long, and in vain, for an etcd that is gone.
    for file in "$RUN_DIR"/*.pid; do
      file=${file##*/}
      is_running "${file%.pid}" || fail_part "${file%.pid}" "has ended during start-up"
    done
    ((SECONDS - started < limit)) || fail_part "$name" "is not ready after $limit s"
    sleep 0.2
  done
}

fail_part() { # NAME WHAT
  show_log "$LOG/$1.log"
  die "$1 $2. All logs: $LOG. Try again: hack/cluster.sh up; remove: hack/cluster.sh down"
}
