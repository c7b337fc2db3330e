# The programs that test/rig runs, in .rig/bin/. The top-level Makefile includes this file.
#
# test/rig/build decides what is built and what is taken from KUBEBUILDER_ASSETS, so these targets are never up to date by themselves: they ask it, which
# takes a moment and says nothing if there is nothing to do.

RIG_BUILD := .rig/build

# What every control plane needs, and what only some end-to-end tests need besides.
RIG_API_SERVER := etcd kube-apiserver kube-controller-manager reaper
RIG_CONTROL_PLANE := $(RIG_API_SERVER) capi-core
RIG_REST := clusterctl capi-kubeadm kubectl

.PHONY: rig
rig: $(RIG_BUILD)
	@GO='$(GO)' $(RIG_BUILD) $(RIG_CONTROL_PLANE) $(RIG_REST)
	@$(GO) -C test/rig/certmanager mod download github.com/cert-manager/cert-manager

.PHONY: rig-api-servers
rig-api-servers: $(RIG_BUILD)
	@GO='$(GO)' $(RIG_BUILD) $(RIG_API_SERVER)

.PHONY: rig-control-planes
rig-control-planes: $(RIG_BUILD)
	@GO='$(GO)' $(RIG_BUILD) $(RIG_CONTROL_PLANE)

# For the machine that it runs on, whatever the rest is built for.
$(RIG_BUILD): $(filter-out %_test.go,$(wildcard test/rig/build/*.go))
	@echo 'rig: building its build tool (a few seconds)'
	@GOOS= GOARCH= $(GO) build -o $@ ./test/rig/build

# $(call announced,what,how long it usually takes): before a command that may take long. It then says so, and how long it has taken.
announced = $(RIG_BUILD) -what '$(1)' -usually $(2) --
