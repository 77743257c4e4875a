#!/usr/bin/env bash
# Writes hack/k8s/MINOR/{go.mod,go.sum} for one Kubernetes release, from which
# hack/cluster.sh builds that release's programs.
#
#   hack/k8s/new-minor.sh 1.36.3
#
# k8s.io/kubernetes is not made to be a dependency: its go.mod points its
# staging modules at relative paths. Each of those needs a replace by the
# published module of the same release (v1.36.3 -> v0.36.3).
set -euo pipefail

version=${1:?usage: new-minor.sh VERSION, as in 1.36.3}
minor=${version%.*}
staging="v0.${version#1.}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir="$here/$minor"
mkdir -p "$dir"

source_dir=$(cd "$dir" && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$version" |
  sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
go_line=$(sed -n 's/^go //p' "$source_dir/go.mod")

{
  echo "// The programs of Kubernetes $version. Written by hack/k8s/new-minor.sh."
  echo "module mpi-operator.local/hack/k8s/$minor"
  echo
  echo "go $go_line"
  echo
  echo "tool ("
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
    printf '\tk8s.io/kubernetes/cmd/%s\n' "$program"
  done
  echo ")"
  echo
  echo "require k8s.io/kubernetes v$version"
  echo
  echo "replace ("
  sed -n 's/^\t\(k8s.io\/[a-z0-9-]*\) => .\/staging\/.*$/\1/p' "$source_dir/go.mod" | sort -u |
    while read -r module; do
      printf '\t%s => %s %s\n' "$module" "$module" "$staging"
    done
  echo ")"
} >"$dir/go.mod"

(cd "$dir" && go mod tidy)
echo "wrote $dir/go.mod; add K8S_VERSION_${minor/./_}=$version to hack/versions.env"
