package nodehealthcheck

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// clinging returns a check with two steps, and a node whose first remediation has begun; the request has a finalizer.
func clinging(t *testing.T) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	badB(k)
	k.atWork()
	k.settle("nhc")
	return k
}

// lists returns the kinds of the requests in the check's status, with a star if they were given up.
func (k *fixture) lists() []string {
	k.t.Helper()
	var kinds []string
	for _, n := range k.check("nhc").Status.UnhealthyNodes {
		for _, is := range n.Remediations {
			kind := is.Resource.Kind
			if is.TimedOut != nil {
				kind += "*"
			}
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (k *fixture) wantsListed(want ...string) {
	k.t.Helper()
	if got := k.lists(); !slices.Equal(got, want) {
		k.t.Fatalf("the status lists %v, want %v", got, want)
	}
}

// The timeout of the first step is 5 minutes. The node was healthy after 2 minutes.
func TestANewFailureBeginsWithTheRequestThatClingsToItsFinalizer(t *testing.T) {
	for name, away := range map[string]func(*fixture){
		"the manager sees all of it": func(*fixture) {},
		"the manager is restarted":   (*fixture).restart,
	} {
		t.Run(name, func(t *testing.T) {
			k := clinging(t)
			k.after(2 * time.Minute)
			k.turn("b", corev1.ConditionTrue)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(24 * time.Hour)
			k.turn("b", corev1.ConditionUnknown)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(300 * time.Second)
			away(k)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(150 * time.Second) // the reconcile renews the lease
			k.settle("nhc")
			k.after(29 * time.Second)
			away(k)
			k.settle("nhc")
			k.wants("it has the three minutes that it had left", "Reboot/b")
			k.after(time.Second)
			k.settle("nhc")
			k.wants("they are over", "Reboot/b", "Replace/b")
			k.wantsListed("Reboot*", "Replace")
			now := k.clock.Now().UTC().Format(time.RFC3339)
			must.Is(t, now, k.objects()[0].GetAnnotations()[nhcv1.TimedOutAnnotation], "its remediator was told to stop at")
		})
	}
}

// minutes reconciles each check once a minute, n times.
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
	must.Do(k.t, k.client.Delete(k.t.Context(), obj))
}

// RBAC cannot limit the creation of namespaces to one name, so the message asks the user to create the namespace of the leases.
func TestALeaseThatCannotBeTakenIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		says    []string
	}{
		"it is forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, leaseName("b"), nil), []string{"create lease medik8s-leases/node-b"}},
		"its namespace is missing": {
			apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, nhcv1.DefaultLeaseNamespace),
			[]string{"the namespace medik8s-leases of the leases on nodes is missing", "--node-lease-namespace"},
		},
	} {
		k := single(t)
		k.fails = func(_ string, obj client.Object) error {
			switch obj.(type) {
			case *corev1.Namespace:
				t.Errorf("%s: the namespace %s is made", name, obj.GetName())
			case *coordinationv1.Lease:
				return tc.refusal
			}
			return nil
		}
		k.bad("b")
		k.reconciles("nhc")
		k.wants("nothing is done without it")
		told := strings.Join(k.events(), "\n")
		for _, want := range tc.says {
			if !strings.Contains(told, want) {
				t.Errorf("%s: told\n%s\nwant %q", name, told, want)
			}
		}
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

// relapses returns a node b whose only remediation has succeeded, that was healthy for a minute, and that is unhealthy again. The next
// reconcile judges it.
func relapses(t *testing.T, delay time.Duration, change ...func(*fixture)) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.HealthyDelay = &metav1.Duration{Duration: delay}
	}))...)
	for _, f := range change {
		f(k)
	}
	k.bad("b")
	k.looks()
	k.after(2 * time.Minute)
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.after(time.Second)
	k.looks()
	k.turn("b", corev1.ConditionTrue)
	k.looks()
	k.after(time.Minute)
	k.looks()
	k.turn("b", corev1.ConditionUnknown)
	return k
}

func TestASingleRemediationIsRepeatedAlthough(t *testing.T) {
	for name, happens := range map[string]func(*testing.T, time.Duration) *fixture{
		"the remediator's role of before there were ladders does not let us patch": func(t *testing.T, delay time.Duration) *fixture {
			return relapses(t, delay, func(k *fixture) { k.grants(shippedRole(t, "poison-pill-0.1")) })
		},
		"a later role does neither": func(t *testing.T, delay time.Duration) *fixture {
			return relapses(t, delay, func(k *fixture) { k.grants(shippedRole(t, "self-node-remediation-0.8")) })
		},
		"a patch after the relapse has failed": func(t *testing.T, delay time.Duration) *fixture {
			k, failed := relapses(t, delay), false
			k.fails = func(verb string, _ client.Object) error {
				if verb != "patch" || failed {
					return nil
				}
				failed = true
				return apierrors.NewTimeoutError("once", 1)
			}
			k.looks()
			return k
		},
		"the manager was started anew after the relapse": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.looks()
			k.restart()
			return k
		},
		"the manager was started anew before it": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.restart()
			return k
		},
		"the remediator has taken the annotation off": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.looks()
			obj := k.objects()[0]
			obj.SetAnnotations(nil)
			k.update(obj)
			return k
		},
		"the remediator's clock is ahead": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.clock.SetTime(k.clock.Now().Add(-2 * time.Minute))
			return k
		},
	} {
		for wait, delay := range map[string]time.Duration{"an hour": time.Hour, "by hand": -1} {
			t.Run(name+", "+wait, func(t *testing.T) {
				t.Parallel()
				k := happens(t, delay)
				k.looks()
				for _, later := range []time.Duration{10 * time.Minute, time.Hour, 23 * time.Hour} {
					k.after(later)
					k.looks()
				}
				if len(k.made) != 2 {
					t.Errorf("made %v in a day, want 2", k.made)
				}
			})
		}
	}
}

// If the deletion of a successful request fails while the node is healthy, the next failure must not wait for that request.
func TestASingleRemediationIsRepeatedAlthoughItsDeletionHasFailed(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.settle("nhc")
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.settle("nhc")
	k.refuses("delete", "", apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
	k.turn("b", corev1.ConditionTrue)
	k.reconciles("nhc")
	k.fails = nil
	k.turn("b", corev1.ConditionUnknown)
	k.minutes(30, "nhc")
	if len(k.made) < 2 {
		t.Errorf("made %v", k.made)
	}
}

// After the last step was given up, the escalation does not start again by itself or because a user deletes requests, but in these ways.
func TestWhatBeginsALadderAnewThatCameToNothing(t *testing.T) {
	for name, row := range map[string]struct {
		does func(*fixture)
		want []string // the requests that are created afterwards
	}{
		"nothing does by itself":           {func(*fixture) {}, nil},
		"a restart does not":               {(*fixture).restart, nil},
		"requests that are deleted do not": {(*fixture).deleteAll, nil},
		"a status that is emptied does not while the requests are there": {(*fixture).forget, nil},
		"a status that is emptied does when the requests are deleted": {func(k *fixture) {
			k.deleteAll()
			k.settle("nhc")
			k.forget()
		}, []string{"Reboot/w0"}},
		"a node that is healthy once does, when it is unhealthy again": {func(k *fixture) {
			k.turn("w0", corev1.ConditionTrue)
			k.settle("nhc")
			k.turn("w0", corev1.ConditionFalse)
			k.settle("nhc")
			k.after(5 * time.Minute)
		}, []string{"Reboot/w0"}},
		"a step more is taken": {func(k *fixture) {
			c := k.check("nhc")
			ladder(refTo("Pray", "pray"))(&c.Spec)
			c.Spec.EscalatingRemediations[2].Order = 2
			k.update(c)
		}, []string{"Pray/w0"}},
		"other templates instead of the steps' are": {func(k *fixture) {
			c := k.check("nhc")
			c.Spec.EscalatingRemediations = nil
			ladder(refTo("Pray", "pray"))(&c.Spec)
			k.update(c)
		}, []string{"Pray/w0"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), template("Replace", "replace", false), template("Pray", "pray", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")), without("out")))...)
			k.turn("w0", corev1.ConditionFalse)
			for range 4 {
				k.after(5 * time.Minute)
				k.settle("nhc")
			}
			if want := []string{"Reboot/w0", "Replace/w0"}; !slices.Equal(k.made, want) {
				t.Fatalf("%q were made, want %q", k.made, want)
			}
			k.made = nil
			row.does(k)
			for range 3 {
				k.settle("nhc")
				if len(k.made) > 0 {
					break
				}
				k.after(time.Minute)
			}
			if !slices.Equal(k.made, row.want) {
				t.Errorf("%q were made, want %q; %+v", k.made, row.want, k.check("nhc").Status.UnhealthyNodes)
			}
		})
	}
}

// without excludes nodes with a label from the selector.
func without(label string) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchExpressions = append(s.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
}

func (k *fixture) deleteAll() {
	k.t.Helper()
	for _, obj := range k.objects() {
		must.Do(k.t, client.IgnoreNotFound(k.client.Delete(k.t.Context(), obj)))
	}
}

// forget removes all nodes from the check's status, as a user may.
func (k *fixture) forget() {
	k.t.Helper()
	c := k.check("nhc")
	c.Status.UnhealthyNodes = nil
	must.Do(k.t, k.client.Status().Update(k.t.Context(), c))
}

func TestTheOwnerOfARequestCompletesItsMarks(t *testing.T) {
	for name, tc := range map[string]struct {
		markedName, markedUID string
		ownerKind             string
		want                  remediationrequest.Maker
	}{
		"without marks the owner has made it":            {"", "", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"a marked name is completed":                     {"nhc", "", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"a marked UID is completed":                      {"", "1", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"an owner of another name has not made it":       {"other", "", "NodeHealthCheck", remediationrequest.Maker{Name: "other"}},
		"an owner with another UID has not made it":      {"nhc", "2", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "2"}},
		"an owner of another kind says nothing about it": {"", "", "Machine", remediationrequest.Maker{}},
	} {
		obj := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: nhcv1.GroupVersion.String(), Kind: tc.ownerKind, Name: "nhc", UID: "1"},
		}}
		if tc.markedName != "" {
			obj.Annotations = map[string]string{mendv1.MadeByNodeCheckAnnotation: tc.markedName}
		}
		if tc.markedUID != "" {
			obj.Labels = map[string]string{mendv1.MadeByNodeCheckUIDLabel: tc.markedUID}
		}
		must.Is(t, tc.want, makerOf(obj), "%s: got", name)
	}
}

func TestOfARequestWithoutAUIDOfItsMakerTheStatusSaysWhoseItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		markedName, markedUID string
		listed, want          bool
	}{
		"listed, without marks":               {"", "", true, true},
		"listed, with the name of the check":  {"nhc", "", true, true},
		"listed, with another name":           {"other", "", true, false},
		"not listed":                          {"nhc", "", false, false},
		"with the UID of the check":           {"nhc", "1", false, true},
		"with the UID of a check that is not": {"nhc", "2", true, false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetUID("r")
		if tc.markedName != "" {
			obj.SetAnnotations(map[string]string{mendv1.MadeByNodeCheckAnnotation: tc.markedName})
		}
		if tc.markedUID != "" {
			obj.SetLabels(map[string]string{mendv1.MadeByNodeCheckUIDLabel: tc.markedUID})
		}
		w := &observed{check: &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc", UID: "1"}}}
		if tc.listed {
			w.listed = map[types.UID]*listed{"r": {}}
		}
		must.Is(t, tc.want, w.made(obj), "%s: ours", name)
	}
}

// The webhook for Reboots refuses every request, or is down.
func TestALadderGoesOnWhereAStepCannotBeRequested(t *testing.T) {
	reboots := schema.GroupResource{Group: remediatorGroup, Resource: "reboots"}
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"refused":      {apierrors.NewForbidden(reboots, "", nil), []string{"Replace/b", "Replace/c"}},
		"not answered": {apierrors.NewInternalError(errors.New("no route to host")), []string{"Replace/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
			k.fails = func(verb string, obj client.Object) error {
				if verb == "create" && obj.GetObjectKind().GroupVersionKind().Kind == "Reboot" {
					return tc.err
				}
				return nil
			}
			k.settle("nhc") // reads the kinds
			k.turn("b", corev1.ConditionUnknown)
			k.turn("c", corev1.ConditionUnknown)
			k.after(300 * time.Second)
			for range 10 {
				k.reconcile("nhc")
				k.after(30 * time.Second)
			}
			k.wants("the time of the step is not over")
			k.reconcile("nhc")
			k.wants("it is", tc.want...)
			said := func(event string) bool { return strings.Contains(event, "could not be requested within 5m0s") }
			if events := k.events(); !slices.ContainsFunc(events, said) {
				t.Errorf("nobody says so: %q", events)
			}
		})
	}
}

// The remediator deletes the request when the power is on, as medik8s' first documentation says, and the node boots for twelve minutes.
func TestANodeThatBootsIsNotRemediatedOnceMore(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.settle("nhc")
	k.remove(k.objects()[0])
	k.settle("nhc")
	k.minutes(12, "nhc")
	if len(k.made) > 1 {
		t.Errorf("made %v", k.made)
	}
}
