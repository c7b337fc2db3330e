package conformance

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// recordManifest is the CRD of records.
const recordManifest = "../../config/crd/bases/kubemend.io_remediationrecords.yaml"

// recorded are the records of an environment.
func (s *environment) recorded(ctx context.Context) []mendv1.RemediationRecord {
	GinkgoHelper()
	all := &mendv1.RemediationRecordList{}
	Expect(here.List(ctx, all, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})).To(Succeed())
	return all.Items
}

// unbegun are the machines of the remediations of kubemend's whose records do not say yet that they have begun.
func (s *environment) unbegun(ctx context.Context) func() []string {
	return func() []string {
		var names []string
		for _, r := range s.recorded(ctx) {
			if r.Spec.Mode == mendv1.RecordActive && r.Open() && r.Status.Begun == nil {
				names = append(names, r.Spec.Target.Machine.Name)
			}
		}
		return names
	}
}
