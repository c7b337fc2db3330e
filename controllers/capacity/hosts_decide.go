package capacity

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

func hostRef(host *bmov1alpha1.BareMetalHost) rule.Ref {
	return rule.Ref{Kind: "BareMetalHost", Namespace: host.Namespace, Name: host.Name}
}

func annotated(host *bmov1alpha1.BareMetalHost, key string) bool {
	_, set := host.Annotations[key]
	return set
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
func (f *Facts) hostless(w *found, sought spare.Wants) {
	becomes, reused := false, false
	for i := range f.hosts {
		bmh := &f.hosts[i]
		refusal := sought.Refuses(bmh)
		if refusal.Reason == "" {
			w.fitting = append(w.fitting, bmh.Name)
			continue
		}
		becomes = becomes || refusal.Reason == spare.NotAvailable
		reused = reused || refusal.Reason == spare.NotAvailable && bmh.Labels[spare.NodeReuseLabel] != ""
		w.refusals = append(w.refusals, cliv1.HostRefusal{Name: bmh.Name, Reason: refusal.Reason, Message: refusal.Message})
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
