package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// down is what Cluster API says of the node of a machine that it cannot reach.
func down(since time.Duration) Condition {
	return Condition{Status: "Unknown", Reason: "ConnectionDown", Message: "Last successful probe at 2026-01-01T11:40:00Z", Since: ago(since)}
}

const (
	etcdUnhealthy = "Scaling up from 2 to 3 replicas is blocked because:\n* waiting for etcd cluster to become healthy"
	tooMany       = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 1)"
	preflight     = "* KubeadmControlPlane default/cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)"
)

// cpOf makes a KubeadmControlPlane the owner.
func cpOf(edit func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		f.Owner = Owner{Kind: "KubeadmControlPlane", Name: "cp", Known: true, Replicas: 3, Kubeadm: &kubeadm.Facts{Now: noon, Initialized: true, Machines: 3}}
		edit(f)
	}
}

func TestWhatAnOwnerWaitsFor(t *testing.T) {
	scaling := func(message string, since time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Owner.ScalingUp = Condition{Status: "True", Reason: "ScalingUp", Message: message, Since: ago(since)}
		}
	}
	preflightFailed := func(since time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Owner.Blocked, f.Owner.ScalingUp = true, isFalse("PreflightCheckFailed", preflight, since)
		}
	}
	deletingToo := func(f *Facts) {
		f.Others[1].Deleting, f.Others[1].Asked = ago(time.Minute), isFalse("MachineDeleting", "Machine is deleting", time.Minute)
	}
	rows{
		{"an owner that was just asked answers by itself", asked("WaitingForRemediation", "", time.Minute),
			"OwnerActs WaitingForRemediation w1 waits=MachineDeployment/md-0 since=1m0s next=OwnerReplaces"},
		{"a control plane that replaces another machine says nothing, and is not waited for without a reason",
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) { f.Owner.Kubeadm.InProgress = "w3" })),
			"OwnerActs KubeadmDefers w1 waits=Machine/w3 since=10m0s next=OwnerReplaces"},
		{"a control plane that has answered for another machine is not waited for without a reason",
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) {
				f.Others[0].Unhealthy, f.Others[0].Asked = true, isFalse("CannotBeRemediated", "etcd would lose its quorum", 9*time.Minute)
			})), "OwnerActs OtherFirst w1 waits=Machine/w2 since=10m0s next=OwnerReplaces"},
		{"that machine may be gone already",
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) { f.Owner.Kubeadm.InProgress = "w9" })),
			"OwnerActs KubeadmDefers w1 waits=KubeadmControlPlane/cp since=10m0s next=OwnerReplaces"},
		{"of a set that replaces as many machines as it may, one of these is named",
			asked("RemediationDeferred", tooMany, 10*time.Minute, deletingToo),
			"OwnerActs RemediationDeferred w1 waits=Machine/w3 since=10m0s next=OwnerReplaces"},
		{"but not if a preflight check is what it waits for", asked("RemediationDeferred", preflight, 10*time.Minute, deletingToo),
			"OwnerActs RemediationDeferred w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces"},
		{"an owner makes a machine within a moment", gone(func(f *Facts) { f.Old.GoneAt = ago(time.Minute) }),
			"NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=1m0s next=ReplacementIsMade"},
		{"a control plane lists what keeps it from making one", gone(cpOf(scaling(etcdUnhealthy, 5*time.Minute))),
			"NoReplacement ScalingUpBlocked w1 waits=KubeadmControlPlane/cp since=5m0s next=ReplacementIsMade todo=UnblockOwner"},
		{"which usually passes", gone(cpOf(scaling(etcdUnhealthy, time.Minute)), func(f *Facts) { f.Old.GoneAt = ago(time.Minute) }),
			"NoReplacement ScalingUpBlocked w1 waits=KubeadmControlPlane/cp since=1m0s next=ReplacementIsMade"},
		{"before another machine is gone it makes none", gone(cpOf(func(f *Facts) {
			scaling("Scaling up from 2 to 3 replicas is blocked because:\n* waiting for a control plane Machine to complete deletion", 5*time.Minute)(f)
			f.Owner.Kubeadm.Deleting = []string{"w3"}
		})), "NoReplacement ScalingUpBlocked w1 waits=Machine/w3 since=5m0s next=ReplacementIsMade"},
		{"a set that waits for its control plane goes on by itself", gone(preflightFailed(5 * time.Minute)),
			"NoReplacement ScalingUpBlocked w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade"},
		{"unless that takes too long", gone(preflightFailed(30*time.Minute), func(f *Facts) { f.Old.GoneAt = ago(30 * time.Minute) }),
			"NoReplacement ScalingUpBlocked w1 waits=MachineDeployment/md-0 since=30m0s next=ReplacementIsMade todo=UnblockOwner"},
		{"an owner that only counts is not blocked", gone(scaling("Scaling up from 2 to 3 replicas", 5*time.Minute)),
			"NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=LookAtOwner"},
		{"of a machine that is not known to have been there, the owner says since when it is missing",
			gone(func(f *Facts) { f.Old, f.Began = Machine{Gone: true}, time.Time{} }, scaling("Scaling up from 2 to 3 replicas", 7*time.Minute)),
			"NoReplacement OwnerCreates  waits=MachineDeployment/md-0 since=7m0s next=ReplacementIsMade todo=LookAtOwner"},
	}.run(t)
}

func TestWhatNoWaitingBringsBack(t *testing.T) {
	provisioned := func(_ *Facts, m *Machine) {
		m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isTrue(2*time.Minute)
	}
	withNode := func(is Condition) func(*Facts) {
		return followed(provisioned, func(_ *Facts, m *Machine) { m.Node, m.NodeReady = "n4", is })
	}
	deleted := isFalse("NodeDeleted", "Node n4 has been deleted while the Machine still exists", 6*time.Minute)
	lost := isFalse("ObjectDeleted", "DockerMachine has been deleted while the Machine still exists", 6*time.Minute)
	cutOff := func(f *Facts) { f.Old.Connection = down(10 * time.Minute) }
	rows{
		{"of a node that cannot be reached nothing is known", withNode(down(10 * time.Minute)),
			"NodeNotReady ConnectionDown w4 waits=Cluster/c1 since=10m0s next=NodeGetsReady todo=RestoreConnection by=w4/Alone?"},
		{"a connection that has just been lost comes back", withNode(down(time.Minute)),
			"NodeNotReady ConnectionDown w4 waits=Cluster/c1 since=1m0s next=NodeGetsReady by=w4/Alone?"},
		{"without a connection no node is found",
			followed(provisioned, func(_ *Facts, m *Machine) { m.Connection = down(10 * time.Minute) }),
			"Booting ConnectionDown w4 waits=Cluster/c1 since=10m0s next=NodeRegisters todo=RestoreConnection by=w4/Alone?"},
		{"a node that was deleted registers when its kubelet is restarted", withNode(deleted),
			"NodeNotReady NodeDeleted w4 waits=Node/n4 since=6m0s next=NodeRegisters todo=RestartKubelet by=w4/Alone?"},
		{"so does that of a machine which no owner was asked to replace", func(f *Facts) { f.Old.NodeReady = deleted },
			"NodeNotReady NodeDeleted w1 waits=Node/node-w1 since=6m0s next=NodeRegisters todo=RestartKubelet"},
		{"infrastructure that was deleted is not made again",
			followed(provisioned, func(_ *Facts, m *Machine) { m.Infrastructure = lost }),
			"Provisioning InfrastructureDeleted w4 waits=DockerMachine/w4 since=6m0s next=GoesOn todo=DeleteMachine by=w4/Alone?"},
		{"and the node of such a machine does not become Ready", func(f *Facts) { f.Old.Infrastructure = lost },
			"Provisioning InfrastructureDeleted w1 waits=DockerMachine/w1 since=6m0s next=GoesOn todo=DeleteMachine"},
		{"a node that is Ready is capacity all the same", gone(made(worker("w4", 4*time.Minute, func(m *Machine) { m.Infrastructure = lost }))), "Back Replaced w4 since=4m0s next=Nothing by=w4/Alone?"},
		{"without a connection no pod is evicted", deleting("DrainingNode", cutOff),
			"Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s next=GoesOn todo=RestoreConnection"},
		{"and the drain is given up at its timeout", deleting("DrainingNode", cutOff, func(f *Facts) {
			f.Old.Deletion.DrainSince, f.Old.Deletion.DrainTimeout = ago(8*time.Minute), 10*time.Minute
		}), "Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s until=2m0s next=DrainGivenUp todo=RestoreConnection"},
		{"nor is a volume seen to be detached", deleting("WaitingForVolumeDetach", cutOff),
			"Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s next=GoesOn todo=RestoreConnection"},
		{"nor a node deleted", deleting("DeletingNode", cutOff),
			"Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s next=GoesOn todo=RestoreConnection"},
		{"a node whose deletion fails for ever needs a person", deleting("DeletingNode"),
			"Deleting DeletingNode w1 waits=Node/node-w1 since=9m0s next=MachineGoes todo=LookAtController"},
	}.run(t)
}

func TestWhatOfADeletionTakesTooLong(t *testing.T) {
	ours := []Finalizer{{Name: "dockermachine.infrastructure.cluster.x-k8s.io"}}
	infra := func(is Remains) func(*Facts) { return func(f *Facts) { f.Old.Deletion.Infra = is } }
	bootstrap := func(is Remains) func(*Facts) { return func(f *Facts) { f.Old.Deletion.Bootstrap = is } }
	cleaned := func(since time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Old.Metal3, f.Old.Host, f.Old.Infra, f.HostsKnown = true, "h1", Object{Kind: "Metal3Machine", Name: "w1"}, true
			f.Hosts = []Host{{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Since: ago(since)}}
		}
	}
	waits := "WaitingForInfrastructureDeletion"
	rows{
		{"a deletion that has just begun is not reported on yet", deleting("", func(f *Facts) { f.Old.Deleting = ago(time.Minute) }),
			"Deleting DeletionBegins w1 waits=Machine/w1 since=1m0s next=DeletionGoesOn"},
		{"infrastructure that is paused is not deleted",
			deleting(waits, infra(Remains{Exists: true, Paused: true, Deleting: ago(time.Minute), Finalizers: ours})),
			"Deleting ObjectPaused w1 waits=DockerMachine/w1 since=1m0s next=GoesOn todo=Unpause"},
		{"a provider that deletes for long is looked at",
			deleting(waits, infra(Remains{Exists: true, Deleting: ago(21 * time.Minute), Finalizers: ours})),
			"Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 since=21m0s next=MachineGoes todo=LookAtInfrastructure"},
		{"to clean a host takes long", deleting(waits, cleaned(2*time.Hour)),
			"Deleting HostDeprovisioning w1 waits=BareMetalHost/h1 since=2h0m0s next=MachineGoes"},
		{"but not for ever", deleting(waits, cleaned(2*time.Hour+time.Second)),
			"Deleting HostDeprovisioning w1 waits=BareMetalHost/h1 since=2h0m1s next=MachineGoes todo=LookAtInfrastructure"},
		{"a bootstrap config that is paused is not deleted",
			deleting("WaitingForBootstrapDeletion", bootstrap(Remains{Exists: true, Paused: true, Deleting: ago(time.Minute)})),
			"Deleting ObjectPaused w1 waits=KubeadmConfig/w1 since=1m0s next=GoesOn todo=Unpause"},
		{"one that is deleted for long is looked at",
			deleting("WaitingForBootstrapDeletion", bootstrap(Remains{Exists: true, Deleting: ago(6 * time.Minute)})),
			"Deleting WaitingForBootstrapDeletion w1 waits=KubeadmConfig/w1 since=6m0s next=MachineGoes todo=LookAtBootstrap"},
	}.run(t)
}

func TestWhatAMachineOnBareMetalWaitsForBesidesItsHost(t *testing.T) {
	free := Host{Name: "h1", Selected: true, State: "available"}
	searching := func(is Condition, all ...Host) func(*Facts) {
		return followed(metal, hosts(all...), func(_ *Facts, m *Machine) { m.Associated = is })
	}
	onHost := func(data Condition, h Host) func(*Facts) {
		return followed(metal, hosts(h), func(_ *Facts, m *Machine) { m.Host, m.Data = "h4", data })
	}
	noData := isFalse("WaitingForMetal3Data", "Waiting for Metal3Data to become ready", 3*time.Minute)
	noNode := isFalse("CreateError", "failed to set ProviderID on Metal3Machine based on Cloud Provider Node ProviderID", 21*time.Minute)
	rows{
		{"before its Cluster is ready no host is taken",
			searching(isFalse("WaitingForClusterInfrastructureReady", "Waiting for Metal3Cluster Controller to create cluster infrastructure", 3*time.Minute), free),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=3m0s next=InfrastructureComes by=w4/Alone?"},
		{"a Metal3Machine that is paused takes none", searching(isFalse("Paused", "", 3*time.Minute), free),
			"Provisioning ObjectPaused w4 waits=Metal3Machine/w4 since=3m0s next=GoesOn todo=Unpause by=w4/Alone?"},
		{"a search that failed before goes on with the host that is there now",
			searching(isFalse("AssociateBareMetalHostFailed", "no available host found. Requeuing", 3*time.Minute), free),
			"Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"a host that is kept for the machine is waited for, though another one is free",
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0", Consumer: "Cluster c1"}),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h2 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"so is one that comes first in the list",
			searching(Condition{}, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0"}, free),
			"NoHostFits HostFrees w4 waits=BareMetalHost/h2 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"one that has an error is not",
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0", Error: "no power"}),
			"Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"nor is one that is kept for others",
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-1", Unreserved: true}),
			"Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		{"a host gets no image before its data is there", onHost(noData, Host{Name: "h4", State: "available"}),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=3m0s next=InfrastructureComes by=w4/Alone?"},
		{"an error of the host comes first", onHost(noData, Host{Name: "h4", State: "available", Error: "no power"}),
			"Provisioning HostTrouble w4 waits=BareMetalHost/h4 since=4m0s next=InfrastructureComes todo=RepairHost by=w4/Alone?"},
		{"a host that has its data is provisioned", onHost(noData, Host{Name: "h4", State: "provisioning", Since: ago(time.Minute)}),
			"Provisioning HostProvisioning w4 waits=BareMetalHost/h4 since=1m0s next=InfrastructureComes by=w4/Alone?"},
		{"of a host that is provisioned the node is waited for, where that has to bring its provider ID",
			onHost(noNode, Host{Name: "h4", State: "provisioned", PoweredOn: true}),
			"Booting NoNode w4 waits=BareMetalHost/h4 since=21m0s next=NodeRegisters todo=LookAtConsole by=w4/Alone?"},
		{"a host that is on and has an error is repaired",
			followed(metal, hosts(Host{Name: "h4", State: "provisioned", PoweredOn: true, Online: true, Error: "servicing failed"}), func(_ *Facts, m *Machine) {
				m.Host, m.InfrastructureProvisioned, m.Infrastructure = "h4", true, isTrue(time.Minute)
			}), "Booting HostTrouble w4 waits=BareMetalHost/h4 since=1m0s next=NodeRegisters todo=RepairHost by=w4/Alone?"},
	}.run(t)
}

// A topology writes the spec of its MachineDeployments: what a user sets there is not what counts.
func TestTheTopologyThatWritesAnOwnerIsNamed(t *testing.T) {
	s := Decide(given(deleting("DrainingNode", func(f *Facts) { f.Owner.Topology = true })))
	if diff := cmp.Diff([]any{"c1", SetDrainTimeout}, []any{s.Args.Topology, s.Todo}); diff != "" {
		t.Error(diff)
	}
}

// A person who removes the hook of a control plane may cost it the majority of etcd.
func TestTheHookOfAControlPlane(t *testing.T) {
	ours, theirs := Hook{Name: kubeadmHook}, Hook{Name: "pre-terminate.delete.hook.machine.cluster.x-k8s.io/z-backup", Owner: "velero"}
	waits := func(since time.Duration, hooks []Hook, edits ...func(*Facts)) func(*Facts) {
		return deleting("WaitingForPreTerminateHook", cpOf(func(f *Facts) {
			f.Old.Deletion.PreTerminateSince, f.Old.Deletion.PreTerminateHooks = ago(since), hooks
			for _, edit := range edits {
				edit(f)
			}
		}))
	}
	too := func(since time.Duration, hooks ...Hook) func(*Facts) {
		return func(f *Facts) { f.Others[1].Deleting, f.Others[1].Deletion.PreTerminateHooks = ago(since), hooks }
	}
	ailing := func(f *Facts) {
		f.Owner.Ailing = isFalse("NotHealthy", "* Machine cp-2: EtcdMemberHealthy: no leader", time.Hour)
	}
	rows{
		{"is removed within a moment", waits(time.Minute, []Hook{ours}),
			"Deleting WaitingForPreTerminateHook w1 waits=KubeadmControlPlane/cp since=1m0s next=InfrastructureGoes"},
		{"is not removed while etcd would lose its majority", waits(3*time.Minute, []Hook{ours}, ailing),
			"Deleting WaitingForPreTerminateHook w1 waits=KubeadmControlPlane/cp since=3m0s next=InfrastructureGoes todo=RepairControlPlane"},
		{"is not removed before a machine without it is gone", waits(3*time.Minute, []Hook{ours}, ailing, too(time.Minute)),
			"Deleting WaitingForPreTerminateHook w1 waits=Machine/w3 since=3m0s next=InfrastructureGoes"},
		{"is removed first from the machine that is being deleted for longest", waits(3*time.Minute, []Hook{ours}, too(time.Hour, ours)),
			"Deleting WaitingForPreTerminateHook w1 waits=Machine/w3 since=3m0s next=InfrastructureGoes"},
		{"does not wait for machines that are being deleted since later", waits(3*time.Minute, []Hook{ours}, too(time.Minute, ours)),
			"Deleting WaitingForPreTerminateHook w1 waits=KubeadmControlPlane/cp since=3m0s next=InfrastructureGoes todo=LookAtOwner"},
		{"is not removed by one that is paused", waits(3*time.Minute, []Hook{ours}, func(f *Facts) { f.Owner.Paused = true }),
			"Deleting ObjectPaused w1 waits=KubeadmControlPlane/cp since=3m0s next=GoesOn todo=Unpause"},
		{"waits for hooks of others", waits(3*time.Minute, []Hook{ours, theirs}),
			"Deleting WaitingForPreTerminateHook w1 waits=Machine/w1 since=3m0s next=InfrastructureGoes todo=EndHook"},
	}.run(t)
	if s := Decide(given(waits(time.Minute, []Hook{ours, theirs}))); s.Args.Hooks[0] != theirs {
		t.Errorf("the hook that a person ends is %s", s.Args.Hooks[0].Name)
	}
}

// What becomes of infrastructure after it was provisioned, its provider says in the same condition.
func TestInfrastructureThatFailsLater(t *testing.T) {
	stopped := func(since time.Duration) func(*Facts) {
		return followed(func(_ *Facts, m *Machine) {
			m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isFalse("InstanceTerminated", "instance i-1 is terminated", since)
		})
	}
	rows{
		{"no node comes of a machine that was stopped", stopped(6 * time.Minute),
			"Booting InfrastructureNotReady w4 waits=DockerMachine/w4 since=6m0s next=NodeRegisters todo=LookAtInfrastructure by=w4/Alone?"},
		{"its provider may start it again", stopped(time.Minute),
			"Booting InfrastructureNotReady w4 waits=DockerMachine/w4 since=1m0s next=NodeRegisters by=w4/Alone?"},
	}.run(t)
	for name, edit := range map[string]func(*Facts){
		"a node that is not Ready": func(*Facts) {},
		"a deletion":               deleting("WaitingForInfrastructureDeletion"),
	} {
		s := Decide(given(func(f *Facts) {
			edit(f)
			f.Old.Infrastructure = isFalse("DeletionFailed", "no credentials", time.Minute)
		}))
		if s.Args.Ailing.Message != "no credentials" {
			t.Errorf("of %s the story is %+v", name, s)
		}
	}
}

func TestCAPM3TakesAnyHostThatFits(t *testing.T) {
	s := Decide(given(followed(metal, hosts(
		Host{Name: "h1", Selected: true, State: "available"}, Host{Name: "h2"}, Host{Name: "h3", Selected: true, State: "available"},
	))))
	if diff := cmp.Diff([]any{HostChosen, []string{"h1", "h3"}, []HostAnswer(nil)}, []any{s.Reason, s.Args.Fitting, s.Args.Hosts}); diff != "" {
		t.Error(diff)
	}
}

func TestAHostThatIsOff(t *testing.T) {
	off := func(since time.Duration, edit func(*Host)) func(*Facts) {
		return followed(metal, func(f *Facts, m *Machine) {
			h := Host{Name: "h4", State: "provisioned"}
			edit(&h)
			f.Hosts, f.HostsKnown, m.Host = []Host{h}, true, "h4"
			m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isTrue(since)
		})
	}
	rows{
		{"a host that has just been provisioned is powered on by itself", off(2*time.Minute, func(h *Host) { h.Online = true }),
			"Booting HostPoweredOff w4 waits=BareMetalHost/h4 since=2m0s next=NodeRegisters by=w4/Alone?"},
		{"one that is still off after minutes is repaired by a person", off(6*time.Minute, func(h *Host) { h.Online = true }),
			"Booting HostPoweredOff w4 waits=BareMetalHost/h4 since=6m0s next=NodeRegisters todo=RepairHost by=w4/Alone?"},
		{"one that is to be off is powered on by a person", off(time.Minute, func(*Host) {}),
			"Booting HostPoweredOff w4 waits=BareMetalHost/h4 since=1m0s next=NodeRegisters todo=PowerHostOn by=w4/Alone?"},
		{"one that cannot be powered on has an error", off(time.Minute, func(h *Host) { h.Online, h.Error = true, "no power" }),
			"Booting HostTrouble w4 waits=BareMetalHost/h4 since=1m0s next=NodeRegisters todo=RepairHost by=w4/Alone?"},
		{"one that is detached is not powered on by the Bare Metal Operator",
			off(time.Minute, func(h *Host) { h.Online, h.Detached = true, true }),
			"Booting HostTrouble w4 waits=BareMetalHost/h4 since=1m0s next=NodeRegisters todo=Unpause by=w4/Alone?"},
	}.run(t)
}
