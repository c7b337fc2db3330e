package capacity

import (
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// nodeReuseLabel on a host keeps it for the machines of one owner. (CAPM3, nodeReuse of a Metal3MachineTemplate.)
const nodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// notAvailable is the reason of a host that fits, and that the Bare Metal Operator has not made available.
const notAvailable = "NotAvailable"

func hostRef(host *bmov1alpha1.BareMetalHost) rule.Ref {
	return rule.Ref{Kind: "BareMetalHost", Namespace: host.Namespace, Name: host.Name}
}

func annotated(host *bmov1alpha1.BareMetalHost, key string) bool {
	_, set := host.Annotations[key]
	return set
}

func available(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.Provisioning.State == bmov1alpha1.StateAvailable || host.Status.Provisioning.State == bmov1alpha1.StateReady
}

// trouble is what keeps the Bare Metal Operator from working on host, as a clause, and what a user can do about that; empty if nothing
// does.
func trouble(host *bmov1alpha1.BareMetalHost) (clause string, hint step) {
	name := "BareMetalHost " + host.Name
	switch {
	case host.Status.ErrorMessage != "" && host.Status.ErrorType != "":
		return name + " has an error (" + string(host.Status.ErrorType) + "): " + host.Status.ErrorMessage, repairHost
	case host.Status.ErrorMessage != "":
		return name + " has an error: " + host.Status.ErrorMessage, repairHost
	case annotated(host, bmov1alpha1.PausedAnnotation):
		return name + " is paused", unpauseHost
	case host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached:
		return name + " is detached", attachHost
	}
	return "", step{}
}

// onHost is the wait for the host of machine, if it has one: for what is done to it, or for what keeps it from that.
func (w *found) onHost(host *bmov1alpha1.BareMetalHost, working, hindered wait) {
	if host == nil {
		return
	}
	w.wait, w.host, w.object = working, host, hostRef(host)
	if clause, hint := trouble(host); clause != "" {
		w.wait, w.hint = hindered, hint
	}
}

// hostless is the wait of a machine for a host. While one is kept for its owner and not available yet, CAPM3 takes no other. (Its
// baremetal/metal3machine_manager.go: chooseHost.)
func (f *Facts) hostless(w *found, sought wants) {
	becomes, reused := false, false
	for i := range f.hosts {
		refusal := refusalOf(&f.hosts[i], sought)
		if refusal.Reason == "" {
			w.fitting = append(w.fitting, refusal.Name)
			continue
		}
		becomes = becomes || refusal.Reason == notAvailable
		reused = reused || refusal.Reason == notAvailable && f.hosts[i].Labels[nodeReuseLabel] != ""
		w.refusals = append(w.refusals, refusal)
	}
	switch {
	case len(w.fitting) > 0 && !reused:
		w.wait, w.refusals = hostFits, nil
	case becomes:
		w.wait, w.fitting, w.usual = noHost, nil, cleaningTakes
	default:
		w.wait = noHost
	}
}

// refusalOf is why host is not taken for a machine that wants that; without a reason it is. The order is that in which CAPM3 asks.
func refusalOf(host *bmov1alpha1.BareMetalHost, sought wants) cliv1.HostRefusal {
	refuse := func(reason, message string) cliv1.HostRefusal {
		return cliv1.HostRefusal{Name: host.Name, Reason: reason, Message: message}
	}
	owner, consumer := host.Labels[nodeReuseLabel], host.Spec.ConsumerRef
	requirements, _ := sought.selector.Requirements()
	slices.SortFunc(requirements, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	unmatched := slices.IndexFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(labels.Set(host.Labels)) })
	switch {
	case unmatched >= 0:
		return refuse("NotSelected", "does not match the hostSelector ("+requirements[unmatched].String()+")")
	case owner != "" && owner != sought.reusedBy:
		return refuse("Reserved", "is kept for machines of "+owner+" (node reuse)")
	case owner == "" && consumer != nil && host.Status.Provisioning.State != bmov1alpha1.StateDeprovisioning:
		return refuse("InUse", "is in use by "+consumer.Kind+" "+consumer.Name)
	case !host.DeletionTimestamp.IsZero():
		return refuse("Deleting", "is being deleted")
	case host.Status.ErrorMessage != "":
		return refuse("Error", "has an error: "+host.Status.ErrorMessage)
	case annotated(host, bmov1alpha1.PausedAnnotation):
		return refuse("Paused", "is paused")
	case annotated(host, infrav1.UnhealthyAnnotation), annotated(host, infrav1.LegacyUnhealthyAnnotation):
		return refuse("MarkedUnhealthy", "has the annotation that marks it as unhealthy")
	case !available(host):
		return refuse(notAvailable, "is not available (state "+stateText(host.Status.Provisioning.State)+")")
	}
	return refuse("", "")
}

func stateText(state bmov1alpha1.ProvisioningState) string {
	if state == bmov1alpha1.StateNone {
		return "none"
	}
	return string(state)
}

// has reports whether host is that of the Metal3Machine of machine.
func has(host *bmov1alpha1.BareMetalHost, machine *clusterv1.Machine) bool {
	consumer, infra := host.Spec.ConsumerRef, machine.Spec.InfrastructureRef
	return consumer != nil && consumer.Kind == infra.Kind && consumer.Name == infra.Name
}

// hostOf is the host that the Metal3Machine of machine has; nil if none is known.
func (f *Facts) hostOf(machine *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	for i := range f.hosts {
		if has(&f.hosts[i], machine) {
			return &f.hosts[i]
		}
	}
	return nil
}
