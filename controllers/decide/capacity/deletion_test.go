package capacity

import (
	"testing"
	"time"
)

func TestTheDeletion(t *testing.T) {
	timed := func(edit func(*Deletion)) func(*Facts) { return func(f *Facts) { edit(&f.Old.Deletion) } }
	const refused = "Drain not completed yet (started at 2026-01-01T11:51:00Z):\n* Pod shop/web: deletionTimestamp set, but still not removed from the Node\n" +
		"* Pods shop/db-0, shop/db-1, ... (2 more): cannot evict pod as it would violate the pod's disruption budget. The disruption budget db.v2 needs 3 healthy pods and has 3 currently"
	blocked := []Pod{{Namespace: "shop", Name: "db-0", Budget: "db"}, {Namespace: "shop", Name: "web"}}
	onHost := func(h Host, edits ...func(*Deletion)) func(*Facts) {
		return func(f *Facts) {
			for _, edit := range edits {
				edit(&f.Old.Deletion)
			}
			f.Old.Metal3, f.Old.Host, f.Old.Infra, f.Hosts, f.HostsKnown = true, "h1", Object{Kind: "Metal3Machine", Name: "w1"}, []Host{h}, true
		}
	}
	rows{
		{"of a deletion whose controller says nothing no more is known than when it began", deleting(""),
			"Deleting DeletionBegins w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=LookAtController"},
		{"a hook before the drain needs its owner",
			deleting("WaitingForPreDrainHook", timed(func(d *Deletion) { d.PreDrainSince = ago(8 * time.Minute) })),
			"Deleting WaitingForPreDrainHook w1 waits=Machine/w1 since=8m0s next=DrainBegins todo=EndHook"},
		{"a drain without a timeout may last for ever",
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince = ago(8 * time.Minute) })),
			"Deleting DrainingNode w1 waits=Node/node-w1 since=8m0s next=DrainGoesOn todo=SetDrainTimeout"},
		{"a drain is given up at its timeout",
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.DrainTimeout = ago(8*time.Minute), 10*time.Minute })),
			"Deleting DrainingNode w1 waits=Node/node-w1 since=8m0s until=2m0s next=DrainGivenUp"},
		{"a drain that should have been given up is overdue",
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.DrainTimeout = ago(8*time.Minute), 8*time.Minute })),
			"Deleting DrainingNode w1 overdue waits=Node/node-w1 since=8m0s until=0s next=DrainGivenUp"},
		{"a drain that has just begun needs no person",
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.Pods = ago(2*time.Minute), blocked })),
			"Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/shop/db since=2m0s next=DrainGoesOn"},
		{"the PodDisruptionBudget that blocks a drain is named", deleting("DrainingNode", timed(func(d *Deletion) { d.Pods = blocked })),
			"Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/shop/db since=9m0s next=DrainGoesOn todo=FreeBudget"},
		{"the PodDisruptionBudget that Cluster API quotes is named where the pods were not read",
			deleting("DrainingNode", timed(func(d *Deletion) { d.Condition.Message = refused })),
			"Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/shop/db.v2 since=9m0s next=DrainGoesOn todo=FreeBudget"},
		{"what was read of the pods is newer than what Cluster API quotes",
			deleting("DrainingNode", timed(func(d *Deletion) { d.Condition.Message, d.PodsRead = refused, true })),
			"Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DrainGoesOn todo=SetDrainTimeout"},
		{"a pod that cannot be evicted for another reason names no budget", deleting("DrainingNode", timed(func(d *Deletion) {
			d.Condition.Message = "Drain not completed yet:\n* Pod shop/db-0: failed to evict Pod, the webhook says: cannot evict pod as it would violate the pod's disruption budget"
		})), "Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DrainGoesOn todo=SetDrainTimeout"},
		{"a pod that is being deleted is not blocked by its budget any more",
			deleting("DrainingNode", timed(func(d *Deletion) { d.Pods = []Pod{{Namespace: "shop", Name: "db-0", Budget: "db", Deleting: noon}} })),
			"Deleting DrainingNode w1 waits=Pod/shop/db-0 since=9m0s next=DrainGoesOn todo=SetDrainTimeout"},
		{"an attached volume is named by its VolumeAttachment", deleting("WaitingForVolumeDetach", timed(func(d *Deletion) {
			d.VolumesSince, d.VolumeTimeout, d.Volumes = ago(3*time.Minute), 5*time.Minute, []Volume{{Name: "pv-0"}, {Name: "pv-1", Attachment: "csi-1"}}
		})),
			"Deleting WaitingForVolumeDetach w1 waits=VolumeAttachment/csi-1 since=3m0s until=2m0s next=VolumesGivenUp todo=DetachVolumes"},
		{"the control plane removes its own hook, and is looked at when that takes minutes",
			deleting("WaitingForPreTerminateHook", timed(func(d *Deletion) { d.PreTerminateHooks = []Hook{{Name: kubeadmHook}} })),
			"Deleting WaitingForPreTerminateHook w1 waits=MachineDeployment/md-0 since=9m0s next=InfrastructureGoes todo=LookAtOwner"},
		{"another hook needs its owner", deleting("WaitingForPreTerminateHook", timed(func(d *Deletion) {
			d.PreTerminateHooks = []Hook{{Name: kubeadmHook}, {Name: "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup", Owner: "velero"}}
		})), "Deleting WaitingForPreTerminateHook w1 waits=Machine/w1 since=9m0s next=InfrastructureGoes todo=EndHook"},
		{"its infrastructure is waited for", deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
			d.Infra = Remains{Exists: true, Deleting: ago(time.Minute), Finalizers: []Finalizer{{Name: "dockermachine.infrastructure.cluster.x-k8s.io"}, {Name: "x/y"}}}
		})), "Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 since=1m0s next=MachineGoes"},
		{"a finalizer that is not its provider's is seen to by a person",
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "x/y"}}}
			})), "Deleting InfrastructureFinalizer w1 waits=DockerMachine/w1 since=3m0s next=MachineGoes todo=RemoveFinalizer"},
		{"a provider of another group has finalizers below its own domain",
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{
					Exists: true, Group: "rke-machine.cattle.io", Deleting: ago(3 * time.Minute),
					Finalizers: []Finalizer{{Name: "wrangler.cattle.io/machine-provision-remove"}},
				}
			})), "Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 since=3m0s next=MachineGoes"},
		{"which not all projects of Kubernetes share", deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
			d.Infra = Remains{
				Exists: true, Group: "infrastructure.cluster.x-k8s.io", Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "ipam.metal.x-k8s.io/hold"}},
			}
		})), "Deleting InfrastructureFinalizer w1 waits=DockerMachine/w1 since=3m0s next=MachineGoes todo=RemoveFinalizer"},
		{"a host that is still provisioned is waited for since the deletion",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "provisioned", Since: ago(4800 * time.Hour)}, func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(time.Minute)}
			})), "Deleting HostDeprovisioning w1 waits=BareMetalHost/h1 since=1m0s next=MachineGoes"},
		{"a host is deprovisioned",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Since: ago(2 * time.Minute)})),
			"Deleting HostDeprovisioning w1 waits=BareMetalHost/h1 since=2m0s next=MachineGoes"},
		{"a host with an error hinders the deletion",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Error: "no power"})),
			"Deleting HostHindersDeletion w1 waits=BareMetalHost/h1 next=MachineGoes todo=RepairHost"},
		{"so does a host that is paused",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Paused: true})),
			"Deleting HostHindersDeletion w1 waits=BareMetalHost/h1 next=MachineGoes todo=Unpause"},
		{"a host that was released is not waited for, but the finalizer that is left",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", State: "available"}, func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "x/y"}}}
			})), "Deleting InfrastructureFinalizer w1 waits=Metal3Machine/w1 since=3m0s next=MachineGoes todo=RemoveFinalizer"},
		{"nor is one that another machine has since",
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", State: "provisioning", Consumer: "Metal3Machine w2"})),
			"Deleting WaitingForInfrastructureDeletion w1 waits=Metal3Machine/w1 next=MachineGoes"},
		{"its bootstrap config is waited for",
			deleting("WaitingForBootstrapDeletion", timed(func(d *Deletion) { d.Bootstrap = Remains{Exists: true, Finalizers: []Finalizer{{Name: "x/y"}}} })),
			"Deleting WaitingForBootstrapDeletion w1 waits=KubeadmConfig/w1 next=MachineGoes todo=RemoveFinalizer"},
		{"the deletion of the node is given up", deleting("DeletingNode", timed(func(d *Deletion) { d.NodeTimeout = 10 * time.Minute })),
			"Deleting DeletingNode w1 waits=Node/node-w1 since=9m0s until=1m0s next=NodeGivenUp"},
		{"an error needs a person", deleting("InternalError"),
			"Deleting InternalError w1 waits=Machine/w1 since=9m0s next=GoesOn todo=LookAtController"},
		{"a finalizer that is left is removed by a person",
			deleting("DeletionCompleted", timed(func(d *Deletion) { d.Finalizers = []Finalizer{{Name: machineFinalizer}, {Name: "x/y"}} })),
			"Deleting ForeignFinalizer w1 waits=Machine/w1 since=9m0s next=ReplacementIsMade todo=RemoveFinalizer"},
		{"without another finalizer the machine is as good as gone",
			deleting("DeletionCompleted", timed(func(d *Deletion) { d.Finalizers = []Finalizer{{Name: machineFinalizer}} })),
			"Deleting DeletionCompleted w1 waits=Machine/w1 next=ReplacementIsMade"},
		{"a paused machine is not deleted", deleting("DrainingNode", func(f *Facts) { f.Old.Paused = true }),
			"Deleting ObjectPaused w1 waits=Machine/w1 since=9m0s next=GoesOn todo=Unpause"},
		{"a machine of a set that is made while the old one exists replaces another one", deleting("DrainingNode", func(f *Facts) {
			f.Owner.Replicas, f.Others = 4, append(f.Others, worker("w4", time.Minute))
		}), "Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DrainGoesOn todo=SetDrainTimeout"},
	}.run(t)
}

func TestADeletionIsFollowedWithoutAReplacementToo(t *testing.T) {
	left := func(f *Facts) { f.Old.Deletion.Finalizers = []Finalizer{{Name: "x/y"}} }
	rows{
		{"of a machine that is one too many nothing comes after it",
			deleting("DeletionCompleted", left, func(f *Facts) { f.Owner.Replicas = 2 }),
			"Deleting ForeignFinalizer w1 waits=Machine/w1 since=9m0s next=MachineIsGone todo=RemoveFinalizer"},
		{"nor of one whose owner is being deleted", deleting("DeletionCompleted", left, func(f *Facts) { f.Owner.Deleting = noon }),
			"Deleting ForeignFinalizer w1 waits=Machine/w1 since=9m0s next=MachineIsGone todo=RemoveFinalizer"},
		{"of one that is replaced it goes", deleting("DeletionCompleted", left),
			"Deleting ForeignFinalizer w1 waits=Machine/w1 since=9m0s next=MachineGoes todo=RemoveFinalizer"},
		{"its infrastructure goes before it", deleting("WaitingForInfrastructureDeletion"),
			"Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 next=MachineGoes"},
		{"a drain goes on, though nothing replaces the machine", deleting("DrainingNode", func(f *Facts) { f.Owner.Replicas = 2 }),
			"Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DrainGoesOn todo=SetDrainTimeout"},
	}.tell(t, func(f Facts) string { return told(DeletionOf(f)) })
}

func TestWhyAHostIsNotTaken(t *testing.T) {
	free := Host{Name: "h", Selected: true, State: "available"}
	for name, tc := range map[string]struct {
		edit func(*Host)
		want HostAnswer
	}{
		"a free one is":                                    {func(*Host) {}, HostAnswer{Name: "h"}},
		"so is one in the state ready":                     {func(h *Host) { h.State = "ready" }, HostAnswer{Name: "h"}},
		"one that the selector does not select":            {func(h *Host) { h.Selected, h.Unmatched = false, "rack=1" }, HostAnswer{"h", HostNotSelected, "rack=1"}},
		"one of another consumer":                          {func(h *Host) { h.Consumer = "Metal3Machine x" }, HostAnswer{"h", HostInUse, "Metal3Machine x"}},
		"one that is kept for another owner":               {func(h *Host) { h.Reserved, h.Unreserved = "md-1", true }, HostAnswer{"h", HostReserved, "md-1"}},
		"one that is kept for this owner is":               {func(h *Host) { h.Reserved, h.Consumer = "md-0", "x" }, HostAnswer{Name: "h"}},
		"one that is being deleted":                        {func(h *Host) { h.Deleting = true }, HostAnswer{"h", HostIsDeleting, ""}},
		"one with an error":                                {func(h *Host) { h.Error = "no power" }, HostAnswer{"h", HostHasError, "no power"}},
		"one that is paused":                               {func(h *Host) { h.Paused = true }, HostAnswer{"h", HostPaused, ""}},
		"one that is marked unhealthy":                     {func(h *Host) { h.MarkedUnhealthy = true }, HostAnswer{"h", HostUnhealthy, ""}},
		"one that is inspected":                            {func(h *Host) { h.State = "inspecting" }, HostAnswer{"h", HostNotAvailable, "inspecting"}},
		"one that is detached is taken, as CAPM3 takes it": {func(h *Host) { h.Detached = true }, HostAnswer{Name: "h"}},
	} {
		h := free
		if tc.edit(&h); h.answer() != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, h.answer(), tc.want)
		}
	}
}

func TestWhichMachineReplacesWhich(t *testing.T) {
	two := func(f *Facts) {
		f.Lost = []Loss{{Name: "w0", At: ago(6 * time.Minute)}}
		f.Others = append(f.Others, worker("w5", 3*time.Minute), worker("w4", 4*time.Minute))
	}
	chain := func(f *Facts) { // w4 has replaced w1, and is gone as well
		f.Old.GoneAt, f.Found = ago(30*time.Minute), "w4"
		f.Lost = []Loss{{Name: "w4", At: ago(2 * time.Minute)}}
		f.Others = append(f.Others, worker("w5", time.Minute))
	}
	second := func(f *Facts) { // what is followed is w4 itself
		f.Old.Name, f.Old.GoneAt, f.Found = "w4", ago(2*time.Minute), ""
		f.Lost = []Loss{{Name: "w1", At: ago(30 * time.Minute)}}
	}
	lost := func(l Loss, edits ...func(*Facts)) func(*Facts) {
		return gone(func(f *Facts) { f.Lost = []Loss{l} }, all(edits...))
	}
	replaces := func(name string) func(*Machine) { return func(m *Machine) { m.Replaces = name } }
	remembers := func(name string) func(*Machine) { return func(m *Machine) { m.Remembered = name } }
	four, six := 4*time.Minute, ago(6*time.Minute)
	rows{
		{"what the owner has written down is no guess", gone(made(worker("w5", four), worker("w4", four, replaces("w1")))), "w4/Recorded"},
		{"a machine that is older replaces none, whatever is written", deleting("", made(worker("w0", 25*time.Hour, replaces("w1")))), ""},
		{"a machine that is known by no name is replaced by none",
			gone(func(f *Facts) { f.Old, f.Began = Machine{Gone: true}, time.Time{} }), ""},
		{"the second to go has the second that was made", gone(two), "w5/ByOrder?"},
		{"unless a machine has the host of the old one",
			gone(two, func(f *Facts) { f.Old.Host, f.Others[3].Host = "h1", "h1" }), "w4/SameHost?"},
		{"a machine that replaces another by record is not free", gone(made(worker("w4", four, replaces("w0")))), ""},
		{"a machine that was made before does not replace it", gone(made(worker("w4", 6*time.Minute))), ""},
		{"creation times are in seconds",
			gone(func(f *Facts) { f.Old.GoneAt = ago(four - time.Millisecond) }, made(worker("w4", four))), "w4/Alone?"},
		{"without the time of the loss no machine is taken for it",
			gone(func(f *Facts) { f.Old.GoneAt, f.Began = time.Time{}, time.Time{} }), ""},
		{"a machine that has the host of another lost one is not free",
			gone(two, func(f *Facts) { f.Lost[0].Host, f.Others[2].Host = "h0", "h0" }), "w4/ByOrder?"},
		{"what a record has kept is believed before order", gone(two, func(f *Facts) { f.Others[3].Remembered = "w1" }), "w4/Remembered?"},
		{"a machine that replaces another by a RemediationRecord is not free", gone(made(worker("w4", four, remembers("w0")))), ""},
		{"the one that another lost machine has found is not free, though that went first",
			lost(Loss{Name: "w0", At: six, Found: "w5"}, func(f *Facts) {
				f.Others = append([]Machine{worker("w5", 3*time.Minute)}, append(f.Others, worker("w4", four))...)
			}), "w4/ByOrder?"},
		{"what replaced its replacement replaces it: by what the owner has written down",
			gone(func(f *Facts) { f.Found = "w4" }, made(worker("w5", time.Minute, replaces("w4")))), "w5/Recorded"},
		{"by order", gone(chain), "w5/ByOrder?"},
		{"twice", gone(chain, func(f *Facts) {
			f.Lost[0].Found, f.Lost = "w5", append(f.Lost, Loss{Name: "w5", At: ago(time.Minute)})
			f.Others[2].Name = "w6"
		}), "w6/ByOrder?"},
		{"but not in a circle", gone(chain, func(f *Facts) { f.Lost[0].Found = "w1" }), "w5/ByOrder?"},
		{"and what was made for a replacement is not free", gone(chain, second, func(f *Facts) { f.Lost[0].Found = "w4" }), "w5/ByOrder?"},
		{"nor on the host of what it replaces", gone(chain, second, func(f *Facts) {
			f.Lost[0].Found, f.Lost[0].Host, f.Others[2].Host = "w4", "h1", "h1"
		}), "w5/ByOrder?"},
		{"fewer new machines than losses leave the last one without", lost(Loss{Name: "w0", At: six}, made(worker("w4", four))), ""},
	}.tell(t, func(f Facts) string { return by(replacementOf(&f)) })
}

func TestWhichMachineANewOneWasMadeFor(t *testing.T) {
	madeFor := func(name, replaces string, lost ...Loss) Facts {
		f := given(func(f *Facts) {
			f.Lost, f.Others = lost, append(f.Others, worker("w4", 4*time.Minute), worker("w5", 3*time.Minute))
		})
		f.Old, f.Others = *f.machine(name), f.Others[:2]
		f.Old.Replaces = replaces
		if name == "w5" {
			f.Others = append(f.Others, worker("w4", 4*time.Minute))
		}
		return f
	}
	a, b := Loss{Name: "w0", At: ago(6 * time.Minute)}, Loss{Name: "w1", At: ago(5 * time.Minute)}
	kept := madeFor("w4", "", a, b)
	kept.Old.Remembered = "w7"
	hosted := madeFor("w4", "", a, Loss{Name: "w1", At: b.At, Host: "h1"})
	hosted.Old.Host = "h1"
	for name, tc := range map[string]struct {
		f    Facts
		want string
	}{
		"for the one that its owner has written down":    {madeFor("w4", "w9", a), "w9/Recorded"},
		"for the one that was lost":                      {madeFor("w4", "", b), "w1/Alone?"},
		"for the second that was lost":                   {madeFor("w5", "", a, b), "w1/ByOrder?"},
		"for none that is known":                         {madeFor("w4", ""), ""},
		"for the one that a record has kept":             {kept, "w7/Remembered?"},
		"not for the one that the lost one had replaced": {madeFor("w4", "", Loss{Name: "w0", At: a.At, Found: "w1"}, b), "w1/ByOrder?"},
		"for the one that has found it":                  {madeFor("w5", "", a, Loss{Name: "w1", At: b.At, Found: "w5"}), "w1/ByOrder?"},
		"for the one whose host it has":                  {hosted, "w1/SameHost?"},
	} {
		if got := by(Predecessor(tc.f)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
