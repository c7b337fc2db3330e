// Package spare says which BareMetalHosts CAPM3 could put a machine on, and why not on the others.
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

// NodeReuseLabel on a host keeps it for the machines of one control plane or MachineDeployment. (CAPM3, nodeReuse of a
// Metal3MachineTemplate.)
const NodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// Wants is what a machine asks of the host that it is put on.
type Wants struct {
	// Selector selects by the labels of the host: spec.hostSelector of the Metal3Machine.
	Selector labels.Selector
	// ReusedBy is the value of CAPM3's label node-reuse on hosts that are kept for machines like this one; empty if none are.
	ReusedBy string
}

// Any is what a machine wants of which nothing is known.
var Any = Wants{Selector: labels.Everything()}

// WantsBy returns what m wants of its host, by its Metal3Machine, which was read whole. The error is that of a hostSelector that cannot be
// used: CAPM3 chooses no host then.
func WantsBy(between *unstructured.Unstructured, m *clusterv1.Machine) (Wants, error) {
	selector, err := hostSelector(between)
	if err != nil {
		return Any, fmt.Errorf("read spec.hostSelector of Metal3Machine %s/%s: %w", between.GetNamespace(), between.GetName(), err)
	}
	return Wants{Selector: selector, ReusedBy: reusedBy(m)}, nil
}

// hostSelector is spec.hostSelector as CAPM3 reads it, which writes operators in lower case. (CAPM3, hostLabelSelectorForMachine.)
func hostSelector(between *unstructured.Unstructured) (labels.Selector, error) {
	field, _, err := unstructured.NestedMap(between.Object, "spec", "hostSelector")
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

// reusedBy is the value of the label node-reuse on the hosts that are kept for machines of m's owner. (CAPM3, getControlPlaneName and
// getMachineDeploymentName; the label of the Machine names the MachineDeployment as well.)
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

// Refusal is why CAPM3 does not put a machine on a host; without a reason it may.
type Refusal struct{ Reason, Message string }

// NotAvailable is the reason of a host that fits, and that the Bare Metal Operator has not made available.
const NotAvailable = "NotAvailable"

// Refuses is why CAPM3 does not put a machine that wants that on host. (CAPM3, chooseHost.) That a host is not detached is a rule of ours:
// CAPM3 chooses such a one, and the Bare Metal Operator never provisions it.
func (w Wants) Refuses(host *bmov1alpha1.BareMetalHost) Refusal {
	owner, kept := host.Labels[NodeReuseLabel]
	consumer, state := host.Spec.ConsumerRef, host.Status.Provisioning.State
	// One that is kept for an owner has another consumer than a machine, its Cluster. (CAPM3, Delete)
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

// unmatched is the first requirement of the selector that host does not meet; empty if it meets all.
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

// Fitting are the names of the hosts that CAPM3 could put a machine on that wants that, of all hosts of its namespace.
//
// Hosts that are kept for its owner go before all others, and while there is one, CAPM3 waits for it even if it is not available yet. A
// failure domain is no more than a preference: where no host has its label, CAPM3 takes another one. (CAPM3, chooseHost and pickHost.)
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

// Free reports whether CAPM3 could put a machine on host that has its labels.
func Free(host *bmov1alpha1.BareMetalHost) bool { return Any.Refuses(host).Reason == "" }

// Available reports whether the Bare Metal Operator has made host available.
func Available(host *bmov1alpha1.BareMetalHost) bool {
	state := host.Status.Provisioning.State
	return state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady
}

// State is the provisioning state of host as a word.
func State(host *bmov1alpha1.BareMetalHost) string {
	return cmp.Or(string(host.Status.Provisioning.State), "none")
}

// Consumer is the name of the Metal3Machine that has h; empty if none does.
func Consumer(h *bmov1alpha1.BareMetalHost) string {
	if IsMetal3Machine(h.Spec.ConsumerRef) {
		return h.Spec.ConsumerRef.Name
	}
	return ""
}

// FitsTheSame reports whether two versions of a host differ in nothing that decides which machines could be put on it, or which one has it.
func FitsTheSame(a, b *bmov1alpha1.BareMetalHost) bool {
	owners := Wants{Selector: labels.Everything(), ReusedBy: a.Labels[NodeReuseLabel]}
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec.ConsumerRef, b.Spec.ConsumerRef) &&
		owners.Refuses(a).Reason == owners.Refuses(b).Reason
}

// IsMetal3Machine reports whether ref names a Metal3Machine.
func IsMetal3Machine(ref *corev1.ObjectReference) bool {
	return ref != nil && ref.Kind == "Metal3Machine" && ref.GroupVersionKind().Group == infrav1.GroupVersion.Group
}
