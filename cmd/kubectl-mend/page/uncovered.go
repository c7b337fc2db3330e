package page

import (
	"context"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// uncover finds what judged do not see to, by Cluster. Of a Cluster whose machines were not read, Cluster API says that all are Ready.
func (s *Status) uncover(a *inspect.Asker, namespace, cluster string, judged []explain.Check) {
	healthy := healthyTargets(judged)
	for _, c := range snapshot.All[clusterv1.Cluster](a.Snapshot, namespace) {
		if cluster != "" && c.Name != cluster || !c.DeletionTimestamp.IsZero() {
			continue
		}
		key := client.ObjectKeyFromObject(c)
		checks := slices.DeleteFunc(snapshot.All[clusterv1.MachineHealthCheck](a.Snapshot, c.Namespace),
			func(check *clusterv1.MachineHealthCheck) bool { return check.Spec.ClusterName != c.Name })
		var notReady []string
		unselected, counted := a.Snapshot.Counted(key)
		if !counted {
			unselected, notReady = unattended(a, key, checks, healthy)
		}
		var parts []string
		if len(checks) == 0 && (unselected > 0 || counted) { // else NodeHealthChecks may select all
			parts = append(parts, "it has no MachineHealthCheck")
		}
		if unselected > 0 {
			parts = append(parts, explain.Number(unselected, "machine")+" selected by no check")
		}
		if len(notReady) > 0 {
			parts = append(parts, "not Ready, and no check sees to it: "+text.FirstOf(notReady, mostNames))
		}
		if s.notReady += len(notReady); len(parts) > 0 {
			s.Uncovered = append(s.Uncovered, key.String()+": "+strings.Join(parts, "; "))
		}
	}
}

// healthyTargets says of each machine that is a target whether all its checks judge it healthy.
func healthyTargets(judged []explain.Check) map[client.ObjectKey]bool {
	healthy := map[client.ObjectKey]bool{}
	for i := range judged {
		for _, t := range judged[i].Targets {
			ref := t.Reference
			if t.Machine != nil {
				ref = *t.Machine
			}
			key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
			before, again := healthy[key] // by another check
			healthy[key] = t.State == cliv1.StateHealthy && t.Skipped == "" && (before || !again)
		}
	}
	return healthy
}

// unattended are how many machines of a Cluster no check selects, and the names of those that are not Ready and that no check sees to.
func unattended(
	a *inspect.Asker, cluster client.ObjectKey, checks []*clusterv1.MachineHealthCheck, healthy map[client.ObjectKey]bool,
) (unselected int, notReady []string) {
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, cluster.Namespace) {
		if m.Spec.ClusterName != cluster.Name || !m.DeletionTimestamp.IsZero() {
			continue
		}
		isHealthy, selected := healthy[client.ObjectKeyFromObject(m)]
		selected = selected || slices.ContainsFunc(checks, func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, m) == ""
		})
		if !selected {
			unselected++
		}
		if (!selected || isHealthy) && a.NodeNotReady(m) {
			notReady = append(notReady, m.Name)
		}
	}
	return unselected, notReady
}

// outOfService are the hosts that are marked unhealthy. That they could not be read, the notes say.
func outOfService(ctx context.Context, a *inspect.Asker, namespace string) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(bmov1alpha1.GroupVersion.WithKind("BareMetalHostList"))
	_ = a.Reader().List(ctx, list, client.InNamespace(namespace))
	var marked []string
	for i := range list.Items {
		if hosts.Unhealthy(&list.Items[i]) {
			marked = append(marked, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	}
	return marked
}

// troubles are what is wrong beyond that some checks are not OK, each as a sentence, for the first line.
func (s *Status) troubles() string {
	says := ""
	if s.ManagersUnknown == "" && !slices.ContainsFunc(s.Managers, func(m cliv1.Manager) bool { return m.Alive }) {
		says = "No manager of kubemend runs. "
	}
	if n := len(s.Unreachable); n > 0 {
		says += explain.Number(n, "cluster") + " out of reach. "
	}
	short := 0
	for i := range s.Checks {
		check := &s.Checks[i]
		seen := check.NodesUnknown == nil && check.Counts.Unknown < check.Counts.NotHealthy()
		if seen && check.Blocked() == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
			short++
		}
	}
	if short > 0 {
		says += explain.Number(short, "check") + " blocked by too many unhealthy. "
	}
	if s.notReady > 0 {
		says += explain.Number(s.notReady, "machine") + " not Ready, and no check sees to that. "
	}
	if n := len(s.OutOfService); n > 0 {
		says += explain.Number(n, "host") + " out of service. "
	}
	return says
}
