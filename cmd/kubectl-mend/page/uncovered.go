package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// Uncovered are the machines of a Cluster that no check selects, and those that are not Ready and that no check sees to.
type Uncovered struct {
	client.ObjectKey
	// NoCheck reports that there is no MachineHealthCheck of the Cluster.
	NoCheck bool
	// Machines is how many no check selects, NotReady are the names of machines whose node is not Ready, and that no check counts as unhealthy.
	Machines int
	NotReady []string
}

// String is u as a sentence without a full stop.
func (u *Uncovered) String() string {
	var parts []string
	if u.NoCheck {
		parts = append(parts, "it has no MachineHealthCheck")
	}
	if u.Machines > 0 {
		parts = append(parts, counted(u.Machines, "machine")+" selected by no check")
	}
	if len(u.NotReady) > 0 {
		names, more := u.NotReady, ""
		if len(names) > mostNames {
			names, more = names[:mostNames], fmt.Sprintf(" and %d more", len(u.NotReady)-mostNames)
		}
		parts = append(parts, "not Ready, and no check sees to it: "+strings.Join(names, ", ")+more)
	}
	return u.ObjectKey.String() + ": " + strings.Join(parts, "; ")
}

// counted is how many things there are, with the verb.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s %s", n, thing, explain.Are(n))
}

// uncover finds the machines that checks do not see to. Of a cluster whose machines were not read, Cluster API says that all are Ready.
func (s *Status) uncover(ctx context.Context, a *inspect.Asker, namespace, cluster string, judged []explain.Check) error {
	selected, healthy := map[client.ObjectKey]bool{}, map[client.ObjectKey]bool{}
	for i := range judged {
		for j := range judged[i].Targets {
			t := &judged[i].Targets[j]
			key := client.ObjectKey{Namespace: t.Namespace, Name: t.Name}
			if t.Machine != nil {
				key = client.ObjectKey{Namespace: t.Machine.Namespace, Name: t.Machine.Name}
			}
			selected[key], healthy[key] = true, t.State == health.Healthy && t.Skipped == ""
		}
	}
	list := &clusterv1.MachineList{}
	if err := a.Reader().List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list Machines: %w", err)
	}
	for _, c := range snapshot.All[clusterv1.Cluster](a.Snapshot, namespace) {
		if cluster != "" && c.Name != cluster || !c.DeletionTimestamp.IsZero() {
			continue
		}
		u := Uncovered{ObjectKey: client.ObjectKeyFromObject(c)}
		checks := snapshot.All[clusterv1.MachineHealthCheck](a.Snapshot, c.Namespace)
		u.NoCheck = !slices.ContainsFunc(checks, func(check *clusterv1.MachineHealthCheck) bool { return check.Spec.ClusterName == c.Name })
		for i := range list.Items {
			m := &list.Items[i]
			if m.Namespace != c.Namespace || m.Spec.ClusterName != c.Name || !m.DeletionTimestamp.IsZero() || a.Snapshot.Counted(u.ObjectKey) {
				continue
			}
			key := client.ObjectKeyFromObject(m)
			covered := selected[key] || slices.ContainsFunc(checks, func(check *clusterv1.MachineHealthCheck) bool {
				return machinehealthcheck.Unselected(check, m) == ""
			})
			if !covered {
				u.Machines++
			}
			if a.NodeNotReady(m) && (!covered || healthy[key]) {
				u.NotReady = append(u.NotReady, m.Name)
			}
		}
		if u.NoCheck || u.Machines > 0 || len(u.NotReady) > 0 {
			s.Uncovered = append(s.Uncovered, u)
		}
	}
	return nil
}

// outOfService are the hosts that are marked unhealthy: no machine is put on them.
func outOfService(ctx context.Context, a *inspect.Asker, namespace string) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(bmov1alpha1.GroupVersion.WithKind("BareMetalHostList"))
	_ = a.Reader().List(ctx, list, client.InNamespace(namespace)) // that they could not be read, the notes say
	var marked []string
	for i := range list.Items {
		_, unhealthy := list.Items[i].Annotations[infrav1.UnhealthyAnnotation]
		_, legacy := list.Items[i].Annotations[infrav1.LegacyUnhealthyAnnotation]
		if unhealthy || legacy {
			marked = append(marked, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	}
	return marked
}

// troubles are what is wrong that no row of the table shows, each as a sentence, for the first line.
func (s *Status) troubles() string {
	machines, text := 0, ""
	for i := range s.Uncovered {
		machines += len(s.Uncovered[i].NotReady)
	}
	if !slices.ContainsFunc(s.Managers, acts) && s.ManagersUnknown == "" {
		text += "No manager of kubemend runs. "
	}
	if machines > 0 {
		text += counted(machines, "machine") + " not Ready, and no check sees to that. "
	}
	if n := len(s.OutOfService); n > 0 {
		text += counted(n, "host") + " out of service. "
	}
	return text
}

// uncovered prints what no check sees to, and what a person has to do about it.
func (p *page) uncovered(s *Status) {
	lines := make([]string, 0, len(s.Uncovered))
	for i := range s.Uncovered {
		lines = append(lines, s.Uncovered[i].String())
	}
	p.list("Not covered by checks", lines)
	p.list("Hosts out of service", s.OutOfService)
	if len(s.OutOfService) > 0 {
		p.line("  To do: ", "Repair each, then remove its marks: kubectl mend reset host/NAME -n NAMESPACE.")
	}
}
