#!/usr/bin/env bash
# Writes hack/k8s/MINOR/{go.mod,go.sum} for one Kubernetes release, from which
# hack/cluster.sh builds that release's programs.
#
#   hack/k8s/new-minor.sh 1.37.2
#   hack/k8s/new-minor.sh 1.22.17 github.com/modern-go/reflect2=v1.0.2
#
# k8s.io/kubernetes is not made to be a dependency: its go.mod points its
# staging modules at relative paths. Each of those needs a replace by the
# published module of the same release (v1.36.3 -> v0.36.3). MODULE=VERSION sets
# another version of one module, where that one is not served or does not build.
set -euo pipefail

version=${1:?usage: new-minor.sh VERSION [MODULE=VERSION...], as in 1.37.2}
shift
minor=${version%.*}
staging="v0.${version#1.}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir="$here/$minor"
programs=(kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet)
mkdir -p "$dir"

source_dir=$(cd / && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$version" |
  sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
go_line=$(sed -n 's/^go //p' "$source_dir/go.mod")
# Older lines know no "tool", and would ask for the sums of the whole module graph.
[[ $(printf '%s\n' "$go_line" 1.24.0 | sort -V | head -n1) == 1.24.0 ]] || go_line=1.24.0

# MODULE NEW_MODULE VERSION, of its whole replace block: what it pins is what it was built with.
replaces() {
  sed -n 's/^\t\([^ ]*\) => \.\/staging\/.*$/\1 \1 '"$staging"'/p
    s/^\t\([^ ]*\) => \([^. ][^ ]*\) \(v[^ ]*\)$/\1 \2 \3/p' "$source_dir/go.mod" | sort -u
}

{
  echo "// The programs of Kubernetes $version. Written by hack/k8s/new-minor.sh $version${*:+ $*}"
  echo "module mpi-operator.local/hack/k8s/$minor"
  echo
  echo "go $go_line"
  echo
  echo "tool ("
  printf '\tk8s.io/kubernetes/cmd/%s\n' "${programs[@]}"
  # Up to 1.22 the OpenAPI definitions are not in the published module: see hack/lib/build.sh.
  [[ -f $source_dir/pkg/generated/openapi/zz_generated.openapi.go ]] || printf '\tk8s.io/kube-openapi/cmd/openapi-gen\n'
  echo ")"
  echo
  echo "require k8s.io/kubernetes v$version"
  echo
  echo "replace ("
  replaces | while read -r module new at; do
    for set in "$@"; do [[ ${set%%=*} != "$module" ]] || new=$module at=${set#*=}; done
    printf '\t%s => %s %s\n' "$module" "$new" "$at"
  done
  echo ")"
} >"$dir/go.mod"

# Not "go mod tidy", which also wants the modules of tests and samples; not all are served.
rm -f "$dir/go.sum"
cd "$dir"
mapfile -t tools < <(sed -n '/^tool (/,/^)/s/^\t//p' go.mod)
GOFLAGS='' GOWORK=off go list -mod=mod -deps -tags providerless "${tools[@]}" >/dev/null
echo "wrote $dir/go.mod. Try: KUBERNETES=$minor hack/cluster.sh up"
