# Every task of this repository. "make" alone lists them.
# What a target needs and the machine lacks, hack/ installs or names.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Start here
.PHONY: demo test
demo: ## a cluster, the operator in it, an MPIJob followed to its end
	@hack/demo.sh
test: ## all checks: lint, generated files, licences, unit tests, end-to-end tests on the local cluster
	@hack/test.sh

##@ Cluster
.PHONY: cluster cluster-down cluster-status kubeconfig
cluster: ## bring up the local Kubernetes cluster (CLUSTER=kind: with kind)
	@hack/cluster.sh up
cluster-down: ## remove it and all that it left
	@hack/cluster.sh down
cluster-status: ## its parts and nodes
	@hack/cluster.sh status
kubeconfig: ## print the path of its kubeconfig (make -s kubeconfig)
	@hack/cluster.sh kubeconfig

##@ Images
.PHONY: image worker-images deploy
image: ## the operator's image, as a docker archive
	@hack/images.sh operator
worker-images: ## the Open MPI image of examples and tests, as a docker archive
	@hack/images.sh openmpi
deploy: cluster ## run this checkout's operator in the cluster
	@hack/deploy.sh

##@ Code
.PHONY: fmt lint unit deny crd verify e2e e2e-versions plugin
fmt: ## format the code
	@cargo fmt --all
lint: ## formatting, clippy, shellcheck
	@hack/need.sh cc=build-essential shellcheck=shellcheck
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- --deny warnings
	@shellcheck --external-sources hack/*.sh hack/k8s/*.sh images/openmpi/setup.sh .ci/run
unit: ## the tests that need no cluster, of the operator and of the kubectl plugin
	@hack/need.sh cc=build-essential
	@cargo test --locked --package mpi-operator --package kubectl-mpi
# KUBERNETES reaches the script: variables of the command line of make are in its environment.
e2e: ## the end-to-end tests (KUBERNETES=1.22: on that release; FILTER=suspend: only such)
	@hack/e2e.sh $(FILTER)
e2e-versions: ## a few of them on the newest release
	@hack/e2e-versions.sh
crd: ## write the CRD manifests from the types
	@hack/crd.sh write
verify: ## fail if a generated file is not what its generator writes
	@hack/crd.sh check
plugin: ## the kubectl plugin (kubectl mpi), as a release build
	@hack/need.sh cc=build-essential
	@cargo build --release --locked --package kubectl-mpi
	@echo "$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/kubectl-mpi: copy it to a folder of PATH"
deny: ## licences, duplicate and banned crates (builds cargo-deny once)
	@hack/deny.sh
