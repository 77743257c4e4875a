#!/usr/bin/env bash
# The whole way once: a cluster, the operator in it, an MPIJob, the value of pi.
set -euo pipefail

# shellcheck source=hack/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

kubectl() { "$HACK/cluster.sh" kubectl "$@"; }
job=pi
limit=${MPI_DEMO_TIMEOUT:-180}

"$HACK/cluster.sh" up
"$HACK/cluster.sh" load "$("$HACK/images.sh" openmpi)"
"$HACK/deploy.sh"

say "kubectl apply -f examples/pi.yaml"
# An earlier demo's job has ended and would show nothing.
kubectl delete mpijob "$job" --ignore-not-found --wait >&2
kubectl apply -f "$REPO/examples/pi.yaml" >&2

# Follows the job: each new condition and each pod's node is said once.
declare -A shown=()
show_once() { # KEY TEXT
  [[ -z ${shown[$1]:-} ]] || return 0
  shown[$1]=1
  say "  $2"
}
started=$SECONDS
outcome=''
while [[ -z $outcome ]]; do
  while IFS='|' read -r pod node; do
    [[ -z $node ]] || show_once "pod $pod" "pod $pod on $node"
  done < <(kubectl get pods -l "training.kubeflow.org/job-name=$job" \
    -o 'jsonpath={range .items[*]}{.metadata.name}|{.spec.nodeName}{"\n"}{end}')
  while IFS='|' read -r type status reason message; do
    [[ -n $type ]] || continue
    show_once "$type=$status $reason" "$type=$status ($reason) $message"
    [[ $type=$status == Succeeded=True || $type=$status == Failed=True ]] && outcome=$type
  done < <(kubectl get mpijob "$job" \
    -o 'jsonpath={range .status.conditions[*]}{.type}|{.status}|{.reason}|{.message}{"\n"}{end}')
  if [[ -z $outcome ]] && ((SECONDS - started >= limit)); then
    outcome="not finished after $limit s"
  fi
  [[ -n $outcome ]] || sleep 0.5
done

if [[ $outcome != Succeeded ]]; then
  kubectl describe mpijob "$job" >&2 || true
  kubectl get pods -o wide -l "training.kubeflow.org/job-name=$job" >&2 || true
  kubectl logs "job/$job-launcher" >&2 || true
  kubectl --namespace mpi-operator logs deployment/mpi-operator --tail 40 >&2 || true
  die "the MPIJob $job: $outcome"
fi

say "Succeeded. The launcher's log:"
echo
kubectl logs "job/$job-launcher"
cat <<TEXT

The cluster stays up. Look around:
  export KUBECONFIG=$KUBECONFIG_FILE
  export PATH=\$PATH:$(dirname "$("$HACK/cluster.sh" kubectl-path)")
  kubectl get mpijobs
  kubectl describe mpijob $job
  kubectl -n mpi-operator logs deployment/mpi-operator
Run it again:  kubectl delete mpijob $job; kubectl apply -f examples/pi.yaml
Remove all:    make cluster-down
TEXT
