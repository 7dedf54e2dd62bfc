# `make` alone lists the targets.
.DELETE_ON_ERROR:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.NOTPARALLEL: # go uses all the cores, and what is measured has to be alone
SHELL := /bin/sh

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Minor version of the control plane that tests and demo run against: a folder in e2e/kubernetes. Empty: the newest.
KUBERNETES ?=
# Arguments for go test in the targets e2e…, such as E2E_ARGS="-run TestC13 -v".
E2E_ARGS ?=
# Which tests `make unit` runs, as -run of go test takes it, such as RUN=TestC36 or RUN='TestSecondChance/a_read'. Empty: all.
RUN ?=
# More arguments for the controller of `make run`.
ARGS ?=
# BENCH=full for the sizes of e2e/BENCHMARKS.md, about an hour; BENCH=million for a million copies, 75 minutes and 20 GiB; and
# arguments for the program, see `bin/bench -help`: BENCH_ARGS="-run Hanging -hanging 1000".
# BENCH=node for the times of e2e-node, each held to its bar.
BENCH ?=
BENCH_ARGS ?=
# How many rounds `make storm` plays, and from which seed: each round has the next one.
STORM_ROUNDS ?= 20
STORM_SEED ?= 1
# How many histories `make histories` plays, and from which seed: the same each day. HISTORIES_ACTS=all adds rare acts,
# and HISTORIES_ONLY=2,5,9 leaves out all acts but these.
HISTORIES ?= 1000
HISTORIES_SEED ?= 1
HISTORIES_ACTS ?=
HISTORIES_ONLY ?=
# From which seed `make soak` plays histories and storm. Empty: a new one each time.
SOAK_SEED ?=
# Whose code `make mutants` breaks, such as PKG="mirror/plan mirror/internal/...", and which mutants: those whose names
# contain a text, or the one of this name. MUTANTS_ARGS="-bound 20s" leaves out tests that would take longer for one.
PKG ?= mirror/plan
MUTANTS ?=
MUTANTS_ARGS ?=
# Which of the promises `make wires` breaks, by the beginning of its file, such as 05. Empty: all of them.
WIRE ?=
unexport HISTORIES HISTORIES_SEED HISTORIES_ACTS HISTORIES_ONLY # make unit plays fewer, without delays
# The image that `make image` builds, for which architecture, with what (docker, podman, buildah; empty: the first that
# works), on which image of Go (empty: as the Dockerfile says), and other arguments for the builder.
IMAGE ?= mirror-controller:dev
ARCH ?= $(MACHINE)
BUILDER ?=
GO_IMAGE ?=
IMAGE_ARGS ?=
# Arguments for the tests of what is released: -required fails where buildah is missing, -thorough takes all architectures.
RELEASE_TEST_ARGS ?=
# -required has the search for known vulnerabilities fail where the database cannot be reached.
VULN_ARGS ?=
# Where the archives of a release will be found, for the manifest of krew. Nothing is published: set it to where you put them.
RELEASE_URL ?= https://releases.invalid/mirror-controller/$(VERSION)
# The time of what is released is that of the commit, so that whoever builds it again gets the same bytes.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

MACHINE = $(shell uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
# What is built for a release: each command for Linux, and the plug-in for where kubectl runs, with an archive for each.
COMMANDS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))
ARCHS := amd64 arm64
PROGRAMS := $(foreach arch,$(ARCHS),$(COMMANDS:%=dist/%-linux-$(arch)) dist/kubectl-mirror-darwin-$(arch) dist/kubectl-mirror-windows-$(arch).exe)
ARCHIVES := $(foreach os,linux darwin windows,$(ARCHS:%=dist/kubectl-mirror-$(os)-%.tar.gz))
# go.work is for editors. What is built here must not depend on what another module needs.
export GOWORK := off
# `make lint` runs vet. With each test it would look through all dependencies anew, which takes minutes the first time.

# Everything is compiled as what is released, tests and control plane too: the packages that they share are compiled once.
# Without data for debuggers, which the linker would strip, compilers take a twelfth less CPU time, and linkers a fifth.
export GOFLAGS := $(shell go env GOFLAGS) -vet=off -trimpath -gcflags=all=-dwarf=false -ldflags=-s
export CGO_ENABLED := 0
# The race detector alone takes cgo, and that a C compiler that works.
HAS_CC := $(shell echo '\#include <stdlib.h>' | $$(go env CC) -E - >/dev/null 2>&1 && echo yes)
# The version is stamped: go need not ask git, which refuses in a checkout of another user. GOGC: the compilers take a
# twelfth less CPU time, and more memory.
RELEASED := GOGC=200 go build -buildvcs=false
STAMPED = $(RELEASED) -ldflags "-s -w -X main.stamp=$(VERSION)"
# The programs under e2e/ get their files from here, and never the kubeconfig of whoever runs make, nor
# settings of Go's runtime, nor of this make for those that they run.
SHIPPED := -controller $(CURDIR)/bin/mirror-controller -deploy $(CURDIR)/deploy/base
USUAL := -controller $(CURDIR)/bin/mirror-controller -deploy $(CURDIR)/deploy/default
ALONE := env -u KUBECONFIG -u MAKEFLAGS -u MAKEOVERRIDES -u MAKELEVEL -u MFLAGS \
  -u GOGC -u GOMEMLIMIT -u GODEBUG KUBERNETES=$(KUBERNETES)
# Each prints how far it is, where go build and go test would say nothing for minutes: one builds programs of the control
# plane, and one compiles what packages of the module in a folder need.
BUILD = cd e2e && $(ALONE) go run ./programs/build
COMPILE = @echo 'Looking for what $@ has to compile'; $(BUILD) -compile
# go test that compiles in this way, links only the packages that have a test which -run names, and fails if none has.
GO_TEST = @cd e2e && $(ALONE) go run ./testnames/run

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the controller and kubectl-mirror into bin/
	$(COMPILE) .. ./cmd/...
	$(STAMPED) -o bin/ ./cmd/...

.PHONY: env
env: ## Print the settings by which go in a shell shares what make has compiled: eval "$(make env)"
	@echo "export GOWORK=$(GOWORK) CGO_ENABLED=$(CGO_ENABLED) GOFLAGS='$(GOFLAGS)'"

.PHONY: cluster
cluster: ## Build the control plane for tests and demo into your cache folder: minutes, the first time
	$(BUILD)

.PHONY: kubectl
kubectl: ## The same with a kubectl, for tests and make run
	$(BUILD) etcd kube-apiserver controller-manager kubectl

.PHONY: check
check: unit lint verify test race wires ## What to run before a pull request: linters, generated files, the race detector, and test

.PHONY: test
test: unit histories e2e ## What to run before a commit: unit tests, histories, the contract on a real API server

.PHONY: test-all
test-all: race test test-rest ## All tests

.PHONY: test-rest
test-rest: e2e-rest release-test ## What test and race leave out: chart, packaging, docs, storm, releases, the node
	@lacking="$$($(NODE_LACKS))"; if test -z "$$lacking"; then $(MAKE) --no-print-directory e2e-node; else \
	  echo "The node is not tested: that takes $$lacking" >&2; fi

# Scenes whose load takes minutes with the race detector, or that measure memory. Other tests run the same code.
HEAVY := TestC63ThousandsHang|TestC64|TestC80|TestC81|TestC87
# Leaves out client-go's mutation detector, which takes two thirds of the time of a scene, and more of a heavy one. It is
# on in the other unit tests, in the first histories, and in e2e.
NO_DETECTOR := KUBE_CACHE_MUTATION_DETECTOR=false

.PHONY: unit
unit: ## Unit tests; RUN=TestC36 chooses
	@# A broken rule may have a test in virtual time run for ever. Tests of the plug-in mostly wait, so others run beside them.
	$(GO_TEST) .. ./... -- -timeout 20m -p 4 $(if $(RUN),-run '$(RUN)',-skip '$(HEAVY)')
	$(if $(RUN),,@$(NO_DETECTOR) $(MAKE) --no-print-directory unit RUN='$(HEAVY)')

# With -race all dependencies are compiled once more, so it is not in `make test`. On several cores it crashed in Go 1.26 where two timers of one synctest bubble fire at a time, as in
# go.dev/issue/78156, which is open. An hour on two cores of 1.26.8 did not crash, which is no proof.
.PHONY: race
race: ## Unit tests with the race detector, on one core each
	@test -n '$(HAS_CC)' || { echo "make race needs a C compiler: install gcc and libc6-dev" >&2; exit 1; }
	$(COMPILE) .. -- -race -test ./...
	CGO_ENABLED=1 go test -timeout 60m -race -cpu 1 -skip '$(HEAVY)|TestNullControllers' ./...

.PHONY: mutants
mutants: ## Break each condition, statement and constant of PKG=mirror/plan, and print what no test notices
	$(COMPILE) .. -- -test ./...
	@# From the environment, for names have quotes.
	$(NO_DETECTOR) go run ./mirror/apitest/mutants/run -tests ./... -only "$$MUTANTS" $(MUTANTS_ARGS) $(PKG:%=./%)

.PHONY: wires
wires: ## Break what one package promises another, one promise at a time: a unit test has to turn red within a minute
	go run ./mirror/apitest/wires mirror/apitest/wires/$(WIRE)*.patch

.PHONY: histories
histories: ## Random histories of the controller in virtual time, with delays between any two statements
	go run ./mirror/apitest/delay/instrument mirror bin/delays
	go test -c -overlay bin/delays/overlay.json -o bin/histories.test ./mirror
	@# A process for each core, with its part of the seeds: a history takes one core, as with race. Each history leaves half
	@# a megabyte in its process, so that one plays at most a hundred. The first process has the mutation detector on.
	@cores=$$(getconf _NPROCESSORS_ONLN); export each=$$((($(HISTORIES) + cores - 1) / cores)); \
	  export HISTORIES_ACTS='$(HISTORIES_ACTS)' HISTORIES_ONLY='$(HISTORIES_ONLY)' $(NO_DETECTOR); \
	  test $$each -le 100 || each=100; first=$(HISTORIES_SEED); export end=$$((first + $(HISTORIES))); cd mirror; \
	  while test $$first -lt $$end; do echo $$first; first=$$((first + each)); done | xargs -P $$cores -I FIRST sh -c \
	    'left=$$((end - FIRST)); test $$left -le $$each || left=$$each; \
    test FIRST -ne $(HISTORIES_SEED) || unset KUBE_CACHE_MUTATION_DETECTOR; HISTORIES=$$left HISTORIES_SEED=FIRST \
	    exec ../bin/histories.test -test.timeout 60m -test.cpu 1 -test.run "^TestHistories$$"'

# What takes a fifth of the time of e2e, or waits for minutes, and is left to e2e-rest. Unit tests prove what keeps memory
# small, and what a leader does whose watches are interrupted.
LARGE := 'TestC47MemoryIsBounded|TestC79LeaderGivesWay|TestC79Undecodable'
NOT_LARGE = $(if $(findstring -run,$(E2E_ARGS)),,-skip $(LARGE))

.PHONY: e2e
e2e: kubectl build ## The contract, the plug-in and the policies on a real etcd and kube-apiserver
	@# Tests mostly wait, up to a minute, so all packages run at a time, and ten tests of each; faults sets more. Anew: go does
	@# not see that a program changed.
	$(GO_TEST) . ./faults ./contract ./policies ./plugin -- -timeout 60m -count=1 -p 4 -parallel 10 $(NOT_LARGE) $(E2E_ARGS) -args $(SHIPPED)

REST := ./checks ./contract ./demo ./faultproxy ./faults ./install ./packaging ./programs ./storm ./testnames
.PHONY: e2e-rest
e2e-rest: kubectl build bin/helm bin/promtool ## The other end-to-end tests that need no node
	$(GO_TEST) -n . $(REST) -- $(E2E_ARGS)
	$(GO_TEST) -any . ./faultproxy ./programs ./testnames -- -timeout 60m $(E2E_ARGS)
	$(GO_TEST) -any . ./contract ./faults -- -timeout 60m -count=1 -run $(LARGE) $(E2E_ARGS) -args $(SHIPPED)
	$(GO_TEST) -any . ./install -- -timeout 60m -count=1 $(E2E_ARGS) -args $(SHIPPED)
	$(GO_TEST) -any . ./demo -- -timeout 60m $(E2E_ARGS) -args $(USUAL)
	$(GO_TEST) -any . ./storm -- -timeout 60m $(E2E_ARGS) -args $(SHIPPED)
	@# Anew each time: go does not see what helm reads, nor what lies outside the module.
	$(GO_TEST) -any . ./packaging -- -timeout 60m -count=1 $(E2E_ARGS)
	$(GO_TEST) -any . ./checks -- -timeout 60m -count=1 $(E2E_ARGS)

# What runs is the image, so a kubelet is built besides: some minutes, the first time. Debian has the rest.
NODE_PROGRAMS := containerd runc /usr/lib/cni/bridge buildah ip nsenter
# Prints what this machine lacks for it.
NODE_LACKS = if test "$$(uname -s)" != Linux || test "$$(id -u)" != 0; then echo "Linux and root"; else \
  missing=; for p in $(NODE_PROGRAMS); do command -v $$p >/dev/null || missing="$$missing $$p"; done; test -z "$$missing" || \
  echo "$${missing\# }, from the packages containerd runc containernetworking-plugins buildah iproute2 util-linux"; fi
.PHONY: e2e-node
e2e-node: node-programs build bin/helm ## Tests of the image and the Deployment on a real node in namespaces of its own; needs Linux and root
	$(BUILD) etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl
	$(GO_TEST) -n . ./node -- $(E2E_ARGS)
	cd e2e/node && $(ALONE) go test -timeout 120m -count=1 -v $(E2E_ARGS) # without a package it prints while it runs

.PHONY: node-programs
node-programs:
	@lacking="$$($(NODE_LACKS))"; test -z "$$lacking" || { echo "make e2e-node needs $$lacking" >&2; exit 1; }

# Large tools have a module each, of which all that it names as tools is built: minutes, the first time.
TOOLS := benchstat cyclonedx-gomod golangci-lint helm krew promtool
$(TOOLS:%=bin/%): bin/%: e2e/tools/%/go.mod e2e/tools/%/go.sum
	$(COMPILE) tools/$* -- -tags='$(TAGS)' tool
	cd e2e/tools/$* && $(RELEASED) -tags '$(TAGS)' -o $(CURDIR)/bin/ tool
TAGS :=
# Rules need no way to find targets.
bin/promtool: TAGS := remove_all_sd

.PHONY: generate
generate: bin/helm ## Render base, components and install.yaml, copy the policies into the chart, and write tables and links of the docs
	@# Helm reads nothing outside a chart, and archives and GitOps tools do not all follow symbolic links.
	rm -rf deploy/chart/files && mkdir deploy/chart/files
	cd deploy/components && cp monitoring/alerts.yaml monitoring/dashboard.json ../chart/files/
	cp deploy/components/admission/confined/policy.yaml deploy/chart/files/confined.yaml
	cp deploy/components/admission/publishers/policy.yaml deploy/chart/files/publishers.yaml
	cp deploy/components/protect-copies/policy.yaml deploy/chart/files/protected-copies.yaml
	cp deploy/components/viewer/rbac.yaml deploy/chart/files/viewer.yaml
	cd e2e && go test ./packaging -run '^TestGenerated' -args -update
	go test ./cmd/mirror-controller ./cmd/kubectl-mirror -run '^TestReferenceTable' -args -update
	cd e2e && go test ./checks -run '^TestCases' -args -update

.PHONY: verify
verify: ## Fail if make generate changes something, or the list of survivors has mutants that there are no more
	go run ./mirror/apitest/mutants/run -names
	rm -rf bin/before && mkdir -p bin && cp -R deploy bin/before
	$(MAKE) --no-print-directory generate
	diff -r bin/before deploy

# Versions of charts are SemVer. What is no release is packaged as one that comes before all releases. Files in the archive
# keep their times, so they get one that is always the same.
.PHONY: chart
chart: bin/helm ## Package the chart into dist/
	rm -rf dist/chart && mkdir -p dist && cp -R deploy/chart dist/chart
	find dist/chart -exec touch -d @$${SOURCE_DATE_EPOCH:-0} {} +
	version=$$(echo '$(VERSION)' | sed -E 's/^v?([0-9]+\.[0-9]+\.[0-9]+)/\1/; t; s/^/0.0.0-dev.g/') && \
	  bin/helm package dist/chart --version "$$version" --app-version '$(VERSION)' --destination dist
	rm -rf dist/chart

.PHONY: demo
demo: ## Show what the controller does, on a control plane that is started for it and stopped again
	$(BUILD) etcd kube-apiserver
	$(COMPILE) .. ./cmd/mirror-controller
	$(STAMPED) -o bin/ ./cmd/mirror-controller
	$(COMPILE) . ./demo
	cd e2e && $(RELEASED) -o $(CURDIR)/bin/demo ./demo
	@$(ALONE) bin/demo $(USUAL)

.PHONY: run
run: kubectl build ## Start a control plane, the policies and the controller until Ctrl-C; if it runs, give it other ARGS
	$(COMPILE) . ./demo
	cd e2e && $(RELEASED) -o $(CURDIR)/bin/demo ./demo
	@# A grace of a minute leaves time to undo a deletion, and to wait for one.
	@$(ALONE) bin/demo $(USUAL) -keep -- --deletion-grace=1m $(ARGS)

.PHONY: cluster-inlined
cluster-inlined:
	$(BUILD) -inlined

.PHONY: bench
ifeq ($(BENCH),node)
bench: E2E_ARGS += -strict
bench: e2e-node
else
BENCH_full := -rounds 21 -few 7 -large 5000 -grow-to 1000 -hanging 1000 -settle 10s -idle 2m
BENCH_million := -run Growth -grow-to 10000 -settle 15s -idle 4m # a collection of a large heap comes every two minutes
BENCH_SIZES = $(if $(filter full,$(BENCH)),$(BENCH_full)) $(if $(filter million,$(BENCH)),$(BENCH_million))
bench: cluster-inlined build bin/benchstat ## Measure the controller against plain writes
	@test -z '$(filter-out full million,$(BENCH))' || { echo "BENCH is full, million, node or empty, not $(BENCH)" >&2; exit 1; }
	$(COMPILE) . ./bench
	cd e2e && $(RELEASED) -o $(CURDIR)/bin/bench ./bench
	@mkdir -p e2e/bench/out
	@$(ALONE) bin/bench $(SHIPPED) -plugin $(CURDIR)/bin/kubectl-mirror $(BENCH_SIZES) $(BENCH_ARGS) >e2e/bench/out/bench.txt; \
	  code=$$?; bin/benchstat e2e/bench/out/bench.txt; exit $$code
endif

.PHONY: storm
storm: cluster build ## Random operations and faults with real processes; nothing is left to do, each write is judged
	mkdir -p bin/artifacts
	cd e2e/storm && $(ALONE) go test -count=1 -timeout 0 -artifacts -outputdir $(CURDIR)/bin/artifacts \
	  -args $(SHIPPED) -rounds $(STORM_ROUNDS) -seed $(STORM_SEED) # without a package it prints while it runs

# New seeds find more in a year than the same each day. Each failure prints the command that plays it again. A crash
# of the process prints none: the first line has the command for all of it.
.PHONY: soak
soak: HISTORIES := 10000
soak: STORM_ROUNDS := 10
soak: ## Random histories and storms, from a new seed each time
	@seed='$(SOAK_SEED)'; test -n "$$seed" || seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); failed=; \
	  echo "All of it again: make soak SOAK_SEED=$$seed HISTORIES=$(HISTORIES) STORM_ROUNDS=$(STORM_ROUNDS)"; \
	  $(MAKE) --no-print-directory histories HISTORIES=$(HISTORIES) HISTORIES_SEED=$$seed || failed=histories; \
	  $(MAKE) --no-print-directory storm STORM_ROUNDS=$(STORM_ROUNDS) STORM_SEED=$$seed || failed="$$failed storm"; \
	  test -z "$$failed" || { echo "Seed $$seed fails:" $$failed >&2; exit 1; }

# The first builder that works: docker without its daemon does not. BuildKit takes the time from the argument.
# buildah 1.28 has to be told on which platform it runs.
BUILD_IMAGE = @builder='$(BUILDER)'; \
  for b in docker podman buildah; do test -n "$$builder" || ! $$b info >/dev/null 2>&1 || builder=$$b; done; \
  case "$$builder" in \
  docker) set -- docker build ;; \
  podman | buildah) set -- "$$builder" build --timestamp '$(SOURCE_DATE_EPOCH)' --build-arg BUILDPLATFORM=linux/$(MACHINE) ;; \
  '') echo "an image needs docker with its daemon, podman or buildah, and none of them works here" >&2; exit 1 ;; \
  *) echo "BUILDER is docker, podman or buildah, not $$builder" >&2; exit 1 ;; \
  esac; \
  DOCKER_BUILDKIT=1 "$$@" --tag '$(IMAGE)' --platform linux/$(ARCH) --build-arg VERSION='$(VERSION)' \
    --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --build-arg SOURCE_DATE_EPOCH='$(SOURCE_DATE_EPOCH)' $(IMAGE_ARGS)

.PHONY: image
image: ## Build the image IMAGE from the Dockerfile
	$(BUILD_IMAGE) $(GO_IMAGE:%=--build-arg GO_IMAGE=%) .

.PHONY: image-prebuilt
image-prebuilt: $(COMMANDS:%=dist/%-linux-$(ARCH)) ## The same around programs that are compiled here: nothing is pulled
	$(BUILD_IMAGE) --target prebuilt .

# dist/COMMAND-OS-ARCHITECTURE, with .exe for Windows, made each time, for go knows what has changed. Its time counts in an
# image.
.PHONY: always
dist/%: always
	@mkdir -p dist
	@platform='$(basename $*)'; arch=$${platform##*-}; platform=$${platform%-*}; set -x; \
	  GOOS=$${platform##*-} GOARCH=$$arch $(STAMPED) -o $@ ./cmd/$${platform%-*}
	@touch -d @$(SOURCE_DATE_EPOCH) $@

# The program by the name that kubectl looks for, and the license if there is one. Equal programs give equal bytes.
ARCHIVE = rm -rf dist/archive && mkdir dist/archive && cp $< dist/archive/kubectl-mirror$(suffix $<) && \
  { test ! -e LICENSE || cp LICENSE dist/archive/; } && chmod 0755 dist/archive/kubectl-mirror* && \
  (cd dist/archive && LC_ALL=C tar --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) -cf - *) | \
  gzip -9n >$@ && rm -rf dist/archive

$(filter-out dist/%-windows-amd64.tar.gz dist/%-windows-arm64.tar.gz,$(ARCHIVES)): dist/%.tar.gz: dist/%
	$(ARCHIVE)

$(ARCHS:%=dist/kubectl-mirror-windows-%.tar.gz): dist/%.tar.gz: dist/%.exe
	$(ARCHIVE)

# The manifest by which krew installs the plug-in from the archives. What is no release has a version before all releases, as
# the chart does.
.PHONY: krew-manifest
krew-manifest: $(ARCHIVES)
	version=$$(echo '$(VERSION)' | sed -E 's/^v?([0-9]+\.[0-9]+\.[0-9]+)/v\1/; t; s/^/v0.0.0-dev.g/') && \
	  sed "s|@VERSION@|$$version|" deploy/krew/mirror.yaml >dist/mirror.yaml
	set -e; for archive in $(ARCHIVES:dist/%=%); do \
	  platform=$${archive#kubectl-mirror-}; platform=$${platform%.tar.gz}; sum=$$(sha256sum <dist/$$archive); \
	  printf '  - selector:\n      matchLabels:\n        os: %s\n        arch: %s\n    uri: %s\n    sha256: %s\n    bin: %s\n' \
	    "$${platform%-*}" "$${platform#*-}" "$(RELEASE_URL)/$$archive" "$${sum%% *}" \
	    "kubectl-mirror$$(case $$platform in windows-*) echo .exe; esac)"; done >>dist/mirror.yaml

.PHONY: release
release: bin/cyclonedx-gomod ## Leave programs, archives, krew manifest, bills of materials, chart, install.yaml and their checksums in dist/
	rm -rf dist
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(MAKE) --no-print-directory $(PROGRAMS) krew-manifest chart
	cp deploy/install.yaml dist/
	set -e; for program in $(PROGRAMS); do bin/cyclonedx-gomod bin -json -std -noserial -notimestamp -version '$(VERSION)' \
	  -output $$program.cdx.json $$program; done
	cd dist && export LC_ALL=C && sums=$$(sha256sum -- *) && echo "$$sums" >SHA256SUMS

.PHONY: release-test
release-test: bin/helm bin/krew bin/cyclonedx-gomod ## Tests of what is released: programs, bills of materials, image (needs buildah, else it is left out)
	$(ALONE) e2e/release/test.sh $(RELEASE_TEST_ARGS)

.PHONY: vuln
vuln: ## Find known vulnerabilities in the code that the programs call
	cd e2e/tools && $(RELEASED) -o $(CURDIR)/bin/ golang.org/x/vuln/cmd/govulncheck
	@if bin/govulncheck -version | grep 'DB updated'; then bin/govulncheck ./...; else \
	  echo "NOTHING WAS LOOKED FOR: the database of vulnerabilities cannot be reached" >&2; test '$(VULN_ARGS)' != -required; fi

# The modules whose code is ours; those of tools name what they build.
MODULES := . e2e
.PHONY: lint
lint: bin/golangci-lint ## golangci-lint, actionlint, tidy modules, links and commands of the docs, rows of tests
	cd e2e/tools && $(RELEASED) -o $(CURDIR)/bin/ github.com/rhysd/actionlint/cmd/actionlint
	@# Not of tools: that takes what tests of their dependencies import, minutes of downloads.
	@set -ex; for module in $(MODULES); do (cd $$module && go mod tidy -diff && $(CURDIR)/bin/golangci-lint run); done
	bin/actionlint
	@# Those of alerts and dashboard take promtool.
	$(GO_TEST) . ./checks -- -count=1 -skip 'TestAlerts|TestDashboard'

.PHONY: clean
clean: ## Remove what was built here; the control plane in the cache folder stays
	rm -rf bin dist e2e/bench/out

