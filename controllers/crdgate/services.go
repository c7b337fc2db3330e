package crdgate

import "sigs.k8s.io/controller-runtime/pkg/client"

// capm3 is the value of the label cluster.x-k8s.io/provider on the CRDs that CAPM3 brings along, and its controller with them.
const capm3 = "infrastructure-metal3"

// The CustomResourceDefinitions of the kinds that are served. Without those of MachineHealthChecks the manager does not start.
const (
	MachineCheckCRD = "machinehealthchecks.cluster.x-k8s.io"
	NodeCheckCRD    = "nodehealthchecks.remediation.medik8s.io"
	Metal3CRD       = "metal3remediations.infrastructure.cluster.x-k8s.io"
	OwnCRD          = "hostremediations.kubemend.io"
	HostCRD         = "baremetalhosts.metal3.io"
	RecordCRD       = "remediationrecords.kubemend.io"
	betweenCRD      = "metal3machines.infrastructure.cluster.x-k8s.io"
)

// Metal3Remediations is the service of CAPM3's kind: CAPM3's controller acts on it where CAPM3 has installed it, and has no switch to stop. It is also
// known by its lease (CAPM3, main.go, LeaderElectionID): its manifests may have been installed without the label, or the CRDs written over.
// Like all services of this file it says who serves the kind; to run it, it needs a Start.
func Metal3Remediations(choice Choice) *Service {
	return &Service{
		CRD: Metal3CRD, Needs: []string{HostCRD, betweenCRD}, Choice: choice, Foreign: Provider(capm3),
		Other: &OtherController{Name: "CAPM3's controller", Lease: client.ObjectKey{Namespace: "capm3-system", Name: "controller-leader-election-capm3"}},
	}
}

// HostRemediations is the service of the kind that is ours alone.
func HostRemediations() *Service {
	return &Service{CRD: OwnCRD, Needs: []string{HostCRD, betweenCRD}, Choice: Auto}
}

// Hosts is the service of BareMetalHosts: it releases those that no remediation keeps powered off any more.
func Hosts() *Service { return &Service{CRD: HostCRD, Choice: Auto} }

// Records is the service of RemediationRecords: it follows remediations, and closes their records. Without the kind, remediations have none.
func Records() *Service { return &Service{CRD: RecordCRD, Choice: Auto} }

// NodeHealthChecks is the service of the kind that checks the nodes of the cluster that the manager runs in. It belongs to the operator that
// brought it along, if the Operator Lifecycle Manager has installed that; or it is known by the lease of its leader (medik8s' node-healthcheck-operator,
// cmd/main.go, LeaderElectionID). Its makefile and its catalogue suggest the first of these namespaces; the others are those that OLM has for operators
// which act everywhere, and that of its manifests before they were changed.
func NodeHealthChecks(choice Choice) *Service {
	return &Service{
		CRD: NodeCheckCRD, Choice: choice, Foreign: OLM,
		Other: &OtherController{
			Name:  "medik8s' operator",
			Lease: client.ObjectKey{Namespace: "openshift-workload-availability", Name: "e1f13584.medik8s.io"},
			OrIn:  []string{"openshift-operators", "operators", "medik8s", "node-healthcheck-operator-system"},
		},
	}
}
