package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/must"
)

func TestARightThatTheReaderLacksIsNotOneThatTheManagerLacks(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "infrastructure.cluster.x-k8s.io", Resource: "metal3remediations"}, "", nil)
	for name, tc := range map[string]struct {
		err     error
		missing string
	}{
		"the manager may not": {forbidden, "kubemend has no right to list the kind"},
		"the reader may not":  {fmt.Errorf("%w: %w", explain.ErrUnread, forbidden), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck(a("m", health.Unhealthy)).external()
			(&Reconciler{Kinds: &brokenKinds{kind: templateKind, err: tc.err}}).observeRemediation(t.Context(), w)
			if is := w.Template; is.Known || !strings.HasPrefix(is.Missing, tc.missing) || (tc.missing == "") != (is.Missing == "") {
				t.Errorf("missing %q, known %t; want missing %q", is.Missing, is.Known, tc.missing)
			}
			if len(w.Trouble) > 0 {
				t.Errorf("it is trouble: %v", w.Trouble)
			}
		})
	}
}

// Otherwise a user who may write a check in one namespace could choose what the manager watches in all namespaces.
func TestAKindThatCanBeNoTemplateIsRefusedAndNotWatched(t *testing.T) {
	for name, tc := range map[string]struct{ apiVersion, kind, says string }{
		"one without the suffix":      {"infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation", "their names end in Template"},
		"a lease":                     {"coordination.k8s.io/v1", "Lease", "their names end in Template"},
		"a template of Kubernetes":    {"resource.k8s.io/v1", "ResourceClaimTemplate", "belongs to Kubernetes itself"},
		"a Machine":                   {clusterv1.GroupVersion.String(), "Machine", "their names end in Template"},
		"a template of Cluster API's": {clusterv1.GroupVersion.String(), "MachineTemplate", "belongs to Cluster API itself"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck(a("m", health.Unhealthy)).external()
			ref := &w.Check.Spec.Remediation.TemplateRef
			ref.APIVersion, ref.Kind = tc.apiVersion, tc.kind
			kinds := &brokenKinds{}
			(&Reconciler{Kinds: kinds}).observeRemediation(t.Context(), w)
			if len(kinds.asked) > 0 {
				t.Errorf("it would be watched: %v", kinds.asked)
			}
			next := statusAfter(w, decide(w), nil)
			c := ConditionOf(next, mendv1.RemediationTemplateAvailable)
			if c == nil || c.Reason != mendv1.TemplateRefusedReason || !strings.Contains(c.Message, "spec.remediation.templateRef: ") ||
				!strings.Contains(c.Message, tc.says) || !strings.Contains(c.Message, tc.kind) {
				t.Errorf("the check says %+v, want that field and kind are refused: %s", c, tc.says)
			}
			holds := explanationOf(w).Targets[0].Blockers
			if len(holds) != 1 || holds[0].Reason != mendv1.TemplateRefusedReason || holds[0].Text != c.Message {
				t.Errorf("the machine is blocked by %+v, want what the check says", holds)
			}
			steps := stepsOf(decide(w))
			if len(steps) != 1 || steps[0].Step != NoStep || steps[0].external().Message != c.Message {
				t.Errorf("stepsOf() = %+v, want nothing made, and the machine say why", steps)
			}
		})
	}
}

// A request that is not in the cache yet may be from a reconcile that ended before it set conditions. Marked unhealthy without it, the
// machine would look as if its provider had removed its report.
func TestAMachineWhoseRequestAppearedIsMarkedUnhealthyTogetherWithIt(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy)).external()
	req, err := w.requestFor(w.Targets[0].Machine)
	must.Do(t, err)
	c := server(t, w.Targets[0].Machine, req).Build()
	r := &Reconciler{Client: c, Clock: clocktesting.NewFakePassiveClock(noon), Requests: &remediationrequest.Requests{Client: c, Live: c}}
	_, o := r.carries(t.Context(), w)
	if !o.again || o.saved == nil || o.requested || o.refused != nil || o.err != nil {
		t.Fatalf("act() = %+v, want it said, and another look", o)
	}
	if c := ConditionOf(o.saved, ExternallyRemediated); Failed(o.saved) == nil || c == nil || c.Reason != waitingForRemediation {
		t.Errorf("said %+v, want that the machine is bad and waits for its request", o.saved.Status.Conditions)
	}
}

// The manager reads a new template live, because the cache does not show it yet. It still has to try the template for each machine.
func TestATemplateThatTheCacheDoesNotShowYetIsTriedBeforeARequestIsMade(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy, func(t *Target) {
		t.Machine.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	})).external()
	w.template.Object["spec"] = map[string]any{"template": map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	p := (&Reconciler{}).decide(t.Context(), w)
	if d := p.Decisions[0]; d.Step != NoStep || !d.Blocked(TemplateUnusable) || d.Starts() {
		t.Errorf("the step is %q, blocked by %v; want no request from a template that is of no use", d.Step, d.Blockers)
	}
}

// A request that the cache does not show yet would not count against limits: too many would begin.
func TestNothingBeginsBeforeTheCacheShowsWhatWasRequested(t *testing.T) {
	req := &remediationrequest.Metadata{}
	req.SetGroupVersionKind(cycleKinds[0][0])
	req.Namespace, req.Name = "ns", "m1"
	for name, tc := range map[string]struct {
		cached, live *remediationrequest.Requests
		stale        int       // reconciles before that have waited
		lost         time.Time // when the answer to its creation was lost
		waits, known bool
	}{
		"it is new":                      {cyclesOfHosts(), cyclesOfHosts(req), 0, time.Time{}, true, false},
		"the cache stands still":         {cyclesOfHosts(), cyclesOfHosts(req), standsStill, time.Time{}, false, false},
		"the cache shows it":             {cyclesOfHosts(req), cyclesOfHosts(req), 0, time.Time{}, false, true},
		"it is gone, or was never there": {cyclesOfHosts(), cyclesOfHosts(), 0, time.Time{}, false, true},
		"it may be made yet":             {cyclesOfHosts(), cyclesOfHosts(), 0, ago(29 * time.Second), false, false},
		"it may not any more":            {cyclesOfHosts(), cyclesOfHosts(), 0, ago(30 * time.Second), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Requests: tc.cached, Live: tc.live.Live}
			r.requested.Of(req.GroupVersionKind().GroupKind()).Note(req)
			w := aCheck(a("m2", health.Unhealthy)).external()
			w.Template.Known, w.requestKind, w.before.stale = false, req.GroupVersionKind(), tc.stale
			w.before.lost = tc.lost
			must.Do(t, r.observeRequests(t.Context(), w))
			if starts := starts(decide(w)) > 0; r.stale(t.Context(), w) != tc.waits || w.Template.Known != tc.known || starts != tc.known {
				t.Errorf("it waits: %t, it knows the requests: %t, a remediation starts: %t", w.lagging, w.Template.Known, starts)
			}
		})
	}
}

func TestWhoseARequestIs(t *testing.T) {
	const me, myUID = "check", "check-uid"
	requested := func(name, uid string, changes ...func(*remediationrequest.Metadata)) *observed {
		return aCheck(a("m", health.Unhealthy, requestedBy(name, uid, changes...))).external()
	}
	for name, tc := range map[string]struct {
		given *observed
		want  Ownership
	}{
		"one of this check":                 {requested(me, myUID), OwnRequest},
		"W9: one of another check":          {requested("other", "x"), ForeignRequest},
		"one of its predecessor":            {requested(me, "old-uid"), AdoptableRequest},
		"one that core made":                {requested("", ""), AdoptableRequest},
		"one of another template then":      {requested("", "", otherTemplate), AdoptableRequest},
		"one of another check's template":   {requested("", "", otherTemplate).with(otherCheckWith("another")), ForeignRequest},
		"one of a template of another kind": {requested("", "", otherTemplateKind), ForeignRequest},
		"one of a Machine of that name":     {requested(me, myUID, ofAnotherMachine), ForeignRequest},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, tc.given.ownership(tc.given.Targets[0]), "it is")
		})
	}
}

func refusedBefore(t *Target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason)(t)
	withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse,
		clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason)(t)
}

// A power cycle must not begin because of a stale cache if a user has just protected the machine, or if its node has recovered.
func TestNoRequestIsMadeForAMachineThatHasChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		refused bool         // before
		patch   func() error // the result of the write; nil: the API server's
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
			c := server(t, m.Machine.DeepCopy()).
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
				must.Do(t, c.Update(t.Context(), is))
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

// A machine whose conditions the API server refuses must not be the first in each reconcile.
func TestThatNothingCouldBeBegunIsRemembered(t *testing.T) {
	var m memory
	for _, step := range []struct {
		became  outcome
		refused time.Time // before
	}{{outcome{err: errors.New("refused")}, time.Time{}}, {outcome{requested: true}, noon}, {outcome{}, time.Time{}}} {
		w := aCheck(a("a", health.Unhealthy))
		m.recall(w)
		s := decide(w)
		if is := refusedAt(&w.Facts, s.Decisions[0]); !is.Equal(step.refused) || !s.Decisions[0].Starts() {
			t.Errorf("it was refused at %s, want %s; it is tried again: %t", is, step.refused, s.Decisions[0].Starts())
		}
		step.became.Decision = s.Decisions[0]
		m.leave(w, s, step.became)
	}
}

// After a start nothing begins before the settling is over, and the memory has no refusal, but the machine's condition does.
func TestARefusalIsRememberedThroughARestart(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy, dueFor(time.Hour), refusedBefore), a("c", health.Healthy), a("d", health.Healthy))
	w.external().limited("60%")
	new(memory).recall(w)
	s := decide(w)
	st := s.Decisions[0]
	st.Target.Machine.Status = withConditions(st.Target.Machine, st.Conditions, st.Held(noon), noon).Status
	if st.Starts() || refusedAt(&w.Facts, st).IsZero() {
		t.Errorf("it begins: %t, and was refused at %s", st.Starts(), refusedAt(&w.Facts, st))
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
