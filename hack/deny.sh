#!/usr/bin/env bash
# Licences, sources and duplicates of all crates, by deny.toml. cargo-deny is built once,
# into the cache (some minutes). Advisories are a check of their own, because they need the
# advisory database from the network: hack/deny.sh advisories
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

version=0.20.2
root="$CACHE/cargo-deny-$version"

install_cargo_deny() {
  [[ -x $root/bin/cargo-deny ]] && return 0
  local log="$CACHE/log/cargo-deny.log"
  need_programs cc=build-essential
  say "building cargo-deny $version (first time only)"
  if ! run_logged cargo-deny "$log" cargo install cargo-deny --version "$version" --locked --root "$root"; then
    show_log "$log"
    die "cargo-deny does not build"
  fi
}

with_cache_lock cargo-deny install_cargo_deny
cd "$REPO"
(($# > 0)) || set -- licenses sources bans
"$root/bin/cargo-deny" --locked check "$@"
