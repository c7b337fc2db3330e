package crdgate

import (
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The CustomResourceDefinitions that controllers need. Without MachineCheckCRD the manager does not start.
const (
	MachineCheckCRD = "machinehealthchecks.cluster.x-k8s.io"
	NodeCheckCRD    = "nodehealthchecks.remediation.medik8s.io"
	Metal3CRD       = "metal3remediations.infrastructure.cluster.x-k8s.io"
	OwnCRD          = "hostremediations.kubemend.io"
	HostCRD         = "baremetalhosts.metal3.io"
	RecordCRD       = "remediationrecords.kubemend.io"
	PolicyCRD       = "remediationpolicies.kubemend.io"
	OverrideCRD     = "remediationoverrides.kubemend.io"
	betweenCRD      = "metal3machines.infrastructure.cluster.x-k8s.io"
)

// Choice is a user's choice whether a kind is served. It is the value of a flag.
type Choice string

const (
	// Auto serves a kind unless a controller of another project serves it.
	Auto Choice = "auto"
	// On serves a kind even if a controller of another project serves it too.
	On Choice = "on"
	// Off does not serve a kind.
	Off Choice = "off"
)

// Metal3Remediations is the service of CAPM3's kind, without a Start, as all services in this file. If CAPM3 installed the CRD, CAPM3's
// controller serves the kind, and it has no flag to stop that. The lease also identifies it (CAPM3, main.go, LeaderElectionID), because a
// user may have installed the CRD without labels or replaced it.
func Metal3Remediations(choice Choice) *Service {
	return &Service{
		CRD: Metal3CRD, Needs: []string{HostCRD, betweenCRD}, Choice: choice, Foreign: capm3,
		Other: &OtherController{Name: "CAPM3's controller", Lease: "controller-leader-election-capm3",
			Namespaces: []string{"capm3-system"}},
	}
}

// HostRemediations is the service of HostRemediations, a kind of kubemend.
func HostRemediations() *Service {
	return &Service{CRD: OwnCRD, Needs: []string{HostCRD, betweenCRD}, Choice: Auto}
}

// NodeHealthChecks is the service of medik8s' kind, which checks nodes of the manager's own cluster. medik8s' operator serves the kind if
// the Operator Lifecycle Manager (OLM) installed the CRD, or if its leader lease is renewed (node-healthcheck-operator, cmd/main.go,
// LeaderElectionID). Its makefile and catalogue suggest the first of the namespaces; the others are OLM's for operators that watch all
// namespaces, and the one of its older manifests.
func NodeHealthChecks(choice Choice) *Service {
	return &Service{
		CRD: NodeCheckCRD, Choice: choice, Foreign: operator,
		Other: &OtherController{
			Name: "medik8s' operator", Lease: "e1f13584.medik8s.io",
			Namespaces: []string{
				"openshift-workload-availability", "openshift-operators", "operators", "medik8s", "node-healthcheck-operator-system",
			},
		},
	}
}

// capm3 returns the name of CAPM3 as a provider of Cluster API if CAPM3 installed the CRD, or else "".
func capm3(labels map[string]string) string {
	const provider = "infrastructure-metal3"
	if labels[clusterv1.ProviderNameLabel] == provider {
		return provider
	}
	return ""
}

// operator returns the operator that a CRD belongs to, if the Operator Lifecycle Manager v0 or v1 installed the CRD, or else "".
// (operator-controller, internal/operator-controller/labels/labels.go)
func operator(labels map[string]string) string {
	if kind := labels["olm.operatorframework.io/owner-kind"]; kind != "" {
		return strings.TrimSpace(kind + " " + labels["olm.operatorframework.io/owner-name"])
	}
	for label := range labels {
		if name, installed := strings.CutPrefix(label, "operators.coreos.com/"); installed {
			return "operator " + name
		}
	}
	if labels["olm.managed"] == "true" {
		return "an operator installed by the Operator Lifecycle Manager"
	}
	return ""
}
