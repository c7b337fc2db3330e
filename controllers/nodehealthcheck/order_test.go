package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

func TestOnlyAStepThatChangesNothingIsLeftOut(t *testing.T) {
	one := []*found{{}}
	for name, tc := range map[string]struct {
		change func(*step)
		want   bool
	}{
		"one that does nothing":               {func(*step) {}, true},
		"one that ends a request":             {func(s *step) { s.end = one }, false},
		"one that counts a request":           {func(s *step) { s.flag = one }, false},
		"one that delays the end":             {func(s *step) { s.delay = one }, false},
		"one that takes up a request again":   {func(s *step) { s.resume = one }, false},
		"one that ends one and counts one":    {func(s *step) { s.end, s.flag = one, one }, false},
		"one that counts one and delays one":  {func(s *step) { s.flag, s.delay = one, one }, false},
		"one that delays one and resumes one": {func(s *step) { s.delay, s.resume = one, one }, false},
		"one that waits for the delay":        {func(s *step) { s.delayed = true }, false},
		"one that gives a request up":         {func(s *step) { s.giveUp = one }, false},
		"one that begins":                     {func(s *step) { s.start = 0 }, false},
		"one that takes a lease":              {func(s *step) { s.lease = takeLease }, false},
		"one that waits for a moment":         {func(s *step) { s.recheck = epoch.Add(time.Minute) }, false},
	} {
		s := step{start: -1}
		tc.change(&s)
		if got := s.idle(); got != tc.want {
			t.Errorf("%s: left out %t, want %t", name, got, tc.want)
		}
	}
}

func TestAStepBeginsFromTheFirstTemplateOn(t *testing.T) {
	for start, want := range map[int]int{-1: 0, 0: 1, 1: 1} {
		if got := begins(step{start: start}); got != want {
			t.Errorf("start %d: got %d, want %d", start, got, want)
		}
	}
}

func TestAPauseAndAnUpgradeHoldEveryNodeUp(t *testing.T) {
	b := beginning{sum: plan{holds: []explain.Blocker{{Reason: nhcv1.PausedReason}, {Reason: "Other"}, {Reason: nhcv1.UpgradeReason}}}}
	var got []string
	for _, s := range b.pausedForAll() {
		got = append(got, s.Reason)
	}
	if want := []string{nhcv1.PausedReason, nhcv1.UpgradeReason}; !slices.Equal(got, want) {
		t.Errorf("held up by %q, want %q", got, want)
	}
}

func TestOnlyAnExcludeLabelWithoutAValueIsWarnedOf(t *testing.T) {
	labelled := func(value string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{nhcv1.ExcludeLabel: value}}}
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"a node that is gone":              {nil, false},
		"a node without the label":         {&corev1.Node{}, false},
		"a node with the label":            {labelled(nhcv1.ExcludeValue), false},
		"a node with the label, empty one": {labelled(""), true},
	} {
		if got := invalidLabel(&target{name: "n", node: tc.node}) != ""; got != tc.want {
			t.Errorf("%s: warned of %t, want %t", name, got, tc.want)
		}
	}
}

func TestAnyKnownMachineNamesTheCluster(t *testing.T) {
	m := &clusterv1.Machine{}
	w := &observed{targets: []target{{}, {machine: machine{obj: m}}, {}}}
	if got := w.someMachine(); got != m {
		t.Errorf("got %v, want the only machine", got)
	}
	if got := (&observed{targets: []target{{}}}).someMachine(); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

func TestWhichOfTwoVersionsIsOlder(t *testing.T) {
	version := func(v string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetResourceVersion(v)
		return u
	}
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"no number", "10", false}} {
		if got := older(version(tc.a), version(tc.b)); got != tc.want {
			t.Errorf("%q is older than %q: %t", tc.a, tc.b, got)
		}
	}
}

func TestWhatComesDueIsSaidOfSuspectNodesAlone(t *testing.T) {
	at := epoch.Add(time.Minute)
	findings := []health.Finding{{Detail: "another", Due: at.Add(time.Minute)}, {Detail: "Ready is Unknown", Due: at}}
	for state, want := range map[health.State]string{health.Pending: "is due: Ready is Unknown", health.Unhealthy: "", health.Healthy: ""} {
		if got := dueText(health.Verdict{State: state, Findings: findings, Recheck: at}); got != want {
			t.Errorf("%s: got %q, want %q", state, got, want)
		}
	}
}

func TestARequestNamesTheTemplateOfItsStep(t *testing.T) {
	w := &observed{remedies: []remedy{{ref: corev1.ObjectReference{Name: "first"}}, {ref: corev1.ObjectReference{Name: "second"}}}}
	for name, tc := range map[string]struct {
		annotation string
		rung       int
		want       string
	}{
		"its annotation does":                     {"annotated", 1, "annotated"},
		"without that the template of its step":   {"", 0, "first"},
		"of a later step, too":                    {"", 1, "second"},
		"of a step that there is no more nothing": {"", -1, ""},
	} {
		f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}, rung: tc.rung}
		if tc.annotation != "" {
			f.obj.SetAnnotations(map[string]string{nhcv1.TemplateNameAnnotation: tc.annotation})
		}
		if got := remediationOf(w, f, &outcome{}).TemplateName; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestARequestThatWasDeletedIsListedWhileAFinalizerKeepsIt(t *testing.T) {
	w := &observed{remedies: []remedy{{}}}
	for finalizers, want := range map[string]int{"": 0, "example.org/keeps": 1} {
		f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}}
		if finalizers != "" {
			f.obj.SetFinalizers([]string{finalizers})
		}
		if got := remediationsOf(w, &target{requests: []*found{f}}, &outcome{ended: []*found{f}}); len(got) != want {
			t.Errorf("finalizer %q: %d are listed, want %d", finalizers, len(got), want)
		}
	}
}

func TestANodeIsHealthySinceItWasFirstSeenToBe(t *testing.T) {
	before := metav1.NewTime(epoch.Add(-time.Hour))
	for name, tc := range map[string]struct {
		listed *nhcv1.UnhealthyNode
		want   metav1.Time
	}{
		"the status does not list it":          {nil, metav1.NewTime(epoch)},
		"the status lists it without a moment": {&nhcv1.UnhealthyNode{}, metav1.NewTime(epoch)},
		"the status says since when":           {&nhcv1.UnhealthyNode{ConditionsHealthyTimestamp: &before}, before},
	} {
		f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}, rung: -1}
		entry := entryOf(&observed{now: epoch}, &target{name: "n", requests: []*found{f}, listed: tc.listed}, &outcome{})
		if entry == nil || entry.ConditionsHealthyTimestamp == nil || !entry.ConditionsHealthyTimestamp.Equal(&tc.want) {
			t.Errorf("%s: got %+v, want healthy since %s", name, entry, tc.want)
		}
	}
}

func TestOnlyARequestOfTheSameKindIsARival(t *testing.T) {
	kind := schema.GroupVersionKind{Group: remedyGroup, Version: "v1", Kind: "Reboot"}
	rival := func(k string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind.GroupVersion().WithKind(k))
		u.SetName("theirs")
		return u
	}
	same, other := rival("Reboot"), rival("Replace")
	for name, tc := range map[string]struct {
		given, leftovers []*unstructured.Unstructured
		want             int
	}{
		"one of the same kind":         {[]*unstructured.Unstructured{same}, nil, 1},
		"one of another kind":          {[]*unstructured.Unstructured{other}, nil, 0},
		"one of a check that was ours": {[]*unstructured.Unstructured{same}, []*unstructured.Unstructured{same}, 0},
	} {
		w := &observed{remedies: []remedy{{kind: kind}}, requests: requests{byNode: map[string][]*unstructured.Unstructured{"n": tc.given}}}
		b := beginning{observed: w, t: &target{name: "n", leftovers: tc.leftovers}}
		if got := b.rivalled(); len(got) != tc.want {
			t.Errorf("%s: %d rivals, want %d", name, len(got), tc.want)
		}
	}
}

func TestAStepThatBeginsComesFirst(t *testing.T) {
	w := &observed{now: epoch}
	begins, waits := step{target: &target{}, start: 0}, step{target: &target{}, start: -1}
	if comesFirst(w, begins, waits) >= 0 || comesFirst(w, waits, begins) <= 0 || comesFirst(w, begins, begins) != 0 {
		t.Errorf("got %d and %d", comesFirst(w, begins, waits), comesFirst(w, waits, begins))
	}
}

func TestALimitThatCannotBeReadDisablesTheCheck(t *testing.T) {
	wrong := intstr.FromString("many")
	is := &observed{now: epoch, check: &nhcv1.NodeHealthCheck{}}
	is.check.Spec.MaxUnhealthy = &wrong
	is.observeLimits()
	if is.disabled == nil || is.disabled.reason != nhcv1.InvalidLimitReason {
		t.Errorf("got %+v", is.disabled)
	}
	before := &disabling{reason: "Other"}
	is.disabled = before
	is.observeLimits()
	if is.disabled != before {
		t.Errorf("the first reason is forgotten for %+v", is.disabled)
	}
}

func TestTheLeaseOfANodeHasTheTermOfItsStep(t *testing.T) {
	w := &observed{now: epoch, check: &nhcv1.NodeHealthCheck{}, rungs: []escalation.Rung{{Timeout: 3 * time.Minute}, {Timeout: 20 * time.Minute}}}
	for rung, want := range map[int]time.Duration{0: 3 * time.Minute, 1: 20 * time.Minute, -1: classicLease} {
		f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}, rung: rung}
		f.obj.SetCreationTimestamp(metav1.NewTime(epoch))
		s := step{target: &target{name: "n", requests: []*found{f}}}
		s.leased(w)
		if s.term.length != want {
			t.Errorf("of step %d: %s, want %s", rung, s.term.length, want)
		}
	}
}

func TestAStormThatCoolsSaysSo(t *testing.T) {
	for turn, want := range map[budget.StormTurn]string{
		budget.StormCooling:   "Storm cooldown delay started - waiting before resuming normal remediation",
		budget.StormUnchanged: "Cooldown cleared - storm threshold triggered",
	} {
		s, st := plan{}, &nhcv1.NodeHealthCheckStatus{}
		s.storm.CoolingSince, s.storm.Turn = epoch, turn
		sayStorm(&observed{now: epoch, check: &nhcv1.NodeHealthCheck{}}, s, st)
		var got string
		for _, c := range st.Conditions {
			if c.Type == nhcv1.StormCooldownActiveCondition {
				got = c.Message
			}
		}
		if got != want {
			t.Errorf("turn %d: it says %q, want %q", turn, got, want)
		}
	}
}

func TestTheLeaseOfANodeThatIsGoneIsGivenBackAfterTheLastRequest(t *testing.T) {
	w := &observed{now: epoch, check: &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc"}}}
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holderOf(w.check))}}
	f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}, rung: -1}
	for name, tc := range map[string]struct {
		requests []*found
		want     leasing
	}{
		"nothing is left": {nil, dropLease},
		"a request is":    {[]*found{f}, keepLease},
	} {
		s := step{target: &target{name: "n", lease: lease, requests: tc.requests}}
		s.orphaned(w)
		if s.lease != tc.want {
			t.Errorf("%s: %v, want %v", name, s.lease, tc.want)
		}
	}
}

func TestTheStatusRemembersSinceWhenANodeIsHealthy(t *testing.T) {
	before, wait := metav1.NewTime(epoch.Add(-time.Hour)), &metav1.Duration{Duration: 10 * time.Minute}
	for name, tc := range map[string]struct {
		listed *nhcv1.UnhealthyNode
		ends   bool
	}{
		"it is not listed":                   {nil, false},
		"it is listed without a moment":      {&nhcv1.UnhealthyNode{}, false},
		"it has been healthy for long":       {&nhcv1.UnhealthyNode{ConditionsHealthyTimestamp: &before}, true},
		"it has become healthy a moment ago": {&nhcv1.UnhealthyNode{ConditionsHealthyTimestamp: &metav1.Time{Time: epoch}}, false},
	} {
		w := &observed{now: epoch, check: &nhcv1.NodeHealthCheck{Spec: nhcv1.NodeHealthCheckSpec{HealthyDelay: wait}}}
		f := &found{obj: &unstructured.Unstructured{Object: map[string]any{}}, rung: -1}
		f.obj.SetCreationTimestamp(before)
		s := step{target: &target{name: "n", node: &corev1.Node{}, listed: tc.listed, requests: []*found{f}}, start: -1}
		s.healthy(w)
		if (len(s.end) == 1) != tc.ends || s.delayed == tc.ends {
			t.Errorf("%s: %d requests end, delayed %t", name, len(s.end), s.delayed)
		}
	}
}
