package nodehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// minutes lets time pass, with a reconcile of each check in every minute.
func (k *fixture) minutes(n int, checks ...string) {
	k.t.Helper()
	for range n {
		k.after(time.Minute)
		for _, check := range checks {
			k.settle(check)
		}
	}
}

func (k *fixture) remove(obj client.Object) {
	k.t.Helper()
	if err := k.client.Delete(k.t.Context(), obj); err != nil {
		k.t.Fatal(err)
	}
}

func TestTheLeaseOfANodeThatNothingIsDoneAboutIsGivenBack(t *testing.T) {
	for name, leave := range map[string]func(*fixture){
		"it has left the selection":      func(k *fixture) { k.label("b", map[string]string{"pool": "other"}) },
		"it is excluded":                 func(k *fixture) { k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"}) },
		"the check was paused meanwhile": func(k *fixture) { c := k.check("nhc"); c.Spec.PauseRequests = []string{"later"}; k.update(c) },
	} {
		t.Run(name, func(t *testing.T) {
			c := check("nhc")
			c.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
			k := newFixture(t, template("Reboot", "reboot", false), c)
			for _, n := range []string{"a", "b", "c"} {
				if err := k.client.Create(t.Context(), node(n, map[string]string{"pool": "a"})); err != nil {
					t.Fatal(err)
				}
			}
			k.bad("b")
			k.settle("nhc")
			leave(k)
			k.settle("nhc")
			k.wants("what has begun goes on", "Reboot/b")
			if len(k.leases()) != 1 {
				t.Fatal("the node is remediated, and its lease is not held")
			}
			k.remove(k.objects()[0])
			k.minutes(2, "nhc")
			k.wants("it is not requested again")
			if len(k.leases()) != 0 {
				t.Error("nothing is done about the node, and its lease is held")
			}
		})
	}
}

func TestALadderThatCameToNothingLeavesTheNodeToOthers(t *testing.T) {
	for name, then := range map[string]func(*fixture){
		"also when the node flaps":                    func(k *fixture) { k.turn("b", corev1.ConditionFalse) },
		"also when a person deletes its requests":     func(k *fixture) { k.remove(k.objects()[0]) },
		"also when the node is healthy for the delay": func(k *fixture) { k.turn("b", corev1.ConditionTrue) },
		"and nothing takes the lease back by itself":  func(*fixture) {},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", ladder(refTo("Reboot", "reboot")),
				func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: time.Hour} }))...)
			k.bad("b")
			k.settle("nhc")
			k.minutes(30, "nhc")
			if len(k.leases()) != 0 {
				t.Fatal("three times its time is over, and the lease is held")
			}
			then(k)
			for range 12 {
				k.minutes(1, "nhc")
				if len(k.leases()) != 0 {
					t.Fatal("the lease is held again")
				}
			}
		})
	}
}

func TestANewFailureBeginsAtTheFirstTemplateWhateverIsLeftOfTheLast(t *testing.T) {
	for name, restart := range map[string]bool{"seen all the way": false, "with a manager that was away": true} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
			k.bad("b")
			k.settle("nhc")
			former := k.objects()[0]
			former.SetFinalizers([]string{"example.org/at-work"})
			k.update(former)
			k.after(2 * time.Minute)
			k.turn("b", corev1.ConditionTrue)
			k.settle("nhc")
			k.after(30 * time.Second)
			k.turn("b", corev1.ConditionUnknown)
			if !restart {
				k.settle("nhc")
			}
			k.after(10 * time.Minute)
			if !restart {
				k.reconciles("nhc")
				k.wants("its remediator has not released it", "Reboot/b")
				if !slices.ContainsFunc(k.events(), func(e string) bool { return strings.Contains(e, "still being deleted") }) {
					t.Error("no event says why nothing begins")
				}
			}
			former = k.objects()[0]
			former.SetFinalizers(nil)
			k.update(former)
			k.settle("nhc")
			if want := []string{"Reboot/b", "Reboot/b"}; !slices.Equal(k.made, want) {
				t.Errorf("made %v, want %v", k.made, want)
			}
		})
	}
}

func TestARecoveryThatWasNotSeenEndsAStreak(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	k.after(4 * time.Minute)
	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.turn("b", corev1.ConditionUnknown)
	k.after(299 * time.Second)
	k.settle("nhc")
	k.wants("it was healthy not five minutes ago")
	k.after(time.Second)
	k.settle("nhc")
	k.wants("now it was", "Reboot/b")
}

func TestTwoStepsWithTheSameTemplateAreSaid(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", true), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.bad("b")
	k.settle("nhc")
	k.minutes(6, "nhc")
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.Contains(e, "two steps of the check have the same template, reboot")
	}) {
		t.Error("the ladder stops, and no event says why")
	}
}

func TestALeaseThatCannotBeTakenIsReported(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.fails = func(_ string, obj client.Object) error {
		if _, is := obj.(*coordinationv1.Lease); is {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, obj.GetName(), nil)
		}
		return nil
	}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("nothing is done without it")
	if !slices.ContainsFunc(k.events(), func(e string) bool { return strings.Contains(e, "create lease medik8s-leases/node-b") }) {
		t.Error("no event says so")
	}
}

// A right to make namespaces is one to make any.
func TestTheNamespaceOfTheLeasesIsNotMadeButAskedFor(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	var made []string
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*corev1.Namespace); is {
			made = append(made, obj.GetName())
		}
		if _, is := obj.(*coordinationv1.Lease); is && verb == "create" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, obj.GetNamespace())
		}
		return nil
	}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("nothing is done without the lease")
	if len(made) > 0 {
		t.Errorf("namespaces are made: %v", made)
	}
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.Contains(e, "the namespace medik8s-leases of the leases on nodes is missing") && strings.Contains(e, "--node-lease-namespace")
	}) {
		t.Error("no event says what is missing")
	}
}

func TestWhatCannotBeReadOfAnotherCheckIsNamed(t *testing.T) {
	workers := check("workers", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Pray", "pray")) })
	workers.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
	k := newFixture(t, five(check("nhc"), workers)...)
	k.deny("Pray")
	k.bad("m0")
	k.reconciles("nhc")
	k.wants("a member waits")
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.Contains(e, "NodeHealthCheck workers") && strings.Contains(e, "Pray")
	}) {
		t.Error("no event says for what")
	}
}

func TestWhatBlocksAllNodesIsReportedEveryHour(t *testing.T) {
	c := check("nhc")
	c.Spec.PauseRequests = []string{"later"}
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), c)...)
	k.bad("b")
	k.settle("nhc")
	k.minutes(119, "nhc")
	told := 0
	for _, e := range k.events() {
		if strings.Contains(e, "Postponing potential remediations because of pause requests") {
			told++
		}
	}
	if told != 2 {
		t.Errorf("it was reported %d times in two hours", told)
	}
}

func TestARequestThatDoesNotNameItsNodeAnyMoreIsFoundByItsName(t *testing.T) {
	for name, tc := range map[string]struct {
		several bool
		owner   bool
	}{
		"named after its node":           {false, false},
		"named after node and template":  {true, false},
		"named after the node's Machine": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-1", UID: "machine-1"}}
			machine.Status.NodeRef.Name = "b"
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", tc.several), check("nhc"), machine)...)
			k.bad("b")
			k.settle("nhc")
			obj := k.objects()[0]
			if tc.owner {
				k.remove(obj)
				obj.SetName("machine-1")
				obj.SetResourceVersion("")
				obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
					APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "machine-1", UID: "machine-1",
				}))
				if err := k.client.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
				obj = k.objects()[0]
			}
			obj.SetAnnotations(nil)
			k.update(obj)
			c := k.check("nhc")
			c.Status = nhcv1.NodeHealthCheckStatus{}
			if err := k.client.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			k.restart()
			k.settle("nhc")
			k.wants("it is neither deleted nor made once more", "Reboot/"+obj.GetName())
			if listed := k.check("nhc").Status.UnhealthyNodes; len(listed) != 1 || listed[0].Name != "b" {
				t.Errorf("listed: %+v", listed)
			}
		})
	}
}

func TestAFenceThatDeletesItsNodeMakesNoOrphan(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-1", UID: "machine-1", Finalizers: []string{"example.org/kept"}}}
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"), machine)...)
	k.bad("b")
	k.settle("nhc")
	obj := k.objects()[0]
	obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "machine-1", UID: "machine-1",
	}))
	k.update(obj)
	k.remove(node("b", nil))
	k.settle("nhc")
	k.wants("its Machine is there: it goes on", "Reboot/b")
	k.remove(machine)
	k.settle("nhc")
	k.wants("its Machine is going: it is over")
	if len(k.leases()) != 0 {
		t.Errorf("orphaned: %v", k.leases())
	}
}

func TestAFormerLeaseDoesNotBlockItsOwnCheck(t *testing.T) {
	long := metav1.NewMicroTime(epoch.Add(-10 * time.Hour))
	left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: leaseName("b")}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(nhcv1.LeaseHolderPrefix + "nhc"), LeaseDurationSeconds: ptr.To[int32](600), AcquireTime: &long, RenewTime: &long,
	}}
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", ladder(refTo("Reboot", "reboot"))), left)...)
	k.bad("b")
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*coordinationv1.Lease); is && verb == "delete" {
			t.Error("the lease of a node whose remediation begins is given back")
		}
		return nil
	}
	k.settle("nhc")
	k.wants("it begins", "Reboot/b")
	lease := &coordinationv1.Lease{}
	if err := k.client.Get(t.Context(), client.ObjectKeyFromObject(left), lease); err != nil || !lease.Spec.AcquireTime.Time.Equal(k.clock.Now()) {
		t.Errorf("%v: its lease was acquired at %v, want now", err, lease.Spec.AcquireTime)
	}
}

func TestAStatusStaysSmallEnoughToBeWritten(t *testing.T) {
	list := make([]nhcv1.UnhealthyNode, 0, 2*mostListed)
	for i := range 2 * mostListed {
		n := nhcv1.UnhealthyNode{Name: "n"}
		if i%3 == 0 {
			n.Remediations = []nhcv1.Remediation{{}}
		}
		list = append(list, n)
	}
	kept := bounded(list)
	remediated := 0
	for i := range kept {
		remediated += len(kept[i].Remediations)
	}
	if want := (2*mostListed + 2) / 3; len(kept) != mostListed || remediated != want {
		t.Errorf("%d nodes are listed, %d of them remediated; want %d, with all %d that are", len(kept), remediated, mostListed, want)
	}
}

func TestANodeThatComesBackUnderTheNameOfOneThatIsGoneBeginsAtTheFirstTemplate(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.bad("b")
	k.settle("nhc")
	former := k.objects()[0]
	former.SetFinalizers([]string{"example.org/at-work"})
	k.update(former)
	k.remove(node("b", nil))
	k.settle("nhc")
	k.after(nodeAway)
	k.settle("nhc")
	again := node("b", nil)
	again.UID = "another"
	if err := k.client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	former = k.objects()[0]
	former.SetFinalizers(nil)
	k.update(former)
	k.after(10 * time.Minute)
	k.settle("nhc")
	if want := []string{"Reboot/b", "Reboot/b"}; !slices.Equal(k.made, want) {
		t.Errorf("made %v, want %v", k.made, want)
	}
}
