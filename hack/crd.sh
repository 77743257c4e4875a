#!/usr/bin/env bash
# The CRD manifests, generated from the types in src/api.
#
#   hack/crd.sh write    make them anew
#   hack/crd.sh check    fail if they are not what the types say
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

need_programs cc=build-essential diff=diffutils
cd "$REPO"
generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT

generate() { # FILE ARGS...
  local file=$1
  shift
  mkdir -p "$generated/${file%/*}"
  cargo run --quiet --locked --package mpi-operator --bin crdgen -- "$@" >"$generated/$file" || die "crdgen failed"
}
generate manifests/base/kubeflow.org_mpijobs.yaml
# For API servers before 1.25, which know no x-kubernetes-validations.
generate manifests/crd-without-cel/kubeflow.org_mpijobs.yaml --without-cel

case ${1:-} in
  write) cp -r "$generated/manifests" . ;;
  check)
    for file in manifests/{base,crd-without-cel}/kubeflow.org_mpijobs.yaml; do
      diff -u "$file" "$generated/$file" || die "$file is not what the types say. Run: make crd"
    done
    ;;
  *) die "usage: hack/crd.sh write|check" ;;
esac
