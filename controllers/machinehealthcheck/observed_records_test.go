package machinehealthcheck

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/records"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// observing is a controller that observes a check, and the API server that keeps its records.
type observing struct {
	*Reconciler
	t      *testing.T
	server client.WithWatch
	asked  int // lists and writes
	refuse bool
}

func newObserving(t *testing.T) *observing {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := mendv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &observing{t: t, server: fake.NewClientBuilder().WithScheme(scheme).Build()}
	c := interceptor.NewClient(o.server, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o.asked++
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			o.asked++
			if o.refuse {
				return errors.New("the namespace's quota is exceeded")
			}
			return c.Create(ctx, obj, opts...)
		},
	})
	o.Reconciler = &Reconciler{Records: &records.Records{
		Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(noon), Installed: func(context.Context, string) (bool, error) { return true, nil },
	}}
	return o
}

// sees makes one reconcile of what w comes to, and remembers it for the next one.
func (o *observing) sees(w *observed, m *memory) []string {
	o.t.Helper()
	w.Mode = machines.Observed
	m.recall(w)
	w.owned()
	p := w.decide()
	m.keep(client.ObjectKeyFromObject(w.Check), after(w, p, applied{shadows: o.recordObserved(o.t.Context(), w, p)}))
	return o.lines()
}

// lines are the records.
func (o *observing) lines() []string {
	o.t.Helper()
	all := &mendv1.RemediationRecordList{}
	if err := o.server.List(o.t.Context(), all); err != nil {
		o.t.Fatal(err)
	}
	lines := []string{}
	for _, r := range all.Items {
		if r.Spec.Mode != mendv1.RecordObserved {
			o.t.Errorf("a record has mode %s", r.Spec.Mode)
		}
		lines = append(lines, r.Spec.Target.Machine.Name+" "+string(r.Spec.Remediator)+" "+r.Spec.BlockedBy+";"+r.Spec.Cause)
	}
	slices.Sort(lines)
	return lines
}

// marked by hand is the simplest way to be unhealthy: it takes no node.
func byHand(t *machines.Target) {
	t.Machine.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
}

// withNode makes a machine one whose node is there.
func withNode(t *machines.Target) {
	t.Health.Node, t.Machine.Status.NodeRef.Name = health.NodePresent, "node"
}

func TestAnObservedCheckRecordsWhatWouldBegin(t *testing.T) {
	others := requestedBy("", "", func(r *remediationrequest.Metadata) {
		r.UID, r.CreationTimestamp = "request-uid", metav1.NewTime(ago(time.Minute))
	})
	recorded := requestedBy("check", "check-uid", func(r *remediationrequest.Metadata) {
		r.UID, r.Annotations[mendv1.RecordAnnotation] = "request-uid", "m-1234567890"
	})
	for name, tc := range map[string]struct {
		w    *observed
		want []string
	}{
		"nothing while all are healthy":             {aCheck(a("m", health.Healthy, withNode, markedBefore)), nil},
		"what kubemend would begin":                 {aCheck(a("m", health.Unhealthy, byHand)), []string{"m Owner ;MarkedByHand"}},
		"by a request":                              {aCheck(a("m", health.Unhealthy, byHand)).external(), []string{"m Request ;MarkedByHand"}},
		"not what the limits forbid":                {aCheck(a("m", health.Unhealthy, byHand)).limited("0"), nil},
		"no more than may be in flight":             {aCheck(a("m", health.Unhealthy, byHand), a("n", health.Unhealthy, byHand)).atOnce("1"), []string{"m Owner ;MarkedByHand"}},
		"what others began as kubemend would":       {aCheck(a("m", health.Unhealthy, byHand, askedOwner)), []string{"m Owner ;MarkedByHand"}},
		"also when the machine is being deleted":    {aCheck(a("m", health.Unhealthy, byHand, askedOwner, beingDeleted)), []string{"m Owner ;MarkedByHand"}},
		"what others began and the limits forbid":   {aCheck(a("m", health.Unhealthy, byHand, askedOwner)).limited("0"), []string{"m Owner TooManyUnhealthy;MarkedByHand"}},
		"what others began for a healthy machine":   {aCheck(a("m", health.Healthy, withNode, askedOwner)), []string{"m Owner Healthy;"}},
		"a request of others":                       {aCheck(a("m", health.Unhealthy, byHand, others)).external(), []string{"m Request ;MarkedByHand"}},
		"not a request that has a record":           {aCheck(a("m", health.Unhealthy, byHand, recorded)).external(), nil},
		"not what an older check observes":          {aCheck(a("m", health.Unhealthy, byHand, askedOwner, olderCheck("older"))), nil},
		"nothing while it is not known what blocks": {aCheck(a("m", health.Unhealthy, byHand, askedOwner, onMetal)).listingCycles(), nil},
		"nothing while requests are being listed":   {aCheck(a("m", health.Unhealthy, byHand, askedOwner)).listing(), nil},
		"what others began beside what would begin": {aCheck(a("m", health.Unhealthy, byHand, askedOwner), a("n", health.Unhealthy, byHand)), []string{"m Owner ;MarkedByHand", "n Owner ;MarkedByHand"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, m := newObserving(t), &memory{}
			got := o.sees(tc.w, m)
			if diff := cmp.Diff(append([]string{}, tc.want...), got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			asked := o.asked
			if tc.want == nil && asked > 0 {
				t.Errorf("without a record it asks the API server %d times", asked)
			}
			o.sees(tc.w, m)
			if o.asked != asked {
				t.Errorf("the next reconcile asks the API server %d times more", o.asked-asked)
			}
			if again := o.sees(tc.w, &memory{}); !slices.Equal(again, got) {
				t.Errorf("after a restart the records are %q instead of %q", again, got)
			}
		})
	}
}

// atOnce limits the remediations in flight.
func (w *observed) atOnce(limit string) *observed {
	w.Check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: limit}
	return w
}

// listingCycles has power cycles that are not known yet.
func (w *observed) listingCycles() *observed {
	w.Read.Cycles, w.CyclesUnread = true, w.Now.Add(machines.CyclesUnreadFor)
	return w
}

func TestWhatWouldBeginAndWhatOthersThenBeginIsOneRecord(t *testing.T) {
	o, m := newObserving(t), &memory{}
	would := o.sees(aCheck(a("m", health.Unhealthy, byHand)), m)
	if got := o.sees(aCheck(a("m", health.Unhealthy, byHand, askedOwner)), m); len(got) != 1 || !slices.Equal(got, would) {
		t.Errorf("records %q after %q", got, would)
	}
}

func TestARecordThatHasEndedIsOfThatRemediationUntilAnotherOneBegins(t *testing.T) {
	o := newObserving(t)
	o.sees(aCheck(a("m", health.Unhealthy, byHand, askedOwner)), &memory{})
	all := &mendv1.RemediationRecordList{}
	if err := o.server.List(t.Context(), all); err != nil || len(all.Items) != 1 {
		t.Fatal(err, len(all.Items))
	}
	record := &all.Items[0]
	record.Status.Ended = moment(ago(time.Minute)) // the owner was asked an hour ago
	delete(record.Labels, mendv1.RecordOpenLabel)
	if err := o.server.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if got := o.sees(aCheck(a("m", health.Unhealthy, byHand, askedOwner)), &memory{}); len(got) != 1 {
		t.Errorf("a manager that starts later records it again: %q", got)
	}
	later := aCheck(a("m", health.Unhealthy, byHand, askedOwner, func(t *machines.Target) {
		t.Machine.Status.Conditions[1].LastTransitionTime = metav1.NewTime(ago(time.Second))
	}))
	if got := o.sees(later, &memory{}); len(got) != 2 {
		t.Errorf("the owner is asked again: %q", got)
	}
}

func TestARecordOfAnObservedCheckThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	o, m := newObserving(t), &memory{}
	o.refuse = true
	if got := o.sees(aCheck(a("m", health.Unhealthy, byHand)), m); len(got) > 0 {
		t.Errorf("records %q", got)
	}
	o.refuse = false
	if got := o.sees(aCheck(a("m", health.Unhealthy, byHand)), m); len(got) != 1 {
		t.Errorf("records %q", got)
	}
}

// The request that others have made for a machine is no power cycle that keeps kubemend from making it.
func TestARequestOfOthersIsNoPowerCycleInItsOwnWay(t *testing.T) {
	o, req := newObserving(t), &remediationrequest.Metadata{}
	others := requestedBy("", "", func(r *remediationrequest.Metadata) {
		r.SetGroupVersionKind(cycleKinds[0][0])
		r.UID, r.Finalizers, r.CreationTimestamp = "request-uid", []string{mendv1.HostRemediationFinalizer}, metav1.NewTime(ago(time.Minute))
		r.DeepCopyInto(req)
	})
	w := aCheck(a("m", health.Unhealthy, byHand, onMetal, beingDeleted, others)).external()
	o.Kinds, o.Requests = &brokenKinds{}, cyclesOfHosts(req)
	if got := o.sees(w, &memory{}); !slices.Equal(got, []string{"m Request ;MarkedByHand"}) {
		t.Errorf("the records are %q", got)
	}
}
