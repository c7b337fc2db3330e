package hosts

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// What has to be as with CAPM3. C9, the conversion, is in test/api, where the webhook runs.

// stuck keeps everything on the node, so that the test itself decides when it goes.
func stuck(b *box) { b.e.pods.stuck = true }

func TestC1APowerCycleGoesInOrder(t *testing.T) {
	bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
		asked := func() bool { return held(e.host()) }
		off := func() bool { return !e.host().Status.PoweredOn }
		on := after(off, func() bool { return e.host().Status.PoweredOn })
		order := e.sees(
			sight{"the remediation is kept, and remembers", func() bool { return e.kept() && e.memory() != "" }},
			sight{"clusterctl must not move it", func() bool { return blocked(e) }},
			sight{"the host is asked", asked},
			sight{"the host is off", off},
			sight{"the node is fenced", func() bool { return fencedByUs(e.node()) }},
			sight{"the pod is gone", func() bool { pods, _ := e.pods.left(); return len(pods) == 0 }},
			sight{"the volume is gone", func() bool { _, volumes := e.pods.left(); return len(volumes) == 0 }},
			sight{"the host is released", after(asked, func() bool { return !held(e.host()) })},
			sight{"the host is on", on},
			sight{"the node is free", after(off, func() bool { return on() && !outOfService(e.node()) })},
			sight{"the node is Ready", func() bool { return e.isReady() }},
			sight{"the remediation is not kept", after(asked, func() bool { return !e.kept() })},
		)
		e.stands("MovingWorkload")
		e.until(time.Minute)
		equal(t, "the phase", e.says().Phase, "Running")
		e.tells("Pod apps/web")
		h := e.host()
		equal(t, "the hold", h.Annotations[infrav1.PowerOffAnnotationPrefix+string(e.remediation().GetUID())],
			`{"mode":"hard","force":false}`)
		equal(t, "spec.online, which is its owner's", h.Spec.Online, true)
		equal(t, "the taint", e.node().Spec.Taints[0], theTaint)
		e.evict()
		e.until(30 * time.Second)
		e.tells("VolumeAttachment volume")
		equal(t, "the power", e.box.model.Powered(), false)
		e.detach()

		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
		equal(t, "the phase, until the check that made it deletes it,", e.says().Phase, "Waiting")
		equal(t, "the number of retries", e.says().Retries, 0)
		e.went(*order, "0s: the remediation is kept, and remembers", "0s: clusterctl must not move it", "0s: the host is asked",
			"6s: the host is off", "6s: the node is fenced", "1m6s: the pod is gone", "1m36s: the volume is gone",
			"1m36s: the host is released", "1m42s: the host is on",
			"1m42s: the node is free", "2m11s: the node is Ready", "2m11s: the remediation is not kept")
		e.goneOnceDeleted()
	})
}

func TestC6AHostIsMarkedAndThenTheOwnerAskedWhenNoAttemptIsLeft(t *testing.T) {
	bothKinds(t, settings{box: mute(-1)}, func(t *testing.T, e *environment) {
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) {
			conditions.Set(m,
				metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test"})
		})
		equal(t, "what Cluster API replaces before", collections.IsUnhealthyAndOwnerRemediated(e.machine()), false)
		order := e.sees(
			sight{"the owner is asked", func() bool {
				return conditions.IsFalse(e.machine(), clusterv1.MachineOwnerRemediatedCondition)
			}},
			sight{"the host is marked", func() bool { return e.host().Annotations[infrav1.UnhealthyAnnotation] != "" }},
		)
		e.ends("OwnerRequested")
		e.went(*order, "20m28s: the host is marked", "20m28s: the owner is asked") // else its replacement could be put on this host
		equal(t, "the phase", e.says().Phase, "Deleting machine")
		equal(t, "the number of retries", e.says().Retries, 1)
		for _, key := range []string{"capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy"} { // the words of all versions of CAPM3
			equal(t, key, e.host().Annotations[key], "capm3/UnhealthyNode")
		}
		old := v1beta1conditions.Get(e.machine(), clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		now := conditions.Get(e.machine(), clusterv1.MachineOwnerRemediatedCondition)
		if old == nil || now == nil {
			t.Fatalf("the owner was not asked: %+v\n%s", e.machine().Status, e.story())
		}
		is := [3]string{string(old.Status), string(old.Severity), old.Reason}
		equal(t, "OwnerRemediated in v1beta1", is, [3]string{"False", "Warning", "WaitingForRemediation"})
		equal(t, "OwnerRemediated", [2]string{string(now.Status), now.Reason}, [2]string{"False", "WaitingForRemediation"})
		equal(t, "N1: what Cluster API replaces", collections.IsUnhealthyAndOwnerRemediated(e.machine()), true)
		e.power(bmo.Off, bmo.On, bmo.Off, bmo.On)
		e.goneOnceDeleted()
	})
}

// meanwhile changes what is there before the controllers see any of it, and is not checked.
func (e *environment) meanwhile(change func()) {
	e.management.after, e.work.after = func(place) {}, func(place) {}
	change()
	e.management.after, e.work.after = e.check, e.check
}

// heldByAnother makes the remediation be one with which CAPM3, or a kubemend whose memory is lost, keeps the host off.
func heldByAnother(e *environment) {
	e.meanwhile(func() {
		edit(e, e.management, e.remediation(), false, func(rem client.Object) { rem.SetFinalizers([]string{e.Finalizer}) })
		e.annotateHost(func(on map[string]string) {
			on[infrav1.PowerOffAnnotationPrefix+string(e.remediation().GetUID())] = infrav1.PowerOffAnnotationValue
		})
	})
}

// reconciles makes the controller reconcile a remediation, whatever has changed.
func (e *environment) reconciles(at client.ObjectKey) {
	e.t.Helper()
	for range 6 {
		_, err := e.controller.Reconcile(e.t.Context(), ctrl.Request{NamespacedName: at})
		e.do(err)
	}
}

func TestF4WhatAnotherHasUnderWayIsTakenOver(t *testing.T) {
	bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
		heldByAnother(e)
		e.meanwhile(func() {
			edit(e, e.work, e.node(), false, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, theTaint) })
			for e.host().Status.PoweredOn {
				e.box.step(e.clock.Now())
				e.clock.SetTime(e.clock.Now().Add(time.Second))
			}
			e.reconcile(e.clock.Now()) // there is a record from then on
		})
		e.stands("MovingWorkload")
		e.until(time.Minute)
		equal(t, "whether the host is held while its workload moves", heldOff(e.host()), true)
		equal(t, "whether it was known that the host was off before, which takes a receipt", memoryOf(e.remediation()).WasOff, true)
		e.evict()
		e.detach()
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
		equal(t, "the number of retries", e.says().Retries, 0)
		equal(t, "whether the taint that CAPM3 does not sign stays", outOfService(e.node()), e.Kind.Kind != remediation.Metal3.Kind)
	})
}

// H-11: CAPM3 takes over from kubemend, and goes on with host and taint.
func TestWhatSaysSomethingToKubemendAloneDoesNotStayWithCAPM3(t *testing.T) {
	bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
		e.stands("MovingWorkload")
		e.controller.Serve(false)
		e.reconciles(e.at)
		equal(t, "whether it blocks every move", blocked(e), false)
		equal(t, "by whom the node is marked", e.node().Annotations[fence.FencedByAnnotation], "")
		equal(t, "whether hold and taint stay", heldOff(e.host()) && outOfService(e.node()), true)
		written := e.management.all
		e.reconciles(e.at)
		equal(t, "the number of changes after that", e.management.all-written, 0)
	})
}

// F5: with the gate closed, or the kind switched off, nothing else would ever power the host on.
func TestASwitchedOffKindReleasesItsHosts(t *testing.T) {
	stays := settings{box: func(b *box) { b.model.Faults.IgnoresOff = true }}
	bothKinds(t, stays, func(t *testing.T, e *environment) {
		e.stands("PoweringOff")
		e.controller.Teardown, e.controller.Off = true, true
		e.reconciles(e.at)
		equal(t, "whether the host is held, or the remediation kept", held(e.host()) || e.kept(), false)
	})
	t.Run("what CAPM3 has begun is left as it is", func(t *testing.T) {
		e := newEnvironment(t, kinds[0], stays)
		heldByAnother(e)
		e.controller.Teardown, e.controller.Off = true, true
		e.reconciles(e.at)
		equal(t, "whether the host is held, and the remediation kept", held(e.host()) && e.kept(), true)
	})
}

// S2: what a remediation remembers is an annotation, and a tenant who may create one may write it.
func TestForgedMemoryActsOnNothingOfOthers(t *testing.T) {
	mine := []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "mine", UID: "another-machine"}}
	for name, row := range map[string]struct {
		uid    types.UID // that of the remediation that is under way if empty
		owners []metav1.OwnerReference
	}{
		"the UID of one that lives":               {},
		"with an owner that it names as well":     {owners: mine},
		"a UID that is unknown, without an owner": {uid: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
				e.stands("MovingWorkload")
				uid := e.remediation().GetUID()
				if row.uid != "" {
					uid = row.uid
					e.annotateHost(func(on map[string]string) { on[infrav1.PowerOffAnnotationPrefix+string(uid)] = "x" })
				}
				memory, err := json.Marshal(remediation.Record{
					Memory: powercycle.Memory{State: powercycle.Ended, Since: noon, Fencing: true},
					UID:    uid, Machine: "mine", Host: e.at.Name, Node: e.nodeName, Cluster: "c1",
				})
				e.do(err)
				evil := e.make(metav1.ObjectMeta{Namespace: e.at.Namespace, Name: "evil", OwnerReferences: row.owners,
					Annotations: map[string]string{
						mendv1.PowerCycleAnnotation: string(memory),
					}}, *strategyOf(e.remediation()))
				e.do(e.management.Create(t.Context(), e.named(evil)))
				host, node := e.host(), e.node()
				e.reconciles(client.ObjectKeyFromObject(evil))
				if e.host() != host || e.node() != node {
					t.Errorf("host or node of others were changed\n%s", e.story())
				}
			})
		})
	}
}

func TestANodeIsReleasedWhoseMachineNothingNamesAnyMore(t *testing.T) {
	bothKinds(t, settings{nodeCheck: true, box: stuck}, func(t *testing.T, e *environment) {
		e.comesTo(func(e *environment) bool { return fencedByUs(e.node()) })
		e.vanish(e.management, e.machine())
		// So the garbage collector does it, of an object with another owner.
		edit(e, e.management, e.remediation(), false, func(rem client.Object) {
			rem.SetOwnerReferences(rem.GetOwnerReferences()[:1])
		})
		killed(e)
		e.ends("Ended")
		e.reports(map[string]string{nhcv1.ProcessingCondition: "False/Ended", nhcv1.SucceededCondition: "False/Ended"})
		equal(t, "whether the host is on", e.box.model.Powered(), true)
	})
}

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
				e.editHost(func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image, h.Spec.Online = nil, false })
				e.ends("Ended")
				equal(t, "the state of the host", e.host().Status.Provisioning.State, bmov1alpha1.StateAvailable)
				e.editHost(func(h *bmov1alpha1.BareMetalHost) {
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
				if c := conditions.Get(e.machine(), clusterv1.MachineOwnerRemediatedCondition); c != nil ||
					powercycle.State(e.memory()).Final() {
					t.Errorf("it is %s, and its owner: %v\n%s", e.memory(), c, e.story())
				}
				equal(t, "the reason for which a person is asked", memoryOf(e.remediation()).Person, powercycle.HostGoneReason)
				equal(t, "whether the node is fenced", outOfService(e.node()), false)
			})
		})
	}
}
