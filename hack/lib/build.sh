# Builds the cluster's programs from Go modules into the cache. Sourced.
# shellcheck shell=bash

K8S_MODULE="$HACK/k8s/$KUBERNETES"

k8s_version() { # -> 1.36.3
  sed -n 's/^.*k8s\.io\/kubernetes v\([0-9.]*\)\( .*\)\{0,1\}$/\1/p' "$K8S_MODULE/go.mod" | head -n1
}

# Where the programs of one Go module are: keyed by everything that decides their content.
module_bin_dir() { # MODULE_DIR
  local name
  name=$(basename "$1")
  [[ $1 == */k8s/* ]] && name="kubernetes-$(k8s_version)"
  echo "$CACHE/bin/$name-$(hash_of "$1/go.mod" "$1/go.sum")"
}

# Without these stamps clients see v0.0.0 and refuse or guess. Releases up to 1.22
# read a second package as well; naming a variable that does not exist is harmless.
k8s_ldflags() {
  local version major_minor package flags="-s -w"
  version=$(k8s_version)
  major_minor=${version%.*}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=${major_minor#1.}"
    flags+=" -X $package.gitTreeState=clean"
  done
  echo "$flags"
}

go_build() { # MODULE_DIR PACKAGE OUTPUT LDFLAGS
  # The module is taken as committed: versions never drift during a build.
  cd "$1" && GOFLAGS='' GOWORK=off CGO_ENABLED=0 \
    go build -mod=readonly -buildvcs=false -trimpath -ldflags "$4" -o "$3" "$2"
}

build_one() { # MODULE_DIR PACKAGE OUTPUT LDFLAGS
  local output=$3 started=$SECONDS log name=${3##*/}
  [[ -x $output ]] && return 0
  mkdir -p "${output%/*}"
  log="$CACHE/log/build-$name.log"
  say "building $name (first time only)"
  if ! (run_logged "$name" "$log" go_build "$1" "$2" "$output.tmp" "$4"); then
    show_log "$log"
    die "go build of $2 failed (module $1)"
  fi
  # Renamed last, so that a build that was killed leaves nothing that looks finished.
  mv "$output.tmp" "$output"
  say "built $name in $((SECONDS - started)) s"
}

build_module() { # MODULE_DIR LDFLAGS PACKAGE[=NAME]...
  local module=$1 ldflags=$2 bin item package name
  shift 2
  bin=$(module_bin_dir "$module")
  for item in "$@"; do
    package=${item%%=*} name=${item##*/}
    [[ $item == *=* ]] && name=${item#*=}
    build_one "$module" "$package" "$bin/$name" "$ldflags"
  done
}

build_kubernetes() {
  [[ -f $K8S_MODULE/go.mod ]] ||
    die "no hack/k8s/$KUBERNETES: known are $(cd "$HACK/k8s" && echo [0-9]*). A new one: hack/k8s/new-minor.sh VERSION"
  build_module "$K8S_MODULE" "$(k8s_ldflags)" \
    k8s.io/kubernetes/cmd/kube-apiserver \
    k8s.io/kubernetes/cmd/kubelet \
    k8s.io/kubernetes/cmd/kube-controller-manager \
    k8s.io/kubernetes/cmd/kube-scheduler \
    k8s.io/kubernetes/cmd/kubectl
}

build_programs() {
  with_cache_lock "build-kubernetes-$KUBERNETES" build_kubernetes
  with_cache_lock build-etcd build_module "$HACK/tools/etcd" "-s -w" go.etcd.io/etcd/server/v3=etcd
  with_cache_lock build-coredns build_module "$HACK/tools/coredns" "-s -w" github.com/coredns/coredns=coredns
}

build_kwok() {
  with_cache_lock build-kwok build_module "$HACK/tools/kwok" "-s -w" sigs.k8s.io/kwok/cmd/kwok=kwok
}

program() { # NAME -> path of a built program
  case $1 in
    etcd | coredns | kwok) echo "$(module_bin_dir "$HACK/tools/$1")/$1" ;;
    *) echo "$(module_bin_dir "$K8S_MODULE")/$1" ;;
  esac
}
