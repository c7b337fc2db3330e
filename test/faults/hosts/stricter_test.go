package hosts

import (
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// What has to be stricter than with CAPM3. N2, N3, N11 and what of N10 is a move are what happens at every standstill.

func TestN5AMachineWithoutANodeIsWellOnceOneJoins(t *testing.T) {
	bothKinds(t, settings{noNode: true, box: mute(-1)}, func(_ *testing.T, e *environment) {
		e.stands("Booting")
		e.box.start()
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = e.nodeName })
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN7WhatDoesNotLeaveTheNodeIsNamedAndWaitedForUntilTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		leaves   func(*environment)
		on       time.Duration
		reported string
	}{
		"Pod apps/web":            {(*environment).detach, timeout + 5*time.Second, "False/WorkloadStuck"},
		"VolumeAttachment volume": {(*environment).evict, 2*time.Minute + 11*time.Second, "True/Done"}, // that no pod has or waits for
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
				tc.leaves(e)
				e.stands("MovingWorkload")
				e.until(time.Minute)
				e.tells(name)
				e.comesTo(func(e *environment) bool { return e.box.model.Powered() })
				equal(t, "when the host is on again", e.now(), tc.on)
				e.ends("Succeeded")
				e.reports(map[string]string{infrav1.WorkloadMovedCondition: tc.reported})
				e.power(bmo.Off, bmo.On)
			})
		})
	}
}

func blocked(e *environment) bool {
	_, is := e.remediation().GetAnnotations()[clusterctlv1.BlockMoveAnnotation]
	return is
}

func TestN10TheWorkloadMovesBeforeAPauseReleasesTheHost(t *testing.T) {
	bothKinds(t, settings{mayRecycle: true, box: stuck}, func(t *testing.T, e *environment) {
		e.comesTo(func(e *environment) bool { return fencedByUs(e.node()) })
		e.pause(true)
		e.until(time.Minute)
		equal(t, "whether it is held, and must not be moved: the pod could run twice,", blocked(e) && heldOff(e.host()), true)
		e.evict()
		e.detach()
		e.comesTo(func(e *environment) bool { return !blocked(e) })
		equal(t, "whether the host is held", held(e.host()), false)
		e.comesTo(func(e *environment) bool { return !fencedByUs(e.node()) })
		moved(e)
		e.pause(false)
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN12NoPowerAnnotationIsLeftToTheNextOwnerOfAHost(t *testing.T) {
	for version, clearsAll := range map[string]bool{"BMO 0.13 takes all annotations away": true, "BMO 0.14 leaves them": false} {
		t.Run(version, func(t *testing.T) {
			as := settings{
				host: func(h *bmov1alpha1.BareMetalHost) {
					h.Spec.ExternallyProvisioned = false
					builders.Deployed(h)
					h.Status.Provisioning.State, h.Status.Provisioning.Image = bmov1alpha1.StateProvisioned, *h.Spec.Image
				},
				box:     func(b *box) { b.model.ClearsAllReboots, b.e.pods.stuck = clearsAll, true },
				machine: func(m *clusterv1.Machine) { m.Finalizers = []string{"test.kubemend.io/keep"} },
			}
			bothKinds(t, as, func(t *testing.T, e *environment) {
				e.stands("MovingWorkload")
				e.do(e.management.Delete(e.t.Context(), e.machine())) // so Cluster API and CAPM3 delete a machine
				e.editHost(false, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image, h.Spec.Online = nil, false })
				e.ends("Ended")
				equal(t, "the state of the host", e.host().Status.Provisioning.State, bmov1alpha1.StateAvailable)
				e.editHost(false, func(h *bmov1alpha1.BareMetalHost) {
					builders.Deployed(h)
					builders.ConsumedBy("next")(h)
				})
				e.until(time.Hour)
				equal(t, "whether its next owner has it on", e.box.model.Powered(), true)
			})
		})
	}
}

func TestN14OneRemediationWritesAsOftenAsIsStated(t *testing.T) {
	known := settings{machine: func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://w" }} // as Cluster API has copied it
	bothKinds(t, known, func(t *testing.T, e *environment) {
		e.ends("Succeeded")
		done, _ := e.writes.Done()
		equal(t, "the number of writes", len(done), 18)
		equal(t, "the number of reads past the caches", e.management.Reads+e.work.Reads, 30)
	})
}

func TestW24AMachineOfTheOwnersNameAndAnotherUIDIsNotTouched(t *testing.T) {
	bothKinds(t, settings{}, func(t *testing.T, e *environment) {
		again := e.machine().DeepCopy()
		e.vanish(e.management, e.machine())
		again.UID, again.ResourceVersion = "another", ""
		status := again.Status
		e.do(e.management.Create(t.Context(), again))
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) { m.Status = status })
		e.ends("Ended")
		equal(t, "the number of annotations of the host", len(e.host().Annotations), 0)
		e.power()
	})
}

// N3: a host that is gone may be registered anew, by hand: a person is asked, its machine is not replaced.
func TestTheOwnerIsNotAskedForAHostThatIsGone(t *testing.T) {
	for _, state := range []string{"PoweringOff", "MovingWorkload", "PoweringOn", "Booting"} {
		s := standstills[slices.IndexFunc(standstills, func(s standstill) bool { return s.state == state })]
		t.Run(state, func(t *testing.T) {
			bothKinds(t, s.settings, func(t *testing.T, e *environment) {
				e.stands(s.state)
				e.vanish(e.management, e.host())
				e.until(3 * time.Hour)
				if c := conditions.Get(e.machine(), clusterv1.MachineOwnerRemediatedCondition); c != nil || powercycle.State(e.memory()).Final() {
					t.Errorf("it is %s, and its owner: %v\n%s", e.memory(), c, e.story())
				}
				equal(t, "the reason for which a person is asked", memoryOf(e.remediation()).Person, powercycle.HostGoneReason)
				equal(t, "whether the node is fenced", outOfService(e.node()), false)
			})
		})
	}
}
