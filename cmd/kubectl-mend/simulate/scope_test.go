package simulate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/explain"
)

func TestTheChecksOfOneClusterAreSimulated(t *testing.T) {
	check := func(cluster string) *clusterv1.MachineHealthCheck {
		return &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-" + cluster}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: cluster},
		}
	}
	for name, tc := range map[string]struct {
		question Question
		want     [2]bool
	}{
		"all, without one":    {Question{Namespace: "ns"}, [2]bool{true, true}},
		"those of one":        {Question{Namespace: "ns", Cluster: "c1"}, [2]bool{true, false}},
		"of all namespaces":   {Question{Cluster: "c2"}, [2]bool{false, true}},
		"none in another one": {Question{Namespace: "other", Cluster: "c1"}, [2]bool{false, false}},
	} {
		if got := [2]bool{tc.question.simulates(check("c1")), tc.question.simulates(check("c2"))}; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	ofNodes := explain.Ref{Kind: "NodeHealthCheck", Name: "nodes"}
	if (Question{Cluster: "c1"}).simulatesOf("", ofNodes) || !(Question{}).simulatesOf("", ofNodes) {
		t.Error("a NodeHealthCheck is of a Cluster")
	}
}
