package host

import (
	"context"
	"fmt"
	"maps"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeReuseLabel on a host keeps it for the machines of one control plane or MachineDeployment. (CAPM3, nodeReuse of a Metal3MachineTemplate.)
const NodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// Wants is what a machine asks of the host that it is put on.
type Wants struct {
	// Selector selects by the labels of the host: spec.hostSelector of the Metal3Machine.
	Selector labels.Selector
	// ReusedBy is the value of CAPM3's label node-reuse on hosts that are kept for machines like this one; empty if none are.
	ReusedBy string
}

// AnyHost is what a machine wants of which nothing is known.
var AnyHost = Wants{Selector: labels.Everything()}

// WantsOf returns what m wants of its host, by its Metal3Machine, which reader reads whole. Its replacement will want the same: both are cloned from the
// template of their owner. Only during a rollout that changes hostSelector a KubeadmControlPlane clones another one.
func WantsOf(ctx context.Context, reader client.Reader, c client.Client, m *clusterv1.Machine) (Wants, error) {
	kind, err := Metal3MachineKind(c.RESTMapper())
	if err != nil {
		return AnyHost, err
	}
	between, key := &unstructured.Unstructured{}, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}
	between.SetGroupVersionKind(kind.GroupVersionKind())
	if err := reader.Get(ctx, key, between); err != nil {
		return AnyHost, fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	return WantsBy(between, m)
}

// WantsBy returns what m wants of its host, by its Metal3Machine, which was read whole. The error is that of a hostSelector that cannot be used: CAPM3 chooses
// no host then.
func WantsBy(between *unstructured.Unstructured, m *clusterv1.Machine) (Wants, error) {
	selector, err := hostSelector(between)
	if err != nil {
		return AnyHost, fmt.Errorf("read spec.hostSelector of Metal3Machine %s: %w", client.ObjectKeyFromObject(between), err)
	}
	return Wants{Selector: selector, ReusedBy: reusedBy(m)}, nil
}

// hostSelector is spec.hostSelector as CAPM3 reads it, which writes operators in lower case. (CAPM3, hostLabelSelectorForMachine.)
func hostSelector(between *unstructured.Unstructured) (labels.Selector, error) {
	field, _, err := unstructured.NestedMap(between.Object, "spec", "hostSelector")
	if err != nil {
		return nil, err
	}
	var is metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(field, &is); err != nil {
		return nil, err
	}
	selector, err := labels.ValidatedSelectorFromSet(is.MatchLabels)
	if err != nil {
		return nil, err
	}
	for _, e := range is.MatchExpressions {
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

// Fitting are the names of the hosts that CAPM3 could put a machine on that wants that, of all hosts of its namespace.
//
// Hosts that are kept for its owner go before all others, and while there is one, CAPM3 waits for it even if it is not available yet. A failure domain is no
// more than a preference: where no host has its label, CAPM3 takes another one. (CAPM3, chooseHost and pickHost.)
func (w Wants) Fitting(hosts []*bmov1alpha1.BareMetalHost) []string {
	var kept, others []string
	reuse := false
	for _, h := range hosts {
		if !w.Selector.Matches(labels.Set(h.Labels)) {
			continue
		}
		by, is := h.Labels[NodeReuseLabel]
		switch {
		case is && (w.ReusedBy == "" || by != w.ReusedBy):
		case is && choosable(h) && Consumer(h) == "": // one that is kept for an owner has another consumer, its Cluster (CAPM3, Delete)
			if reuse = true; available(h) {
				kept = append(kept, h.Name)
			}
		case !is && Free(h):
			others = append(others, h.Name)
		}
	}
	if reuse {
		return kept
	}
	return others
}

// Free reports whether CAPM3 could put a machine on h that has its labels. (CAPM3, chooseHost: it has no consumer, and is available.)
func Free(h *bmov1alpha1.BareMetalHost) bool {
	return h.Spec.ConsumerRef == nil && choosable(h) && available(h)
}

// choosable reports whether nothing keeps h from being chosen, whatever its state: it is not being deleted, reports no error, and is neither paused nor marked
// unhealthy. (CAPM3, chooseHost.) That it is not detached is a rule of ours: CAPM3 chooses such a host, and BMO never provisions it.
func choosable(h *bmov1alpha1.BareMetalHost) bool {
	if !h.DeletionTimestamp.IsZero() || h.Status.ErrorMessage != "" || h.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
		return false
	}
	for _, key := range append([]string{bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation}, unhealthyKeys...) {
		if _, set := h.Annotations[key]; set {
			return false
		}
	}
	return true
}

func available(h *bmov1alpha1.BareMetalHost) bool {
	return h.Status.Provisioning.State == bmov1alpha1.StateAvailable || h.Status.Provisioning.State == bmov1alpha1.StateReady
}

// Consumer is the name of the Metal3Machine that has h; empty if none does.
func Consumer(h *bmov1alpha1.BareMetalHost) string {
	if isMetal3Machine(h.Spec.ConsumerRef) {
		return h.Spec.ConsumerRef.Name
	}
	return ""
}

// FitsTheSame reports whether two versions of a host differ in nothing that decides which machines could be put on it, or which one has it.
func FitsTheSame(a, b *bmov1alpha1.BareMetalHost) bool {
	return a.UID == b.UID && choosable(a) == choosable(b) && available(a) == available(b) &&
		sameConsumer(a.Spec.ConsumerRef, b.Spec.ConsumerRef) && maps.Equal(a.Labels, b.Labels)
}
