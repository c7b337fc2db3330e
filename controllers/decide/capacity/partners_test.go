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
	cp := Object{Kind: "KubeadmControlPlane", Name: "cp"}
	five := ago(5 * time.Minute)
	scaling := func(message string, since time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Owner.ScalingUp = Condition{Status: "True", Reason: "ScalingUp", Message: message, Since: ago(since)}
		}
	}
	asked := func(reason, message string, since time.Duration, edits ...func(*Facts)) func(*Facts) {
		return func(f *Facts) {
			f.Old.Asked = isFalse(reason, message, since)
			for _, edit := range edits {
				edit(f)
			}
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
		"an owner that was just asked answers by itself": {
			asked("WaitingForRemediation", "", time.Minute), says{OwnerActs, WaitsForOwner, "w1", md0, ago(time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"a control plane that replaces another machine says nothing, and is not waited for without a reason": {
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) { f.Owner.Kubeadm.InProgress = "w3" })),
			says{OwnerActs, KubeadmDefers, "w1", Object{Kind: "Machine", Name: "w3"}, ago(10 * time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"a control plane that has answered for another machine is not waited for without a reason": {
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) {
				f.Others[0].Unhealthy, f.Others[0].Asked = true, isFalse("CannotBeRemediated", "etcd would lose its quorum", 9*time.Minute)
			})),
			says{OwnerActs, OtherFirst, "w1", Object{Kind: "Machine", Name: "w2"}, ago(10 * time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"that machine may be gone already": {
			asked("WaitingForRemediation", "", 10*time.Minute, cpOf(func(f *Facts) { f.Owner.Kubeadm.InProgress = "w9" })),
			says{OwnerActs, KubeadmDefers, "w1", cp, ago(10 * time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"of a set that replaces as many machines as it may, one of these is named": {
			asked("RemediationDeferred", tooMany, 10*time.Minute, deletingToo),
			says{OwnerActs, OwnerDeferred, "w1", Object{Kind: "Machine", Name: "w3"}, ago(10 * time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"but not if a preflight check is what it waits for": {
			asked("RemediationDeferred", preflight, 10*time.Minute, deletingToo),
			says{OwnerActs, OwnerDeferred, "w1", md0, ago(10 * time.Minute), time.Time{}, false, OwnerReplaces, "", Replacement{}},
		},
		"an owner makes a machine within a moment": {
			gone(func(f *Facts) { f.Old.GoneAt = ago(time.Minute) }),
			says{NoReplacement, OwnerCreates, "w1", md0, ago(time.Minute), time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"a control plane lists what keeps it from making one": {
			gone(cpOf(scaling(etcdUnhealthy, 5*time.Minute))), says{NoReplacement, OwnerBlocked, "w1", cp, five, time.Time{}, false, ReplacementIsMade, UnblockOwner, Replacement{}},
		},
		"which usually passes": {
			gone(cpOf(scaling(etcdUnhealthy, time.Minute)), func(f *Facts) { f.Old.GoneAt = ago(time.Minute) }),
			says{NoReplacement, OwnerBlocked, "w1", cp, ago(time.Minute), time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"before another machine is gone it makes none": {
			gone(cpOf(func(f *Facts) {
				scaling("Scaling up from 2 to 3 replicas is blocked because:\n* waiting for a control plane Machine to complete deletion", 5*time.Minute)(f)
				f.Owner.Kubeadm.Deleting = []string{"w3"}
			})), says{NoReplacement, OwnerBlocked, "w1", Object{Kind: "Machine", Name: "w3"}, five, time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"a set that waits for its control plane goes on by itself": {
			gone(preflightFailed(5 * time.Minute)),
			says{NoReplacement, OwnerBlocked, "w1", md0, five, time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"unless that takes too long": {
			gone(preflightFailed(30*time.Minute), func(f *Facts) { f.Old.GoneAt = ago(30 * time.Minute) }),
			says{NoReplacement, OwnerBlocked, "w1", md0, ago(30 * time.Minute), time.Time{}, false, ReplacementIsMade, UnblockOwner, Replacement{}},
		},
		"an owner that only counts is not blocked": {
			gone(scaling("Scaling up from 2 to 3 replicas", 5*time.Minute)),
			says{NoReplacement, OwnerCreates, "w1", md0, five, time.Time{}, false, ReplacementIsMade, LookAtOwner, Replacement{}},
		},
		"of a machine that is not known to have been there, the owner says since when it is missing": {
			gone(func(f *Facts) { f.Old, f.Began = Machine{Gone: true}, time.Time{} }, scaling("Scaling up from 2 to 3 replicas", 7*time.Minute)),
			says{NoReplacement, OwnerCreates, "", md0, ago(7 * time.Minute), time.Time{}, false, ReplacementIsMade, LookAtOwner, Replacement{}},
		},
	}.run(t)
}

func TestWhatNoWaitingBringsBack(t *testing.T) {
	by := Replacement{Name: "w4", By: Alone}
	c1, docker := Object{Kind: "Cluster", Name: "c1"}, Object{Kind: "DockerMachine", Name: "w4"}
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
		"of a node that cannot be reached nothing is known": {
			withNode(down(10 * time.Minute)), says{NodeNotReady, Disconnected, "w4", c1, ago(10 * time.Minute), time.Time{}, false, NodeGetsReady, RestoreConnection, by},
		},
		"a connection that has just been lost comes back": {
			withNode(down(time.Minute)), says{NodeNotReady, Disconnected, "w4", c1, ago(time.Minute), time.Time{}, false, NodeGetsReady, "", by},
		},
		"without a connection no node is found": {
			followed(provisioned, func(_ *Facts, m *Machine) { m.Connection = down(10 * time.Minute) }),
			says{Booting, Disconnected, "w4", c1, ago(10 * time.Minute), time.Time{}, false, NodeRegisters, RestoreConnection, by},
		},
		"a node that was deleted registers when its kubelet is restarted": {
			withNode(deleted), says{NodeNotReady, NodeGone, "w4", Object{Kind: "Node", Name: "n4"}, ago(6 * time.Minute), time.Time{}, false, NodeRegisters, RestartKubelet, by},
		},
		"so does that of a machine which no owner was asked to replace": {
			func(f *Facts) { f.Old.NodeReady = deleted },
			says{NodeNotReady, NodeGone, "w1", Object{Kind: "Node", Name: "node-w1"}, ago(6 * time.Minute), time.Time{}, false, NodeRegisters, RestartKubelet, Replacement{}},
		},
		"infrastructure that was deleted is not made again": {
			followed(provisioned, func(_ *Facts, m *Machine) { m.Infrastructure = lost }),
			says{Provisioning, InfrastructureGone, "w4", docker, ago(6 * time.Minute), time.Time{}, false, GoesOn, DeleteMachine, by},
		},
		"and the node of such a machine does not become Ready": {
			func(f *Facts) { f.Old.Infrastructure = lost },
			says{Provisioning, InfrastructureGone, "w1", Object{Kind: "DockerMachine", Name: "w1"}, ago(6 * time.Minute), time.Time{}, false, GoesOn, DeleteMachine, Replacement{}},
		},
		"a node that is Ready is capacity all the same": {
			gone(func(f *Facts) {
				m := worker("w4", 4*time.Minute)
				m.Infrastructure = lost
				f.Others = append(f.Others, m)
			}), says{Back, Replaced, "w4", Object{}, ago(4 * time.Minute), time.Time{}, false, Nothing, "", by},
		},
		"without a connection no pod is evicted": {
			deleting("DrainingNode", cutOff), says{Deleting, Disconnected, "w1", c1, ago(10 * time.Minute), time.Time{}, false, GoesOn, RestoreConnection, Replacement{}},
		},
		"and the drain is given up at its timeout": {
			deleting("DrainingNode", cutOff, func(f *Facts) {
				f.Old.Deletion.DrainSince, f.Old.Deletion.DrainTimeout = ago(8*time.Minute), 10*time.Minute
			}),
			says{Deleting, Disconnected, "w1", c1, ago(10 * time.Minute), noon.Add(2 * time.Minute), false, DrainGivenUp, RestoreConnection, Replacement{}},
		},
		"nor is a volume seen to be detached": {
			deleting("WaitingForVolumeDetach", cutOff), says{Deleting, Disconnected, "w1", c1, ago(10 * time.Minute), time.Time{}, false, GoesOn, RestoreConnection, Replacement{}},
		},
		"nor a node deleted": {
			deleting("DeletingNode", cutOff), says{Deleting, Disconnected, "w1", c1, ago(10 * time.Minute), time.Time{}, false, GoesOn, RestoreConnection, Replacement{}},
		},
		"a node whose deletion fails for ever needs a person": {
			deleting("DeletingNode"), says{Deleting, NodeDeletion, "w1", Object{Kind: "Node", Name: "node-w1"}, nine, time.Time{}, false, MachineGoes, LookAtController, Replacement{}},
		},
	}.run(t)
}

func TestWhatOfADeletionTakesTooLong(t *testing.T) {
	docker, config, h1 := Object{Kind: "DockerMachine", Name: "w1"}, Object{Kind: "KubeadmConfig", Name: "w1"}, Object{Kind: "BareMetalHost", Name: "h1"}
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
		"a deletion that has just begun is not reported on yet": {
			deleting("", func(f *Facts) { f.Old.Deleting = ago(time.Minute) }), says{Deleting, DeletionBegins, "w1", w1, ago(time.Minute), time.Time{}, false, DeletionGoesOn, "", Replacement{}},
		},
		"infrastructure that is paused is not deleted": {
			deleting(waits, infra(Remains{Exists: true, Paused: true, Deleting: ago(time.Minute), Finalizers: ours})),
			says{Deleting, ObjectPaused, "w1", docker, ago(time.Minute), time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"a provider that deletes for long is looked at": {
			deleting(waits, infra(Remains{Exists: true, Deleting: ago(21 * time.Minute), Finalizers: ours})),
			says{Deleting, InfrastructureDeletion, "w1", docker, ago(21 * time.Minute), time.Time{}, false, MachineGoes, LookAtInfrastructure, Replacement{}},
		},
		"to clean a host takes long": {
			deleting(waits, cleaned(2*time.Hour)), says{Deleting, HostDeprovisioning, "w1", h1, ago(2 * time.Hour), time.Time{}, false, MachineGoes, "", Replacement{}},
		},
		"but not for ever": {
			deleting(waits, cleaned(2*time.Hour+time.Second)),
			says{Deleting, HostDeprovisioning, "w1", h1, ago(2*time.Hour + time.Second), time.Time{}, false, MachineGoes, LookAtInfrastructure, Replacement{}},
		},
		"a bootstrap config that is paused is not deleted": {
			deleting("WaitingForBootstrapDeletion", bootstrap(Remains{Exists: true, Paused: true, Deleting: ago(time.Minute)})),
			says{Deleting, ObjectPaused, "w1", config, ago(time.Minute), time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"one that is deleted for long is looked at": {
			deleting("WaitingForBootstrapDeletion", bootstrap(Remains{Exists: true, Deleting: ago(6 * time.Minute)})),
			says{Deleting, BootstrapDeletion, "w1", config, ago(6 * time.Minute), time.Time{}, false, MachineGoes, LookAtBootstrap, Replacement{}},
		},
	}.run(t)
}

func TestWhatAMachineOnBareMetalWaitsForBesidesItsHost(t *testing.T) {
	by, m3m, h4 := Replacement{Name: "w4", By: Alone}, Object{Kind: "Metal3Machine", Name: "w4"}, Object{Kind: "BareMetalHost", Name: "h4"}
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
		"before its Cluster is ready no host is taken": {
			searching(isFalse("WaitingForClusterInfrastructureReady", "Waiting for Metal3Cluster Controller to create cluster infrastructure", 3*time.Minute), free),
			says{Provisioning, InfrastructureNotReady, "w4", m3m, ago(3 * time.Minute), time.Time{}, false, InfrastructureComes, "", by},
		},
		"a Metal3Machine that is paused takes none": {
			searching(isFalse("Paused", "", 3*time.Minute), free), says{Provisioning, ObjectPaused, "w4", m3m, ago(3 * time.Minute), time.Time{}, false, GoesOn, Unpause, by},
		},
		"a search that failed before goes on with the host that is there now": {
			searching(isFalse("AssociateBareMetalHostFailed", "no available host found. Requeuing", 3*time.Minute), free),
			says{Provisioning, HostChosen, "w4", m3m, ago(4 * time.Minute), time.Time{}, false, HostIsTaken, "", by},
		},
		"a host that is kept for the machine is waited for, though another one is free": {
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0", Consumer: "Cluster c1"}),
			says{NoHostFits, HostFrees, "w4", Object{Kind: "BareMetalHost", Name: "h2"}, ago(4 * time.Minute), time.Time{}, false, HostIsTaken, "", by},
		},
		"so is one that comes first in the list": {
			searching(Condition{}, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0"}, free),
			says{NoHostFits, HostFrees, "w4", Object{Kind: "BareMetalHost", Name: "h2"}, ago(4 * time.Minute), time.Time{}, false, HostIsTaken, "", by},
		},
		"one that has an error is not": {
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-0", Error: "no power"}),
			says{Provisioning, HostChosen, "w4", m3m, ago(4 * time.Minute), time.Time{}, false, HostIsTaken, "", by},
		},
		"nor is one that is kept for others": {
			searching(Condition{}, free, Host{Name: "h2", Selected: true, State: "deprovisioning", Reserved: "md-1", Unreserved: true}),
			says{Provisioning, HostChosen, "w4", m3m, ago(4 * time.Minute), time.Time{}, false, HostIsTaken, "", by},
		},
		"a host gets no image before its data is there": {
			onHost(noData, Host{Name: "h4", State: "available"}), says{Provisioning, InfrastructureNotReady, "w4", m3m, ago(3 * time.Minute), time.Time{}, false, InfrastructureComes, "", by},
		},
		"an error of the host comes first": {
			onHost(noData, Host{Name: "h4", State: "available", Error: "no power"}), says{Provisioning, HostTrouble, "w4", h4, ago(4 * time.Minute), time.Time{}, false, InfrastructureComes, RepairHost, by},
		},
		"a host that has its data is provisioned": {
			onHost(noData, Host{Name: "h4", State: "provisioning", Since: ago(time.Minute)}), says{Provisioning, HostWorks, "w4", h4, ago(time.Minute), time.Time{}, false, InfrastructureComes, "", by},
		},
		"of a host that is provisioned the node is waited for, where that has to bring its provider ID": {
			onHost(noNode, Host{Name: "h4", State: "provisioned", PoweredOn: true}), says{Booting, NoNode, "w4", h4, ago(21 * time.Minute), time.Time{}, false, NodeRegisters, LookAtConsole, by},
		},
		"a host that is on and has an error is repaired": {
			followed(metal, hosts(Host{Name: "h4", State: "provisioned", PoweredOn: true, Online: true, Error: "servicing failed"}), func(_ *Facts, m *Machine) {
				m.Host, m.InfrastructureProvisioned, m.Infrastructure = "h4", true, isTrue(time.Minute)
			}), says{Booting, HostTrouble, "w4", h4, ago(time.Minute), time.Time{}, false, NodeRegisters, RepairHost, by},
		},
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
	cp, three := Object{Kind: "KubeadmControlPlane", Name: "cp"}, ago(3*time.Minute)
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
		"is removed within a moment": {
			waits(time.Minute, []Hook{ours}), says{Deleting, PreTerminateHook, "w1", cp, ago(time.Minute), time.Time{}, false, InfrastructureGoes, "", Replacement{}},
		},
		"is not removed while etcd would lose its majority": {
			waits(3*time.Minute, []Hook{ours}, ailing), says{Deleting, PreTerminateHook, "w1", cp, three, time.Time{}, false, InfrastructureGoes, RepairControlPlane, Replacement{}},
		},
		"is not removed before a machine without it is gone": {
			waits(3*time.Minute, []Hook{ours}, ailing, too(time.Minute)),
			says{Deleting, PreTerminateHook, "w1", Object{Kind: "Machine", Name: "w3"}, three, time.Time{}, false, InfrastructureGoes, "", Replacement{}},
		},
		"is removed first from the machine that is being deleted for longest": {
			waits(3*time.Minute, []Hook{ours}, too(time.Hour, ours)),
			says{Deleting, PreTerminateHook, "w1", Object{Kind: "Machine", Name: "w3"}, three, time.Time{}, false, InfrastructureGoes, "", Replacement{}},
		},
		"does not wait for machines that are being deleted since later": {
			waits(3*time.Minute, []Hook{ours}, too(time.Minute, ours)), says{Deleting, PreTerminateHook, "w1", cp, three, time.Time{}, false, InfrastructureGoes, LookAtOwner, Replacement{}},
		},
		"is not removed by one that is paused": {
			waits(3*time.Minute, []Hook{ours}, func(f *Facts) { f.Owner.Paused = true }),
			says{Deleting, ObjectPaused, "w1", cp, three, time.Time{}, false, GoesOn, Unpause, Replacement{}},
		},
		"waits for hooks of others": {
			waits(3*time.Minute, []Hook{ours, theirs}), says{Deleting, PreTerminateHook, "w1", w1, three, time.Time{}, false, InfrastructureGoes, EndHook, Replacement{}},
		},
	}.run(t)
	if s := Decide(given(waits(time.Minute, []Hook{ours, theirs}))); s.Args.Hooks[0] != theirs {
		t.Errorf("the hook that a person ends is %s", s.Args.Hooks[0].Name)
	}
}

// What becomes of infrastructure after it was provisioned, its provider says in the same condition.
func TestInfrastructureThatFailsLater(t *testing.T) {
	by, docker := Replacement{Name: "w4", By: Alone}, Object{Kind: "DockerMachine", Name: "w4"}
	stopped := func(since time.Duration) func(*Facts) {
		return followed(func(_ *Facts, m *Machine) {
			m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isFalse("InstanceTerminated", "instance i-1 is terminated", since)
		})
	}
	rows{
		"no node comes of a machine that was stopped": {
			stopped(6 * time.Minute), says{Booting, InfrastructureNotReady, "w4", docker, ago(6 * time.Minute), time.Time{}, false, NodeRegisters, LookAtInfrastructure, by},
		},
		"its provider may start it again": {
			stopped(time.Minute), says{Booting, InfrastructureNotReady, "w4", docker, ago(time.Minute), time.Time{}, false, NodeRegisters, "", by},
		},
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
