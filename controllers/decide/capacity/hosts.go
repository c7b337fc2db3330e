package capacity

import "slices"

// HostReason is why a host is not taken for a machine, or what is wrong with one that was.
type HostReason string

// Why a host is not taken, in the order in which CAPM3 asks (chooseHost); the last three are of a host that a machine has, too.
const (
	HostNotSelected  HostReason = "NotSelected"
	HostReserved     HostReason = "Reserved"
	HostInUse        HostReason = "InUse"
	HostIsDeleting   HostReason = "Deleting"
	HostHasError     HostReason = "Error"
	HostPaused       HostReason = "Paused"
	HostUnhealthy    HostReason = "MarkedUnhealthy"
	HostNotAvailable HostReason = "NotAvailable"
	// HostDetached is one that the Bare Metal Operator leaves alone. CAPM3 takes it all the same.
	HostDetached HostReason = "Detached"
)

// available are the states of a host that can be taken.
var available = []string{"ready", "available"}

// becoming are the states that end in an available host by themselves.
var becoming = []string{"", "registering", "inspecting", "match profile", "preparing", "deprovisioning"}

// answer is why h is not taken; without a reason it is.
func (h *Host) answer() HostAnswer {
	is := HostAnswer{Name: h.Name}
	switch {
	case !h.Selected:
		is.Why, is.Detail = HostNotSelected, h.Unmatched
	case h.Reserved != "" && h.Unreserved:
		is.Why, is.Detail = HostReserved, h.Reserved
	case h.Reserved == "" && h.Consumer != "":
		is.Why, is.Detail = HostInUse, h.Consumer
	case h.Deleting:
		is.Why = HostIsDeleting
	case h.Error != "":
		is.Why, is.Detail = HostHasError, h.Error
	case h.Paused:
		is.Why = HostPaused
	case h.MarkedUnhealthy:
		is.Why = HostUnhealthy
	case !slices.Contains(available, h.State):
		is.Why, is.Detail = HostNotAvailable, h.State
	}
	return is
}

// frees reports whether h will be available for the machine, and nothing hinders that.
func (h *Host) frees() bool {
	free := h.Consumer == "" || h.State == "deprovisioning"
	return h.Selected && !h.Unreserved && free && !h.Deleting && !h.MarkedUnhealthy && h.trouble() == "" && slices.Contains(becoming, h.State)
}

// trouble is what keeps the Bare Metal Operator from working on h; empty if nothing does.
func (h *Host) trouble() HostReason {
	switch {
	case h.Error != "":
		return HostHasError
	case h.Paused:
		return HostPaused
	case h.Detached:
		return HostDetached
	}
	return ""
}

// todoOf is what a person can do about the trouble of a host.
func todoOf(trouble HostReason) Todo {
	if trouble == HostHasError {
		return RepairHost
	}
	return Unpause
}

// host is the host of that name; nil if it is not known.
func (f *Facts) host(name string) *Host {
	i := slices.IndexFunc(f.Hosts, func(h Host) bool { return h.Name == name })
	if name == "" || i < 0 {
		return nil
	}
	return &f.Hosts[i]
}

// elsewhere are the reasons for which CAPM3 does not look for a host yet. (Its controllers/metal3machine_controller.go.)
var elsewhere = []string{
	"WaitingForClusterInfrastructureReady", "WaitingForMetal3MachineOwnerRef", "WaitingforMetal3Cluster",
	"BareMetalHostPauseAnnotationRemoveFailed", "BareMetalHostPauseAnnotationSetFailed",
}

// reused is a host that is kept for machines of the owner, and that is not available yet: CAPM3 takes no other one before it is. Nil if there is none.
func (f *Facts) reused() *Host {
	i := slices.IndexFunc(f.Hosts, func(h Host) bool { return h.Reserved != "" && h.answer().Why == HostNotAvailable })
	if i < 0 {
		return nil
	}
	return &f.Hosts[i]
}

// hostless is the story of m, which has no host yet.
func (f *Facts) hostless(s *Story, m *Machine) {
	switch reason := m.Associated.Reason; {
	case m.Associated.Status != "False":
	case slices.Contains(elsewhere, reason):
		f.unassociated(s, m, m.Associated)
		return
	case reason == "Paused":
		f.unassociated(s, m, m.Associated)
		f.paused(s, m.infra())
		return
	}
	s.Stage, s.Reason, s.Next, s.Since, s.WaitsFor = NoHostFits, NoHost, HostIsTaken, m.Infrastructure.Since, m.Infra
	s.Args.Reason, s.Args.Message = m.Associated.Reason, m.Associated.Message
	if m.Hosts != nil {
		seen := *f
		seen.Hosts, f = m.Hosts, &seen
	}
	frees := f.reused()
	if frees != nil {
		f.frees(s, frees)
		return
	}
	for i := range f.Hosts {
		is := f.Hosts[i].answer()
		if is.Why == "" {
			s.Args.Fitting = append(s.Args.Fitting, is.Name)
			continue
		}
		s.Args.Hosts = append(s.Args.Hosts, is)
		if frees == nil && f.Hosts[i].frees() {
			frees = &f.Hosts[i]
		}
	}
	switch {
	case len(s.Args.Fitting) > 0:
		s.Stage, s.Reason, s.Args.Host, s.Args.Hosts = Provisioning, HostChosen, f.host(s.Args.Fitting[0]), nil
		if f.late(s.Since, machineTakes) {
			s.Todo = LookAtInfrastructure
		}
	case frees != nil:
		f.frees(s, frees)
	default:
		s.Todo = AddHost
	}
}

// frees is the story of a machine for which h is made available.
func (f *Facts) frees(s *Story, h *Host) {
	s.Reason, s.Args.Host, s.WaitsFor = HostFrees, h, Object{Kind: "BareMetalHost", Name: h.Name}
	takes := machineTakes
	if h.State == "deprovisioning" {
		takes = cleaningTakes
	}
	if f.late(firstKnown(h.Since, s.Since), takes) {
		s.Todo = LookAtInfrastructure
	}
}
