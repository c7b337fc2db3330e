package capacity

import (
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// nodeReuseLabel on a host keeps it for the machines of one owner. (CAPM3, nodeReuse of a Metal3MachineTemplate.)
const nodeReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// becoming are the states that end in an available host by themselves.
var becoming = []bmov1alpha1.ProvisioningState{
	bmov1alpha1.StateNone, bmov1alpha1.StateRegistering, bmov1alpha1.StateInspecting, bmov1alpha1.StateMatchProfile, bmov1alpha1.StatePreparing,
	bmov1alpha1.StateDeprovisioning,
}

// detachable are the states in which the annotation detaches a host. In others the Bare Metal Operator ends first what it does. (Its host_state_machine.go.)
var detachable = []bmov1alpha1.ProvisioningState{
	bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateReady, bmov1alpha1.StateAvailable,
}

func hostRef(host *bmov1alpha1.BareMetalHost) rule.Ref {
	return rule.Ref{Kind: "BareMetalHost", Namespace: host.Namespace, Name: host.Name}
}

func annotated(host *bmov1alpha1.BareMetalHost, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		_, is := host.Annotations[key]
		return is
	})
}

func detached(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached ||
		annotated(host, bmov1alpha1.DetachedAnnotation) && slices.Contains(detachable, host.Status.Provisioning.State)
}

// hindered reports whether the Bare Metal Operator does not work on host.
func hindered(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.ErrorMessage != "" || annotated(host, bmov1alpha1.PausedAnnotation) || detached(host)
}

// troubleOf is what keeps the Bare Metal Operator from working on host, as a clause.
func troubleOf(host *bmov1alpha1.BareMetalHost) string {
	switch {
	case host.Status.ErrorMessage != "" && host.Status.ErrorType != "":
		return "BareMetalHost " + host.Name + " has an error (" + string(host.Status.ErrorType) + "): " + host.Status.ErrorMessage
	case host.Status.ErrorMessage != "":
		return "BareMetalHost " + host.Name + " has an error: " + host.Status.ErrorMessage
	case annotated(host, bmov1alpha1.PausedAnnotation):
		return "BareMetalHost " + host.Name + " is paused"
	}
	return "BareMetalHost " + host.Name + " is detached"
}

// troubled says that the host of a machine is hindered, and what a user can do about that.
func (f *Facts) troubled(w *found) {
	w.wait, w.object = hostTrouble, hostRef(w.host)
	w.hint = hintOf(w.host)
}

func hintOf(host *bmov1alpha1.BareMetalHost) step {
	switch {
	case host.Status.ErrorMessage != "":
		return repairHost
	case annotated(host, bmov1alpha1.PausedAnnotation):
		return unpauseHost
	}
	return attachHost
}

// cleaned is the wait for the host of machine, whose infrastructure is being deleted. One that has another consumer was released.
func (f *Facts) cleaned(w *found, machine *clusterv1.Machine) {
	host := f.hostOf(machine)
	if host == nil {
		return
	}
	w.wait, w.host, w.object, w.since = hostIsCleaned, host, hostRef(host), latest(stateSince(host), w.since)
	if hindered(host) {
		w.wait, w.hint = hostHinders, hintOf(host)
	}
}

// placed is the wait for the host of machine, which has its bootstrap data: for one that fits, or for the one that it has.
func (f *Facts) placed(w *found, machine *clusterv1.Machine) {
	w.host = f.hostOf(machine)
	wants, known := f.wants[machine.Name]
	switch {
	case w.host != nil && hindered(w.host):
		f.troubled(w)
	case w.host != nil && w.said.Message != "" && slices.Contains(detachable, w.host.Status.Provisioning.State): // what is waited for is something else
	case w.host != nil:
		w.wait, w.object, w.since = hostWorks, hostRef(w.host), firstKnown(stateSince(w.host), w.since)
	case f.hostsKnown && known:
		f.hostless(w, wants)
	}
}

// hostless is the wait of a machine for a host. A host that is kept for its owner goes before all others, also one that is not available yet. (CAPM3,
// baremetal/metal3machine_manager.go: chooseHost.)
func (f *Facts) hostless(w *found, wants wants) {
	var frees *bmov1alpha1.BareMetalHost
	for i := range f.hosts {
		host := &f.hosts[i]
		refusal := refusalOf(host, wants)
		reused := host.Labels[nodeReuseLabel] != ""
		switch {
		case refusal.Reason == "":
			w.fitting = append(w.fitting, host.Name)
			continue
		case refusal.Reason == "NotAvailable" && slices.Contains(becoming, host.Status.Provisioning.State) && !detached(host) && (frees == nil || reused),
			refusal.Reason == "InUse" && host.Status.Provisioning.State == bmov1alpha1.StateDeprovisioning && !hindered(host) && frees == nil:
			frees = host
		}
		w.refusals = append(w.refusals, refusal)
	}
	switch {
	case frees != nil && (len(w.fitting) == 0 || frees.Labels[nodeReuseLabel] != ""):
		w.wait, w.host, w.object = hostFrees, frees, hostRef(frees)
	case len(w.fitting) > 0:
		w.wait, w.refusals = hostFits, nil
	default:
		w.wait = noHost
	}
}

// refusalOf is why host is not taken for a machine that wants that; without a reason it is. The order is that in which CAPM3 asks.
func refusalOf(host *bmov1alpha1.BareMetalHost, wants wants) cliv1.HostRefusal {
	owner, state := host.Labels[nodeReuseLabel], host.Status.Provisioning.State
	requirements, _ := wants.selector.Requirements()
	slices.SortFunc(requirements, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	unmatched := slices.IndexFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(labels.Set(host.Labels)) })
	switch consumer := host.Spec.ConsumerRef; {
	case unmatched >= 0:
		return cliv1.HostRefusal{Name: host.Name, Reason: "NotSelected", Message: "does not match the hostSelector (" + requirements[unmatched].String() + ")"}
	case owner != "" && owner != wants.reusedBy:
		return cliv1.HostRefusal{Name: host.Name, Reason: "Reserved", Message: "is kept for machines of " + owner + " (node reuse)"}
	case owner == "" && consumer != nil:
		return cliv1.HostRefusal{Name: host.Name, Reason: "InUse", Message: "is in use by " + consumer.Kind + " " + consumer.Name}
	case !host.DeletionTimestamp.IsZero():
		return cliv1.HostRefusal{Name: host.Name, Reason: "Deleting", Message: "is being deleted"}
	case host.Status.ErrorMessage != "":
		return cliv1.HostRefusal{Name: host.Name, Reason: "Error", Message: "has an error: " + host.Status.ErrorMessage}
	case annotated(host, bmov1alpha1.PausedAnnotation):
		return cliv1.HostRefusal{Name: host.Name, Reason: "Paused", Message: "is paused"}
	case annotated(host, infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation):
		return cliv1.HostRefusal{Name: host.Name, Reason: "MarkedUnhealthy", Message: "has the annotation that marks it as unhealthy"}
	case state != bmov1alpha1.StateAvailable && state != bmov1alpha1.StateReady:
		return cliv1.HostRefusal{Name: host.Name, Reason: "NotAvailable", Message: "is not available (state " + stateText(state) + ")"}
	}
	return cliv1.HostRefusal{}
}

func stateText(state bmov1alpha1.ProvisioningState) string {
	if state == bmov1alpha1.StateNone {
		return "none"
	}
	return string(state)
}

// stateSince is when the state of host began, as far as the Bare Metal Operator writes that down.
func stateSince(host *bmov1alpha1.BareMetalHost) time.Time {
	history := &host.Status.OperationHistory
	switch host.Status.Provisioning.State {
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
