package nodes

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Node is one node, by its name, and what there is about it.
type Node struct {
	Name   string
	Object *corev1.Node // nil if it is gone
	// Selected says that the check selects it. A node that leaves the selection while it is being remediated is remediated to the end.
	Selected bool

	Requests []Request // of this check; oldest first
	// Gone are the requests that exist no more and that only the status remembers, Unseen those that cannot be read now.
	Gone, Unseen []Listed
	// Loop is how often requests for the node were made, by their records; read only if one is gone.
	Loop repeats.Loop
	// Orphaned are requests of a check of the same name that was there before, Others those of others that name the node.
	Orphaned, Others []*unstructured.Unstructured
	// Named are the requests that have the name which one of the check would have, by template; read only if a remediation may start.
	Named []Named
	// Listed is what the status of the check says of the node; nil if it does not list it.
	Listed *nhcv1.UnhealthyNode
	Lease  *Lease
	// Machine is the Machine of Cluster API behind the node; nil if it was not looked for, as nothing is decided by it.
	Machine *Machine
}

// Exists reports whether the node is there.
func (n *Node) Exists() bool { return n.Object != nil }

// ID tells the node from one of the same name that was there before; empty if it is gone.
func (n *Node) ID() string {
	if n.Object == nil {
		return ""
	}
	return string(n.Object.UID)
}

// ControlPlane reports whether the node is a member of the control plane.
func (n *Node) ControlPlane() bool { return controlplane.IsMember(n.Object) }

// Remediated reports whether there are requests for n.
func (n *Node) Remediated() bool { return len(n.Requests)+len(n.Unseen) > 0 }

// Excluded reports whether the user of the node wants it left alone; empty that the label for that has no value, which counts for nothing.
func (n *Node) Excluded() (excluded, empty bool) {
	if n.Object == nil {
		return false, false
	}
	value, labelled := n.Object.Labels[nhcv1.ExcludeLabel]
	return value == nhcv1.ExcludeValue, labelled && value == ""
}

func (n *Node) confirmed() bool {
	if n.Object == nil {
		return false
	}
	_, confirmed := n.Object.Annotations[nhcv1.ConfirmedHealthyAnnotation]
	return confirmed
}

// healthySince is since when the status of the check says that the node is healthy, or gone; zero if it does not.
func (n *Node) healthySince() time.Time {
	if n.Listed == nil || n.Listed.ConditionsHealthyTimestamp == nil {
		return time.Time{}
	}
	return n.Listed.ConditionsHealthyTimestamp.Time
}

func (n *Node) delayed() bool {
	return n.Listed != nil && n.Listed.HealthyDelayed != nil && *n.Listed.HealthyDelayed
}

// OpenShiftMachine names the Machine of a node, as namespace/name. The two configs differ while the machine-config operator updates the
// node.
const (
	OpenShiftMachine       = "machine.openshift.io/machine"
	OpenShiftDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	OpenShiftCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
)

func (n *Node) reconfiguring() bool {
	desired := n.Object.Annotations[OpenShiftDesiredConfig]
	return desired != "" && desired != n.Object.Annotations[OpenShiftCurrentConfig]
}

// terminating reports whether OpenShift is ending the node. (machine-api-termination-handler; medik8s takes any status for it.)
func (n *Node) terminating() bool {
	return slices.ContainsFunc(n.Object.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "Terminating" && c.Status == corev1.ConditionTrue
	})
}

// OpenShift is the Machine of OpenShift that the node names; zero if it names none.
func (n *Node) OpenShift() rule.Ref {
	if n.Object == nil {
		return rule.Ref{}
	}
	namespace, name, ok := strings.Cut(n.Object.Annotations[OpenShiftMachine], "/")
	if !ok || namespace == "" || name == "" {
		return rule.Ref{}
	}
	return rule.Ref{Kind: "Machine", Namespace: namespace, Name: name}
}

// Machine is the Machine of Cluster API behind a node, of the cluster that the check runs in.
type Machine struct {
	Unread  bool
	Object  *clusterv1.Machine // nil if there is none
	Cluster *clusterv1.Cluster // nil if it could not be read
	// WatchedBy is a MachineHealthCheck that selects it and acts on it; empty if there is none.
	WatchedBy string
}

// There reports whether there is a Machine, as far as is known.
func (m *Machine) There() bool { return m != nil && m.Object != nil }

// Ref names the Machine.
func (m *Machine) Ref() rule.Ref {
	return rule.Ref{Kind: "Machine", Namespace: m.Object.Namespace, Name: m.Object.Name}
}

func (m *Machine) cluster() rule.Ref {
	return rule.Ref{Kind: "Cluster", Namespace: m.Object.Namespace, Name: m.Object.Spec.ClusterName}
}

func (m *Machine) annotated(key string) bool {
	if !m.There() {
		return false
	}
	_, annotated := m.Object.Annotations[key]
	return annotated
}

// Ready reports whether node says that it is ready.
func Ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
