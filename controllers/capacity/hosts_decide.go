package capacity

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// onHost makes w the wait for host, if there is one: for what is done to it, or for what keeps the Bare Metal Operator from that.
func (w *found) onHost(host *bmov1alpha1.BareMetalHost, working, hindered wait) {
	if host == nil {
		return
	}
	w.wait, w.host, w.WaitsFor = working, host, rule.Ref{Kind: "BareMetalHost", Namespace: host.Namespace, Name: host.Name}
	if clause, unpause := trouble(host); clause != "" {
		w.wait, w.pause = hindered, unpause
	}
	if w.pause != "" {
		w.hint = unpause
	}
}

// trouble is what keeps the Bare Metal Operator from working on host, as a clause, and what to do about that if it is paused; empty if
// nothing does.
func trouble(host *bmov1alpha1.BareMetalHost) (clause, unpause string) {
	name, status := "BareMetalHost "+host.Name, &host.Status
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	switch {
	case status.ErrorMessage != "" && status.ErrorType != "":
		return name + " has an error (" + string(status.ErrorType) + "): " + status.ErrorMessage, ""
	case status.ErrorMessage != "":
		return name + " has an error: " + status.ErrorMessage, ""
	case paused:
		return name + " is paused", "remove its annotation " + bmov1alpha1.PausedAnnotation
	case status.OperationalStatus == bmov1alpha1.OperationalStatusDetached:
		return name + " is detached", "remove its annotation " + bmov1alpha1.DetachedAnnotation
	}
	return "", ""
}

// placed is the wait for the host of machine, which has its bootstrap data: for one that fits, or for the one that it has. What CAPM3 needs
// besides before it provisions that, it says itself.
func (f *Facts) placed(w *found, machine *clusterv1.Machine) {
	host := f.hostOf(machine)
	sought, known := f.wants[machine.Name]
	switch {
	case host != nil && spare.Available(host) && w.said.Message != "":
	case host != nil:
		w.onHost(host, hostWorks, hostTrouble)
	case f.hostsKnown && known:
		f.hostless(w, sought)
	}
}

// hostless is the wait of a machine for a host. While one is kept for its owner and not available yet, CAPM3 takes no other. (Its
// baremetal/metal3machine_manager.go: chooseHost.)
func (f *Facts) hostless(w *found, sought spare.Wants) {
	becomes, reused := false, false
	for i := range f.hosts {
		host := &f.hosts[i]
		refusal := sought.Refuses(host)
		if refusal.Reason == "" {
			w.fitting = append(w.fitting, host.Name)
			continue
		}
		becomes = becomes || refusal.Reason == spare.NotAvailable
		reused = reused || refusal.Reason == spare.NotAvailable && host.Labels[spare.NodeReuseLabel] != ""
		w.Hosts = append(w.Hosts, cliv1.HostRefusal{Name: host.Name, Reason: refusal.Reason, Message: oneLine(refusal.Message)})
	}
	switch {
	case len(w.fitting) > 0 && !reused:
		w.wait, w.Hosts = hostFits, nil
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
