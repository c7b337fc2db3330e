package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheDeletion(t *testing.T) {
	timed := func(edit func(*Deletion)) func(*Facts) { return func(f *Facts) { edit(&f.Old.Deletion) } }
	node := Object{Kind: "Node", Name: "node-w1"}
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
	h1, docker := Object{Kind: "BareMetalHost", Name: "h1"}, Object{Kind: "DockerMachine", Name: "w1"}
	none := Replacement{}
	rows{
		"of a deletion whose controller says nothing no more is known than when it began": {
			deleting(""), says{Deleting, DeletionBegins, "w1", w1, nine, time.Time{}, false, DeletionGoesOn, LookAtController, none},
		},
		"a hook before the drain needs its owner": {
			deleting("WaitingForPreDrainHook", timed(func(d *Deletion) { d.PreDrainSince = ago(8 * time.Minute) })),
			says{Deleting, PreDrainHook, "w1", w1, ago(8 * time.Minute), time.Time{}, false, DrainBegins, EndHook, none},
		},
		"a drain without a timeout may last for ever": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince = ago(8 * time.Minute) })),
			says{Deleting, Draining, "w1", node, ago(8 * time.Minute), time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
		"a drain is given up at its timeout": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.DrainTimeout = ago(8*time.Minute), 10*time.Minute })),
			says{Deleting, Draining, "w1", node, ago(8 * time.Minute), noon.Add(2 * time.Minute), false, DrainGivenUp, "", none},
		},
		"a drain that should have been given up is overdue": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.DrainTimeout = ago(8*time.Minute), 8*time.Minute })),
			says{Deleting, Draining, "w1", node, ago(8 * time.Minute), noon, true, DrainGivenUp, "", none},
		},
		"a drain that has just begun needs no person": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.DrainSince, d.Pods = ago(2*time.Minute), blocked })),
			says{Deleting, DrainBlockedByBudget, "w1", Object{"PodDisruptionBudget", "shop", "db"}, ago(2 * time.Minute), time.Time{}, false, DrainGoesOn, "", none},
		},
		"the PodDisruptionBudget that blocks a drain is named": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.Pods = blocked })),
			says{Deleting, DrainBlockedByBudget, "w1", Object{"PodDisruptionBudget", "shop", "db"}, nine, time.Time{}, false, DrainGoesOn, FreeBudget, none},
		},
		"the PodDisruptionBudget that Cluster API quotes is named where the pods were not read": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.Condition.Message = refused })),
			says{Deleting, DrainBlockedByBudget, "w1", Object{"PodDisruptionBudget", "shop", "db.v2"}, nine, time.Time{}, false, DrainGoesOn, FreeBudget, none},
		},
		"what was read of the pods is newer than what Cluster API quotes": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.Condition.Message, d.PodsRead = refused, true })),
			says{Deleting, Draining, "w1", node, nine, time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
		"a pod that cannot be evicted for another reason names no budget": {
			deleting("DrainingNode", timed(func(d *Deletion) {
				d.Condition.Message = "Drain not completed yet:\n* Pod shop/db-0: failed to evict Pod, the webhook says: cannot evict pod as it would violate the pod's disruption budget"
			})),
			says{Deleting, Draining, "w1", node, nine, time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
		"a pod that is being deleted is not blocked by its budget any more": {
			deleting("DrainingNode", timed(func(d *Deletion) { d.Pods = []Pod{{Namespace: "shop", Name: "db-0", Budget: "db", Deleting: noon}} })),
			says{Deleting, Draining, "w1", Object{"Pod", "shop", "db-0"}, nine, time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
		"an attached volume is named by its VolumeAttachment": {
			deleting("WaitingForVolumeDetach", timed(func(d *Deletion) {
				d.VolumesSince, d.VolumeTimeout, d.Volumes = ago(3*time.Minute), 5*time.Minute, []Volume{{Name: "pv-0"}, {Name: "pv-1", Attachment: "csi-1"}}
			})),
			says{Deleting, VolumesAttached, "w1", Object{Kind: "VolumeAttachment", Name: "csi-1"}, ago(3 * time.Minute), noon.Add(2 * time.Minute), false, VolumesGivenUp, DetachVolumes, none},
		},
		"the control plane removes its own hook, and is looked at when that takes minutes": {
			deleting("WaitingForPreTerminateHook", timed(func(d *Deletion) { d.PreTerminateHooks = []Hook{{Name: kubeadmHook}} })),
			says{Deleting, PreTerminateHook, "w1", md0, nine, time.Time{}, false, InfrastructureGoes, LookAtOwner, none},
		},
		"another hook needs its owner": {
			deleting("WaitingForPreTerminateHook", timed(func(d *Deletion) {
				d.PreTerminateHooks = []Hook{{Name: kubeadmHook}, {Name: "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup", Owner: "velero"}}
			})),
			says{Deleting, PreTerminateHook, "w1", w1, nine, time.Time{}, false, InfrastructureGoes, EndHook, none},
		},
		"its infrastructure is waited for": {
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(time.Minute), Finalizers: []Finalizer{{Name: "dockermachine.infrastructure.cluster.x-k8s.io"}, {Name: "x/y"}}}
			})),
			says{Deleting, InfrastructureDeletion, "w1", docker, ago(time.Minute), time.Time{}, false, MachineGoes, "", none},
		},
		"a finalizer that is not its provider's is seen to by a person": {
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "x/y"}}}
			})),
			says{Deleting, InfrastructureFinalizer, "w1", docker, ago(3 * time.Minute), time.Time{}, false, MachineGoes, RemoveFinalizer, none},
		},
		"a provider of another group has finalizers below its own domain": {
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{
					Exists: true, Group: "rke-machine.cattle.io", Deleting: ago(3 * time.Minute),
					Finalizers: []Finalizer{{Name: "wrangler.cattle.io/machine-provision-remove"}},
				}
			})),
			says{Deleting, InfrastructureDeletion, "w1", docker, ago(3 * time.Minute), time.Time{}, false, MachineGoes, "", none},
		},
		"which not all projects of Kubernetes share": {
			deleting("WaitingForInfrastructureDeletion", timed(func(d *Deletion) {
				d.Infra = Remains{
					Exists: true, Group: "infrastructure.cluster.x-k8s.io", Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "ipam.metal.x-k8s.io/hold"}},
				}
			})),
			says{Deleting, InfrastructureFinalizer, "w1", docker, ago(3 * time.Minute), time.Time{}, false, MachineGoes, RemoveFinalizer, none},
		},
		"a host that is still provisioned is waited for since the deletion": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "provisioned", Since: ago(4800 * time.Hour)}, func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(time.Minute)}
			})),
			says{Deleting, HostDeprovisioning, "w1", h1, ago(time.Minute), time.Time{}, false, MachineGoes, "", none},
		},
		"a host is deprovisioned": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Since: ago(2 * time.Minute)})),
			says{Deleting, HostDeprovisioning, "w1", h1, ago(2 * time.Minute), time.Time{}, false, MachineGoes, "", none},
		},
		"a host with an error hinders the deletion": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Error: "no power"})),
			says{Deleting, HostHindersDeletion, "w1", h1, time.Time{}, time.Time{}, false, MachineGoes, RepairHost, none},
		},
		"so does a host that is paused": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", Consumer: "Metal3Machine w1", State: "deprovisioning", Paused: true})),
			says{Deleting, HostHindersDeletion, "w1", h1, time.Time{}, time.Time{}, false, MachineGoes, Unpause, none},
		},
		"a host that was released is not waited for, but the finalizer that is left": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", State: "available"}, func(d *Deletion) {
				d.Infra = Remains{Exists: true, Deleting: ago(3 * time.Minute), Finalizers: []Finalizer{{Name: "x/y"}}}
			})),
			says{Deleting, InfrastructureFinalizer, "w1", Object{Kind: "Metal3Machine", Name: "w1"}, ago(3 * time.Minute), time.Time{}, false, MachineGoes, RemoveFinalizer, none},
		},
		"nor is one that another machine has since": {
			deleting("WaitingForInfrastructureDeletion", onHost(Host{Name: "h1", State: "provisioning", Consumer: "Metal3Machine w2"})),
			says{Deleting, InfrastructureDeletion, "w1", Object{Kind: "Metal3Machine", Name: "w1"}, time.Time{}, time.Time{}, false, MachineGoes, "", none},
		},
		"its bootstrap config is waited for": {
			deleting("WaitingForBootstrapDeletion", timed(func(d *Deletion) { d.Bootstrap = Remains{Exists: true, Finalizers: []Finalizer{{Name: "x/y"}}} })),
			says{Deleting, BootstrapDeletion, "w1", Object{Kind: "KubeadmConfig", Name: "w1"}, time.Time{}, time.Time{}, false, MachineGoes, RemoveFinalizer, none},
		},
		"the deletion of the node is given up": {
			deleting("DeletingNode", timed(func(d *Deletion) { d.NodeTimeout = 10 * time.Minute })),
			says{Deleting, NodeDeletion, "w1", node, nine, noon.Add(time.Minute), false, NodeGivenUp, "", none},
		},
		"an error needs a person": {
			deleting("InternalError"), says{Deleting, DeletionFails, "w1", w1, nine, time.Time{}, false, GoesOn, LookAtController, none},
		},
		"a finalizer that is left is removed by a person": {
			deleting("DeletionCompleted", timed(func(d *Deletion) { d.Finalizers = []Finalizer{{Name: machineFinalizer}, {Name: "x/y"}} })),
			says{Deleting, ForeignFinalizer, "w1", w1, nine, time.Time{}, false, ReplacementIsMade, RemoveFinalizer, none},
		},
		"without another finalizer the machine is as good as gone": {
			deleting("DeletionCompleted", timed(func(d *Deletion) { d.Finalizers = []Finalizer{{Name: machineFinalizer}} })),
			says{Deleting, DeletionCompletes, "w1", w1, time.Time{}, time.Time{}, false, ReplacementIsMade, "", none},
		},
		"a paused machine is not deleted": {
			deleting("DrainingNode", func(f *Facts) { f.Old.Paused = true }),
			says{Deleting, ObjectPaused, "w1", w1, nine, time.Time{}, false, GoesOn, Unpause, none},
		},
		"a machine of a set that is made while the old one exists replaces another one": {
			deleting("DrainingNode", func(f *Facts) {
				f.Owner.Replicas, f.Others = 4, append(f.Others, worker("w4", time.Minute))
			}),
			says{Deleting, Draining, "w1", node, nine, time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
	}.run(t)
}

func TestADeletionIsFollowedWithoutAReplacementToo(t *testing.T) {
	left := func(f *Facts) { f.Old.Deletion.Finalizers = []Finalizer{{Name: "x/y"}} }
	none := Replacement{}
	for name, tc := range map[string]struct {
		edit func(*Facts)
		want says
	}{
		"of a machine that is one too many nothing comes after it": {
			deleting("DeletionCompleted", left, func(f *Facts) { f.Owner.Replicas = 2 }),
			says{Deleting, ForeignFinalizer, "w1", w1, nine, time.Time{}, false, MachineIsGone, RemoveFinalizer, none},
		},
		"nor of one whose owner is being deleted": {
			deleting("DeletionCompleted", left, func(f *Facts) { f.Owner.Deleting = noon }),
			says{Deleting, ForeignFinalizer, "w1", w1, nine, time.Time{}, false, MachineIsGone, RemoveFinalizer, none},
		},
		"of one that is replaced it goes": {
			deleting("DeletionCompleted", left), says{Deleting, ForeignFinalizer, "w1", w1, nine, time.Time{}, false, MachineGoes, RemoveFinalizer, none},
		},
		"its infrastructure goes before it": {
			deleting("WaitingForInfrastructureDeletion"),
			says{Deleting, InfrastructureDeletion, "w1", Object{Kind: "DockerMachine", Name: "w1"}, time.Time{}, time.Time{}, false, MachineGoes, "", none},
		},
		"a drain goes on, though nothing replaces the machine": {
			deleting("DrainingNode", func(f *Facts) { f.Owner.Replicas = 2 }),
			says{Deleting, Draining, "w1", Object{Kind: "Node", Name: "node-w1"}, nine, time.Time{}, false, DrainGoesOn, SetDrainTimeout, none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, of(DeletionOf(given(tc.edit)))); diff != "" {
				t.Error(diff)
			}
		})
	}
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
		t.Run(name, func(t *testing.T) {
			h := free
			tc.edit(&h)
			if diff := cmp.Diff(tc.want, h.answer()); diff != "" {
				t.Error(diff)
			}
		})
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
	for name, tc := range map[string]struct {
		edit func(*Facts)
		want Replacement
	}{
		"what the owner has written down is no guess": {
			gone(func(f *Facts) {
				n := worker("w4", 4*time.Minute)
				n.Replaces = "w1"
				f.Others = append(f.Others, worker("w5", 4*time.Minute), n)
			}),
			Replacement{"w4", Recorded},
		},
		"a machine that is older replaces none, whatever is written": {
			deleting("", func(f *Facts) { n := worker("w0", 25*time.Hour); n.Replaces = "w1"; f.Others = append(f.Others, n) }),
			Replacement{},
		},
		"a machine that is known by no name is replaced by none": {gone(func(f *Facts) { f.Old, f.Began = Machine{Gone: true}, time.Time{} }), Replacement{}},
		"the second to go has the second that was made":          {gone(two), Replacement{"w5", ByOrder}},
		"unless a machine has the host of the old one":           {gone(two, func(f *Facts) { f.Old.Host, f.Others[3].Host = "h1", "h1" }), Replacement{"w4", SameHost}},
		"a machine that replaces another by record is not free":  {gone(func(f *Facts) { n := worker("w4", 4*time.Minute); n.Replaces = "w0"; f.Others = append(f.Others, n) }), Replacement{}},
		"a machine that was made before does not replace it":     {gone(func(f *Facts) { f.Others = append(f.Others, worker("w4", 6*time.Minute)) }), Replacement{}},
		"creation times are in seconds": {
			gone(func(f *Facts) {
				f.Old.GoneAt = ago(4*time.Minute - time.Millisecond)
				f.Others = append(f.Others, worker("w4", 4*time.Minute))
			}),
			Replacement{"w4", Alone},
		},
		"without the time of the loss no machine is taken for it": {
			gone(func(f *Facts) { f.Old.GoneAt, f.Began = time.Time{}, time.Time{} }), Replacement{},
		},
		"a machine that has the host of another lost one is not free": {
			gone(two, func(f *Facts) { f.Lost[0].Host, f.Others[2].Host = "h0", "h0" }), Replacement{"w4", ByOrder},
		},
		"what a record has kept is believed before order": {
			gone(two, func(f *Facts) { f.Others[3].Remembered = "w1" }), Replacement{"w4", Remembered},
		},
		"a machine that replaces another by a RemediationRecord is not free": {
			gone(func(f *Facts) {
				n := worker("w4", 4*time.Minute)
				n.Remembered = "w0"
				f.Others = append(f.Others, n)
			}), Replacement{},
		},
		"the one that another lost machine has found is not free, though that went first": {
			gone(func(f *Facts) {
				f.Lost = []Loss{{Name: "w0", At: ago(6 * time.Minute), Found: "w5"}}
				f.Others = append([]Machine{worker("w5", 3*time.Minute)}, append(f.Others, worker("w4", 4*time.Minute))...)
			}), Replacement{"w4", ByOrder},
		},
		"what replaced its replacement replaces it: by what the owner has written down": {
			gone(func(f *Facts) {
				n := worker("w5", time.Minute)
				n.Replaces, f.Found = "w4", "w4"
				f.Others = append(f.Others, n)
			}), Replacement{"w5", Recorded},
		},
		"by order": {gone(chain), Replacement{"w5", ByOrder}},
		"twice": {gone(chain, func(f *Facts) {
			f.Lost[0].Found, f.Lost = "w5", append(f.Lost, Loss{Name: "w5", At: ago(time.Minute)})
			f.Others[2].Name = "w6"
		}), Replacement{"w6", ByOrder}},
		"but not in a circle": {gone(chain, func(f *Facts) { f.Lost[0].Found = "w1" }), Replacement{"w5", ByOrder}},
		"and what was made for a replacement is not free": {
			gone(chain, func(f *Facts) {
				f.Old.Name, f.Old.GoneAt, f.Found = "w4", ago(2*time.Minute), ""
				f.Lost = []Loss{{Name: "w1", At: ago(30 * time.Minute), Found: "w4"}}
			}), Replacement{"w5", ByOrder},
		},
		"nor on the host of what it replaces": {
			gone(chain, func(f *Facts) {
				f.Old.Name, f.Old.GoneAt, f.Found, f.Others[2].Host = "w4", ago(2*time.Minute), "", "h1"
				f.Lost = []Loss{{Name: "w1", At: ago(30 * time.Minute), Found: "w4", Host: "h1"}}
			}), Replacement{"w5", ByOrder},
		},
		"fewer new machines than losses leave the last one without": {
			gone(func(f *Facts) {
				f.Lost = []Loss{{Name: "w0", At: ago(6 * time.Minute)}}
				f.Others = append(f.Others, worker("w4", 4*time.Minute))
			}), Replacement{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := given(tc.edit)
			if diff := cmp.Diff(tc.want, replacementOf(&f)); diff != "" {
				t.Error(diff)
			}
			if got := replacementOf(&f); got.Guess() != (got.Name != "" && got.By != Recorded) {
				t.Errorf("%+v is a guess: %t", got, got.Guess())
			}
		})
	}
}

func TestWhichMachineANewOneWasMadeFor(t *testing.T) {
	made := func(name, replaces string, lost ...Loss) Facts {
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
	kept := made("w4", "", a, b)
	kept.Old.Remembered = "w7"
	hosted := made("w4", "", a, Loss{Name: "w1", At: b.At, Host: "h1"})
	hosted.Old.Host = "h1"
	for name, tc := range map[string]struct {
		f    Facts
		want Replacement
	}{
		"for the one that its owner has written down":    {made("w4", "w9", a), Replacement{"w9", Recorded}},
		"for the one that was lost":                      {made("w4", "", b), Replacement{"w1", Alone}},
		"for the second that was lost":                   {made("w5", "", a, b), Replacement{"w1", ByOrder}},
		"for none that is known":                         {made("w4", ""), Replacement{}},
		"for the one that a record has kept":             {kept, Replacement{"w7", Remembered}},
		"not for the one that the lost one had replaced": {made("w4", "", Loss{Name: "w0", At: a.At, Found: "w1"}, b), Replacement{"w1", ByOrder}},
		"for the one that has found it":                  {made("w5", "", a, Loss{Name: "w1", At: b.At, Found: "w5"}), Replacement{"w1", ByOrder}},
		"for the one whose host it has":                  {hosted, Replacement{"w1", SameHost}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Predecessor(tc.f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
