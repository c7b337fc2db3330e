package page

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/claims"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
)

// byLabel are what decides on a claim of a check by a label.
func byLabel(a *inspect.Asker, check *clusterv1.MachineHealthCheck) decide.Facts {
	cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
	namespace, known := a.Snapshot.NamespaceLabels(check.Namespace)
	return claims.FactsOf(check, cluster, namespace, known)
}

// claimOf says which label claimed a check, or why one that asks for that did not; each is empty if there is nothing to say.
func claimOf(a *inspect.Asker, check *clusterv1.MachineHealthCheck) (source, missing string) {
	f := byLabel(a, check)
	return explain.ClaimSource(f, check.Namespace, check.Spec.ClusterName),
		explain.ClaimMissing(f, check.Namespace, check.Spec.ClusterName, check.Annotations[clusterv1.PausedAnnotation])
}

// invalidLabels say what is wrong with the labels of clusters, and of their namespaces, that are to claim checks.
func invalidLabels(a *inspect.Asker, clusters ...client.ObjectKey) []string {
	var all []string
	invalid := func(of explain.Ref, labels map[string]string) {
		if value, has := labels[mendv1.ClaimLabel]; has && value != mendv1.ClaimLabelAct {
			all = append(all, explain.InvalidClaimLabel(of.String(), value))
		}
	}
	for _, key := range clusters {
		if cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, key); cluster != nil {
			invalid(explain.Ref{Kind: "Cluster", Namespace: key.Namespace, Name: key.Name}, cluster.Labels)
		}
		namespace, _ := a.Snapshot.NamespaceLabels(key.Namespace)
		invalid(explain.Ref{Kind: "Namespace", Name: key.Namespace}, namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// labelClaims are what labels have to do with some checks.
type labelClaims struct {
	// sources are which label claimed a check, of those that one did.
	sources map[explain.Ref]string
	notes   []string
}

// claimsOf looks at the labels for all these MachineHealthChecks.
func claimsOf(a *inspect.Asker, checks []explain.Check) labelClaims {
	all := labelClaims{sources: map[explain.Ref]string{}}
	var clusters []client.ObjectKey
	objects := map[string]bool{}
	var ending []explain.Ref
	for i := range checks {
		c := &checks[i]
		check := snapshot.One[clusterv1.MachineHealthCheck](a.Snapshot, client.ObjectKey{Namespace: c.Namespace, Name: c.Name})
		if check == nil {
			continue
		}
		clusters = append(clusters, client.ObjectKey{Namespace: c.Namespace, Name: c.Cluster})
		writer, _ := history.PausedBy(check)
		if explain.ClaimEnds(check, writer) != "" {
			ending = append(ending, c.Ref)
		}
		source, missing := claimOf(a, check)
		if source != "" {
			all.sources[c.Ref] = source
			objects[explain.ClaimingObject(byLabel(a, check), c.Namespace, c.Cluster).String()] = true
		}
		if missing != "" {
			all.notes = append(all.notes, c.Ref.String()+": "+missing)
		}
	}
	if len(objects) > 0 {
		names, more := slices.Sorted(maps.Keys(objects)), 0
		if len(names) > mostNames {
			names, more = names[:mostNames], len(names)-mostNames
		}
		all.notes = append(all.notes, explain.ClaimedByLabels(len(all.sources), names, more))
	}
	if len(ending) > 0 {
		all.notes = append(all.notes, explain.ClaimsEnd(len(ending), ending[0]))
	}
	all.notes = append(all.notes, invalidLabels(a, clusters...)...)
	return all
}
