package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// Node explains the node of a Machine, or a node of the management cluster, which NodeHealthChecks may select. namespace and cluster may be
// empty, for any.
func Node(ctx context.Context, a *inspect.Asker, namespace, cluster, name string) (*Explanation, error) {
	m, here, err := NodeNamed(ctx, a, namespace, cluster, name)
	if err != nil {
		return nil, err
	}
	var e *Explanation
	if m != nil {
		if e, err = Machine(ctx, a, client.ObjectKeyFromObject(m)); err != nil {
			return nil, err
		}
		others := slices.DeleteFunc(e.Facts, func(f cliv1.Fact) bool { return f.Name == "node" })
		e.Facts = append([]cliv1.Fact{{Name: "machine", Value: m.Name}}, others...)
	} else {
		e = explanation(a, explain.Ref{})
		if err := nodeChecks(ctx, a, here, e); err != nil {
			return nil, err
		}
		e.conclude()
	}
	e.Subject = explain.Ref{Kind: "Node", Name: name}
	return e, nil
}

// NodeNamed finds the node that a user names. It returns the node's Machine or, if there is none, the node of the management cluster.
func NodeNamed(ctx context.Context, a *inspect.Asker, namespace, cluster, name string) (*clusterv1.Machine, *corev1.Node, error) {
	list := &clusterv1.MachineList{}
	err := a.Snapshot.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err != nil && !meta.IsNoMatchError(err) { // no match: Cluster API is not installed
		return nil, nil, fmt.Errorf("list Machines: %w", err)
	}
	machines, named := []clusterv1.Machine(nil), []string(nil)
	for _, m := range list.Items {
		if m.Status.NodeRef.Name == name && (cluster == "" || m.Spec.ClusterName == cluster) {
			machines = append(machines, m)
			named = append(named, fmt.Sprintf("machine/%s of cluster %s in namespace %s", m.Name, m.Spec.ClusterName, m.Namespace))
		}
	}
	here := &corev1.Node{}
	isHere := cluster == "" && a.Snapshot.Get(ctx, client.ObjectKey{Name: name}, here) == nil // the notes report an error
	switch {
	case isHere && len(machines) == 1 && !isOf(here, &machines[0]):
		named = append(named, "one of the management cluster, which pages of its NodeHealthChecks explain")
		fallthrough
	case len(machines) > 1:
		return nil, nil, fmt.Errorf("several clusters have a node %s: say which with --cluster, or ask for the machine: %s",
			name, strings.Join(named, ", "))
	case len(machines) == 1:
		return &machines[0], nil, nil
	case isHere:
		return nil, here, nil
	}
	return nil, nil, noNode(namespace, cluster, name)
}

// noNode returns the error for a node that neither a Machine's nodeRef names nor the management cluster has.
func noNode(namespace, cluster, name string) error {
	where, elsewhere := "", ", and the management cluster has none of that name"
	if cluster != "" {
		where, elsewhere = " of cluster "+cluster, ""
	}
	if namespace != "" {
		where, elsewhere = where+" in namespace "+namespace, elsewhere+"; -A reads all namespaces"
	}
	return fmt.Errorf("no Machine%s names a node %s%s", where, name, elsewhere)
}

// nodeChecks adds the NodeHealthChecks that judge a node of the management cluster, and why others do not select it.
func nodeChecks(ctx context.Context, a *inspect.Asker, node *corev1.Node, e *Explanation) error {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool {
		why := nodehealthcheck.WhyNotSelected(c, node)
		if why != "" {
			e.NotSelectedBy = append(e.NotSelectedBy, cliv1.NotSelected{Reference: explain.Ref{Kind: "NodeHealthCheck", Name: c.Name},
				Message: why})
		}
		return true // a check may still remediate a node that it does not select any more
	})
	if err := tolerate(&e.Unread, "NodeHealthChecks", err); err != nil {
		return err
	}
	for _, c := range checks {
		judged := about(c, func(t explain.Target) bool { return t.Name == node.Name })
		if len(judged.Targets) > 0 {
			e.Checks = append(e.Checks, judged)
		}
	}
	return nil
}

// mayBeOfNodeCheck adds to e.Unread the kinds without which it is not known whether a NodeHealthCheck selects the node of m.
func (e *Explanation) mayBeOfNodeCheck(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) error {
	if len(e.Checks) > 0 || m.Status.NodeRef.Name == "" {
		return nil
	}
	exist := false
	_, err := a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { exist = true; return false })
	if exist && errors.Is(a.Snapshot.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &corev1.Node{}), explain.ErrUnread) {
		e.Unread = append(e.Unread, "Nodes of the management cluster")
	}
	return tolerate(&e.Unread, "NodeHealthChecks", err)
}

// ofMachine returns the node of m if that is a node of the management cluster, which manages itself then; else nil.
func ofMachine(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) *corev1.Node {
	node := &corev1.Node{}
	if m.Status.NodeRef.Name == "" || a.Snapshot.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node) != nil || !isOf(node, m) {
		return nil
	}
	return node
}

// isOf reports whether a node of the management cluster is the node of m, by Cluster API's annotations on the node or by the provider ID.
func isOf(node *corev1.Node, m *clusterv1.Machine) bool {
	if machine, said := node.Annotations[clusterv1.MachineAnnotation]; said {
		return machine == m.Name && node.Annotations[clusterv1.ClusterNamespaceAnnotation] == m.Namespace
	}
	return node.Spec.ProviderID != "" && strings.EqualFold(node.Spec.ProviderID, m.Spec.ProviderID)
}

// Remediation explains a HostRemediation or a Metal3Remediation.
func Remediation(ctx context.Context, a *inspect.Asker, kind string, key client.ObjectKey) (*Explanation, error) {
	found, err := a.Remediation(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, explain.NoSuch(kind, key.Namespace, key.Name) + ", or it asks for nothing"
	}
	e := explanation(a, found.Reference)
	e.Remediations, e.Next = []explain.Remediation{*found}, cmp.Or(found.Next, explain.NothingNext)
	e.answer(found.Answer())
	e.fact("machine", ptr.Deref(found.Machine, explain.Ref{}).Name)
	e.fact("node", found.Node)
	e.fact("host", found.Host)
	e.fact("requested", found.Requested)
	return e, nil
}
