package hosts

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
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
