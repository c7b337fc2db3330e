package capacity

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

func TestTheOwnerActs(t *testing.T) {
	const ten = 10 * time.Minute
	kcp := func(f *Facts) {
		f.Owner = Owner{Kind: "KubeadmControlPlane", Name: "cp", Known: true, Replicas: 3, Kubeadm: &kubeadm.Facts{
			Now: noon, Asked: ago(ten), Initialized: true, Machines: 3, Provisioning: []string{"cp-4"},
		}}
	}
	rows{
		{"an owner that was asked minutes ago and has not answered is looked at", asked("WaitingForRemediation", "as it says", ten),
			"OwnerActs WaitingForRemediation w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner"},
		{"an owner that has put it off is quoted", asked("RemediationDeferred", "as it says", ten),
			"OwnerActs RemediationDeferred w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces"},
		{"an owner that refuses needs a person", asked("CannotBeRemediated", "as it says", ten),
			"OwnerActs CannotBeRemediated w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=AnswerOwner"},
		{"a refusal for a rollout at the same time ends by itself",
			asked("CannotBeRemediated", "as it says", ten, func(f *Facts) { f.Owner.RollingOut, f.Owner.Set = true, "md-0-b" }),
			"OwnerActs OwnerRollsOut w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces"},
		{"unless the rollout is paused",
			asked("CannotBeRemediated", "as it says", ten, func(f *Facts) { f.Owner.RollingOut, f.Owner.RolloutPaused, f.Owner.Set = true, true, "md-0-b" }),
			"OwnerActs ObjectPaused w1 waits=MachineDeployment/md-0 since=10m0s next=GoesOn todo=Unpause"},
		{"or leaves the deletion to a person",
			asked("CannotBeRemediated", "as it says", ten, func(f *Facts) { f.Owner.RollingOut, f.Owner.OnDelete, f.Owner.Set = true, true, "md-0-b" }),
			"OwnerActs RolledOutOnDelete w1 waits=Machine/w1 since=10m0s next=ReplacementIsMade todo=DeleteMachine"},
		{"a refusal of a rollout of the machine's own set needs a person",
			asked("CannotBeRemediated", "as it says", ten, func(f *Facts) { f.Owner.RollingOut = true }),
			"OwnerActs CannotBeRemediated w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=AnswerOwner"},
		{"so is one that is about to delete the machine for minutes", asked("MachineDeleting", "as it says", ten),
			"OwnerActs MachineDeleting w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner"},
		{"a paused owner does nothing", asked("WaitingForRemediation", "as it says", ten, func(f *Facts) { f.Owner.Paused = true }),
			"OwnerActs ObjectPaused w1 waits=MachineSet/md-0-a since=10m0s next=GoesOn todo=Unpause"},
		{"a control plane defers by its own rules, and the machine that it waits for is named", asked("RemediationDeferred", "as it says", ten, kcp),
			"OwnerActs KubeadmDefers w1 waits=Machine/cp-4 since=10m0s next=OwnerReplaces"},
		{"a control plane without a rule for it is quoted",
			asked("RemediationDeferred", "as it says", ten, kcp, func(f *Facts) { f.Owner.Kubeadm.Provisioning = nil }),
			"OwnerActs RemediationDeferred w1 waits=KubeadmControlPlane/cp since=10m0s next=OwnerReplaces"},
		{"an only machine of a control plane is repaired",
			asked("CannotBeRemediated", "as it says", ten, kcp, func(f *Facts) { f.Owner.Kubeadm.Machines, f.Owner.Kubeadm.Refused = 1, true }),
			"OwnerActs KubeadmDefers w1 waits=KubeadmControlPlane/cp since=10m0s next=OwnerReplaces todo=RepairMachine"},
		{"exhausted retries need a person", asked("CannotBeRemediated", "as it says", ten, kcp, func(f *Facts) {
			k := f.Owner.Kubeadm
			k.Refused, k.Last, k.Rules = true, kubeadm.Remediation{At: ago(time.Minute), Retries: 1}, kubeadm.Rules{MaxRetry: 1, MinHealthy: time.Hour}
		}), "OwnerActs KubeadmDefers w1 waits=KubeadmControlPlane/cp since=10m0s next=OwnerReplaces todo=RaiseRetries"},
		{"a machine without an owner needs a person", asked("WaitingForRemediation", "as it says", ten, func(f *Facts) { f.Owner = Owner{} }),
			"OwnerActs NoOwner w1 since=10m0s next=OwnerReplaces todo=CreateMachine"},
		{"a machine that no owner was asked to replace is to become Ready", func(*Facts) {},
			"NodeNotReady NodeNotReady w1 waits=Node/node-w1 since=15m0s next=NodeGetsReady"},
		{"a Ready node does not make a machine healthy that a check marks", func(f *Facts) { f.Old.NodeReady = isTrue(time.Minute) },
			"NodeNotReady StillUnhealthy w1 waits=Machine/w1 next=MachineGetsHealthy"},
		{"a machine that is healthy again has its capacity back",
			asked("RemediationDeferred", "as it says", ten, func(f *Facts) { f.Old.Unhealthy, f.Old.NodeReady = false, isTrue(time.Minute) }),
			"Back Recovered w1 since=1m0s next=Nothing"},
	}.run(t)
}

func TestTheReplacement(t *testing.T) {
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
		{"a machine that is gone is not replaced before its owner has made another one", gone(),
			"NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=LookAtOwner"},
		{"a paused owner makes none", gone(func(f *Facts) { f.Owner.Paused = true }),
			"NoReplacement ObjectPaused w1 waits=MachineSet/md-0-a since=5m0s next=GoesOn todo=Unpause"},
		{"a paused Cluster stops its owner", gone(func(f *Facts) { f.ClusterPaused = true }),
			"NoReplacement Paused w1 waits=Cluster/c1 since=5m0s next=GoesOn todo=Unpause"},
		{"an owner says what keeps it from making one", gone(func(f *Facts) { f.Owner.Blocked = true }),
			"NoReplacement ScalingUpBlocked w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=UnblockOwner"},
		{"an owner whose annotation forbids it makes none", gone(func(f *Facts) { f.Owner.NoCreation = true }),
			"NoReplacement CreationDisabled w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=AllowCreation"},
		{"an owner that could not be read is not guessed",
			gone(func(f *Facts) { f.Owner.Known, f.Unread = false, []string{"MachineDeployments"} }),
			"Unread NotReadable w1 waits=MachineDeployment/md-0 since=5m0s"},
		{"a new machine waits for its bootstrap data", followed(),
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		{"bootstrap data that is late needs a person, and the check's timeout is the deadline",
			followed(func(_ *Facts, m *Machine) { m.Created, m.StartupTimeout = ago(5*time.Minute+1), 10*time.Minute }, func(f *Facts, _ *Machine) { f.Old.GoneAt = ago(6 * time.Minute) }),
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=5m0.000000001s until=4m59.999999999s next=InfrastructureComes todo=LookAtBootstrap by=w4/Alone?"},
		{"a bootstrap config that does not exist needs a person at once",
			followed(func(_ *Facts, m *Machine) { m.Bootstrap = isFalse("ObjectDoesNotExist", "", time.Minute) }),
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=1m0s next=InfrastructureComes todo=LookAtBootstrap by=w4/Alone?"},
		{"a bootstrap provider that fails needs a person at once", followed(func(_ *Facts, m *Machine) {
			m.Bootstrap = Condition{Status: "Unknown", Reason: "ReadyUnknown", Message: "Please check controller logs for errors", Since: ago(time.Minute)}
		}),
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=1m0s next=InfrastructureComes todo=LookAtBootstrap by=w4/Alone?"},
		{"no worker gets bootstrap data before the control plane is initialized",
			followed(func(f *Facts, _ *Machine) { f.Initialized = false }),
			"WaitingForBootstrapData ControlPlaneNotInitialized w4 waits=Cluster/c1 since=4m0s next=InfrastructureComes todo=RepairControlPlane by=w4/Alone?"},
		{"a provider is waited for", followed(func(_ *Facts, m *Machine) { m.BootstrapProvided = true }),
			"Provisioning InfrastructureNotReady w4 waits=DockerMachine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		{"a provider that fails needs a person", followed(func(_ *Facts, m *Machine) {
			m.BootstrapProvided, m.Infrastructure = true, isFalse("InternalError", "", time.Minute)
		}),
			"Provisioning InfrastructureNotReady w4 waits=DockerMachine/w4 since=1m0s next=InfrastructureComes todo=LookAtInfrastructure by=w4/Alone?"},
		{"of hosts none fits",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "provisioned", Consumer: "Metal3Machine w2"})),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		{"without any host none fits", followed(metal, hosts()),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		{"a host that is being freed is waited for",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Consumer: "Metal3Machine w1"})),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h1 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"so is a host without a consumer that is prepared", followed(metal, hosts(Host{Name: "h1", Selected: true, State: "preparing"})),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h1 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"a host that does not become available for long is looked at",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "inspecting", Since: ago(21 * time.Minute)})),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h1 since=4m0s next=HostIsTaken todo=LookAtInfrastructure by=w4/Alone?"},
		{"one that is cleaned may take longer",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Since: ago(21 * time.Minute)})),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h1 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"a host that fits and is not taken for long is looked at",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(f *Facts, m *Machine) {
				f.Old.GoneAt, m.Created, m.Infrastructure.Since = ago(30*time.Minute), ago(21*time.Minute), ago(21*time.Minute)
			}), "Provisioning HostChosen w4 waits=Metal3Machine/w4 since=21m0s next=HostIsTaken todo=LookAtInfrastructure by=w4/Alone?"},
		{"a machine that wants another host than the others sees the hosts for itself",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(_ *Facts, m *Machine) { m.Hosts = []Host{{Name: "h1", State: "available"}} }),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		{"of one whose wants are not known no host is counted",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "available"}), func(_ *Facts, m *Machine) { m.HostsUnread = true }),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		{"a host with an error is not waited for",
			followed(metal, hosts(Host{Name: "h1", Selected: true, State: "deprovisioning", Error: "no power"})),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		{"a host that fits is taken", followed(metal, hosts(Host{Name: "h1"}, Host{Name: "h2", Selected: true, State: "available"})),
			"Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"hosts that could not be read are not counted as none", followed(metal),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		{"the host of the machine is provisioned", onHost(func(*Host) {}),
			"Provisioning HostProvisioning w4 waits=BareMetalHost/h4 since=3m0s next=InfrastructureComes by=w4/Alone?"},
		{"a host with an error is repaired", onHost(func(h *Host) { h.Error = "no image" }),
			"Provisioning HostTrouble w4 waits=BareMetalHost/h4 since=3m0s next=InfrastructureComes todo=RepairHost by=w4/Alone?"},
		{"a detached host is attached again", onHost(func(h *Host) { h.Detached = true }),
			"Provisioning HostTrouble w4 waits=BareMetalHost/h4 since=3m0s next=InfrastructureComes todo=Unpause by=w4/Alone?"},
		{"a machine that is there boots", followed(provisioned),
			"Booting NoNode w4 waits=DockerMachine/w4 since=2m0s next=NodeRegisters by=w4/Alone?"},
		{"the timeout of a machine may be over", followed(func(_ *Facts, m *Machine) { m.StartupTimeout = 4 * time.Minute }),
			"WaitingForBootstrapData BootstrapNotReady w4 overdue waits=KubeadmConfig/w4 since=4m0s until=0s next=InfrastructureComes by=w4/Alone?"},
		{"it is counted from when the control plane was initialized, if that was later",
			followed(func(f *Facts, m *Machine) { f.InitializedAt, m.StartupTimeout = ago(time.Minute), 4*time.Minute }),
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s until=3m0s next=InfrastructureComes by=w4/Alone?"},
		{"a machine that boots for long is looked at, and its timeout is counted from when its infrastructure was ready",
			followed(func(f *Facts, m *Machine) {
				provisioned(f, m)
				f.Old.GoneAt, m.Created, m.Infrastructure, m.StartupTimeout = ago(40*time.Minute), ago(30*time.Minute), isTrue(21*time.Minute), 30*time.Minute
			}), "Booting NoNode w4 waits=DockerMachine/w4 since=21m0s until=9m0s next=NodeRegisters todo=LookAtConsole by=w4/Alone?"},
		{"a paused machine does not go on", followed(provisioned, func(_ *Facts, m *Machine) { m.Paused = true }),
			"Booting ObjectPaused w4 waits=Machine/w4 since=2m0s next=GoesOn todo=Unpause by=w4/Alone?"},
		{"a node that has registered becomes Ready",
			followed(provisioned, func(_ *Facts, m *Machine) { m.Node, m.NodeReady = "n4", isFalse("KubeletNotReady", "cni", time.Minute) }),
			"NodeNotReady NodeNotReady w4 waits=Node/n4 since=1m0s next=NodeGetsReady by=w4/Alone?"},
		{"a node that is not Ready for long is looked at", followed(provisioned, func(_ *Facts, m *Machine) {
			m.Node, m.NodeReady = "n4", isFalse("KubeletNotReady", "cni", 6*time.Minute)
		}), "NodeNotReady NodeNotReady w4 waits=Node/n4 since=6m0s next=NodeGetsReady todo=LookAtNode by=w4/Alone?"},
		{"with a Ready node the capacity is back", gone(made(worker("w4", 4*time.Minute))),
			"Back Replaced w4 since=4m0s next=Nothing by=w4/Alone?"},
		{"a replacement that is being deleted itself is followed on",
			followed(func(_ *Facts, m *Machine) { m.Deleting = ago(time.Minute) }),
			"Deleting DeletionBegins w4 waits=Machine/w4 since=1m0s next=DeletionGoesOn by=w4/Alone?"},
	}.run(t)
}

func TestThereIsNoReplacement(t *testing.T) {
	marked := made(worker("w4", 4*time.Minute, func(m *Machine) { m.Unhealthy = true }))
	rows{
		{"a scaled-down owner has all its machines", deleting("DrainingNode", func(f *Facts) { f.Owner.Replicas = 2 }),
			"NotReplaced ScaledDown w1 next=Nothing"},
		{"also when the machine is gone", gone(func(f *Facts) { f.Owner.Replicas = 2 }), "NotReplaced ScaledDown w1 next=Nothing"},
		{"an owner that is being deleted makes none", deleting("DrainingNode", func(f *Facts) { f.Owner.Deleting = noon }),
			"NotReplaced OwnerDeleted w1 next=Nothing"},
		{"an owner that is gone makes none", gone(func(f *Facts) { f.Owner.Gone = true }), "NotReplaced OwnerDeleted w1 next=Nothing"},
		{"in a namespace that is being deleted no machine is made",
			deleting("DrainingNode", func(f *Facts) { f.NamespaceDeleting, f.ClusterDeleting = noon, noon }),
			"NotReplaced NamespaceDeleted w1 next=Nothing"},
		{"nor in a Cluster that is", deleting("DrainingNode", func(f *Facts) { f.ClusterDeleting = noon }),
			"NotReplaced ClusterDeleted w1 next=Nothing"},
		{"a stand-alone machine that is deleted is not replaced", deleting("DrainingNode", func(f *Facts) { f.Owner = Owner{} }),
			"NotReplaced NoOwner w1 next=Nothing"},
		{"a replacement with a Ready node is there although its owner is being deleted",
			gone(func(f *Facts) { f.Owner.Deleting, f.Others = noon, append(f.Others, worker("w4", 4*time.Minute)) }),
			"Back Replaced w4 since=4m0s next=Nothing by=w4/Alone?"},
		{"a replacement that a check marks as unhealthy is none yet, though its node is Ready", gone(marked),
			"NodeNotReady StillUnhealthy w4 waits=Machine/w4 next=MachineGetsHealthy by=w4/Alone?"},
		{"and none is to come if its owner is being deleted", gone(marked, func(f *Facts) { f.Owner.Deleting = noon }),
			"NotReplaced OwnerDeleted w1 next=Nothing by=w4/Alone?"},
		{"a rollout has made the new machine before the old one was deleted", rollsOut(worker("w4", 12*time.Minute)),
			"Back RolledOut w1 next=Nothing"},
		{"a rollout whose new machine is not Ready is followed", rollsOut(unready("w4")),
			"NodeNotReady NodeNotReady w4 waits=Node/node-w4 since=1m0s next=NodeGetsReady by=w4/ByOrder?"},
		{"of several that are not Ready, the one of the new revision is followed", func(f *Facts) {
			f.Others[0].NodeReady = isFalse("KubeletNotReady", "", time.Hour)
			rollsOut(unready("w4"))(f)
		}, "NodeNotReady NodeNotReady w4 waits=Node/node-w4 since=1m0s next=NodeGetsReady by=w4/ByOrder?"},
		{"a rollout with as many Ready machines as there are to be waits for no other one",
			rollsOut(worker("w4", 12*time.Minute), unready("w5")), "Back RolledOut w1 next=Nothing"},
	}.run(t)
}

// A control plane of another project may make the new machine before or after it deletes the old one. What follows from the rules of others does not hold.
func TestOfAnOwnerWhoseRulesAreNotKnownNothingIsGuessed(t *testing.T) {
	k3s := func(f *Facts) { f.Owner = Owner{Kind: "K3sControlPlane", Name: "k3s", Known: true, Replicas: 3} }
	notReady := made(worker("w4", 4*time.Minute, func(m *Machine) { m.NodeReady = isFalse("KubeletNotReady", "", time.Minute) }))
	rows{
		{"when it makes a machine is not known", all(gone(), k3s),
			"NoReplacement OwnerUnfamiliar w1 waits=K3sControlPlane/k3s since=5m0s next=ReplacementIsMade"},
		{"nor of one that says no number of machines", all(gone(), k3s, func(f *Facts) { f.Owner.Replicas, f.Owner.Uncounted = 0, true }),
			"NoReplacement OwnerUnfamiliar w1 waits=K3sControlPlane/k3s since=5m0s next=ReplacementIsMade"},
		{"one that has all its machines has not been scaled down", all(deleting("DrainingNode"), k3s, made(worker("w4", 4*time.Minute))),
			"Back OwnerComplete w1 next=Nothing"},
		{"of one that has made a machine before, that is followed", all(deleting("DrainingNode"), k3s, notReady),
			"NodeNotReady NodeNotReady w4 waits=Node/node-w4 since=1m0s next=NodeGetsReady by=w4/ByOrder?"},
		{"one that has been scaled down to nothing makes none", all(gone(), k3s, func(f *Facts) { f.Owner.Replicas, f.Others = 0, nil }),
			"NotReplaced ScaledDown w1 next=Nothing"},
	}.run(t)
}
