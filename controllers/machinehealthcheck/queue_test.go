package machinehealthcheck

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// oneAtOnce gives the check a limit of one remediation in flight.
func (w *observed) oneAtOnce() *observed {
	w.Check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
	return w
}

func refusedBefore(t *Target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason)(t)
	withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse,
		clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason)(t)
}

// A power cycle of a machine that its user has just protected, or whose node was seen well meanwhile, must not begin on what a cache
// shows late.
func TestNoRequestIsMadeForAMachineThatHasChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		refused bool         // before
		patch   func() error // what becomes of the write; nil if it is left to the API server
		change  bool
		made    bool
	}{
		"it is as it was read": {made: true},
		"it has changed":       {change: true},
		"it has changed since it was said that none is made": {refused: true, change: true},
		"none could be made before, and it is as it was":     {refused: true, made: true},
		"its condition is refused":                           {patch: func() error { return errors.New("refused") }},
	} {
		t.Run(name, func(t *testing.T) {
			m := a("m", health.Unhealthy)
			if tc.refused { // its conditions are all set
				was := of(&m)
				m.Machine = written(m.Machine, was.verdict.Due(noon), ago(time.Minute),
					append(slices.Clip(notCreated), setUnhealthy)...)
				*of(&m) = *was
			}
			scheme := runtime.NewScheme()
			if err := clusterv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Machine{}).WithObjects(m.Machine.DeepCopy()).
				WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
					ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
				) error {
					if tc.patch != nil {
						return tc.patch()
					}
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				}}).Build()
			if tc.change {
				is := m.Machine.DeepCopy()
				is.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
				if err := c.Update(t.Context(), is); err != nil {
					t.Fatal(err)
				}
			}
			w := aCheck(m).external()
			r := &Reconciler{Client: c, Clock: clocktesting.NewFakePassiveClock(noon), Requests: &remediationrequest.Requests{Client: c, Live: c}}
			_, o := r.carries(t.Context(), w)
			found, err := r.Requests.Find(t.Context(), w.requestKind, client.ObjectKeyFromObject(m.Machine))
			if err != nil || (found != nil) != tc.made || o.requested != tc.made {
				t.Errorf("there is a request: %t, counted: %t, error %v; want %t", found != nil, o.requested, err, tc.made)
			}
			if tc.change && !o.again {
				t.Error("there is no reconcile after it")
			}
		})
	}
}

// A machine whose condition the API server refuses, so that none can be set, must not be the first in each reconcile.
func TestThatNothingCouldBeBegunIsRemembered(t *testing.T) {
	var m memory
	pass := func() *observed {
		w := aCheck(a("a", health.Unhealthy, dueFor(time.Hour)), a("b", health.Unhealthy)).oneAtOnce()
		m.recall(w)
		return w
	}
	w := pass()
	first := stepsOf(decide(w))[0]
	if !first.Starts() || first.Target.Name != "a" {
		t.Fatalf("first comes %s", first.Target.Name)
	}
	m.leave(w, decide(w), outcome{Decision: first, err: errors.New("refused")})
	w = pass()
	for _, s := range stepsOf(decide(w)) {
		if s.Starts() && s.Target.Machine.Name != "b" {
			t.Errorf("%s is tried again before b", s.Target.Machine.Name)
		}
	}
	first.Step = CreateRequest
	m.leave(w, decide(w), outcome{Decision: first, requested: true})
	if w = pass(); len(w.before.decided.Refused) > 0 {
		t.Error("that it was refused is remembered although it was begun since")
	}
}

// A process that has just started lets a merge window pass before it begins anything, and remembers no refusal: the machine's condition
// does.
func TestARefusalKeepsItsPlaceAtTheEndOfTheQueueThroughARestart(t *testing.T) {
	var m memory
	w := aCheck(a("a", health.Unhealthy, dueFor(time.Hour), refusedBefore), a("b", health.Unhealthy), a("c", health.Healthy), a("d", health.Healthy))
	w.external().limited("60%").oneAtOnce()
	for i, now := range []time.Time{noon, noon.Add(time.Second)} {
		w.Now = now
		m.recall(w)
		s := decide(w)
		for _, st := range stepsOf(s) {
			if st.Starts() && (i == 0 || st.Target.Machine.Name != "b") {
				t.Errorf("reconcile %d begins the remediation of %s", i, st.Target.Machine.Name)
			}
			st.Target.Machine.Status = withConditions(st.Target.Machine, st.Conditions, st.Held(now), now).Status
		}
		m.leave(w, s)
		if ConditionOf(w.Targets[0].Machine, clusterv1.MachineExternallyRemediatedCondition) == nil {
			t.Fatalf("reconcile %d removes the refusal, although nothing was tried", i)
		}
	}
}

func TestARefusalStaysWhileNothingMayBegin(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy)).external().limited("60%")
	s := decide(w)
	w.Check = statusAfter(w, s, []outcome{{refused: errors.New("refused by a webhook")}})
	w.before.lasts = true // and has seen nothing yet
	next := statusAfter(w, decide(w), nil)
	if v1beta1conditions.Get(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition) == nil {
		t.Error("the refusal is removed, although nothing was tried")
	}
}
