package page

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// gone are former annotations of MachineHealthChecks, and a former label of Clusters, which RemediationPolicies have replaced.
var gone = []string{
	"kubemend.io/max-in-flight", "kubemend.io/storm-cooldown", "kubemend.io/wait-for-spare", "kubemend.io/wait-for-spare-timeout",
	"kubemend.io/machine-health-checks",
}

// noteGone adds a note with the objects that still have one.
func (s *Status) noteGone(a *inspect.Asker, namespace, cluster string) {
	var still []string
	note := func(name, of string, marks map[string]string) {
		if slices.ContainsFunc(gone, labels.Set(marks).Has) && (cluster == "" || of == cluster) {
			still = append(still, name)
		}
	}
	for _, c := range snapshot.All[clusterv1.Cluster](a.Snapshot, namespace) {
		note("Cluster "+c.Namespace+"/"+c.Name, c.Name, c.Labels)
	}
	for _, c := range snapshot.All[clusterv1.MachineHealthCheck](a.Snapshot, namespace) {
		note(c.Namespace+"/"+c.Name, c.Spec.ClusterName, c.Annotations)
	}
	if len(still) > 0 {
		s.Notes = append(s.Notes, "Annotations and labels that have no effect, use RemediationPolicies instead ("+
			strings.Join(gone, ", ")+"): "+text.FirstOf(still, mostNames))
	}
}
