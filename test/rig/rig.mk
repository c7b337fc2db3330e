# The programs that test/rig runs, built from Go modules into .rig/bin/, and two kinds of cert-manager, which come from one as well. The top-level Makefile includes this file.
#
# A program is built when it is missing, or older than the go.mod, go.sum or source that it comes from. Where
# KUBEBUILDER_ASSETS is set, etcd and kube-apiserver are taken from there and not built.

RIG_BIN := .rig/bin
RIG_KUBE := test/rig/kube
RIG_CAPI := test/rig/capi
RIG_LEASH := test/rig/leash
RIG_CERT_MANAGER := test/rig/certmanager

RIG_PROGRAMS := kube-controller-manager capi-core clusterctl leash cert-manager.yaml
ifndef KUBEBUILDER_ASSETS
RIG_PROGRAMS := etcd kube-apiserver $(RIG_PROGRAMS)
endif

# Without a version, Cluster API refuses to talk to the API server.
RIG_KUBE_VERSION := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' $(RIG_KUBE)/go.mod)
RIG_KUBE_NUMBERS := $(subst ., ,$(RIG_KUBE_VERSION:v%=%))
RIG_STAMP := -X k8s.io/component-base/version
RIG_KUBE_LDFLAGS := $(RIG_STAMP).gitVersion=$(RIG_KUBE_VERSION) $(RIG_STAMP).gitTreeState=clean \
	$(RIG_STAMP).gitMajor=$(word 1,$(RIG_KUBE_NUMBERS)) $(RIG_STAMP).gitMinor=$(word 2,$(RIG_KUBE_NUMBERS))

# clusterctl too goes by its own version.
RIG_CAPI_VERSION := $(shell awk '$$1 == "sigs.k8s.io/cluster-api" { print $$2 }' $(RIG_CAPI)/go.mod)
RIG_CLUSTERCTL_LDFLAGS := $(foreach name,gitVersion=$(RIG_CAPI_VERSION) gitMajor=$(word 1,$(subst ., ,$(RIG_CAPI_VERSION:v%=%))) \
	gitMinor=$(word 2,$(subst ., ,$(RIG_CAPI_VERSION:v%=%))) gitTreeState=clean,-X sigs.k8s.io/cluster-api/version.$(name))

# $(call rig-build,module folder,package,more ldflags,how long): build to another name first, so that what is
# interrupted leaves nothing that looks finished.
define rig-build
	@mkdir -p $(@D)
	@echo "rig: building $(@F) ($(4) on two cores, if nothing is cached)"
	@begun=$$(date +%s) && CGO_ENABLED=0 GOFLAGS=-buildvcs=false $(or $(GO),go) -C $(1) build -trimpath \
		-ldflags '-s -w $(3)' -o $(CURDIR)/$@.part $(2) && mv $@.part $@ && \
		echo "rig: built $(@F) in $$(($$(date +%s) - begun)) s"
endef

.PHONY: rig
rig: $(addprefix $(RIG_BIN)/,$(RIG_PROGRAMS))

$(RIG_BIN)/etcd: $(RIG_KUBE)/go.mod $(RIG_KUBE)/go.sum
	$(call rig-build,$(RIG_KUBE),go.etcd.io/etcd/server/v3,,about 1 min)

$(RIG_BIN)/kube-apiserver: $(RIG_KUBE)/go.mod $(RIG_KUBE)/go.sum
	$(call rig-build,$(RIG_KUBE),k8s.io/kubernetes/cmd/kube-apiserver,$(RIG_KUBE_LDFLAGS),about 3 min)

$(RIG_BIN)/kube-controller-manager: $(RIG_KUBE)/go.mod $(RIG_KUBE)/go.sum
	$(call rig-build,$(RIG_KUBE),k8s.io/kubernetes/cmd/kube-controller-manager,$(RIG_KUBE_LDFLAGS),about 1 min)

$(RIG_BIN)/capi-core: $(RIG_CAPI)/go.mod $(RIG_CAPI)/go.sum $(wildcard $(RIG_CAPI)/*.go)
	$(call rig-build,$(RIG_CAPI),.,,about 2 min)

$(RIG_BIN)/clusterctl: $(RIG_CAPI)/go.mod $(RIG_CAPI)/go.sum
	$(call rig-build,$(RIG_CAPI),sigs.k8s.io/cluster-api/cmd/clusterctl,$(RIG_CLUSTERCTL_LDFLAGS),half a minute)

$(RIG_BIN)/leash: $(filter-out %_test.go,$(wildcard $(RIG_LEASH)/*.go))
	$(call rig-build,$(RIG_LEASH),.,,a few seconds)

$(RIG_BIN)/cert-manager.yaml: $(RIG_CERT_MANAGER)/go.mod $(RIG_CERT_MANAGER)/go.sum
	@mkdir -p $(@D)
	@module=github.com/cert-manager/cert-manager; $(or $(GO),go) -C $(RIG_CERT_MANAGER) mod download $$module && \
		cat "$$($(or $(GO),go) -C $(RIG_CERT_MANAGER) list -m -f '{{.Dir}}' $$module)"/deploy/crds/cert-manager.io_{certificates,issuers}.yaml > $@.part && mv $@.part $@
