#!/usr/bin/env bash
# Makes images as docker archives and prints the path of each.
#
#   hack/images.sh operator    mpioperator/mpi-operator:dev, from this checkout
#   hack/images.sh openmpi     mpi-operator/openmpi:dev, the worker image of examples and tests
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=hack/lib/images.sh
source "$HACK/lib/images.sh"
# shellcheck source=hack/lib/openmpi.sh
source "$HACK/lib/openmpi.sh"

(($# > 0)) || die "usage: hack/images.sh operator|openmpi..."
for image in "$@"; do
  case $image in
    operator)
      make_operator
      echo "$OPERATOR_ARCHIVE"
      ;;
    openmpi)
      with_cache_lock image-openmpi make_openmpi
      openmpi_archive
      ;;
    *) die "unknown image: $image" ;;
  esac
done
