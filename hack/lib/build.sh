# Builds the cluster's programs from Go modules into the cache. Sourced.
# shellcheck shell=bash

K8S_MODULE="$HACK/k8s/$KUBERNETES"

# Asks for a feature of the programs that changed with a minor version: at_least 35.
at_least() { ((${KUBERNETES#1.} >= $1)); }

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
  # The module is taken as committed: versions never drift during a build. The tags leave out
  # what older releases have for other machines: cloud providers up to 1.28, Docker up to 1.23.
  cd "$1" && GOFLAGS='' GOWORK=off CGO_ENABLED=0 \
    go build -mod=readonly -buildvcs=false -trimpath -tags providerless,dockerless -ldflags "$4" -o "$3" "$2"
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

build_module() { # MODULE_DIR SOURCE_DIR LDFLAGS PACKAGE[=NAME]...
  local module=$1 source=$2 ldflags=$3 bin item package name
  shift 3
  bin=$(module_bin_dir "$module")
  for item in "$@"; do
    package=${item%%=*} name=${item##*/}
    [[ $item == *=* ]] && name=${item#*=}
    build_one "$source" "$package" "$bin/$name" "$ldflags"
  done
}

K8S_PROGRAMS=(kube-apiserver kubelet kube-controller-manager kube-scheduler kubectl)

# Up to 1.22 the published module lacks the API server's OpenAPI definitions, which a release
# generates while it is built. Makes DIR a module like $K8S_MODULE with a copy of Kubernetes
# that has them, as the Makefile of that release would write them.
openapi_module() { # DIR
  local dir=$1 source
  # Aliases that the type checker of today tells apart are more than that generator knows.
  export GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 GODEBUG=gotypesalias=0
  source=$(cd "$K8S_MODULE" && go mod download k8s.io/kubernetes && go list -m -f '{{.Dir}}' k8s.io/kubernetes) &&
    cp -r "$source" "$dir/kubernetes" && chmod -R u+w "$dir/kubernetes" &&
    cp "$K8S_MODULE/go.mod" "$K8S_MODULE/go.sum" "$dir" && cd "$dir" &&
    go mod edit -replace k8s.io/kubernetes=./kubernetes &&
    go build -buildvcs=false -trimpath -o openapi-gen k8s.io/kube-openapi/cmd/openapi-gen &&
    go list -deps -tags providerless,dockerless -f '{{with .Module}}{{$.ImportPath}} {{$.Dir}}{{end}}' \
      k8s.io/kubernetes/cmd/kube-apiserver >packages &&
    while read -r package path; do
      [[ $package != k8s.io/* || $package == k8s.io/kube-openapi/* ]] ||
        ! grep -qs '+k8s:openapi-gen=' "$path"/*.go || echo "$package"
    done <packages >inputs &&
    ./openapi-gen --logtostderr --input-dirs "$(paste -sd, inputs)" --output-base generated \
      --output-package k8s.io/kubernetes/pkg/generated/openapi --output-file-base zz_generated.openapi \
      --go-header-file kubernetes/hack/boilerplate/boilerplate.generatego.txt --report-filename violations &&
    cp generated/k8s.io/kubernetes/pkg/generated/openapi/zz_generated.openapi.go kubernetes/pkg/generated/openapi/
}

build_kubernetes() {
  [[ -f $K8S_MODULE/go.mod ]] ||
    die "no hack/k8s/$KUBERNETES: known are $(cd "$HACK/k8s" && echo [0-9]*). A new one: hack/k8s/new-minor.sh VERSION"
  local name bin source=$K8S_MODULE missing=0 log="$CACHE/log/openapi-$KUBERNETES.log"
  bin=$(module_bin_dir "$K8S_MODULE")
  for name in "${K8S_PROGRAMS[@]}"; do [[ -x $bin/$name ]] || missing=1; done
  ((missing)) || return 0
  if grep -q 'cmd/openapi-gen$' "$K8S_MODULE/go.mod"; then
    source="$CACHE/tmp/kubernetes-$KUBERNETES"
    rm -rf "$source" # of a build that was stopped
    mkdir -p "$source"
    say "generating the OpenAPI definitions of Kubernetes $(k8s_version)"
    if ! (run_logged openapi-gen "$log" openapi_module "$source"); then
      show_log "$log"
      die "could not generate the OpenAPI definitions of Kubernetes $(k8s_version)"
    fi
  fi
  build_module "$K8S_MODULE" "$source" "$(k8s_ldflags)" "${K8S_PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}"
  [[ $source == "$K8S_MODULE" ]] || rm -rf "$source"
}

build_tool() { # NAME PACKAGE
  build_module "$HACK/tools/$1" "$HACK/tools/$1" "-s -w" "$2=$1"
}

build_programs() {
  with_cache_lock "build-kubernetes-$KUBERNETES" build_kubernetes
  with_cache_lock build-etcd build_tool etcd go.etcd.io/etcd/server/v3
  with_cache_lock build-coredns build_tool coredns github.com/coredns/coredns
}

build_kwok() {
  with_cache_lock build-kwok build_tool kwok sigs.k8s.io/kwok/cmd/kwok
}

program() { # NAME -> path of a built program
  case $1 in
    etcd | coredns | kwok) echo "$(module_bin_dir "$HACK/tools/$1")/$1" ;;
    *) echo "$(module_bin_dir "$K8S_MODULE")/$1" ;;
  esac
}
