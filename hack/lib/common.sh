# Paths, settings and messages shared by the scripts in hack/. Sourced, never run.
# shellcheck shell=bash

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
HACK="$REPO/hack"
# shellcheck source=hack/versions.env
source "$HACK/versions.env"

KUBERNETES=${KUBERNETES:-$KUBERNETES_DEFAULT}

# What is expensive to make (programs, image file systems) outlives the checkout,
# so that a fresh clone is warm. Everything in it is keyed by a hash of its recipe.
CACHE=${MPI_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mpi-operator}

# What belongs to one cluster. Bridge, addresses and ports are settings, so that
# two clusters can stand side by side: give the second one other values.
CLUSTER_DIR=${MPI_CLUSTER_DIR:-$REPO/.cluster}
BRIDGE=${MPI_CLUSTER_BRIDGE:-mpibr0}
POD_PREFIX=${MPI_CLUSTER_POD_PREFIX:-10.244}          # pods and nodes: PREFIX.0.0/16
SERVICE_PREFIX=${MPI_CLUSTER_SERVICE_PREFIX:-10.96}   # services: PREFIX.0.0/16
PORT_BASE=${MPI_CLUSTER_PORT_BASE:-26400}
NODE_MONITOR_GRACE=${MPI_NODE_MONITOR_GRACE:-20s}

CLUSTER=${CLUSTER:-local}                             # local | kind
KIND_NAME=${MPI_KIND_NAME:-mpi-operator}

KUBECONFIG_FILE="$CLUSTER_DIR/kubeconfig"
AUDIT_LOG="$CLUSTER_DIR/log/audit.log"

# Seconds are shown with every step: bash counts them from the start of the script.
say() { printf '%s[%3ds]%s %s\n' "${BOLD:-}" "$SECONDS" "${PLAIN:-}" "$*" >&2; }
die() {
  printf '%serror:%s %s\n' "${RED:-}" "${PLAIN:-}" "$*" >&2
  exit 1
}
if [[ -t 2 ]]; then
  BOLD=$'\e[1m' RED=$'\e[31m' PLAIN=$'\e[0m'
fi

# The end of a log, indented, for messages about a failure.
show_log() { # FILE [LINES]
  [[ -s $1 ]] || return 0
  echo "  the end of $1:" >&2
  tail -n "${2:-20}" "$1" | cut -c1-400 | sed 's/^/    | /' >&2
}

# Runs COMMAND with its output in LOG, and says every half minute that it still runs.
# A shell function as COMMAND has to chain its steps with &&.
run_logged() { # NAME LOG COMMAND...
  local name=$1 log=$2 started=$SECONDS ticker status=0
  shift 2
  mkdir -p "${log%/*}"
  # The ticker is the one in the background, so that Ctrl-C reaches the command. It holds
  # no lock, no pipe of ours after it was killed, and ends by itself if we are.
  (
    ticks=0
    while sleep 5 2>/dev/null && kill -0 $$ 2>/dev/null; do
      ((++ticks % 6)) || say "  ... $name, $((SECONDS - started)) s so far"
    done
  ) </dev/null >/dev/null 8>&- 9>&- &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$ticker" 2>/dev/null
  wait "$ticker" 2>/dev/null || true
  return "$status"
}

hash_of() { # FILE... -> short hash of their contents, in the order given
  cat "$@" | sha256sum | cut -c1-16
}

# Marks an entry of the cache as used and removes those of its kind that nobody used for
# two weeks: recipes change, and an image is 160 MB.
keep_fresh() { # FILE PREFIX_OF_ITS_KIND
  touch -a "$1"
  find "${1%/*}" -maxdepth 1 -type f -name "$2*" -atime +14 -delete
}

# Only one process at a time may make an entry of the cache; the others wait for it.
with_cache_lock() { # NAME COMMAND...
  local name=$1
  shift
  mkdir -p "$CACHE/lock"
  (
    flock 9
    "$@"
  ) 9>"$CACHE/lock/$name"
}

is_debian() { [[ -r /etc/os-release ]] && grep -qE '^ID(_LIKE)?=.*debian' /etc/os-release; }

# Installs the Debian packages that provide what is missing. Each argument is
# PROGRAM=PACKAGE; a PROGRAM with a slash is a file that has to exist.
need_programs() {
  local pair program missing=() names=()
  for pair in "$@"; do
    program=${pair%%=*}
    if [[ $program == /* ]]; then
      [[ -e $program ]] && continue
    else
      command -v "$program" >/dev/null 2>&1 && continue
    fi
    missing+=("${pair#*=}")
    names+=("$program")
  done
  ((${#missing[@]})) || return 0
  if ! command -v apt-get >/dev/null 2>&1 || ! is_debian; then
    die "missing: ${names[*]}. Install them with your package manager (Debian packages: ${missing[*]})."
  fi
  if ((EUID != 0)); then
    die "missing: ${names[*]}. Run: sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing Debian packages: ${missing[*]}"
  local log="$CACHE/log/apt.log"
  if ! run_logged apt-get "$log" apt_install "${missing[@]}"; then
    show_log "$log"
    die "could not install ${missing[*]} with apt-get"
  fi
}

apt_install() { # One update first: on a new machine the package lists are empty or old.
  export DEBIAN_FRONTEND=noninteractive
  apt-get update && apt-get install -y --no-install-recommends "$@"
}
