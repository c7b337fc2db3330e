package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestTheNodesForWhichARemediationStartsComeFirst(t *testing.T) {
	p := Decide(of(healthy(asked()), lost(since(20*time.Minute)), lost(since(30*time.Minute)), lost(excluded), healthy()))
	if want := []int{2, 1, 0, 3}; !slices.Equal(p.Order, want) {
		t.Errorf("order %v, want %v", p.Order, want)
	}
}

// A decision about a node is carried out only if the node is in Plan.Order.
func TestWhateverIsDoneAboutANodeIsCarriedOut(t *testing.T) {
	about := func(state RequestState) Decision { return Decision{Requests: []RequestState{{}, state}} }
	for name, d := range map[string]Decision{
		"end": about(RequestState{End: true}), "note": about(RequestState{Note: map[string]any{"a": nil}}),
		"adopt": about(RequestState{Adopt: true}), "give up": about(RequestState{GiveUp: true}),
		"lease": {Leasing: DropLease}, "confirmation": {Unconfirm: true}, "nothing": about(RequestState{}),
	} {
		if d.Start = -1; d.acts() == (name == "nothing") {
			t.Errorf("%s: acts %t", name, d.acts())
		}
	}
}

func TestTheFirstReasonThatDisablesACheckIsKept(t *testing.T) {
	p := Decide(of(lost()).with(func(f *Facts) { f.Disabled = Disabled{"Other", "x"} }, limit("many")))
	if p.Disabled.Reason != "Other" {
		t.Errorf("got %+v", p.Disabled)
	}
}

func TestWhatTheAPIServerMustConfirm(t *testing.T) {
	live := func(n Node) *corev1.Node {
		if n.Object.UID == "" {
			n.Object.UID = "uid-a"
		}
		return n.Object
	}
	other := of(lost(), lost()).Nodes[1]
	for name, tc := range map[string]struct {
		now  *corev1.Node
		want []Reason
	}{
		"the node is as it was":         {live(lost()), nil},
		"the node is gone":              {nil, []Reason{NodeGone}},
		"it is another one of its name": {live(other), []Reason{NodeGone}},
		"it is healthy":                 {live(healthy()), []Reason{NotUnhealthy}},
		"its time is not over":          {live(lost(since(time.Minute))), []Reason{"WithinTimeout"}},
		"it has turned unseen":          {live(lost(since(2 * time.Hour))), []Reason{"WithinTimeout"}},
		"its user has excluded it":      {live(lost(excluded)), []Reason{"NodeExcluded"}},
		"it is being deleted":           {live(lost(leaving(time.Minute))), []Reason{"NodeBeingDeleted"}},
	} {
		f := of(lost())
		f.Memory = Decide(f).Memory
		if d := f.again(&f.Nodes[0], tc.now); !slices.Equal(reasons(d.Blockers), tc.want) || d.starts() != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", name, reasons(d.Blockers), tc.want)
		}
	}
	f := of(healthy(silentMember))
	if d := f.again(&f.Nodes[0], live(healthy())); d.starts() {
		t.Errorf("Ready is missing in the cache alone: %+v", d)
	}
}

// A change of the plan's memory does not change the facts.
func TestADecisionKeepsNothingOfItsFacts(t *testing.T) {
	f := of(lost(asked(failed)), healthy(asked(deleting(0)))).with(steps(reboot(0), reboot(0)))
	f.Memory = Decide(f).Memory
	before := encoded(t, f)
	p := Decide(f)
	p.Memory.Requests["r"], p.Memory.Refusals["a"], p.Memory.Streaks["uid-a"] = RequestMemory{Flagged: true}, Refusal{}, health.Streaks{}
	if after := encoded(t, f); after != before {
		t.Errorf("the facts were\n%s\nand are\n%s", before, after)
	}
}

// Only for these nodes, Machines and the requests with their names are read.
func TestWhichNodesConcern(t *testing.T) {
	for name, tc := range map[string]struct {
		node Node
		want bool
	}{
		"a healthy one does not":                   {healthy(), false},
		"an unhealthy one does":                    {lost(), true},
		"a pending one does":                       {lost(since(time.Minute)), true},
		"one that never reported does":             {healthy(silentMember), true},
		"one that is gone does not":                {gone(asked()), false},
		"one with another status or type does not": {healthy(terminating), false},
	} {
		facts := of(tc.node)
		if got := facts.Concerns(&facts.Nodes[0]); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestConditionsOfANode(t *testing.T) {
	spec := &nhcv1.NodeHealthCheckSpec{UnhealthyConditions: []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 2 * time.Minute}},
		{Type: "DiskBroken", Status: corev1.ConditionTrue, Duration: metav1.Duration{Duration: time.Minute}},
	}}
	ready := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	disk := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "DiskBroken", Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	const bad, unknown, good = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		want       health.State
		again      time.Duration
	}{
		"C82: none is met":                                        {[]corev1.NodeCondition{ready(good, time.Hour), disk(bad, time.Hour)}, health.Healthy, 0},
		"C82: one is met, and has not lasted":                     {[]corev1.NodeCondition{ready(bad, time.Minute), disk(bad, time.Hour)}, health.Pending, 4 * time.Minute},
		"C82: one has lasted":                                     {[]corev1.NodeCondition{ready(bad, 5*time.Minute), disk(bad, time.Hour)}, health.Unhealthy, 0},
		"C82: the first one has not lasted, the second one has":   {[]corev1.NodeCondition{ready(bad, time.Minute), disk(good, time.Minute)}, health.Unhealthy, 0},
		"seed 0.15: the other one alone is enough":                {[]corev1.NodeCondition{ready(good, time.Hour), disk(good, time.Hour)}, health.Unhealthy, 0},
		"seed 0.15: and where the first one alone is met":         {[]corev1.NodeCondition{ready(bad, time.Hour)}, health.Unhealthy, 0},
		"seed 1.9: three minutes are too few for one status":      {[]corev1.NodeCondition{ready(bad, 3*time.Minute)}, health.Pending, 2 * time.Minute},
		"seed 1.9: and enough for another one of the same type":   {[]corev1.NodeCondition{ready(unknown, 3*time.Minute)}, health.Unhealthy, 0},
		"a status that no condition of the check names is a good": {[]corev1.NodeCondition{ready(good, time.Hour), disk(unknown, time.Hour)}, health.Healthy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("n", nil)
			n.Status.Conditions = tc.conditions
			facts := FactsOf(&nhcv1.NodeHealthCheck{Spec: *spec}, epoch)
			facts.Nodes = []Node{{Name: n.Name, Object: n}}
			v := Decide(facts).Decisions[0].Verdict
			if v.State != tc.want {
				t.Errorf("%v, want %v", v.State, tc.want)
			}
			if tc.again > 0 && !v.Recheck.Equal(epoch.Add(tc.again)) {
				t.Errorf("looked at again at %v, want in %v", v.Recheck, tc.again)
			}
		})
	}
}

// The requests of a deleted check are deleted first, and the lease on a node after the last of its requests is gone.
func TestWhatADeletedCheckReleases(t *testing.T) {
	type released struct {
		End   []int
		Lease LeaseAction
	}
	ours := func(renewed time.Duration) func(*Node) {
		return leased(leaseFor(us, 11*time.Minute, time.Hour, renewed))
	}
	clings := asked(kept, deleting(clingingFor))
	for name, tc := range map[string]struct {
		node         Node
		uninstalling bool
		want         released
		again        time.Duration
	}{
		"the requests of a node":                 {lost(asked(), asked(), ours(0)), false, released{End: []int{0, 1}}, 5 * time.Minute},
		"also if it is healthy":                  {healthy(asked(), ours(0)), false, released{End: []int{0}}, 5 * time.Minute},
		"also if it is gone":                     {gone(asked(), ours(0)), false, released{End: []int{0}}, 5 * time.Minute},
		"not what is being deleted":              {lost(asked(deleting(time.Minute)), ours(0)), false, released{}, 5 * time.Minute},
		"the lease is renewed for as long":       {lost(asked(deleting(time.Minute)), ours(6*time.Minute)), false, released{Lease: RenewLease}, 5 * time.Minute},
		"the lease after the last request":       {lost(ours(0)), false, released{Lease: DropLease}, 0},
		"not the lease of another holder":        {lost(leased(leaseFor("NMO", time.Hour, 0, 0))), false, released{}, 0},
		"not while a remediator keeps a request": {lost(clings, ours(0)), false, released{}, 5 * time.Minute},
		"but during an uninstall":                {lost(clings, ours(0)), true, released{Lease: DropLease}, 0},
		"which waits for ten minutes":            {lost(asked(kept, deleting(clingingFor-1)), ours(0)), true, released{}, 5 * time.Minute},
		"for all requests of the node":           {lost(clings, asked(deleting(0)), ours(0)), true, released{}, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(tc.node).with(func(f *Facts) { f.Templates = nil })
			p := Release(f, tc.uninstalling)
			d := p.Decisions[0]
			got := released{which(d, func(r RequestState) bool { return r.End }), d.Leasing}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			if d.starts() || d.Would >= 0 {
				t.Errorf("step %d starts, %d would", d.Start, d.Would)
			}
			var again time.Time
			if tc.again > 0 {
				again = epoch.Add(tc.again)
			}
			if !p.Recheck.Equal(again) {
				t.Errorf("looked at again at %s, want %s", p.Recheck, again)
			}
		})
	}
	t.Run("the first node that is looked at again says when", func(t *testing.T) {
		f := of(lost(asked(), ours(2*time.Minute)), lost(asked(), ours(time.Minute)), lost(ours(0)))
		f.Recheck = epoch.Add(4 * time.Minute)
		if p := Release(f, false); !p.Recheck.Equal(epoch.Add(3*time.Minute)) || len(p.Order) != 3 {
			t.Errorf("looked at again at %s, in the order %v", p.Recheck, p.Order)
		}
	})
}

// dueOf decides once for each of the played statuses of a node's Ready condition, at its transition. It returns when the node will be
// unhealthy after the last one; -1 if it will not.
func dueOf(rules []health.Rule, played ...Node) time.Duration {
	f := of(healthy()).with(func(f *Facts) { f.Policy.Rules = rules })
	var p Plan
	for _, n := range played {
		if n.Object.UID = "uid"; len(n.Object.Status.Conditions) > 0 {
			f.Now = n.Object.Status.Conditions[0].LastTransitionTime.Time
		}
		f.Nodes = []Node{n}
		p = Decide(f)
		f.Memory = p.Memory
	}
	v := p.Decisions[0].Verdict
	if len(v.Findings) == 0 {
		return -1
	}
	return v.Findings[0].Due.Sub(epoch)
}

func TestStatusesOfAConditionCountTogether(t *testing.T) {
	rule := func(status string, d time.Duration) health.Rule {
		return health.Rule{Source: health.OnNode, Type: "Ready", Status: status, For: d}
	}
	both := []health.Rule{rule(bad, 300*time.Second), rule(unknown, 300*time.Second)}
	uneven := []health.Rule{rule(bad, 900*time.Second), rule(unknown, 300*time.Second)}
	for name, tc := range map[string]struct {
		rules []health.Rule
		nodes []Node
		want  time.Duration
	}{
		"one status counts from its transition": {both, []Node{ready(bad, 0)}, 300 * time.Second},
		"W26: a turn from one bad status to the other starts nothing anew": {
			both, []Node{ready(unknown, 0), ready(bad, 299*time.Second)}, 300 * time.Second,
		},
		"W26: nor do many": {
			both, []Node{ready(unknown, 0), ready(bad, 100*time.Second), ready(unknown, 200*time.Second), ready(bad, 290*time.Second)}, 300 * time.Second,
		},
		"a good one in between does": {
			both, []Node{ready(unknown, 0), ready(good, 100*time.Second), ready(bad, 200*time.Second)}, 500 * time.Second,
		},
		"what the longer timeout tolerates is not cut short by the shorter one": {
			uneven, []Node{ready(bad, 0), ready(unknown, 800*time.Second)}, 900 * time.Second,
		},
		"nor longer than the present status alone would take": {
			uneven, []Node{ready(bad, 0), ready(unknown, 100*time.Second)}, 400 * time.Second,
		},
		"a clock that was turned back starts anew": {
			both, []Node{ready(unknown, 100*time.Second), ready(bad, 0)}, 300 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dueOf(tc.rules, tc.nodes...); got != tc.want {
				t.Errorf("unhealthy after %v, want %v", got, tc.want)
			}
		})
	}
}

// The lastTransitionTime of a condition counts unless it contradicts what was seen.
func TestANodeIsJudgedByWhatWasSeenOfIt(t *testing.T) {
	const m = time.Minute
	old, missing, made := ready(unknown, -10*m), healthy(silentMember, created(epoch.Add(-2*m))), ready(unknown, -10*m)
	created(epoch.Add(-m))(&made)
	facts := of(old)
	before, _ := facts.Signals(&old)
	seen := func(signals ...health.Signal) func(*Facts) {
		return func(f *Facts) {
			f.Since = epoch.Add(-time.Hour)
			f.Memory = Memory{Decided: epoch.Add(-m), Judged: epoch.Add(-m), Rules: f.Policy.Rules, Seen: map[string]health.Seen{
				"uid-a": {Object: "uid-a", At: epoch.Add(-m), Signals: signals},
			}}
		}
	}
	otherRules := func(f *Facts) { f.Memory.Rules = nil }
	missed := func(f *Facts) {
		f.Memory.Judged = time.Time{}
		f.Memory.Streaks = map[string]health.Streaks{"uid-a": {"Ready": {Began: epoch.Add(-10 * m), Turned: epoch.Add(-10 * m), Longest: 5 * m}}}
	}
	for name, tc := range map[string]struct {
		given Facts
		want  time.Duration // until the node is unhealthy
	}{
		"its stamp counts at the first look":                          {of(old), -5 * m},
		"unless it is older than the node":                            {of(made), 5 * m},
		"or the node was seen to be healthy since":                    {of(old).with(seen()), 5 * m},
		"but not by a check that did not ask for that condition":      {of(old).with(seen(), otherRules), -5 * m},
		"another stamp is no turn":                                    {of(ready(unknown, -m)).with(seen(before...)), -5 * m},
		"but where one may have been missed":                          {of(ready(unknown, -m/2)).with(seen(before...), missed), 9 * m / 2},
		"W27: a new node that reports nothing counts from its making": {of(missing).with(func(f *Facts) { f.Since = epoch.Add(-time.Hour) }), 3 * m},
		"an older one than the process from when that was seen":       {of(missing).with(func(f *Facts) { f.Since = epoch }), 5 * m},
		"and one that has reported from when it was missed":           {of(missing).with(seen()), 5 * m},
	} {
		if got := Decide(tc.given).Decisions[0].Verdict.Findings[0].Due.Sub(epoch); got != tc.want {
			t.Errorf("%s: unhealthy in %s, want %s", name, got, tc.want)
		}
	}
}

// Nothing else would show that a check can never act as it is written. (medik8s shows nothing.)
func TestACheckThatCanNeverActSaysSo(t *testing.T) {
	noSuchStatus := func(f *Facts) { f.Check.Spec.UnhealthyConditions[0].Status = "unknown" }
	applied := func(f *Facts) {
		f.Check.Annotations = map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"apiVersion":"remediation.medik8s.io/v1alpha1","spec":{"unhealthyConditons":[]}}`,
		}
	}
	made := func(ago time.Duration) func(*Facts) {
		return func(f *Facts) { f.Check.CreationTimestamp = metav1.NewTime(epoch.Add(-ago)) }
	}
	for name, tc := range map[string]struct {
		facts  Facts
		reason string
	}{
		"a rule that a node may meet":               {of(healthy()), ""},
		"a status that no condition has":            {of(healthy()).with(noSuchStatus), mendv1.NoSuchStatusReason},
		"no node, ten minutes after it was created": {of().with(made(10 * time.Minute)), mendv1.SelectsNothingReason},
		"a field that the API server has dropped":   {of(healthy()).with(applied), mendv1.FieldDroppedReason},
		"no node yet":               {of().with(made(9 * time.Minute)), ""},
		"a flaw that was corrected": {of(healthy()).with(saidIneffective), ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(tc.facts)
			cond := meta.FindStatusCondition(Conditions(&tc.facts, &plan), mendv1.Effective)
			if cond == nil && tc.reason != "" || cond != nil && (cond.Reason != tc.reason || cond.Status != metav1.ConditionFalse) {
				t.Errorf("it says %v, want reason %q", cond, tc.reason)
			}
			before, after := &nhcv1.NodeHealthCheck{}, &nhcv1.NodeHealthCheck{}
			if cond != nil {
				after.Status.Conditions = []metav1.Condition{*cond}
			}
			events := ineffectiveEvents(before, after)
			told := len(events) == 1 && events[0].Kind == corev1.EventTypeWarning && events[0].Text == cond.Message
			if again := ineffectiveEvents(after, after); told != (cond != nil) || len(again) > 0 {
				t.Errorf("the events are %v, and then %v", events, again)
			}
		})
	}
}

func saidIneffective(f *Facts) {
	f.Check.Status.Conditions = []metav1.Condition{
		{Type: mendv1.Effective, Status: metav1.ConditionFalse, Reason: mendv1.NoSuchStatusReason},
	}
}
