#!/usr/bin/env bash
# Runs this checkout's operator as a Deployment in the cluster: builds its image, loads
# it, applies manifests/overlays/standalone with that image, waits for the rollout.
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=hack/lib/images.sh
source "$HACK/lib/images.sh"

overlay="$REPO/manifests/overlays/standalone"
namespace=mpi-operator
deployment=deployment/mpi-operator
kubectl() { "$HACK/cluster.sh" kubectl "$@"; }

[[ -f $overlay/kustomization.yaml ]] || die "no ${overlay#"$REPO/"}/kustomization.yaml"
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
