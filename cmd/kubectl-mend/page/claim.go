package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/claims"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
)

// claimFacts are what decides on a claim of a check by a label.
func claimFacts(a *inspect.Asker, check *clusterv1.MachineHealthCheck) decide.Facts {
	cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
	namespace, known := a.Snapshot.NamespaceLabels(check.Namespace)
	return claims.FactsOf(check, cluster, namespace, known)
}

// claimOf says which label claimed a check, or why one that asks for that did not; each is empty if there is nothing to say.
func claimOf(a *inspect.Asker, check *clusterv1.MachineHealthCheck) (source, missing string) {
	facts := claimFacts(a, check)
	return claims.Source(facts, check.Namespace, check.Spec.ClusterName),
		claims.Missing(facts, check.Namespace, check.Spec.ClusterName, check.Annotations[clusterv1.PausedAnnotation])
}

// invalidLabels say what is wrong with the labels of clusters, and of their namespaces, that are to claim checks.
func invalidLabels(a *inspect.Asker, clusters ...client.ObjectKey) []string {
	var notes []string
	add := func(ref explain.Ref, labels map[string]string) {
		if value, has := labels[mendv1.ClaimLabel]; has && value != mendv1.ClaimLabelAct {
			notes = append(notes, claims.InvalidLabel(ref.String(), value))
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

// labelClaims are what labels have to do with some checks.
type labelClaims struct {
	// sources are which label claimed a check, of those that one did.
	sources map[explain.Ref]string
	notes   []string
}

// claimsOf looks at the labels for all these MachineHealthChecks.
func claimsOf(a *inspect.Asker, checks []explain.Check) labelClaims {
	found := labelClaims{sources: map[explain.Ref]string{}}
	clusters, objects := make([]client.ObjectKey, 0, len(checks)), map[string]bool{}
	for i := range checks {
		ref := checks[i].Reference
		check := snapshot.One[clusterv1.MachineHealthCheck](a.Snapshot, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
		if check == nil {
			continue
		}
		clusters = append(clusters, client.ObjectKey{Namespace: ref.Namespace, Name: checks[i].Cluster})
		source, missing := claimOf(a, check)
		if source != "" {
			found.sources[ref] = source
			object := explain.Ref{Kind: "Cluster", Namespace: ref.Namespace, Name: checks[i].Cluster}
			if facts := claimFacts(a, check); cmp.Or(decide.Decide(facts).By, facts.By) == decide.Namespace {
				object = explain.Ref{Kind: "Namespace", Name: ref.Namespace}
			}
			objects[object.String()] = true
		}
		if missing != "" {
			found.notes = append(found.notes, ref.String()+": "+missing)
		}
	}
	if len(objects) > 0 {
		found.notes = append(found.notes, fmt.Sprintf("%s claimed by the label %s: %s of %s", explain.Number(len(found.sources), "check"),
			mendv1.ClaimLabel, mendv1.ClaimLabelAct, firstOf(slices.Sorted(maps.Keys(objects)))))
	}
	found.notes = append(found.notes, invalidLabels(a, clusters...)...)
	return found
}
