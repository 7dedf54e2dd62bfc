# `make` alone lists the targets.
.DELETE_ON_ERROR:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.NOTPARALLEL: # go uses all the cores, and what is measured has to be alone
SHELL := /bin/sh

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Minor version of the control plane that tests and demo run against: a folder in e2e/kubernetes. Empty: the newest.
KUBERNETES ?=
# Arguments for go test in `make e2e`, such as E2E_ARGS="-run TestC07 -v".
E2E_ARGS ?=
# Arguments for the benchmark program, see `bin/bench -help`.
BENCH_ARGS ?=
# How long `make storm` goes on, from which seed, and other arguments, see `bin/storm -help`.
STORM_ROUNDS ?= 20
STORM_SEED ?= 1
STORM_ARGS ?=

# The version is stamped: go need not ask git, which refuses in a checkout of another user.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false
# The programs under e2e/ get their files from here, and never the kubeconfig of whoever runs make.
SHIPPED := -controller $(CURDIR)/bin/mirror-controller -deploy $(CURDIR)/deploy/base
ALONE := env -u KUBECONFIG KUBERNETES=$(KUBERNETES)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the controller into bin/
	$(GO_BUILD) -ldflags "-s -w -X main.stamp=$(VERSION)" -o bin/ ./cmd/...

.PHONY: cluster
cluster: ## Build the control plane for tests and demo into your cache folder (minutes, the first time)
	cd e2e && $(ALONE) go run ./cluster/build

.PHONY: test
test: vet unit e2e ## vet, unit tests and end-to-end tests

.PHONY: vet
vet: ## go vet in all modules
	go vet ./...
	cd e2e && go vet ./...

.PHONY: unit
unit: compiler ## Unit tests, with -race
	CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true go test -race ./...

# -race needs cgo: better one line than a page from the linker.
.PHONY: compiler
compiler:
	@echo '#include <stdlib.h>' | $$(go env CC) -E - >/dev/null 2>&1 || { echo \
	  "go test -race needs a C compiler and its headers, and $$(go env CC) does not work: install gcc and libc6-dev" >&2; exit 1; }

.PHONY: e2e
e2e: build cluster ## End-to-end tests on a real etcd, kube-apiserver and kube-controller-manager
	cd e2e && $(ALONE) go test -timeout 20m ./cluster ./faultproxy $(E2E_ARGS)
	cd e2e && $(ALONE) go test -timeout 20m . $(E2E_ARGS) -args $(SHIPPED)
	cd e2e && $(ALONE) go test -timeout 20m ./storm/model $(E2E_ARGS)

.PHONY: demo
demo: build cluster ## Show what the controller does, on a control plane that is started for it and stopped again
	cd e2e && $(GO_BUILD) -o $(CURDIR)/bin/demo ./demo
	@$(ALONE) bin/demo $(SHIPPED)

.PHONY: run
run: build cluster ## Start a control plane and the controller and keep them until Ctrl-C
	cd e2e && $(GO_BUILD) -o $(CURDIR)/bin/playground ./playground
	@$(ALONE) bin/playground $(SHIPPED)

.PHONY: bench
bench: build cluster ## Measure the controller against plain writes
	cd e2e && $(GO_BUILD) -o $(CURDIR)/bin/bench ./bench
	@$(ALONE) bin/bench $(SHIPPED) $(BENCH_ARGS)

.PHONY: storm
storm: build cluster ## Have random operations and faults happen, and compare what comes of it with a model
	cd e2e && $(GO_BUILD) -o $(CURDIR)/bin/storm ./storm
	@$(ALONE) bin/storm $(SHIPPED) -rounds $(STORM_ROUNDS) -seed $(STORM_SEED) $(STORM_ARGS)

.PHONY: lint
lint: vet ## gofmt, vet, staticcheck, tidy modules
	@files=$$(gofmt -l cmd mirror e2e); test -z "$$files" || { echo "not formatted: $$files" >&2; exit 1; }
	go mod tidy -diff
	cd e2e && go mod tidy -diff
	cd e2e/tools && go mod tidy -diff
	cd e2e/tools && $(GO_BUILD) -o $(CURDIR)/bin/ honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	cd e2e && ../bin/staticcheck ./...

.PHONY: clean
clean: ## Remove what was built here; the control plane in the cache folder stays
	rm -rf bin dist e2e/bench/out
