package hosts

import (
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/partners/bmo"
	"github.com/kubemend/kubemend/test/builders"
)

// What has to be stricter than with CAPM3. N2, N3, N11 and what of N10 is a move are what happens at every standstill.

func TestN3AHostThatIsGoneIsWaitedForBeforeTheOwnerIsAsked(t *testing.T) {
	bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
		e.stands("MovingWorkload")
		e.vanish(e.management, e.management.is[place{betweenKind, e.at}])
		since := e.now()
		e.until(timeout - time.Second) // it may be registered anew until then
		e.tells("cannot be found; waiting for it to come back")
		equal(t, "how long it is waited for", e.ends("OwnerRequested")-since, timeout)
	})
}

func TestN4AnUnreachableClusterIsNotTheFaultOfTheHost(t *testing.T) {
	bothKinds(t, settings{box: func(b *box) { b.e.pods.unreachable = true }}, func(t *testing.T, e *environment) {
		tainted := e.sees(sight{"the node is tainted", func() bool { return outOfService(e.node()) }})
		e.stands("MovingWorkload")
		e.until(time.Minute)
		e.reports(map[string]string{infrav1.WorkloadMovedCondition: "False/ClusterUnreachable"})
		e.stands("Booting")
		e.until(24 * time.Hour)
		equal(t, "the state, after a day in which a person was waited for,", e.memory(), "Booting")
		e.reports(map[string]string{infrav1.NodeHealthyCondition: "False/ClusterUnreachable"})
		e.marked(false)
		heals.do(e)
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
		e.went(*tainted)
	})
}

func TestN4AHostWithTheUnreachableAPIServerIsSoonOnAgain(t *testing.T) {
	as := settings{apiServer: true, machine: func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }}
	bothKinds(t, as, func(t *testing.T, e *environment) {
		e.stands("MovingWorkload")
		e.until(30 * time.Second)
		e.reports(map[string]string{infrav1.WorkloadMovedCondition: "False/ClusterUnreachable"})
		e.comesTo(func(e *environment) bool { return e.box.model.Powered() })
		equal(t, "when it is on again", e.now(), time.Minute+11*time.Second)
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN5AMachineWithoutANodeIsPowerCycledUntilOneJoins(t *testing.T) {
	bothKinds(t, settings{noNode: true, box: mute(-1)}, func(_ *testing.T, e *environment) {
		callUnhealthy(e)
		e.ends("OwnerRequested")
		e.ownerIsAsked()
		e.marked(true)
		e.power(bmo.Off, bmo.On, bmo.Off, bmo.On)
	})
	bothKinds(t, settings{noNode: true, box: mute(-1)}, func(_ *testing.T, e *environment) {
		e.stands("Booting")
		e.box.start()
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = e.nodeName })
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN6TheErrorOfABMCIsReportedAndTriedAgain(t *testing.T) {
	as := settings{box: func(b *box) { b.model.Faults.Refuses = "no route to the BMC" }}
	bothKinds(t, as, func(t *testing.T, e *environment) {
		callUnhealthy(e)
		for attempt := range 2 {
			e.comesTo(in("PoweringOff", attempt+1))
			e.until(time.Minute)
			e.tells("power management error: no route to the BMC")
		}
		equal(t, "when the owner is asked", e.ends("OwnerRequested"), 20*time.Minute)
		e.ownerIsAsked()
		e.marked(true)
		e.power()
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

func TestN8AHostThatMustNotBeOffIsRebootedOnceAnAttemptAndItsNodeNotFenced(t *testing.T) {
	bothKinds(t, settings{host: builders.NeverOff, box: mute(1)}, func(_ *testing.T, e *environment) {
		never := e.sees(
			sight{"the node is tainted", func() bool { return outOfService(e.node()) }},
			sight{"the host is kept off, and would reboot for ever", func() bool { return heldOff(e.host()) }},
		)
		e.stands("Booting")
		e.until(time.Minute)
		e.power(bmo.Reset)
		e.reports(map[string]string{infrav1.PoweredOffCondition: "False/CannotBeProven", infrav1.WorkloadMovedCondition: "False/CannotBeProven"})
		e.ends("Succeeded")
		e.power(bmo.Reset, bmo.Reset)
		e.went(*never)
	})
}

func TestN9AHostThatIsNotManagedIsWaitedForAndNotTouched(t *testing.T) {
	why := map[string]string{"paused": "the host is paused", "detached": "the host is detached", "being prepared": `the host is "preparing"`}
	for _, tl := range unmanaged() {
		for name, reason := range why {
			if tl.name != "a host that is "+name+" at first" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				bothKinds(t, tl.settings, func(t *testing.T, e *environment) {
					asked := e.sees(sight{"the host is asked", func() bool { return held(e.host()) }})
					e.stands("Preparing")
					e.until(time.Second)
					e.reports(map[string]string{infrav1.PowerOffRequestedCondition: "False/HostNotReady"})
					e.tells(reason)
					e.until(3 * timeout)
					equal(t, "the state", e.memory(), "Preparing")
					e.tells("has not been managed for too long")
					e.went(*asked)
					e.power()
					tl.script[0].do(e)
					e.ends("Succeeded")
					e.power(bmo.Off, bmo.On)
				})
			})
		}
	}
}

func blocked(e *environment) bool {
	_, is := e.remediation().GetAnnotations()[clusterctlv1.BlockMoveAnnotation]
	return is
}

// pausing are the ways in which a remediation is paused, and how they end.
var pausing = map[string]func(e *environment, paused bool){
	"with Cluster c1": (*environment).pause,
	"by its annotation cluster.x-k8s.io/paused": func(e *environment, paused bool) {
		edit(e, e.management, e.remediation(), false, func(rem client.Object) {
			marks := rem.GetAnnotations()
			if delete(marks, clusterv1.PausedAnnotation); paused {
				marks[clusterv1.PausedAnnotation] = ""
			}
			rem.SetAnnotations(marks)
		})
	},
}

func TestN10NothingBeginsInAPause(t *testing.T) {
	for name, pause := range pausing {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, settings{}, func(t *testing.T, e *environment) {
				pause(e, true)
				e.until(2 * timeout)
				e.tells("The remediation is paused (" + name + ")")
				if e.kept() || len(e.host().Annotations) > 0 {
					t.Errorf("something has begun\n%s", e.story())
				}
				pause(e, false)
				e.ends("Succeeded")
				e.power(bmo.Off, bmo.On)
			})
		})
	}
}

func TestN10APauseReleasesTheHostAndTheAttemptIsNotCountedAgain(t *testing.T) {
	for name, pause := range pausing {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, settings{mayRecycle: true, box: func(b *box) { b.model.Faults.IgnoresOff = true }}, func(t *testing.T, e *environment) {
				e.stands("PoweringOff")
				equal(t, "whether clusterctl is kept from moving it", blocked(e), true)
				pause(e, true)
				e.until(time.Minute)
				e.tells("Attempt 1 of 2: The remediation is paused (" + name + ")")
				equal(t, "whether it is in the pause", blocked(e) || held(e.host()), false)
				moved(e)
				e.box.revive()
				e.until(24 * time.Hour)
				equal(t, "whether the host is held in the pause", held(e.host()), false)
				pause(e, false)
				e.ends("Succeeded")
				equal(t, "the number of retries", e.says().Retries, 0)
			})
		})
	}
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

func TestN13TheTaintOfSomebodyElseStays(t *testing.T) {
	bothKinds(t, settings{empty: true}, func(t *testing.T, e *environment) {
		edit(e, e.work, e.node(), false, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, theTaint)
		})
		ours := e.sees(sight{"the node has our mark", func() bool { return fencedByUs(e.node()) }})
		e.ends("Succeeded")
		equal(t, "whether the node has the taint", outOfService(e.node()), true)
		e.power(bmo.Off, bmo.On)
		e.went(*ours)
	})
}

func TestN14OneRemediationWritesAsOftenAsIsStated(t *testing.T) {
	bothKinds(t, settings{}, func(t *testing.T, e *environment) {
		e.ends("Succeeded")
		done, _ := e.writes.Done()
		equal(t, "the number of writes", len(done), 18)
		equal(t, "the number of reads past the caches", e.management.reads+e.work.reads, 27)
	})
}

func TestANodeThatLivesUnderTheBootOfBeforeIsUnfencedAndItsHostLeftAlone(t *testing.T) {
	bothKinds(t, settings{empty: true}, func(t *testing.T, e *environment) {
		e.stands("PoweringOn")
		equal(t, "whether the node is fenced", outOfService(e.node()), true)
		e.box.model.Faults.IgnoresOn = true
		e.box.runs = true // what was read of its power was that of another host
		e.comesTo(func(e *environment) bool { return !outOfService(e.node()) })
		equal(t, "whether it is unfenced within a minute", e.now() <= time.Minute, true)
		e.ends("Failed")
		e.tells("The node went on to live after it was fenced")
	})
}

func TestW23AHostWhoseConsumerIsAnotherMachineIsNotTouched(t *testing.T) {
	bothKinds(t, settings{host: builders.ConsumedBy("other")}, func(t *testing.T, e *environment) {
		e.stands("Preparing")
		e.until(time.Second)
		e.reports(map[string]string{infrav1.PowerOffRequestedCondition: "False/HostMismatch"})
		e.tells("names Metal3Machine ns/other, expected Metal3Machine ns/w")
		equal(t, "when it fails", e.ends("Failed"), timeout)
		equal(t, "the number of annotations of the host", len(e.host().Annotations), 0)
		e.power()
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

func TestAHostThatAPersonReleasesTooEarlyIsNotHeldAgain(t *testing.T) {
	bothKinds(t, settings{mayRecycle: true, box: stuck}, func(t *testing.T, e *environment) {
		e.comesTo(func(e *environment) bool { return fencedByUs(e.node()) })
		released.do(e)
		equal(t, "whether it is held", heldOff(e.host()), false)
		e.settle()
		equal(t, "whether it is held again", heldOff(e.host()), false)
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
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
