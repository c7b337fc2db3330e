// Package spare says on which BareMetalHosts CAPM3 could put a machine, and why not on the others.
package spare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// NodeReuseLabel reserves a host for the machines of one control plane or MachineDeployment (CAPM3, nodeReuse of a Metal3MachineTemplate).
const NodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// Wants is what a machine requires of a host.
type Wants struct {
	// Selector is spec.hostSelector of the Metal3Machine.
	Selector labels.Selector
	// ReusedBy is the value of NodeReuseLabel on hosts that are reserved for machines like this one; empty if none can be.
	ReusedBy string
}

// Any is what a machine wants of which nothing is known.
var Any = Wants{Selector: labels.Everything()}

// WantsBy returns what m wants of its host. m3m is its whole Metal3Machine. The error says that CAPM3 cannot use hostSelector, and so
// chooses no host.
func WantsBy(m3m *unstructured.Unstructured, m *clusterv1.Machine) (Wants, error) {
	selector, err := hostSelector(m3m)
	if err != nil {
		return Any, fmt.Errorf("read spec.hostSelector of Metal3Machine %s/%s: %w", m3m.GetNamespace(), m3m.GetName(), err)
	}
	return Wants{Selector: selector, ReusedBy: reusedBy(m)}, nil
}

// hostSelector returns spec.hostSelector with operators in lower case, as CAPM3 reads it. (CAPM3, hostLabelSelectorForMachine.)
func hostSelector(m3m *unstructured.Unstructured) (labels.Selector, error) {
	field, _, err := unstructured.NestedMap(m3m.Object, "spec", "hostSelector")
	if err != nil {
		return nil, err
	}
	var written metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(field, &written); err != nil {
		return nil, err
	}
	selector, err := labels.ValidatedSelectorFromSet(written.MatchLabels)
	if err != nil {
		return nil, err
	}
	for _, e := range written.MatchExpressions {
		r, err := labels.NewRequirement(e.Key, selection.Operator(strings.ToLower(string(e.Operator))), e.Values)
		if err != nil {
			return nil, err
		}
		selector = selector.Add(*r)
	}
	return selector, nil
}

// reusedBy returns the value of NodeReuseLabel on hosts that are reserved for machines of m's owner. (CAPM3, getControlPlaneName and
// getMachineDeploymentName; kubemend takes the name of the MachineDeployment from the label of the Machine.)
func reusedBy(m *clusterv1.Machine) string {
	if _, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
		if owner := metav1.GetControllerOf(m); owner != nil {
			return "cp-" + owner.Name
		}
		return ""
	}
	if deployment := m.Labels[clusterv1.MachineDeploymentNameLabel]; deployment != "" {
		return "md-" + deployment
	}
	return ""
}

// Refusal says why CAPM3 does not put a machine on a host. If Reason is empty, CAPM3 may.
type Refusal struct{ Reason, Message string }

// NotAvailable is the reason for a host that matches, but that BMO has not made available.
const NotAvailable = "NotAvailable"

// Refuses returns why CAPM3 does not put a machine that wants w on host. (CAPM3, chooseHost.) Only the refusal of detached hosts is a rule
// of kubemend: CAPM3 does choose them, but BMO never provisions them.
func (w Wants) Refuses(host *bmov1alpha1.BareMetalHost) Refusal {
	owner, kept := host.Labels[NodeReuseLabel]
	consumer, state := host.Spec.ConsumerRef, host.Status.Provisioning.State
	// The consumer of a host that is kept for an owner may be the Cluster, which does not use the host. (CAPM3, Delete)
	used := consumer != nil && (!kept || IsMetal3Machine(consumer)) && state != bmov1alpha1.StateDeprovisioning
	annotated := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { _, set := host.Annotations[key]; return set })
	}
	switch unmatched := w.unmatched(host); {
	case unmatched != "":
		return Refusal{"NotSelected", "does not match the hostSelector (" + unmatched + ")"}
	case kept && (w.ReusedBy == "" || owner != w.ReusedBy):
		return Refusal{"Reserved", "is kept for machines of " + owner + " (node reuse)"}
	case used:
		return Refusal{"InUse", "is in use by " + consumer.Kind + " " + consumer.Name}
	case !host.DeletionTimestamp.IsZero():
		return Refusal{"Deleting", "is being deleted"}
	case host.Status.ErrorMessage != "":
		return Refusal{"Error", "has an error: " + host.Status.ErrorMessage}
	case annotated(bmov1alpha1.PausedAnnotation):
		return Refusal{"Paused", "is paused"}
	case annotated(bmov1alpha1.DetachedAnnotation), host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached:
		return Refusal{"Detached", "is detached"}
	case annotated(infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation):
		return Refusal{"MarkedUnhealthy", "has the annotation that marks it as unhealthy"}
	case !Available(host):
		return Refusal{NotAvailable, "is not available (state " + State(host) + ")"}
	}
	return Refusal{}
}

// unmatched returns the first requirement of the selector that host does not meet; empty if there is none.
func (w Wants) unmatched(host *bmov1alpha1.BareMetalHost) string {
	requirements, _ := w.Selector.Requirements()
	slices.SortFunc(requirements, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	for _, requirement := range requirements {
		if !requirement.Matches(labels.Set(host.Labels)) {
			return requirement.String()
		}
	}
	return ""
}

// Fitting returns the names of those hosts, out of all hosts of the namespace, on which CAPM3 could put a machine that wants w.
//
// Hosts that are reserved for its owner go first: while there is one, CAPM3 waits for it, even if it is not available yet. A failure domain
// is only a preference: if no host has its label, CAPM3 takes another host. (CAPM3, chooseHost and pickHost.)
func (w Wants) Fitting(hosts []*bmov1alpha1.BareMetalHost) []string {
	var reused, others []string
	reuse := false
	for _, host := range hosts {
		_, kept := host.Labels[NodeReuseLabel]
		switch refusal := w.Refuses(host); {
		case refusal.Reason == "" && kept:
			reuse, reused = true, append(reused, host.Name)
		case refusal.Reason == "":
			others = append(others, host.Name)
		case refusal.Reason == NotAvailable && kept && Consumer(host) == "":
			reuse = true
		}
	}
	if reuse {
		return reused
	}
	return others
}

// Free reports whether CAPM3 could put on host a machine whose hostSelector matches.
func Free(host *bmov1alpha1.BareMetalHost) bool { return Any.Refuses(host).Reason == "" }

// Available reports whether BMO has made host available.
func Available(host *bmov1alpha1.BareMetalHost) bool {
	state := host.Status.Provisioning.State
	return state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady
}

// State returns the provisioning state of host, or "none".
func State(host *bmov1alpha1.BareMetalHost) string {
	return cmp.Or(string(host.Status.Provisioning.State), "none")
}

// Consumer returns the name of the Metal3Machine that uses h; empty if none does.
func Consumer(h *bmov1alpha1.BareMetalHost) string {
	if IsMetal3Machine(h.Spec.ConsumerRef) {
		return h.Spec.ConsumerRef.Name
	}
	return ""
}

// FitsTheSame reports whether a and b, two versions of a host, are the same for the choice of a host and have the same consumer.
func FitsTheSame(a, b *bmov1alpha1.BareMetalHost) bool {
	owners := Wants{Selector: labels.Everything(), ReusedBy: a.Labels[NodeReuseLabel]}
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec.ConsumerRef, b.Spec.ConsumerRef) &&
		owners.Refuses(a).Reason == owners.Refuses(b).Reason
}

// IsMetal3Machine reports whether ref names a Metal3Machine.
func IsMetal3Machine(ref *corev1.ObjectReference) bool {
	return ref != nil && ref.Kind == "Metal3Machine" && ref.GroupVersionKind().Group == infrav1.GroupVersion.Group
}
