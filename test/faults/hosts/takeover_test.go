package hosts

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

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
