package hosts

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// Behaviour that must be as with CAPM3. C9, the conversion, is tested in test/api, where the webhook runs.

// stuck keeps everything on the node, so that the test decides when it leaves.
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
			sight{"the node is Ready", func() bool { return e.node() != nil && ready(e.node()) == corev1.ConditionTrue }},
			sight{"the remediation is not kept", after(asked, func() bool { return !e.kept() })},
		)
		e.stands("MovingWorkload")
		e.until(time.Minute)
		equal(t, "the phase", e.says().Phase, "Running")
		e.tells("Pod apps/web")
		h := e.host()
		equal(t, "the hold", h.Annotations[infrav1.PowerOffAnnotationPrefix+string(e.remediation().GetUID())], `{"mode":"hard","force":false}`)
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
			"6s: the host is off", "6s: the node is fenced", "1m6s: the pod is gone", "1m36s: the volume is gone", "1m36s: the host is released", "1m42s: the host is on",
			"1m42s: the node is free", "2m11s: the node is Ready", "2m11s: the remediation is not kept")
		e.goneOnceDeleted()
	})
}

func TestC6AHostIsMarkedAndThenTheOwnerAskedWhenNoAttemptIsLeft(t *testing.T) {
	bothKinds(t, settings{box: mute(-1)}, func(t *testing.T, e *environment) {
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) {
			conditions.Set(m, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test"})
		})
		equal(t, "what Cluster API replaces before", collections.IsUnhealthyAndOwnerRemediated(e.machine()), false)
		order := e.sees(
			sight{"the owner is asked", func() bool {
				return conditions.IsFalse(e.machine(), clusterv1.MachineOwnerRemediatedCondition)
			}},
			sight{"the host is marked", func() bool { return e.host().Annotations[infrav1.UnhealthyAnnotation] != "" }},
		)
		e.ends("OwnerRequested")
		e.went(*order, "20m28s: the host is marked", "20m28s: the owner is asked") // or CAPM3 could choose it for the replacement
		equal(t, "the phase", e.says().Phase, "Deleting machine")
		equal(t, "the number of retries", e.says().Retries, 1)
		for _, key := range []string{"capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy"} { // for all versions of CAPM3
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

// meanwhile changes objects before the controllers read them. The safety rules do not check these changes.
func (e *environment) meanwhile(change func()) {
	e.management.after, e.work.after = func(place) {}, func(place) {}
	change()
	e.management.after, e.work.after = e.check, e.check
}

// heldByAnother makes the remediation look as if CAPM3, or a kubemend whose stored state is lost, keeps the host powered off.
func heldByAnother(e *environment) {
	e.meanwhile(func() {
		edit(e, e.management, e.remediation(), false, func(rem client.Object) { rem.SetFinalizers([]string{e.Finalizer}) })
		e.annotateHost(func(on map[string]string) {
			on[infrav1.PowerOffAnnotationPrefix+string(e.remediation().GetUID())] = infrav1.PowerOffAnnotationValue
		})
	})
}

// reconciles makes the controller reconcile a remediation repeatedly.
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
			e.reconcile(e.clock.Now()) // this creates the record
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

// H-11: CAPM3 takes over from kubemend, and continues with the host and the taint.
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

// F5: if the feature gate or the kind is switched off, no other controller would power the host on.
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

// S2: the state of a power cycle is stored in an annotation, which a tenant who may create a remediation can write.
func TestForgedMemoryActsOnNothingOfOthers(t *testing.T) {
	mine := []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "mine", UID: "another-machine"}}
	for name, row := range map[string]struct {
		uid    types.UID // empty means the UID of the remediation in progress
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
				evil := e.make(metav1.ObjectMeta{Namespace: e.at.Namespace, Name: "evil", OwnerReferences: row.owners, Annotations: map[string]string{
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
		// The garbage collector does this to an object that has another owner.
		edit(e, e.management, e.remediation(), false, func(rem client.Object) {
			rem.SetOwnerReferences(rem.GetOwnerReferences()[:1])
		})
		killed(e)
		e.ends("Ended")
		e.reports(map[string]string{nhcv1.ProcessingCondition: "False/Ended", nhcv1.SucceededCondition: "False/Ended"})
		equal(t, "whether the host is on", e.box.model.Powered(), true)
	})
}
