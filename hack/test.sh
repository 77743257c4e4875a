#!/usr/bin/env bash
# All checks, one after the other, each with its time. Stops at the first that fails.
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

cd "$REPO"
steps=(lint verify deny unit e2e e2e-versions)
times=()
for step in "${steps[@]}"; do
  started=$SECONDS
  say "make $step"
  make --no-print-directory "$step" || die "make $step failed after $((SECONDS - started)) s"
  times+=("$step $((SECONDS - started)) s")
done
say "all passed: $(printf '%s, ' "${times[@]}" | sed 's/, $//')"
