package crdgate

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The CustomResourceDefinitions of the kinds that are served. Without those of MachineHealthChecks the manager does not start.
const (
	MachineCheckCRD = "machinehealthchecks.cluster.x-k8s.io"
	NodeCheckCRD    = "nodehealthchecks.remediation.medik8s.io"
	Metal3CRD       = "metal3remediations.infrastructure.cluster.x-k8s.io"
	OwnCRD          = "hostremediations.kubemend.io"
	HostCRD         = "baremetalhosts.metal3.io"
	RecordCRD       = "remediationrecords.kubemend.io"
	PolicyCRD       = "remediationpolicies.kubemend.io"
	overrideCRD     = "remediationoverrides.kubemend.io"
	betweenCRD      = "metal3machines.infrastructure.cluster.x-k8s.io"
)

// Choice says whether a kind is served. It is the value of a flag.
type Choice string

const (
	// Auto serves a kind unless somebody else's controller does.
	Auto Choice = "auto"
	// On serves it, even beside another controller.
	On Choice = "on"
	// Off does not serve it.
	Off Choice = "off"
)

// MachineHealthChecks is the service of the kind that every manager acts on. Its controllers start with the manager.
func MachineHealthChecks() *Service {
	return &Service{CRD: MachineCheckCRD, Choice: Auto, Start: func(context.Context) error { return nil }}
}

// Metal3Remediations is the service of CAPM3's kind: CAPM3's controller acts on it where CAPM3 has installed it, and has no switch to stop.
// It is also known by its lease (CAPM3, main.go, LeaderElectionID): its manifests may have been installed without the label, or the CRDs
// written over. Like all services of this file it says who serves the kind; to run it, it needs a Start.
func Metal3Remediations(choice Choice) *Service {
	return &Service{
		CRD: Metal3CRD, Needs: []string{HostCRD, betweenCRD}, Choice: choice, Foreign: capm3,
		Other: &OtherController{Name: "CAPM3's controller", Lease: "controller-leader-election-capm3", Namespaces: []string{"capm3-system"}},
	}
}

// HostRemediations is the service of the kind that is ours alone.
func HostRemediations() *Service {
	return &Service{CRD: OwnCRD, Needs: []string{HostCRD, betweenCRD}, Choice: Auto}
}

// Hosts is the service of BareMetalHosts: it releases those that no remediation keeps powered off any more.
func Hosts() *Service { return &Service{CRD: HostCRD, Choice: Auto} }

// Records is the service of RemediationRecords: it follows remediations, and closes their records. Without the kind, remediations have
// none.
func Records() *Service { return &Service{CRD: RecordCRD, Choice: Auto} }

// Policies is the service of RemediationPolicies. Without the kind nothing limits more than one check.
func Policies() *Service { return &Service{CRD: PolicyCRD, Needs: []string{overrideCRD}, Choice: Auto} }

// NodeHealthChecks is the service of the kind that checks the nodes of the cluster that the manager runs in. It belongs to the operator
// that brought it along, if the Operator Lifecycle Manager has installed that; or it is known by the lease of its leader (medik8s'
// node-healthcheck-operator, cmd/main.go, LeaderElectionID). Its makefile and its catalogue suggest the first of these namespaces; the
// others are those that OLM has for operators which act everywhere, and that of its manifests before they were changed.
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

// HostRights are what a controller needs that power-cycles the hosts of a namespace, or of all.
func HostRights(namespace string) (role string, rights []authorizationv1.ResourceAttributes) {
	return "kubemend-hosts", []authorizationv1.ResourceAttributes{{Verb: "patch", Group: "metal3.io", Resource: "baremetalhosts", Namespace: namespace}}
}

// NodeRights are what a controller needs that acts on NodeHealthChecks, with the leases on nodes in a namespace.
func NodeRights(leases string) (role string, rights []authorizationv1.ResourceAttributes) {
	return "kubemend-nodes", []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: "remediation.medik8s.io", Resource: "nodehealthchecks"}, {Verb: "watch", Resource: "nodes"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: leases},
	}
}

// capm3 returns the provider of Cluster API that a CRD belongs to, if that is CAPM3, which brings its controller along.
func capm3(labels map[string]string) string {
	const provider = "infrastructure-metal3"
	if labels[clusterv1.ProviderNameLabel] == provider {
		return provider
	}
	return ""
}

// operator returns the operator that a CRD belongs to, if the Operator Lifecycle Manager installed it, in version 0 or 1.
// (Operator-controller, internal/operator-controller/labels/labels.go)
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
