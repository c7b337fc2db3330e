package capacity

import (
	"slices"
	"time"
)

// How long a wait is before a person should look at it. None is a deadline: nothing happens then.
const (
	// drainTakes is how long pods may take to leave a node, and volumes after them.
	drainTakes = 2 * time.Minute
	// bootstrapTakes is how long bootstrap data is waited for that usually is there within seconds.
	bootstrapTakes = 5 * time.Minute
	// machineTakes is how long a provider may work on a machine, or a machine boot.
	machineTakes = 20 * time.Minute
	// powerTakes is how long a host may be off after it was provisioned.
	powerTakes = 5 * time.Minute
	// nodeTakes is how long a node that has registered may take to be Ready.
	nodeTakes = 5 * time.Minute
	// ownerTakes is how long an owner may take to answer, or to make a machine.
	ownerTakes = 2 * time.Minute
	// cleaningTakes is how long a host may be deprovisioned: to erase a whole disk takes long.
	cleaningTakes = 2 * time.Hour
)

// failing are the reasons of mirrored conditions that are no wait.
var failing = []string{"InternalError", "InvalidConditionReported", "ObjectDoesNotExist", "ObjectDeleted"}

// bootstrapFails is the reason of a KubeadmConfig that waits for nothing, and has no data: without the Secret of the cluster's CA, say. (Cluster API,
// bootstrap/kubeadm/reconcilers/kubeadmconfig: the error itself is in the log of its controller alone.)
const bootstrapFails = "ReadyUnknown"

// Follow returns what f.Old, a new machine, waits for.
func Follow(f Facts) Story {
	s := Story{Machine: f.Old.Name, Owner: f.Owner.object()}
	s.Args.Machines, s.Args.Ready, s.Args.Replicas = f.count()
	f.follow(&s, &f.Old)
	f.overdue(&s)
	return s
}

// The reasons of the conditions of a Machine of which no node or infrastructure comes by waiting.
const (
	connectionDown        = "ConnectionDown"
	nodeDeleted           = "NodeDeleted"
	infrastructureDeleted = "ObjectDeleted"
)

// follow is the story of m, a new machine.
func (f *Facts) follow(s *Story, m *Machine) {
	s.Machine = m.Name
	switch {
	case !m.Deleting.IsZero():
		f.deletion(s, m)
		return
	case ready(m):
		f.isReady(s, m)
		return
	case m.infrastructureGone():
		f.infrastructureGone(s, m)
		return
	case m.Node != "":
		f.nodeNotReady(s, m)
		return
	case m.InfrastructureProvisioned:
		f.booting(s, m)
	case !m.BootstrapProvided:
		f.bootstrap(s, m)
	case f.seeks(m):
		f.hostless(s, m)
	default:
		f.provisioning(s, m)
	}
	if m.Paused || f.ClusterPaused {
		f.paused(s, Object{Kind: "Machine", Name: m.Name})
	}
	if m.StartupTimeout > 0 {
		s.Deadline, s.Args.Timeout = f.awaitedSince(m).Add(m.StartupTimeout), m.StartupTimeout
	}
}

// seeks reports whether m waits for a host, and it is known which hosts there are and what it wants.
func (f *Facts) seeks(m *Machine) bool {
	return m.Metal3 && m.Host == "" && f.HostsKnown && !m.HostsUnread
}

// awaitedSince is from when checks count the start-up timeout of m: the latest of the moments that it cannot have a node before. (Cluster API,
// core/reconcilers/machinehealthcheck/targets.go.)
func (f *Facts) awaitedSince(m *Machine) time.Time {
	return latest(m.Created, f.InitializedAt, f.ReadyAt, trueSince(m.Infrastructure))
}

func latest(all ...time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) }

func trueSince(c Condition) time.Time {
	if c.True() {
		return c.Since
	}
	return time.Time{}
}

// isReady is the story of m, whose node is Ready.
func (f *Facts) isReady(s *Story, m *Machine) {
	if m.Unhealthy {
		f.stillUnhealthy(s, m)
		return
	}
	s.Stage, s.Reason, s.Next, s.Since = Back, Replaced, Nothing, m.NodeReady.Since
}

// stillUnhealthy is the story of m, whose node is Ready, and which a check marks as unhealthy all the same.
func (f *Facts) stillUnhealthy(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Since, s.Todo = NodeNotReady, StillUnhealthy, MachineGetsHealthy, time.Time{}, ""
	s.WaitsFor = Object{Kind: "Machine", Name: m.Name}
}

// infrastructureGone reports whether the infrastructure of m was deleted, and m was not. It is not made again.
func (m *Machine) infrastructureGone() bool {
	return m.Deleting.IsZero() && m.Infrastructure.Status == "False" && m.Infrastructure.Reason == infrastructureDeleted
}

func (f *Facts) infrastructureGone(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Todo = Provisioning, InfrastructureGone, GoesOn, DeleteMachine
	s.Since, s.WaitsFor = m.Infrastructure.Since, m.infra()
	s.Args.Reason, s.Args.Message = m.Infrastructure.Reason, m.Infrastructure.Message
}

// ailing is what the infrastructure of m says is wrong; zero if it says nothing.
func (m *Machine) ailing() Condition {
	if m.Infrastructure.Status != "False" || m.Infrastructure.Message == "" {
		return Condition{}
	}
	return m.Infrastructure
}

// disconnected is that Cluster API has no connection to the workload cluster, which c says.
func (f *Facts) disconnected(s *Story, c Condition) {
	s.Reason, s.Args.Reason, s.Args.Message, s.Since = Disconnected, c.Reason, c.Message, c.Since
	s.WaitsFor = Object{Kind: "Cluster", Name: f.Cluster}
	if f.late(s.Since, nodeTakes) {
		s.Todo = RestoreConnection
	}
}

// nodeNotReady is the story of a machine whose node is not Ready, or gone, or of which nothing is known.
func (f *Facts) nodeNotReady(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Since = NodeNotReady, NodeNotReadyReason, NodeGetsReady, m.NodeReady.Since
	s.WaitsFor = Object{Kind: "Node", Name: m.Node}
	s.Args.Reason, s.Args.Message = m.NodeReady.Reason, m.NodeReady.Message
	s.Args.Ailing = m.ailing()
	late := f.late(s.Since, nodeTakes)
	switch m.NodeReady.Reason {
	case connectionDown:
		f.disconnected(s, m.NodeReady)
		return
	case nodeDeleted:
		if s.Reason, s.Next = NodeGone, NodeRegisters; late {
			s.Todo = RestartKubelet
		}
		return
	}
	if late {
		s.Todo = LookAtNode
	}
}

func (f *Facts) booting(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Since = Booting, NoNode, NodeRegisters, m.Infrastructure.Since
	s.WaitsFor = m.infra()
	s.Args.Reason, s.Args.Message = m.NodeReady.Reason, m.NodeReady.Message
	if host := f.host(m.Host); host != nil {
		s.Args.Host, s.WaitsFor = host, Object{Kind: "BareMetalHost", Name: host.Name}
		switch {
		case !host.PoweredOn:
			f.poweredOff(s, host)
			return
		case host.Error != "":
			s.Reason, s.Todo = HostTrouble, RepairHost
			return
		}
	}
	switch {
	case m.ailing().Reason != "" && m.InfrastructureProvisioned:
		s.Reason, s.Args.Reason, s.Args.Message, s.WaitsFor = InfrastructureNotReady, m.Infrastructure.Reason, m.Infrastructure.Message, m.infra()
		if f.late(s.Since, nodeTakes) {
			s.Todo = LookAtInfrastructure
		}
		return
	case m.Connection.Reason != "":
		f.disconnected(s, m.Connection)
		return
	}
	if f.late(s.Since, machineTakes) {
		s.Todo = LookAtConsole
	}
}

// poweredOff is the story of a machine that is provisioned, on a host that is off. The Bare Metal Operator powers it on after it was provisioned, if its spec
// says so, and reports that only when it looks at it next: for a while no user has to do anything. (baremetal-operator, manageHostPower.)
func (f *Facts) poweredOff(s *Story, host *Host) {
	s.Reason = HostOff
	switch trouble := host.trouble(); {
	case trouble != "":
		s.Reason, s.Todo = HostTrouble, todoOf(trouble)
	case !host.Online:
		s.Todo = PowerHostOn
	case f.late(s.Since, powerTakes):
		s.Todo = RepairHost
	}
}

func (f *Facts) bootstrap(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Since = WaitingForBootstrapData, BootstrapNotReady, InfrastructureComes, firstKnown(m.Bootstrap.Since, m.Created)
	s.WaitsFor = m.BootstrapConfig
	s.Args.Reason, s.Args.Message = m.Bootstrap.Reason, m.Bootstrap.Message
	switch {
	case !f.Initialized && !m.ControlPlane:
		s.Reason, s.Todo, s.WaitsFor = NotInitialized, RepairControlPlane, Object{Kind: "Cluster", Name: f.Cluster}
	case slices.Contains(failing, m.Bootstrap.Reason) || m.Bootstrap.Reason == bootstrapFails || f.late(s.Since, bootstrapTakes):
		s.Todo = LookAtBootstrap
	}
}

// infra is the infrastructure of m, or m itself if that is not known.
func (m *Machine) infra() Object {
	if m.Infra.Kind == "" {
		return Object{Kind: "Machine", Name: m.Name}
	}
	return m.Infra
}

func (f *Facts) provisioning(s *Story, m *Machine) {
	s.Stage, s.Reason, s.Next, s.Since = Provisioning, InfrastructureNotReady, InfrastructureComes, firstKnown(m.Infrastructure.Since, m.Created)
	s.WaitsFor = m.infra()
	s.Args.Reason, s.Args.Message = m.Infrastructure.Reason, m.Infrastructure.Message
	if host := f.host(m.Host); host != nil {
		s.Reason, s.Args.Host, s.WaitsFor = HostWorks, host, Object{Kind: "BareMetalHost", Name: host.Name}
		s.Since = firstKnown(host.Since, s.Since)
		if trouble := host.trouble(); trouble != "" {
			s.Reason, s.Todo = HostTrouble, todoOf(trouble)
			return
		}
		switch {
		case m.Data.Status != "False":
		case host.State == "provisioned": // CAPM3 looks for its node
			f.booting(s, m)
			s.Since, s.Args.Reason, s.Args.Message = firstKnown(m.Data.Since, host.Since), m.Data.Reason, m.Data.Message
			if s.Reason == NoNode && f.late(s.Since, machineTakes) {
				s.Todo = LookAtConsole
			}
			return
		case slices.Contains(available, host.State): // CAPM3 gives the host no image before it has the data
			f.unassociated(s, m, m.Data)
			return
		}
	}
	if slices.Contains(failing, m.Infrastructure.Reason) || f.late(s.Since, machineTakes) {
		s.Todo = LookAtInfrastructure
	}
}

// unassociated is the story of m whose Metal3Machine waits for something else than a host, which c says.
func (f *Facts) unassociated(s *Story, m *Machine, c Condition) {
	s.Stage, s.Reason, s.Next, s.WaitsFor = Provisioning, InfrastructureNotReady, InfrastructureComes, m.infra()
	s.Since, s.Args.Reason, s.Args.Message = firstKnown(c.Since, m.Infrastructure.Since, m.Created), c.Reason, c.Message
	if f.late(s.Since, machineTakes) {
		s.Todo = LookAtInfrastructure
	}
}

// late reports whether what began at since has taken longer than it should.
func (f *Facts) late(since time.Time, takes time.Duration) bool {
	return !since.IsZero() && f.Now.Sub(since) > takes
}
