#!/usr/bin/env bash
# Installs the Debian packages that bring missing programs: hack/need.sh PROGRAM=PACKAGE...
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
need_programs "$@"
