package capacity

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

func TestTheOwnerActs(t *testing.T) {
	asked := func(reason string, edits ...func(*Facts)) func(*Facts) {
		return func(f *Facts) {
			f.Old.Asked = isFalse(reason, "as it says", 10*time.Minute)
			for _, edit := range edits {
				edit(f)
			}
		}
	}
	since := ago(10 * time.Minute)
	kcp := func(f *Facts) {
		f.Owner = Owner{Kind: "KubeadmControlPlane", Name: "cp", Known: true, Replicas: 3, Kubeadm: &kubeadm.Facts{
			Now: noon, Asked: since, Initialized: true, Machines: 3, Provisioning: []string{"cp-4"},
		}}
	}
	cp := Object{Kind: "KubeadmControlPlane", Name: "cp"}
	rows{
		"an owner that was asked minutes ago and has not answered is looked at": {
			asked("WaitingForRemediation"), says{OwnerActs, WaitsForOwner, "w1", md0, since, time.Time{}, false, OwnerReplaces, LookAtOwner, Replacement{}},
		},
		"an owner that has put it off is quoted": {
			asked("RemediationDeferred"), says{OwnerActs, OwnerDeferred, "w1", md0, since, time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"an owner that refuses needs a person": {
			asked("CannotBeRemediated"), says{OwnerActs, OwnerRefuses, "w1", md0, since, time.Time{}, false, OwnerReplaces, AnswerOwner, Replacement{}},
		},
		"a refusal for a rollout at the same time ends by itself": {
			asked("CannotBeRemediated", func(f *Facts) { f.Owner.RollingOut, f.Owner.Set = true, "md-0-b" }),
			says{OwnerActs, OwnerRollsOut, "w1", md0, since, time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"unless the rollout is paused": {
			asked("CannotBeRemediated", func(f *Facts) { f.Owner.RollingOut, f.Owner.RolloutPaused, f.Owner.Set = true, true, "md-0-b" }),
			says{OwnerActs, ObjectPaused, "w1", md0, since, time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"or leaves the deletion to a person": {
			asked("CannotBeRemediated", func(f *Facts) { f.Owner.RollingOut, f.Owner.OnDelete, f.Owner.Set = true, true, "md-0-b" }),
			says{OwnerActs, RolledOutOnDelete, "w1", w1, since, time.Time{}, false, ReplacementIsMade, DeleteMachine, Replacement{}},
		},
		"a refusal of a rollout of the machine's own set needs a person": {
			asked("CannotBeRemediated", func(f *Facts) { f.Owner.RollingOut = true }),
			says{OwnerActs, OwnerRefuses, "w1", md0, since, time.Time{}, false, OwnerReplaces, AnswerOwner, Replacement{}},
		},
		"so is one that is about to delete the machine for minutes": {
			asked("MachineDeleting"), says{OwnerActs, OwnerDeletes, "w1", md0, since, time.Time{}, false, OwnerReplaces, LookAtOwner, Replacement{}},
		},
		"a paused owner does nothing": {
			asked("WaitingForRemediation", func(f *Facts) { f.Owner.Paused = true }),
			says{OwnerActs, ObjectPaused, "w1", Object{Kind: "MachineSet", Name: "md-0-a"}, since, time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"a control plane defers by its own rules, and the machine that it waits for is named": {
			asked("RemediationDeferred", kcp),
			says{OwnerActs, KubeadmDefers, "w1", Object{Kind: "Machine", Name: "cp-4"}, since, time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"a control plane without a rule for it is quoted": {
			asked("RemediationDeferred", kcp, func(f *Facts) { f.Owner.Kubeadm.Provisioning = nil }),
			says{OwnerActs, OwnerDeferred, "w1", cp, since, time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"an only machine of a control plane is repaired": {
			asked("CannotBeRemediated", kcp, func(f *Facts) { f.Owner.Kubeadm.Machines, f.Owner.Kubeadm.Refused = 1, true }),
			says{OwnerActs, KubeadmDefers, "w1", cp, since, time.Time{}, false, OwnerReplaces, RepairMachine, Replacement{}},
		},
		"exhausted retries need a person": {
			asked("CannotBeRemediated", kcp, func(f *Facts) {
				k := f.Owner.Kubeadm
				k.Refused, k.Last, k.Rules = true, kubeadm.Remediation{At: ago(time.Minute), Retries: 1}, kubeadm.Rules{MaxRetry: 1, MinHealthy: time.Hour}
			}),
			says{OwnerActs, KubeadmDefers, "w1", cp, since, time.Time{}, false, OwnerReplaces, RaiseRetries, Replacement{}},
		},
		"a machine without an owner needs a person": {
			asked("WaitingForRemediation", func(f *Facts) { f.Owner = Owner{} }),
			says{OwnerActs, NoOwner, "w1", Object{}, since, time.Time{}, false, OwnerReplaces, CreateMachine, Replacement{}},
		},
		"a machine that no owner was asked to replace is to become Ready": {
			func(*Facts) {},
			says{NodeNotReady, NodeNotReadyReason, "w1", Object{Kind: "Node", Name: "node-w1"}, ago(15 * time.Minute), time.Time{}, false, NodeGetsReady, "", Replacement{}},
		},
		"a Ready node does not make a machine healthy that a check marks": {
			func(f *Facts) { f.Old.NodeReady = isTrue(time.Minute) },
			says{NodeNotReady, StillUnhealthy, "w1", w1, time.Time{}, time.Time{}, false, MachineGetsHealthy, "", Replacement{}},
		},
		"a machine that is healthy again has its capacity back": {
			asked("RemediationDeferred", func(f *Facts) { f.Old.Unhealthy, f.Old.NodeReady = false, isTrue(time.Minute) }),
			says{Back, Recovered, "w1", Object{}, ago(time.Minute), time.Time{}, false, Nothing, "", Replacement{}},
		},
	}.run(t)
}

func TestTheReplacement(t *testing.T) {
	four := ago(4 * time.Minute)
	by := Replacement{Name: "w4", By: Alone}
	docker, m3m := Object{Kind: "DockerMachine", Name: "w4"}, Object{Kind: "Metal3Machine", Name: "w4"}
	bare := func(name string) Object { return Object{Kind: "BareMetalHost", Name: name} }
	working := Host{Name: "h4", State: "provisioning", Since: ago(3 * time.Minute), Consumer: "Metal3Machine w4", PoweredOn: true}
	onHost := func(edit func(*Host)) func(*Facts) {
		return followed(metal, func(f *Facts, m *Machine) {
			h := working
			edit(&h)
			f.Hosts, f.HostsKnown, m.Host = []Host{h}, true, "h4"
		})
	}
	provisioned := func(_ *Facts, m *Machine) {
		m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isTrue(2*time.Minute)
	}
	rows{
		"a machine that is gone is not replaced before its owner has made another one": {
			gone(), says{NoReplacement, OwnerCreates, "w1", md0, ago(5 * time.Minute), time.Time{}, false, ReplacementIsMade, LookAtOwner, Replacement{}},
		},
		"a paused owner makes none": {
			gone(func(f *Facts) { f.Owner.Paused = true }),
			says{NoReplacement, ObjectPaused, "w1", Object{Kind: "MachineSet", Name: "md-0-a"}, ago(5 * time.Minute), time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"a paused Cluster stops its owner": {
			gone(func(f *Facts) { f.ClusterPaused = true }),
			says{NoReplacement, PausedReason, "w1", Object{Kind: "Cluster", Name: "c1"}, ago(5 * time.Minute), time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"an owner says what keeps it from making one": {
			gone(func(f *Facts) { f.Owner.Blocked = true }),
			says{NoReplacement, OwnerBlocked, "w1", md0, ago(5 * time.Minute), time.Time{}, false, ReplacementIsMade, UnblockOwner, Replacement{}},
		},
		"an owner whose annotation forbids it makes none": {
			gone(func(f *Facts) { f.Owner.NoCreation = true }),
			says{NoReplacement, CreationDisabled, "w1", md0, ago(5 * time.Minute), time.Time{}, false, ReplacementIsMade, AllowCreation, Replacement{}},
		},
		"an owner that could not be read is not guessed": {
			gone(func(f *Facts) { f.Owner.Known, f.Unread = false, []string{"MachineDeployments"} }),
			says{Unread, NotReadable, "w1", md0, ago(5 * time.Minute), time.Time{}, false, "", "", Replacement{}},
		},
		"a new machine waits for its bootstrap data": {
			followed(), says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, four, time.Time{}, false, InfrastructureComes, "", by},
		},
		"bootstrap data that is late needs a person, and the check's timeout is the deadline": {
			followed(func(_ *Facts, m *Machine) { m.Created, m.StartupTimeout = ago(5*time.Minute+1), 10*time.Minute }, func(f *Facts, _ *Machine) { f.Old.GoneAt = ago(6 * time.Minute) }),
			says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, ago(5*time.Minute + 1), noon.Add(5*time.Minute - 1), false, InfrastructureComes, LookAtBootstrap, by},
		},
		"a bootstrap config that does not exist needs a person at once": {
			followed(func(_ *Facts, m *Machine) { m.Bootstrap = isFalse("ObjectDoesNotExist", "", time.Minute) }),
			says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, ago(time.Minute), time.Time{}, false, InfrastructureComes, LookAtBootstrap, by},
		},
		"a bootstrap provider that fails needs a person at once": {
			followed(func(_ *Facts, m *Machine) {
				m.Bootstrap = Condition{Status: "Unknown", Reason: "ReadyUnknown", Message: "Please check controller logs for errors", Since: ago(time.Minute)}
			}),
			says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, ago(time.Minute), time.Time{}, false, InfrastructureComes, LookAtBootstrap, by},
		},
		"no worker gets bootstrap data before the control plane is initialized": {
			followed(func(f *Facts, _ *Machine) { f.Initialized = false }),
			says{WaitingForBootstrapData, NotInitialized, "w4", Object{Kind: "Cluster", Name: "c1"}, four, time.Time{}, false, InfrastructureComes, RepairControlPlane, by},
		},
		"a provider is waited for": {
			followed(func(_ *Facts, m *Machine) { m.BootstrapProvided = true }),
			says{Provisioning, InfrastructureNotReady, "w4", docker, four, time.Time{}, false, InfrastructureComes, "", by},
		},
		"a provider that fails needs a person": {
			followed(func(_ *Facts, m *Machine) {
				m.BootstrapProvided, m.Infrastructure = true, isFalse("InternalError", "", time.Minute)
			}),
			says{Provisioning, InfrastructureNotReady, "w4", docker, ago(time.Minute), time.Time{}, false, InfrastructureComes, LookAtInfrastructure, by},
		},
		"of hosts none fits": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "provisioned", Consumer: "Metal3Machine w2"})),
			says{NoHostFits, NoHost, "w4", m3m, four, time.Time{}, false, HostIsTaken, AddHost, by},
		},
		"without any host none fits": {
			followed(metal, hosts()), says{NoHostFits, NoHost, "w4", m3m, four, time.Time{}, false, HostIsTaken, AddHost, by},
		},
		"a host that is being freed is waited for": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Consumer: "Metal3Machine w1"})),
			says{NoHostFits, HostFrees, "w4", bare("h1"), four, time.Time{}, false, HostIsTaken, "", by},
		},
		"so is a host without a consumer that is prepared": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "preparing"})),
			says{NoHostFits, HostFrees, "w4", bare("h1"), four, time.Time{}, false, HostIsTaken, "", by},
		},
		"a host that does not become available for long is looked at": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "inspecting", Since: ago(21 * time.Minute)})),
			says{NoHostFits, HostFrees, "w4", bare("h1"), four, time.Time{}, false, HostIsTaken, LookAtInfrastructure, by},
		},
		"one that is cleaned may take longer": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Since: ago(21 * time.Minute)})),
			says{NoHostFits, HostFrees, "w4", bare("h1"), four, time.Time{}, false, HostIsTaken, "", by},
		},
		"a host that fits and is not taken for long is looked at": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(f *Facts, m *Machine) {
				f.Old.GoneAt, m.Created, m.Infrastructure.Since = ago(30*time.Minute), ago(21*time.Minute), ago(21*time.Minute)
			}),
			says{Provisioning, HostChosen, "w4", m3m, ago(21 * time.Minute), time.Time{}, false, HostIsTaken, LookAtInfrastructure, by},
		},
		"a machine that wants another host than the others sees the hosts for itself": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(_ *Facts, m *Machine) { m.Hosts = []Host{{Name: "h1", State: "available"}} }),
			says{NoHostFits, NoHost, "w4", m3m, four, time.Time{}, false, HostIsTaken, AddHost, by},
		},
		"of one whose wants are not known no host is counted": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(_ *Facts, m *Machine) { m.HostsUnread = true }),
			says{Provisioning, InfrastructureNotReady, "w4", m3m, four, time.Time{}, false, InfrastructureComes, "", by},
		},
		"a host with an error is not waited for": {
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Error: "no power"})),
			says{NoHostFits, NoHost, "w4", m3m, four, time.Time{}, false, HostIsTaken, AddHost, by},
		},
		"a host that fits is taken": {
			followed(metal, hosts(Host{Name: "h1"}, Host{Name: "h2", Selected: true, State: "available"})),
			says{Provisioning, HostChosen, "w4", m3m, four, time.Time{}, false, HostIsTaken, "", by},
		},
		"hosts that could not be read are not counted as none": {
			followed(metal), says{Provisioning, InfrastructureNotReady, "w4", m3m, four, time.Time{}, false, InfrastructureComes, "", by},
		},
		"the host of the machine is provisioned": {
			onHost(func(*Host) {}), says{Provisioning, HostWorks, "w4", bare("h4"), ago(3 * time.Minute), time.Time{}, false, InfrastructureComes, "", by},
		},
		"a host with an error is repaired": {
			onHost(func(h *Host) { h.Error = "no image" }),
			says{Provisioning, HostTrouble, "w4", bare("h4"), ago(3 * time.Minute), time.Time{}, false, InfrastructureComes, RepairHost, by},
		},
		"a detached host is attached again": {
			onHost(func(h *Host) { h.Detached = true }),
			says{Provisioning, HostTrouble, "w4", bare("h4"), ago(3 * time.Minute), time.Time{}, false, InfrastructureComes, Unpause, by},
		},
		"a machine that is there boots": {
			followed(provisioned), says{Booting, NoNode, "w4", docker, ago(2 * time.Minute), time.Time{}, false, NodeRegisters, "", by},
		},
		"the timeout of a machine may be over": {
			followed(func(_ *Facts, m *Machine) { m.StartupTimeout = 4 * time.Minute }),
			says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, four, noon, true, InfrastructureComes, "", by},
		},
		"it is counted from when the control plane was initialized, if that was later": {
			followed(func(f *Facts, m *Machine) { f.InitializedAt, m.StartupTimeout = ago(time.Minute), 4*time.Minute }),
			says{WaitingForBootstrapData, BootstrapNotReady, "w4", Object{Kind: "KubeadmConfig", Name: "w4"}, four, noon.Add(3 * time.Minute), false, InfrastructureComes, "", by},
		},
		"a machine that boots for long is looked at, and its timeout is counted from when its infrastructure was ready": {
			followed(func(f *Facts, m *Machine) {
				provisioned(f, m)
				f.Old.GoneAt, m.Created, m.Infrastructure, m.StartupTimeout = ago(40*time.Minute), ago(30*time.Minute), isTrue(21*time.Minute), 30*time.Minute
			}),
			says{Booting, NoNode, "w4", docker, ago(21 * time.Minute), noon.Add(9 * time.Minute), false, NodeRegisters, LookAtConsole, by},
		},
		"a paused machine does not go on": {
			followed(provisioned, func(_ *Facts, m *Machine) { m.Paused = true }),
			says{Booting, ObjectPaused, "w4", Object{Kind: "Machine", Name: "w4"}, ago(2 * time.Minute), time.Time{}, false, GoesOn, Unpause, by},
		},
		"a node that has registered becomes Ready": {
			followed(provisioned, func(_ *Facts, m *Machine) { m.Node, m.NodeReady = "n4", isFalse("KubeletNotReady", "cni", time.Minute) }),
			says{NodeNotReady, NodeNotReadyReason, "w4", Object{Kind: "Node", Name: "n4"}, ago(time.Minute), time.Time{}, false, NodeGetsReady, "", by},
		},
		"a node that is not Ready for long is looked at": {
			followed(provisioned, func(_ *Facts, m *Machine) {
				m.Node, m.NodeReady = "n4", isFalse("KubeletNotReady", "cni", 6*time.Minute)
			}),
			says{NodeNotReady, NodeNotReadyReason, "w4", Object{Kind: "Node", Name: "n4"}, ago(6 * time.Minute), time.Time{}, false, NodeGetsReady, LookAtNode, by},
		},
		"with a Ready node the capacity is back": {
			gone(func(f *Facts) { f.Others = append(f.Others, worker("w4", 4*time.Minute)) }),
			says{Back, Replaced, "w4", Object{}, four, time.Time{}, false, Nothing, "", by},
		},
		"a replacement that is being deleted itself is followed on": {
			followed(func(_ *Facts, m *Machine) { m.Deleting = ago(time.Minute) }),
			says{Deleting, DeletionBegins, "w4", Object{Kind: "Machine", Name: "w4"}, ago(time.Minute), time.Time{}, false, DeletionGoesOn, "", by},
		},
	}.run(t)
}

func TestThereIsNoReplacement(t *testing.T) {
	marked := func(f *Facts) {
		m := worker("w4", 4*time.Minute)
		m.Unhealthy = true
		f.Others = append(f.Others, m)
	}
	rows{
		"a scaled-down owner has all its machines": {
			deleting("DrainingNode", func(f *Facts) { f.Owner.Replicas = 2 }),
			says{NotReplaced, ScaledDown, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"also when the machine is gone": {
			gone(func(f *Facts) { f.Owner.Replicas = 2 }),
			says{NotReplaced, ScaledDown, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"an owner that is being deleted makes none": {
			deleting("DrainingNode", func(f *Facts) { f.Owner.Deleting = noon }),
			says{NotReplaced, OwnerDeleted, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"an owner that is gone makes none": {
			gone(func(f *Facts) { f.Owner.Gone = true }),
			says{NotReplaced, OwnerDeleted, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"in a namespace that is being deleted no machine is made": {
			deleting("DrainingNode", func(f *Facts) { f.NamespaceDeleting, f.ClusterDeleting = noon, noon }),
			says{NotReplaced, NamespaceDeleted, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"nor in a Cluster that is": {
			deleting("DrainingNode", func(f *Facts) { f.ClusterDeleting = noon }),
			says{NotReplaced, ClusterDeleted, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"a stand-alone machine that is deleted is not replaced": {
			deleting("DrainingNode", func(f *Facts) { f.Owner = Owner{} }),
			says{NotReplaced, NoOwner, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"a replacement with a Ready node is there although its owner is being deleted": {
			gone(func(f *Facts) { f.Owner.Deleting, f.Others = noon, append(f.Others, worker("w4", 4*time.Minute)) }),
			says{Back, Replaced, "w4", Object{}, ago(4 * time.Minute), time.Time{}, false, Nothing, "", Replacement{"w4", Alone}},
		},
		"a replacement that a check marks as unhealthy is none yet, though its node is Ready": {
			gone(marked), says{NodeNotReady, StillUnhealthy, "w4", Object{Kind: "Machine", Name: "w4"}, time.Time{}, time.Time{}, false, MachineGetsHealthy, "", Replacement{"w4", Alone}},
		},
		"and none is to come if its owner is being deleted": {
			gone(marked, func(f *Facts) { f.Owner.Deleting = noon }),
			says{NotReplaced, OwnerDeleted, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{"w4", Alone}},
		},
		"a rollout has made the new machine before the old one was deleted": {
			rollsOut(worker("w4", 12*time.Minute)), says{Back, RolledOut, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"a rollout whose new machine is not Ready is followed": {
			rollsOut(unready("w4")),
			says{NodeNotReady, NodeNotReadyReason, "w4", Object{Kind: "Node", Name: "node-w4"}, ago(time.Minute), time.Time{}, false, NodeGetsReady, "", Replacement{"w4", ByOrder}},
		},
		"of several that are not Ready, the one of the new revision is followed": {
			func(f *Facts) {
				f.Others[0].NodeReady = isFalse("KubeletNotReady", "", time.Hour)
				rollsOut(unready("w4"))(f)
			},
			says{NodeNotReady, NodeNotReadyReason, "w4", Object{Kind: "Node", Name: "node-w4"}, ago(time.Minute), time.Time{}, false, NodeGetsReady, "", Replacement{"w4", ByOrder}},
		},
		"a rollout with as many Ready machines as there are to be waits for no other one": {
			rollsOut(worker("w4", 12*time.Minute), unready("w5")),
			says{Back, RolledOut, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
	}.run(t)
}
