package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// ten is a check of ten nodes, of which four may be away, with a remediator that replaces machines.
func ten(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, append(workers("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"), template("Replace", "replace", false),
		check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) }))...)
}

// replaces makes the remediator of all requests say that the node will not come back, and take the nodes away.
func (k *fixture) replaces(names ...string) {
	k.t.Helper()
	k.says(nhcv1.NodeDeletionExpectedCondition, "True", "MachineDeleted", "")
	for _, name := range names {
		k.remove(node(name, nil))
	}
}

func TestNodesThatARemediationTookAwayCountForTheThreshold(t *testing.T) {
	k := ten(t)
	asked := map[string]bool{}
	for _, fail := range [][]string{{"n0", "n1", "n2", "n3"}, {"n4", "n5"}, {"n6"}, {"n7"}} {
		for _, n := range fail {
			k.turn(n, corev1.ConditionUnknown)
		}
		k.after(300 * time.Second)
		k.settle("nhc")
		for _, obj := range k.objects() {
			if !asked[obj.GetName()] {
				asked[obj.GetName()] = true
				k.remove(node(obj.GetName(), nil))
			}
		}
		k.says(nhcv1.NodeDeletionExpectedCondition, "True", "MachineDeleted", "")
		k.settle("nhc")
	}
	if len(k.requests()) != 4 {
		t.Errorf("%v are being replaced at once, and 4 of 10 may be away", k.requests())
	}
	if st := k.check("nhc").Status; *st.ObservedNodes != 10 || *st.HealthyNodes != 2 {
		t.Errorf("%d of %d nodes are healthy", *st.HealthyNodes, *st.ObservedNodes)
	}
	if is := k.look("nhc"); is.Population.InFlight != 4 || is.Population.Unhealthy != 8 || is.Population.Waiting != 4 {
		t.Errorf("population %+v", is.Population)
	}
}

func TestANodeThatIsGoneCountsUntilItIsMissedForTooLong(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*fixture)
		total   int
	}{
		"its remediator says that it has succeeded": {func(k *fixture) { k.answers("Replace", nhcv1.SucceededCondition, "True") }, 10},
		"its remediator has not released it yet": {func(k *fixture) {
			k.atWork()
			k.answers("Replace", nhcv1.SucceededCondition, "True")
		}, 10},
		"its remediator has not released it for long": {func(k *fixture) {
			k.atWork()
			k.answers("Replace", nhcv1.SucceededCondition, "True")
			k.settle("nhc")
			k.after(remediationrequest.ClingingFor)
		}, 10},
		"its remediator never releases it": {func(k *fixture) {
			k.atWork()
			k.answers("Replace", nhcv1.SucceededCondition, "True")
			k.settle("nhc")
			k.after(controlplane.ReplacementPatience)
		}, 9},
		"it goes on": {func(*fixture) {}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			k := ten(t)
			k.bad("n0")
			k.settle("nhc")
			k.replaces("n0")
			k.settle("nhc")
			tc.happens(k)
			k.settle("nhc")
			if st := k.check("nhc").Status; *st.ObservedNodes != tc.total || *st.HealthyNodes != 9 {
				t.Errorf("%d of %d nodes are healthy, want 9 of %d", *st.HealthyNodes, *st.ObservedNodes, tc.total)
			}
		})
	}
}

// terminates gives a node the condition by which OpenShift's own MachineHealthCheck ends it.
func (k *fixture) terminates(name string) {
	k.t.Helper()
	n := k.node(name)
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)})
	if err := k.client.Status().Update(k.t.Context(), n); err != nil {
		k.t.Fatal(err)
	}
}

func TestATerminatingNodeIsLeftAsItIs(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.installs("machinehealthchecks.machine.openshift.io")
	k.makes(shippedCheck())
	k.bad("a")
	k.settle("nhc")
	k.terminates("a")
	k.terminates("b")
	k.events()
	for range 3 {
		k.after(10 * time.Minute)
		k.settle("nhc")
		k.wants("neither is its remediation ended, nor does the next step begin", "Reboot/a")
	}
	if events := k.events(); len(events) > 0 {
		t.Errorf("told: %v", events)
	}
	if st := k.check("nhc").Status; *st.ObservedNodes != 5 || *st.HealthyNodes != 3 {
		t.Errorf("%d of %d nodes are healthy, and two are terminating", *st.HealthyNodes, *st.ObservedNodes)
	}
	if listed := k.check("nhc").Status.UnhealthyNodes; len(listed) != 1 || listed[0].Name != "a" || listed[0].ConditionsHealthyTimestamp != nil {
		t.Errorf("listed %+v", listed)
	}
	if !slices.Equal(k.leases(), []string{"node-a"}) {
		t.Errorf("leases %v", k.leases())
	}
}

// redate has an object that is being deleted say since when by the clock of the test.
func (k *fixture) redate(obj client.Object) {
	if at, known := k.deleted.Load(obj.GetUID()); known && obj.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(at.(time.Time))))
	}
}
