package capacity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// nodeReuseLabel keeps a host for the machines of the owner that it names. (CAPM3, nodeReuseLabelName.)
const nodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// associated is the condition in which CAPM3 says of a Metal3Machine whether it has a host.
const associated = "AssociateBareMetalHost"

// readHosts reads the hosts of machines on bare metal, as far as a story may be about them: of machines without a node, and of one whose infrastructure is
// being deleted.
func (r *reading) readHosts(ctx context.Context) error {
	var hostless *unstructured.Unstructured
	wanted := false
	for _, m := range r.concerned() {
		between, err := r.metal3Machine(ctx, m)
		if err != nil {
			return err
		}
		is := r.known(m.Name)
		wanted = true
		if between == nil {
			continue
		}
		value := between.GetAnnotations()[infrav1.HostAnnotation]
		is.Host = value[strings.LastIndex(value, "/")+1:]
		is.Associated = untypedCondition(between, associated)
		if is.Host == "" && is.Deleting.IsZero() && hostless == nil {
			hostless = between
		}
	}
	if !wanted {
		return nil
	}
	return r.listHosts(ctx, hostless)
}

// concerned are the machines on bare metal whose hosts matter: those without a node, the oldest one first, and those that wait for the deletion of
// their infrastructure.
func (r *reading) concerned() []*clusterv1.Machine {
	all := r.all
	if r.old != nil && !slices.ContainsFunc(all, func(m *clusterv1.Machine) bool { return m.Name == r.old.Name }) {
		all = append(slices.Clone(all), r.old)
	}
	var concerned []*clusterv1.Machine
	for _, m := range all {
		is := r.known(m.Name)
		waits := is.Deletion.Condition.Reason == clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason
		if isMetal3(m) && (is.Node == "" && is.Deleting.IsZero() || waits) {
			concerned = append(concerned, m)
		}
	}
	slices.SortStableFunc(concerned, func(a, b *clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return concerned
}

// metal3Machine reads what stands between m and its host; nil if it does not exist or could not be read.
func (r *reading) metal3Machine(ctx context.Context, m *clusterv1.Machine) (*unstructured.Unstructured, error) {
	obj, err := r.untyped(schema.GroupKind{Group: infrav1.GroupVersion.Group, Kind: metal3MachineKind})
	if err != nil {
		return nil, r.unread(metal3Machines, err)
	}
	exists, _, err := r.get(ctx, m.Spec.InfrastructureRef.Name, obj, metal3Machines)
	if err != nil || !exists {
		return nil, err
	}
	return obj, nil
}

// listHosts reads all hosts of the namespace, as the machine sees them that has none.
func (r *reading) listHosts(ctx context.Context, hostless *unstructured.Unstructured) error {
	list := &bmov1alpha1.BareMetalHostList{}
	known, err := r.list(ctx, list, bareMetalHosts)
	if err != nil || !known {
		return err
	}
	selector, err := selectorOf(hostless)
	if err != nil { // CAPM3 chooses none then, and says the same
		r.facts.Unread = append(r.facts.Unread, metal3Machines)
	}
	r.facts.HostsKnown = hostless != nil && err == nil
	for i := range list.Items {
		r.facts.Hosts = append(r.facts.Hosts, r.host(&list.Items[i], selector))
	}
	slices.SortFunc(r.facts.Hosts, func(a, b capacity.Host) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// host are the facts about h for a machine with a selector.
func (r *reading) host(h *bmov1alpha1.BareMetalHost, selector []labels.Requirement) capacity.Host {
	_, paused := h.Annotations[bmov1alpha1.PausedAnnotation]
	_, detached := h.Annotations[bmov1alpha1.DetachedAnnotation]
	_, unhealthy := h.Annotations[infrav1.UnhealthyAnnotation]
	_, legacy := h.Annotations[infrav1.LegacyUnhealthyAnnotation]
	is := capacity.Host{
		Name: h.Name, State: string(h.Status.Provisioning.State), Since: stateSince(h), Deleting: !h.DeletionTimestamp.IsZero(), Paused: paused,
		Detached: detached || h.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached, MarkedUnhealthy: unhealthy || legacy,
		ErrorType: string(h.Status.ErrorType), Error: h.Status.ErrorMessage, PoweredOn: h.Status.PoweredOn, Online: h.Spec.Online,
		Reserved: h.Labels[nodeReuseLabel],
	}
	if ref := h.Spec.ConsumerRef; ref != nil {
		is.Consumer = ref.Kind + " " + ref.Name
	}
	is.Unreserved = is.Reserved != "" && is.Reserved != r.Deployment && is.Reserved != r.Owner.Name
	i := slices.IndexFunc(selector, func(q labels.Requirement) bool { return !q.Matches(labels.Set(h.Labels)) })
	if is.Selected = i < 0; !is.Selected {
		is.Unmatched = selector[i].String()
	}
	return is
}

// stateSince is when the state of h began, as far as the Bare Metal Operator writes that down.
func stateSince(h *bmov1alpha1.BareMetalHost) time.Time {
	history := &h.Status.OperationHistory
	switch h.Status.Provisioning.State {
	case bmov1alpha1.StateRegistering:
		return history.Register.Start.Time
	case bmov1alpha1.StateInspecting:
		return history.Inspect.Start.Time
	case bmov1alpha1.StateProvisioning:
		return history.Provision.Start.Time
	case bmov1alpha1.StateProvisioned:
		return history.Provision.End.Time
	case bmov1alpha1.StateDeprovisioning:
		return history.Deprovision.Start.Time
	}
	return time.Time{}
}

// selectorOf are the requirements of a Metal3Machine for its host; none if there is no Metal3Machine without a host. (CAPM3,
// hostLabelSelectorForMachine.) The error is that of a requirement which cannot be used, or of an object that was not read whole.
func selectorOf(m *unstructured.Unstructured) ([]labels.Requirement, error) {
	if m == nil {
		return nil, nil
	}
	if _, whole := m.Object["spec"]; !whole {
		return nil, fmt.Errorf("%s has no spec", m.GetName())
	}
	var all []labels.Requirement
	add := func(key string, operator selection.Operator, values []string) error {
		q, err := labels.NewRequirement(key, operator, values)
		if err == nil {
			all = append(all, *q)
		}
		return err
	}
	match, _, err := unstructured.NestedStringMap(m.Object, "spec", "hostSelector", "matchLabels")
	if err != nil {
		return nil, err
	}
	for key, value := range match {
		if err := add(key, selection.Equals, []string{value}); err != nil {
			return nil, err
		}
	}
	expressions, _, err := unstructured.NestedSlice(m.Object, "spec", "hostSelector", "matchExpressions")
	if err != nil {
		return nil, err
	}
	for _, is := range expressions {
		e, _ := is.(map[string]any)
		key, _, _ := unstructured.NestedString(e, "key") // an empty key is refused below
		operator, _, _ := unstructured.NestedString(e, "operator")
		values, _, err := unstructured.NestedStringSlice(e, "values")
		if err != nil {
			return nil, err
		}
		if err := add(key, selection.Operator(strings.ToLower(operator)), values); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// untypedCondition is the condition of a type of an object of another project.
func untypedCondition(obj *unstructured.Unstructured, kind string) capacity.Condition {
	all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions") // without conditions nothing is said
	for _, is := range all {
		c, _ := is.(map[string]any)
		text := func(field string) string {
			s, _ := c[field].(string)
			return s
		}
		if text("type") != kind {
			continue
		}
		since, _ := time.Parse(time.RFC3339, text("lastTransitionTime")) // zero is one that is not known
		return capacity.Condition{Status: text("status"), Reason: text("reason"), Message: text("message"), Since: since}
	}
	return capacity.Condition{}
}
