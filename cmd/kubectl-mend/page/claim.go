package page

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/explain"
)

// claimsOf says which labels claimed MachineHealthChecks, if any did; the notes say why labels did not claim others.
func claimsOf(a *inspect.Asker, checks []explain.Check) (sources map[explain.Ref]string, notes []string) {
	sources = map[explain.Ref]string{}
	for i := range checks {
		ref := checks[i].Reference
		check := snapshot.One[clusterv1.MachineHealthCheck](a.Snapshot, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
		if check == nil {
			continue
		}
		cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{Namespace: ref.Namespace, Name: checks[i].Cluster})
		facts := claims.Facts{Check: check, Cluster: cluster}
		facts.Namespace, facts.NamespaceKnown = a.Snapshot.NamespaceLabels(ref.Namespace)
		sources[ref] = claims.Source(facts)
		if missing := claims.Missing(facts); missing != "" {
			notes = append(notes, ref.String()+": "+missing)
		}
	}
	return sources, notes
}
