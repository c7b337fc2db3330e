package capacity

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// onHost replaces w by the wait for host, if there is one: working, or hindered if something keeps BMO from working on the host.
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

// trouble returns a clause about what keeps BMO from working on host, and how to unpause a host that is paused; empty if nothing does.
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

// placed sets the wait for the host of a machine that has its bootstrap data: for a host that fits, or for its own host. The provider's
// condition says what else CAPM3 needs before it provisions the host.
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

// hostless sets the wait of a machine without a host. CAPM3 takes no other host while one is reserved for its owner and not available yet.
// (CAPM3, baremetal/metal3machine_manager.go: chooseHost.)
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

// has reports whether host belongs to the Metal3Machine of machine.
func has(host *bmov1alpha1.BareMetalHost, machine *clusterv1.Machine) bool {
	consumer, infra := host.Spec.ConsumerRef, machine.Spec.InfrastructureRef
	return consumer != nil && consumer.Kind == infra.Kind && consumer.Name == infra.Name
}

// hostOf returns the host of the Metal3Machine of machine; nil if none is known.
func (f *Facts) hostOf(machine *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	for i := range f.hosts {
		if has(&f.hosts[i], machine) {
			return &f.hosts[i]
		}
	}
	return nil
}
