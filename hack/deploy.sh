#!/usr/bin/env bash
# Runs this checkout's operator as a Deployment in the cluster: builds its image, loads
# it, applies manifests/overlays/standalone (without CEL rules where the API server knows
# none) with that image, waits for the rollout.
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=hack/lib/images.sh
source "$HACK/lib/images.sh"

namespace=mpi-operator
deployment=deployment/mpi-operator
kubectl() { "$HACK/cluster.sh" kubectl "$@"; }

# Would the API server store a rule of a definition? Asked, not told by its version: a server
# refuses the field, or knows it and drops it, or keeps it.
keeps_cel_rules() {
  kubectl create --dry-run=server --validate=false -o json -f - 2>/dev/null <<'YAML' | grep -q x-kubernetes-validations
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: probes.e2e.mpi-operator}
spec:
  group: e2e.mpi-operator
  names: {kind: Probe, plural: probes}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-validations: [{rule: "true"}]
YAML
}

overlay="$REPO/manifests/overlays/standalone"
if ! keeps_cel_rules; then
  overlay+=-without-cel
  say "this API server keeps no CEL rules: the definition goes without them"
fi
"$HACK/images.sh" operator >/dev/null
tag=$(operator_tag)
"$HACK/cluster.sh" load "$OPERATOR_ARCHIVE"

# The shipped manifests stay as they are: the image is set by a kustomization on top.
# kustomize takes a base by relative path only.
generated="$CLUSTER_DIR/deploy"
mkdir -p "$generated"
cat >"$generated/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$generated" "$overlay")
images:
- name: $OPERATOR_IMAGE
  newTag: $tag
YAML

say "applying ${overlay#"$REPO/"} with $OPERATOR_IMAGE:$tag"
kubectl apply -k "$generated" >&2
if ! kubectl --namespace "$namespace" rollout status "$deployment" --timeout "${MPI_ROLLOUT_TIMEOUT:-120s}" >&2; then
  kubectl --namespace "$namespace" get pods -o wide >&2 || true
  kubectl --namespace "$namespace" get events --sort-by .lastTimestamp 2>/dev/null | tail -n 15 >&2 || true
  kubectl --namespace "$namespace" logs "$deployment" --tail 40 >&2 || true
  die "the operator does not get ready. Look at: hack/cluster.sh kubectl -n $namespace describe $deployment"
fi
say "the operator runs: $OPERATOR_IMAGE:$tag"
