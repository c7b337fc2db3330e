package page

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/explain"
)

// invalidLabels say what is wrong with the labels of clusters, and of their namespaces, that are to claim checks.
func invalidLabels(a *inspect.Asker, clusters ...client.ObjectKey) []string {
	var notes []string
	add := func(ref explain.Ref, labels map[string]string) {
		if invalid := claims.InvalidLabel(ref.String(), labels); invalid != "" {
			notes = append(notes, invalid)
		}
	}
	for _, key := range clusters {
		if cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, key); cluster != nil {
			add(explain.Ref{Kind: "Cluster", Namespace: key.Namespace, Name: key.Name}, cluster.Labels)
		}
		namespace, _ := a.Snapshot.NamespaceLabels(key.Namespace)
		add(explain.Ref{Kind: "Namespace", Name: key.Namespace}, namespace)
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// claimsOf says which labels claimed MachineHealthChecks, if any did; the notes say why labels did not claim others.
func claimsOf(a *inspect.Asker, checks []explain.Check) (sources map[explain.Ref]string, notes []string) {
	sources = map[explain.Ref]string{}
	clusters := make([]client.ObjectKey, 0, len(checks))
	for i := range checks {
		ref := checks[i].Reference
		check := snapshot.One[clusterv1.MachineHealthCheck](a.Snapshot, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
		if check == nil {
			continue
		}
		clusters = append(clusters, client.ObjectKey{Namespace: ref.Namespace, Name: checks[i].Cluster})
		facts := claims.Facts{Check: check, Cluster: snapshot.One[clusterv1.Cluster](a.Snapshot, clusters[len(clusters)-1])}
		facts.Namespace, facts.NamespaceKnown = a.Snapshot.NamespaceLabels(check.Namespace)
		sources[ref] = claims.Source(facts)
		if missing := claims.Missing(facts); missing != "" {
			notes = append(notes, ref.String()+": "+missing)
		}
	}
	return sources, append(notes, invalidLabels(a, clusters...)...)
}
