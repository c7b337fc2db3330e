# kubemend: `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS = -s -w -X main.version=$(VERSION)

# What a release ships, where `make release` writes it, and the image's name without its tag, which is VERSION. clusterctl reads the folder
# as a local repository. clusterctl can replace an image only if the manifest names it with its registry.
OUT ?= out
RELEASE = $(OUT)/addon-kubemend/$(VERSION)
IMAGE ?= ghcr.io/kubemend/kubemend
ARCHITECTURES ?= amd64 arm64

# The platforms that kubectl-mend is built for, and the URL from which krew downloads its archives.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
RELEASE_URL ?= https://github.com/kubemend/kubemend/releases/download/$(VERSION)

# The image's name with its registry, which clusterctl and containerd need. A name without a registry is on Docker Hub, as for Docker.
HOST = $(firstword $(subst /, ,$(IMAGE)))
HAS_HOST = $(if $(findstring /,$(IMAGE)),$(findstring .,$(HOST))$(findstring :,$(HOST))$(filter localhost,$(HOST)))
FULL_IMAGE = $(if $(HAS_HOST),,docker.io/$(if $(findstring /,$(IMAGE)),,library/))$(IMAGE)

# Arguments of the manager for `make run`, of the programs for `make bench` and `make mutate`, and of `go test` for the test targets.
ARGS ?=
TEST_ARGS ?=
TEST_TIMEOUT ?= 60m

# The same settings for every build, test and check; otherwise Go would compile all of Kubernetes twice. LDFLAGS set the version, because
# -buildvcs fails in a copy without git history.
export CGO_ENABLED ?= 0
export GOFLAGS := $(strip $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false)

# The tools are built in the versions of hack/tools/go.mod, and again when that file changes.
TOOLS := .tools/bin
ACTIONLINT := $(TOOLS)/actionlint
CONTROLLER_GEN := $(TOOLS)/controller-gen
GOLANGCI_LINT := $(TOOLS)/golangci-lint
GOTESTSUM := $(TOOLS)/gotestsum
GOVULNCHECK := $(TOOLS)/govulncheck
KUSTOMIZE := $(TOOLS)/kustomize

# cosign signs releases. Its module is larger than all others together; only `make release-try` and the release workflow build it.
COSIGN := $(TOOLS)/cosign

# The programs of hack/release. The package comment of each describes it.
RELEASE_TOOLS := $(addprefix $(TOOLS)/,archive chart image inventory krew render)
export PATH := $(CURDIR)/$(TOOLS):$(PATH)

# golangci-lint caches findings with the path of the working copy, so each copy needs its own cache.
export GOLANGCI_LINT_CACHE := $(CURDIR)/.tools/golangci-lint

# Every Go module of the repository: the project, the tools and the parts of the test rig.
MODULES = $(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.?*')))

# The modules with code of the project. The others only pin the versions of what is built from them.
CODE_MODULES = $(filter-out hack/cosign hack/tools test/rig/certmanager test/rig/kube,$(MODULES))

# The number of packages that are tested at the same time. Suites on the rig are idle half of the time, so this is more than the cores. With
# four, two slow cores are busy all the time and API servers do not answer for half a minute; with six, leases expire. `go test` starts
# packages in the given order, so the slowest come first and none runs alone at the end.
PARALLEL ?= 3
PACKAGES ?= ./test/e2e/baremetal ./test/e2e/capi ./test/api ./test/e2e ./test/e2e/... ./test/demo ./...

# `go test ./...` skips other modules. Their tests run unless PACKAGES selects packages: test/observability, which needs no control plane,
# beside the others, and test/gitops after them. All of them write one stream for one summary.
ALL_MODULES = $(filter file,$(origin PACKAGES))
EACH_TEST_MODULE = failed=0; \
	$(if $(ALL_MODULES),$(GO) -C test/observability test -json "$$@" ./... > .rig/observability.json & beside=$$!;) \
	$(GO) test -json "$$@" $(PACKAGES) || failed=1; \
	$(if $(ALL_MODULES),wait $$beside || failed=1; cat .rig/observability.json; $(GO) -C test/gitops test -json "$$@" ./... || failed=1;) \
	exit $$failed

# A test run has enough memory but not enough processor time, so everything that it starts collects garbage less often.
build demo test test-unit: export GOGC ?= 400

# Linking debug information into thirty test binaries would take as long as the tests. `make verify` runs vet.
UNIT_FLAGS = -vet=off '-ldflags=-s -w'
TEST_FLAGS = -count=1 $(UNIT_FLAGS)

# Everything outside test/, the checks of the code in test/, and other tests without a control plane. The samples of the fault campaigns,
# below test/faults, only run in `make test`.
UNIT_PACKAGES = $$($(GO) list ./... | grep -v '/test/') ./test/inmemory/... ./test/faults ./test/seeds

include test/rig/rig.mk

##@ Use

.PHONY: help
help: ## List the targets (the default)
	@awk 'BEGIN { FS = ":[^#]*## " } \
		/^##@ / { heading = substr($$0, 5) } \
		/^[a-z][a-z-]*:[^#]*## / && !seen[$$1]++ { \
			if (heading != "") { printf "\n%s\n", heading; heading = "" } \
			printf "  %-18s %s\n", $$1, $$2 \
		}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/manager ## Build the manager, and the commands below cmd/, into bin/
	@$(call announced,the commands,20s) $(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# go itself knows whether bin/manager is up to date.
.PHONY: bin/manager
bin/manager: $(RIG_BUILD)
	@$(call announced,the manager,1m40s) $(GO) build -ldflags '$(LDFLAGS)' -o $@ .

# Other machines must not reach a manager that a developer runs.
LOCAL = --health-addr=127.0.0.1:9440 --diagnostics-address=127.0.0.1:8443 --webhook-host=127.0.0.1

.PHONY: run
run: bin/manager ## Run the manager against the current kubeconfig, listening on 127.0.0.1 (ARGS="--flag ...")
	$(if $(filter --teardown% --kubeconfig% --leader-elect-namespace%,$(ARGS)),,@kubectl get namespace kubemend-system >/dev/null 2>&1 || \
		kubectl create namespace kubemend-system || true)
	exec bin/manager $(LOCAL) $(ARGS)

# Cluster API core and the manager are built while the demo starts, which waits for each when it needs it. If the manager does not compile,
# its old binary is removed, so that the demo does not run it.
.PHONY: demo .rig/demo
demo: $(RIG_BUILD) ## Show repairs on a real control plane, from start to end (SCENE=replace|short-circuit|reboot, KEEP=1)
	@$(MAKE) --no-print-directory .rig/demo rig-api-servers
	@{ GO='$(GO)' $(RIG_BUILD) capi-core; $(MAKE) --no-print-directory bin/manager || rm -f bin/manager; } & builder=$$!; code=0; \
		KUBEMEND_RIG_BUILDER=$$builder .rig/demo || code=$$?; wait $$builder; exit $$code

.rig/demo: $(RIG_BUILD)
	@$(call announced,the demo,1m20s) $(GO) build -o $@ ./test/demo

##@ Test

# The rig writes a line for each control plane. The loop prints their number above the runner's summary, which must stay last.
STARTED = $(CURDIR)/.rig/control-planes

.PHONY: test
test: build rig $(GOTESTSUM) $(KUSTOMIZE) $(RELEASE_TOOLS) ## Run all tests: unit, in memory, on real control planes, end to end (TEST_ARGS="-run Name", PACKAGES=./test/e2e/...)
	@mkdir -p .rig; : > $(STARTED); export KUBEMEND_RIG_STARTED=$(STARTED) KUBEMEND_CAMPAIGN_SEED=$(CAMPAIGN_SEED); \
	echo "Campaigns are sampled: again by make test CAMPAIGN_SEED=$$KUBEMEND_CAMPAIGN_SEED"; \
	$(GOTESTSUM) --format pkgname --format-hide-empty-pkg --raw-command -- \
		bash -c '$(EACH_TEST_MODULE)' go-test $(TEST_FLAGS) -p $(PARALLEL) -timeout $(TEST_TIMEOUT) $(TEST_ARGS) | \
	while IFS= read -r line; do \
		[[ $$line != "DONE "* ]] || echo "control planes started: $$(wc -l < $(STARTED))"; printf '%s\n' "$$line"; \
	done

# The seed that selects the part of the fault campaigns. A run prints its seed; the same seed selects the same part again.
CAMPAIGN_SEED ?= $(shell date +%s)

.PHONY: campaigns
campaigns: ## Run the fault campaigns whole, and write docs/reliability.md (ARGS="-rapid.seed=7 -rapid.checks=5000" for the random ones of hosts)
	KUBEMEND_CAMPAIGNS=whole $(GO) test -count=1 -vet=off -timeout 80m ./test/faults/machines ./test/inmemory/nodes -p 1 -update
	KUBEMEND_CAMPAIGNS=whole $(GO) test -count=1 -vet=off -timeout 80m ./test/faults/hosts -update $(ARGS)

.PHONY: soak
soak: build rig ## Run make test twenty times, every second time beside eight busy loops, and append to soak.log (N=2)
	hack/soak $(or $(N),20)

# The functions named Fuzz..., as folder and name. go test fuzzes one function at a time, so several run in parallel. Failing input is
# stored in testdata/fuzz, and every go test tries it again. New input that does not fail is not minimized, which would take most of the
# time.
FUZZ_TARGETS = $(shell grep -rHoE --include='*_test.go' --exclude-dir='.?*' '^func Fuzz[A-Za-z]+' . | sed -E 's,/[^/]+:func ,:,' | sort)
FUZZ_TIME ?= 30s
FUZZ_PARALLEL ?= 2

.PHONY: test-fuzz
test-fuzz: ## Try random input, half a minute for each function named Fuzz... (FUZZ_TIME=5m)
	@printf '%s\n' $(FUZZ_TARGETS) | xargs -P $(FUZZ_PARALLEL) -I{} bash -c 'at={}; \
		said=$$(nice $(GO) test -run "^$$" -fuzz "^$${at#*:}\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 1x -parallel 1 -vet=off "$${at%%:*}" 2>&1) || \
		{ echo "$$at: $$said"; exit 1; }'
	@echo "Fuzzed for $(FUZZ_TIME) each: $(notdir $(subst :,/,$(FUZZ_TARGETS)))"

# go test caches these results, because the tests depend only on the files they read and on the clock. `make test` runs all of them.
.PHONY: test-unit
test-unit: $(GOTESTSUM) ## Run the tests that need no control plane, of what has changed, in a minute (TEST_ARGS="-run Name", TEST_ARGS=-count=1 for all)
	@$(GOTESTSUM) --format pkgname --format-hide-empty-pkg -- -short $(UNIT_FLAGS) -p $(PARALLEL) -timeout 5m $(TEST_ARGS) $(UNIT_PACKAGES)

$(TOOLS)/mutate: hack/mutate/go.mod $(wildcard hack/mutate/*.go)
	$(GO) -C hack/mutate build -ldflags '-s -w' -o $(CURDIR)/$@ .

.PHONY: size
size: ## Print how many lines each package has, and all tests (ARGS=-update lowers the limits in test/size.tsv)
	@$(GO) test -count=1 -v -run '^TestSizesAreDocumented$$' ./test $(ARGS) | grep -vE '^(===|---|PASS|ok) '

.PHONY: mutate
mutate: $(TOOLS)/mutate ## Change the deciding code, one operator at a time, and say which changes no test notices (ARGS="-only budget", ARGS=-faults)
	@mutate $(ARGS)

.PHONY: bench
bench: build rig ## Measure speed and memory, and write docs/benchmarks.md (QUICK=1 for a short run, ARGS="-only power-cycles")
	$(GO) run ./test/bench -write docs/benchmarks.md $(ARGS)

##@ Generate and check

.PHONY: generate
generate: generate-manifests generate-docs generate-dashboards generate-chart ## Rewrite all that is generated

# The packages whose markers are about rights in workload clusters, about power-cycling hosts, and about NodeHealthChecks in the management
# cluster. The last variable has all other packages, whose rights every manager needs there.
RIGHTS_THERE := ./controllers/workload;./baremetal/fence
RIGHTS_HOSTS := ./controllers/hostremediation/...;./baremetal/host
RIGHTS_NODES := ./controllers/nodehealthcheck/...
OF_A_FEATURE := /(controllers/(workload|hostremediation|nodehealthcheck)|baremetal)(/|$$)
RIGHTS_CHECKS = $(shell $(GO) list -f '{{.Dir}}' ./setup ./controllers/... ./baremetal/... | grep -vE '$(OF_A_FEATURE)' | paste -sd ';')

.PHONY: generate-manifests
generate-manifests: $(CONTROLLER_GEN) generate-simulated ## Rewrite RBAC roles and webhooks, and CRDs and deepcopy functions of our own kinds
	$(CONTROLLER_GEN) webhook 'paths=./controllers/...' output:webhook:artifacts:config=config/webhook
	$(CONTROLLER_GEN) rbac:roleName=kubemend-manager-role 'paths=$(RIGHTS_CHECKS)' output:rbac:artifacts:config=config/rbac
	$(CONTROLLER_GEN) rbac:roleName=kubemend-hosts 'paths=$(RIGHTS_HOSTS)' output:rbac:artifacts:config=config/rbac/hosts
	$(CONTROLLER_GEN) rbac:roleName=kubemend-nodes 'paths=$(RIGHTS_NODES)' output:rbac:artifacts:config=config/rbac/nodes
	$(CONTROLLER_GEN) rbac:roleName=kubemend-workload-reader,fileName=workload-cluster.yaml,headerFile=config/rbac/workload-cluster.header \
		'paths=$(RIGHTS_THERE)' output:rbac:artifacts:config=config/rbac
	rm -f config/crd/bases/*.yaml
	$(CONTROLLER_GEN) object crd 'paths=./api/...' output:crd:artifacts:config=config/crd/bases

# The BMO module has the types of BareMetalHost but not the CRD. This generates the CRD of the version in go.mod. The other kinds of the
# package are not simulated.
BMO_APIS := github.com/metal3-io/baremetal-operator/apis
SIMULATED_HOSTS := test/simulator/crds/baremetalhosts.yaml

.PHONY: generate-simulated
generate-simulated: $(CONTROLLER_GEN) ## Rewrite the CRD of the simulated hosts from the module that has their types
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT; \
	(set -x; $(CONTROLLER_GEN) crd:allowDangerousTypes=true paths=$(BMO_APIS)/metal3.io/v1alpha1 output:crd:dir=$$made); \
	{ $(GO) list -m -f '# Code generated by make generate-simulated from {{.Path}} {{.Version}}. DO NOT EDIT.' $(BMO_APIS); \
		cat "$$made/metal3.io_baremetalhosts.yaml"; } > "$$made/whole" && cp "$$made/whole" $(SIMULATED_HOSTS)

# A test named Test...AreDocumented compares a document with the program, or writes it with -update. test/fences runs last, since it copies
# from the documents of the others.
DOCUMENTED = $(sort $(dir $(shell grep -rlE --include='*_test.go' --exclude-dir='.?*' '^func Test[A-Za-z]*AreDocumented' .)))

.PHONY: generate-docs
generate-docs: ## Rewrite the documents that the program is the source of
	$(GO) test $(TEST_FLAGS) -p 1 -run 'AreDocumented$$' $(filter-out ./test/fences/,$(DOCUMENTED)) -update # -p 1: some share a page
	$(GO) test $(TEST_FLAGS) -run 'AreDocumented$$' ./test/fences -update

.PHONY: generate-dashboards
generate-dashboards: ## Rewrite the dashboards for Grafana
	$(GO) -C hack/dashboards run . -out $(CURDIR)/config/observability/dashboards

# This comes last, since the chart is made from the other generated files.
.PHONY: generate-chart
generate-chart: $(KUSTOMIZE) $(TOOLS)/chart ## Rewrite the Helm chart from config/standalone and config/observability
	@built=$$(mktemp -d) && trap 'rm -rf "$$built"' EXIT; set -x; \
	$(KUSTOMIZE) build config/standalone > "$$built/manager" && $(KUSTOMIZE) build config/observability > "$$built/observability" && \
	chart -manifests "$$built/manager" -observability "$$built/observability"

.PHONY: format
format: $(GOLANGCI_LINT) ## Format the Go code and sort its imports
	$(GOLANGCI_LINT) fmt

.PHONY: tidy
tidy: ## Tidy every go.mod and go.sum
	@for module in $(MODULES); do (set -x; $(GO) -C $$module mod tidy); done

# `make verify` checks generated files first, since these checks read them. They run in parallel, since they often wait for the network.
VERIFY := verify-lint verify-workflows verify-tidy

.PHONY: verify
verify: $(GOLANGCI_LINT) ## Fail when anything is stale, unformatted or not clean; run all the checks below
	@failed=; $(MAKE) verify-generate || failed=1; $(MAKE) --keep-going --jobs=3 --output-sync $(VERIFY) || failed=1; \
	test -z "$$failed" || { echo; echo "make verify: failed, see above" >&2; exit 1; }
	@echo "make verify: all clean"

# The checksum of every file that git tracks or would add, including uncommitted changes.
SNAPSHOT = git ls-files -z --cached --others --exclude-standard | sort -zu | xargs -0 sha256sum 2>/dev/null || true

# `make test` checks the documents that tests write.
.PHONY: verify-generate
verify-generate: $(CONTROLLER_GEN) ## Check that `make generate` changes nothing but, perhaps, what the tests named Test...AreDocumented hold
	@before=$$(mktemp) && after=$$(mktemp) && trap 'rm -f "$$before" "$$after"' EXIT; \
	( $(SNAPSHOT) ) > "$$before"; \
	test -s "$$before" || { echo "generated files: git lists no files here, so nothing can be compared" >&2; exit 1; }; \
	$(MAKE) generate-manifests generate-dashboards generate-chart; \
	( $(SNAPSHOT) ) > "$$after"; \
	stale=$$(sort "$$before" "$$after" | uniq -u | cut -c 65- | sort -u); \
	if [ -n "$$stale" ]; then \
		echo "generated files: stale; make generate has now rewritten them, commit the result:" >&2; \
		echo "$$stale" >&2; exit 1; \
	fi

# All modules share one cache, thanks to hack/lint/go. The project runs first and fills it. golangci-lint includes vet and the formatters.
.PHONY: verify-lint
verify-lint: export PATH := $(CURDIR)/hack/lint:$(PATH)
verify-lint: $(GOLANGCI_LINT) ## Check with golangci-lint, which also vets, and checks the formatting and the order of imports
	@failed=; golangci-lint run ./... || failed=1; \
	printf '%s\n' $(filter-out .,$(CODE_MODULES)) | xargs -P 2 -I{} bash -c 'cd {} && golangci-lint run ./...' || failed=1; test -z "$$failed" || \
	{ echo "lint: see above; fix by hand, the formatting with: make format, some with: .tools/bin/golangci-lint run --fix" >&2; exit 1; }

.PHONY: verify-workflows
verify-workflows: $(ACTIONLINT) ## Check the workflows with actionlint
	@$(ACTIONLINT) $(wildcard .github/workflows/*.yml) || { echo "workflows: see above; fix by hand" >&2; exit 1; }

.PHONY: verify-tidy
verify-tidy: ## Check that every go.mod and go.sum is tidy
	@printf '%s\n' $(MODULES) | xargs -P 4 -I{} bash -c 'diff=$$($(GO) -C {} mod tidy -diff 2>&1) || { echo "{}:"; sed -n 1,40p <<< "$$diff"; exit 1; }' || \
	{ echo "go.mod or go.sum not tidy, see above; fix with: make tidy" >&2; exit 1; }

# This asks vuln.go.dev for the latest vulnerabilities, so it is not part of `make verify`, whose result depends only on the commit. Modules
# that only tests and tools use do not ship.
.PHONY: vulnerabilities
vulnerabilities: $(GOVULNCHECK) ## Say which known vulnerabilities the programs reach (needs vuln.go.dev; ARGS="-db=URL" for a mirror of it)
	@code=0; $(GOVULNCHECK) $(ARGS) . ./cmd/... || code=$$?; \
	test $$code = 0 || { test $$code = 3 && echo "vulnerabilities: found, see above; fix by newer versions in go.mod" >&2 || \
		echo "vulnerabilities: nothing is known of them, see above" >&2; exit $$code; }

##@ Release

# The time of the commit, so that the same commit always makes the same files.
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)
COMMITTED = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PROGRAMS = $(foreach architecture,$(ARCHITECTURES),out/bin/manager-linux-$(architecture))
PLUGINS = $(foreach platform,$(PLATFORMS),out/bin/kubectl-mend-$(subst /,-,$(platform)))

# $(call release-build,folder of config/,file) writes a manifest with the image of this version. The temporary folder is in the project,
# because kustomize accepts no absolute paths.
define release-build
@mkdir -p $(RELEASE)
@folder=$$(mktemp -d .tools/kustomize.XXXXXX) && trap 'rm -rf "$$folder"' EXIT; \
printf 'resources: [../../config/%s]\nimages: [{name: ghcr.io/kubemend/kubemend, newName: "%s", newTag: "%s"}]\n' \
	$(1) '$(FULL_IMAGE)' '$(VERSION)' > "$$folder/kustomization.yaml"; \
(set -x; $(KUSTOMIZE) build "$$folder") > $(RELEASE)/$(2)
endef

.PHONY: release-manifests
release-manifests: $(KUSTOMIZE) $(TOOLS)/render ## Write the manifests of a release, its chart and templates, and nothing else, to OUT (VERSION=v0.1.0, IMAGE=name, OUT=out)
	rm -f $(RELEASE)/*
	$(call release-build,clusterctl,addon-components.yaml)
	$(call release-build,default,kubemend.yaml)
	$(call release-build,standalone,kubemend-standalone.yaml)
	$(call release-build,node-health-checks,kubemend-node-health-checks.yaml)
	$(call release-build,rbac/nodes,kubemend-node-rights.yaml)
	$(call release-build,observability,kubemend-observability.yaml)
	cp metadata.yaml templates/*.yaml $(RELEASE)
	cp config/rbac/workload-cluster.yaml $(RELEASE)/workload-cluster-rbac.yaml
	render -package '$(VERSION)' -image '$(FULL_IMAGE)' -out $(RELEASE)

.PHONY: $(PROGRAMS)
$(PROGRAMS): out/bin/manager-linux-%:
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ .

.PHONY: inventory
inventory: $(PROGRAMS) $(TOOLS)/inventory ## Write what the manager is built from, and all licences, to out/
	@mkdir -p $(RELEASE)
	inventory -version '$(VERSION)' -created $(COMMITTED) -out $(RELEASE) $(PROGRAMS)

.PHONY: image
image: inventory $(TOOLS)/image ## Write the container image of the manager to out/, without an engine (VERSION=v0.1.0, IMAGE=name, ARCHITECTURES=amd64)
	image -name '$(FULL_IMAGE)' -version '$(VERSION)' -revision '$(COMMIT)' -created $(COMMITTED) -out $(RELEASE)/kubemend-image.tar \
		-licenses LICENSE,$(RELEASE)/THIRD-PARTY-LICENSES.txt -inventory $(RELEASE)/kubemend.spdx.json \
		$(foreach architecture,$(ARCHITECTURES),$(architecture)=out/bin/manager-linux-$(architecture))

# $(call plugin-archive,GOOS,GOARCH) packs the program, the completion script and the licences. kubectl cannot run the script on Windows.
define plugin-archive
archive -created $(COMMITTED) -out $(RELEASE)/kubectl-mend_$(VERSION)_$(1)_$(2)$(if $(filter windows,$(1)),.zip,.tar.gz) \
	kubectl-mend$(if $(filter windows,$(1)),.exe)=out/bin/kubectl-mend-$(1)-$(2) \
	$(if $(filter windows,$(1)),,kubectl_complete-mend=cmd/kubectl-mend/kubectl_complete-mend) \
	LICENSE=LICENSE THIRD-PARTY-LICENSES.txt=out/kubectl-mend/THIRD-PARTY-LICENSES.txt

endef
goos = $(firstword $(subst /, ,$(1)))
goarch = $(lastword $(subst /, ,$(1)))

.PHONY: $(PLUGINS)
$(PLUGINS): out/bin/kubectl-mend-%:
	CGO_ENABLED=0 GOOS=$(call goos,$(subst -,/,$*)) GOARCH=$(call goarch,$(subst -,/,$*)) \
		$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/kubectl-mend

.PHONY: plugin
plugin: $(PLUGINS) $(TOOLS)/archive $(TOOLS)/inventory $(TOOLS)/krew ## Write the archives of kubectl-mend, and its manifest for krew, to out/ (PLATFORMS=linux/amd64, RELEASE_URL=https://...)
	@mkdir -p $(RELEASE) out/kubectl-mend
	rm -f $(RELEASE)/kubectl-mend_*
	inventory -name kubectl-mend -version '$(VERSION)' -created $(COMMITTED) -out out/kubectl-mend $(PLUGINS)
	cp out/kubectl-mend/kubectl-mend.spdx.json $(RELEASE)
	$(foreach platform,$(PLATFORMS),$(call plugin-archive,$(call goos,$(platform)),$(call goarch,$(platform))))
	krew -version '$(VERSION)' -url '$(RELEASE_URL)' -out $(RELEASE)/mend.yaml $(RELEASE)/kubectl-mend_*

.PHONY: image-docker
image-docker: ## Build the container image of the manager with docker
	docker build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(COMMIT) -t $(IMAGE):$(VERSION) .

.PHONY: release
release: ## Write all that a release ships to out/, with checksums (VERSION=v0.1.0)
	@$(MAKE) release-manifests # empties the folder, so it must run before the others, not beside them
	@$(MAKE) image
	@$(MAKE) plugin
	cd $(RELEASE) && sha256sum * > SHA256SUMS

.PHONY: release-try
release-try: $(COSIGN) ## Sign what make release has written, with a key made for it, in a registry made for it, and verify that (needs no network)
	@test -e $(RELEASE)/SHA256SUMS || $(MAKE) release
	$(GO) -C hack/release test -count=1 ./signing -args -release=$(abspath $(RELEASE)) -cosign=$(CURDIR)/$(COSIGN)

##@ Prepare and clean up

.PHONY: tools
tools: $(CONTROLLER_GEN) $(GOLANGCI_LINT) $(GOTESTSUM) $(KUSTOMIZE) $(RELEASE_TOOLS) ## Build the pinned tools into .tools/bin/

# Their recipes are in test/rig/rig.mk.
.PHONY: rig rig-control-planes
rig: ## Build etcd, kube-apiserver and the other parts of the test rig into .rig/bin/, or take them from KUBEBUILDER_ASSETS
rig-control-planes: ## Build those alone that a control plane needs, without clusterctl

.PHONY: clean
clean: ## Remove all that was built: bin/, out/, .rig/, .tools/
	rm -rf bin out .rig .tools

# One command builds the tools of a module, because they share most packages. golangci-lint is large, and only `make verify` needs it.
TOOL_SOURCES := hack/tools/go.mod hack/tools/go.sum
$(ACTIONLINT) $(CONTROLLER_GEN) $(GOTESTSUM) $(KUSTOMIZE) &: $(TOOL_SOURCES) | $(RIG_BUILD)
	@$(call announced,the tools,40s) $(GO) -C hack/tools build -ldflags '-s -w' -o $(CURDIR)/$(TOOLS)/ sigs.k8s.io/controller-tools/cmd/controller-gen \
		gotest.tools/gotestsum sigs.k8s.io/kustomize/kustomize/v5 github.com/rhysd/actionlint/cmd/actionlint

$(GOVULNCHECK): $(TOOL_SOURCES) | $(RIG_BUILD)
	@$(call announced,govulncheck,20s) $(GO) -C hack/tools build -ldflags '-s -w' -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

$(COSIGN): hack/cosign/go.mod hack/cosign/go.sum | $(RIG_BUILD)
	@$(call announced,cosign,5m) $(GO) -C hack/cosign build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/sigstore/cosign/v3/cmd/cosign

$(GOLANGCI_LINT): $(TOOL_SOURCES) | $(RIG_BUILD)
	@$(call announced,golangci-lint,1m) $(GO) -C hack/tools build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(RELEASE_TOOLS) &: hack/release/go.mod hack/release/go.sum $(filter-out %_test.go,$(wildcard hack/release/*/*.go)) | $(RIG_BUILD)
	@$(call announced,the programs of a release,30s) $(GO) -C hack/release build -ldflags '-s -w' -o $(CURDIR)/$(TOOLS)/ ./...
