package capacity

import (
	"context"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// The conditions in which CAPM3 says of a Metal3Machine whether it has a host, and the data that this needs, or a node.
const (
	associated = "AssociateBareMetalHost"
	dataReady  = "Metal3DataReady"
	metaData   = "AssociateMetal3MachineMetaData"
)

// readHosts reads the hosts of machines on bare metal, as far as a story may be about them: of machines without a node, and of one whose infrastructure is
// being deleted.
func (r *reading) readHosts(ctx context.Context) error {
	var hostless []seeking
	wanted := false
	for _, m := range r.concerned() {
		between, err := r.metal3Machine(ctx, m)
		if err != nil {
			return err
		}
		is := r.known(m.Name)
		wanted = true
		if is.HostsUnread = between == nil; is.HostsUnread {
			continue
		}
		value := between.GetAnnotations()[infrav1.HostAnnotation]
		is.Host = value[strings.LastIndex(value, "/")+1:]
		is.Associated = untypedCondition(between, associated)
		is.Data = untypedCondition(between, dataReady)
		if words := untypedCondition(between, metaData); is.Data.Status != "False" {
			is.Data = words
		} else if is.Data.Message == "" { // it has none, and the other one has
			is.Data.Message = words.Message
		}
		if is.Host == "" && is.Deleting.IsZero() {
			hostless = append(hostless, seeking{m, between})
		}
	}
	if !wanted {
		return nil
	}
	return r.listHosts(ctx, hostless)
}

// seeking is a machine without a host, and its Metal3Machine.
type seeking struct {
	machine *clusterv1.Machine
	between *unstructured.Unstructured
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

// listHosts reads all hosts of the namespace, as the first of those machines sees them that have none. Where another one wants
// other hosts, since its template was changed, it has them as it sees them itself.
func (r *reading) listHosts(ctx context.Context, hostless []seeking) error {
	list := &bmov1alpha1.BareMetalHostList{}
	known, err := r.list(ctx, list, bareMetalHosts)
	if err != nil || !known {
		return err
	}
	r.facts.HostsKnown = true
	first := host.AnyHost
	for i, m := range hostless {
		wants, is := m.wants()
		switch {
		case !is:
			r.known(m.machine.Name).HostsUnread = true
			r.facts.Unread = append(r.facts.Unread, metal3Machines)
		case i == 0:
			first = wants
		case wants.ReusedBy != first.ReusedBy || wants.Selector.String() != first.Selector.String():
			r.known(m.machine.Name).Hosts = hostsOf(list, wants)
		}
	}
	r.facts.Hosts = hostsOf(list, first)
	return nil
}

// wants is what the machine wants of its host; false if its Metal3Machine was not read whole, or has a hostSelector that cannot be used.
func (s *seeking) wants() (host.Wants, bool) {
	if _, whole := s.between.Object["spec"]; !whole {
		return host.AnyHost, false
	}
	wants, err := host.WantsBy(s.between, s.machine)
	return wants, err == nil
}

// hostsOf are the facts about hosts, by name, for a machine that wants that.
func hostsOf(list *bmov1alpha1.BareMetalHostList, wants host.Wants) []capacity.Host {
	all := make([]capacity.Host, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, hostOf(&list.Items[i], wants))
	}
	slices.SortFunc(all, func(a, b capacity.Host) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// detachable are the states in which the annotation detaches a host. In others the Bare Metal Operator ends first what it does. (Its host_state_machine.go.)
var detachable = []bmov1alpha1.ProvisioningState{
	bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateReady, bmov1alpha1.StateAvailable,
}

// hostOf are the facts about h for a machine that wants that.
func hostOf(h *bmov1alpha1.BareMetalHost, wants host.Wants) capacity.Host {
	_, paused := h.Annotations[bmov1alpha1.PausedAnnotation]
	_, detached := h.Annotations[bmov1alpha1.DetachedAnnotation]
	_, unhealthy := h.Annotations[infrav1.UnhealthyAnnotation]
	_, legacy := h.Annotations[infrav1.LegacyUnhealthyAnnotation]
	detached = detached && slices.Contains(detachable, h.Status.Provisioning.State)
	is := capacity.Host{
		Name: h.Name, State: string(h.Status.Provisioning.State), Since: stateSince(h), Deleting: !h.DeletionTimestamp.IsZero(), Paused: paused,
		Detached:        detached || h.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached,
		MarkedUnhealthy: unhealthy || legacy,
		ErrorType:       string(h.Status.ErrorType), Error: h.Status.ErrorMessage, PoweredOn: h.Status.PoweredOn, Online: h.Spec.Online,
		Reserved: h.Labels[host.NodeReuseLabel],
	}
	if ref := h.Spec.ConsumerRef; ref != nil {
		is.Consumer = ref.Kind + " " + ref.Name
	}
	is.Unreserved = is.Reserved != "" && is.Reserved != wants.ReusedBy
	selector, _ := wants.Selector.Requirements()
	slices.SortFunc(selector, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
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
