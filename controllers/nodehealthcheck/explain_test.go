package nodehealthcheck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/must"
)

func (k *fixture) node(name string) *corev1.Node {
	k.t.Helper()
	n := &corev1.Node{}
	must.Do(k.t, k.client.Get(k.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

func TestLook(t *testing.T) {
	golden.Stories(t, "stories", looks, func(t *testing.T, l looked) string {
		c := check("nhc")
		if l.check != nil {
			l.check(&c.Spec)
		}
		objects := append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false), c)
		if l.five {
			objects = five(c)
		}
		k := newFixture(t, append(objects, l.more...)...)
		k.settle("nhc")
		if l.happens != nil {
			l.happens(k)
		}
		k.events()
		is := k.look("nhc")
		if told := k.events(); len(told) > 0 {
			t.Errorf("events were told: %v", told)
		}
		k.does(is)
		return printed(t, is)
	})
}

// does reconciles, and expects that the reconcile does what the explanation says.
func (k *fixture) does(is *explain.Check) {
	k.t.Helper()
	if is.Reason == nhcv1.KindUnreadReason { // the status has this reason only after a while
		return
	}
	starts := 0
	for i := range is.Targets {
		if t := &is.Targets[i]; t.StartsNow {
			starts++
			if len(t.Blockers) > 0 {
				k.t.Fatalf("%s begins although there are blockers: %+v", t.Name, t.Blockers)
			}
		}
	}
	made := len(k.made)
	k.reconcile(is.Name)
	if n := len(k.made) - made; n != starts {
		k.t.Errorf("the reconcile has made %v, and the look foresaw %d", k.made[made:], starts)
	}
	if diff := gocmp.Diff(is.Conditions, k.check(is.Name).Status.Conditions, cmpopts.EquateEmpty()); diff != "" {
		k.t.Errorf("conditions (-look +reconcile):\n%s", diff)
	}
}

// look explains a check twice, and expects that this writes nothing and has the same result.
func (k *fixture) look(check string) *explain.Check {
	k.t.Helper()
	writes := k.writes
	k.read(check)
	is, err := k.r.Explain(k.t.Context(), check, k.clock.Now())
	must.Do(k.t, err)
	again, err := k.r.Explain(k.t.Context(), check, k.clock.Now())
	must.Do(k.t, err)
	if diff := gocmp.Diff(is, again); diff != "" {
		k.t.Fatalf("the second look comes to something else (-first +second):\n%s", diff)
	}
	if k.writes != writes {
		k.t.Fatal("an explanation has written something")
	}
	return is
}

// printed returns an explanation without the targets and conditions that need no explanation, with all times in UTC.
func printed(t *testing.T, is *explain.Check) string {
	t.Helper()
	var all map[string]any
	raw, err := json.Marshal(is.Document())
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	must.Do(t, err)
	targets, _ := all["targets"].([]any)
	for i := range is.Targets {
		for j, blocker := range is.Targets[i].Blockers {
			if blocker.EndsWhen != "" {
				targets[i].(map[string]any)["blockers"].([]any)[j].(map[string]any)["endsWhen"] = blocker.EndsWhen
			}
		}
	}
	var kept []any
	for _, target := range targets {
		if fields := target.(map[string]any); fields["state"] != "Healthy" || fields["requests"] != nil || fields["skipped"] != nil {
			kept = append(kept, target)
		}
	}
	all["targets"] = kept
	var conditions []any
	for _, c := range is.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	all["conditions"] = conditions
	text, err := yaml.Marshal(inUTC(all))
	must.Do(t, err)
	return string(text)
}

func inUTC(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = inUTC(v[key])
		}
	case []any:
		for i := range v {
			v[i] = inUTC(v[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	}
	return v
}

func TestThereIsNothingToLookAt(t *testing.T) {
	k := newFixture(t)
	if is, err := k.r.Explain(t.Context(), "none", epoch); is != nil || err != nil {
		t.Errorf("Look() = %v, %v, want nothing", is, err)
	}
}

// Without a manager there is no search for orphans, and there are no watches.
func TestAReconcilerWithoutAManagerExplainsAndReconciles(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.read("nhc")
	k.r.Watches, k.r.Discovery = nil, nil
	k.r.searched.Store(false)
	badMembers("m0")(k)
	if is := k.look("nhc"); !is.Targets[0].StartsNow {
		t.Errorf("m0 does not begin: %+v", is.Targets[0].Blockers)
	}
	k.settle("nhc")
	k.wants("a reconcile begins it", "Reboot/m0")
}

func TestWhoDoesNotServeTheKindSaysSo(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Serve(false)
	if is := k.look("nhc"); is.Mode != cliv1.ModeNone || is.ModeMessage == "" {
		t.Errorf("mode %s, because %q", is.Mode, is.ModeMessage)
	}
}

// An explanation uses the memory of the reconciler, and does not change it.
func TestAnExplanationKnowsTheStreaksOfFormerReconcilesAndBeginsNone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.read("nhc")
	due := func(r *Reconciler) time.Time {
		is, err := r.Explain(t.Context(), "nhc", k.clock.Now())
		must.Do(t, err)
		return is.Targets[1].Next.At
	}
	fresh := &Reconciler{
		Client: k.client, Management: k.client, Live: k.client, Mapper: k.r.Mapper, Kinds: k.r.Kinds, Installed: k.r.Installed,
		LeaseNamespace: k.r.LeaseNamespace,
	}
	k.turn("b", corev1.ConditionUnknown)
	due(k.r)
	k.after(200 * time.Second)
	k.turn("b", corev1.ConditionFalse)
	if got := due(k.r); !got.Equal(epoch.Add(500 * time.Second)) {
		t.Errorf("without a reconcile it is due at %v, as if the explanation had been one", got)
	}
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	k.after(100 * time.Second)
	k.turn("b", corev1.ConditionFalse)
	k.settle("nhc")
	if got := due(k.r); !got.Equal(epoch.Add(500 * time.Second)) {
		t.Errorf("after reconciles it is due at %v, want 300 s after it turned bad before their eyes", got)
	}
	if got := due(fresh); !got.Equal(epoch.Add(600 * time.Second)) {
		t.Errorf("one that made no reconcile says %v, want 300 s after the last transition", got)
	}
}

func TestWhyANodeIsNotSelected(t *testing.T) {
	n := node("n", map[string]string{"pool": "x"})
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		want     string
	}{
		"an empty selector selects all": {},
		"a label that is another one":   {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "y"}}, `label pool is "x": needs pool=y`},
		"a selector that cannot be read is reported as the check reports it": {
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}},
			`spec.selector is invalid: "Like" is not a valid label selector operator`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.Selector = tc.selector })
			if got := WhyNotSelected(c, n); got != tc.want || (got == "") != selectsNode(c, n.Labels) {
				t.Errorf("WhyNotSelected() = %q, want %q; it is selected: %v", got, tc.want, selectsNode(c, n.Labels))
			}
		})
	}
}

func TestWhatComesDueSaysWhatStillBlocksIt(t *testing.T) {
	d := &Decision{Verdict: health.Verdict{Recheck: epoch}}
	for until, blocked := range map[time.Time]bool{{}: true, epoch: false, epoch.Add(1): true} {
		target := &explain.Target{Target: cliv1.Target{Action: &cliv1.Action{}, Blockers: []explain.Blocker{{Until: until}}}}
		if text := comesDue(d, target).Text; strings.Contains(text, "still blocked") != blocked {
			t.Errorf("a blocker until %s: %q", until, text)
		}
	}
}

// docs/reference/events.md lists the blockers in the order of the rules, first those of one node, then those of all nodes.
func TestBlockersAreDocumented(t *testing.T) {
	yes := map[bool]string{true: "yes", false: "no"}
	words := strings.NewReplacer(skippedOn, "... ", skippedBecause, "... ", quorumLoss, "... ", "{", "*", "}", "*")
	for section, ofAll := range map[string]bool{"blockers of one node": false, "blockers of all nodes": true} {
		var table strings.Builder
		table.WriteString("| reason | message | until | what to do | next step too |\n|---|---|---|---|---|\n")
		for _, r := range rules {
			if r.Message == "" || (r.asked&ofCheck != 0) != ofAll {
				continue
			}
			until := r.EndsWhen
			if r.Until != nil {
				until = cmp.Or(until, "the time that explain shows")
			}
			row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", r.Reason, r.Message, until, r.Fix, yes[r.asked&(beforeNext|ofAnswer) != 0])
			table.WriteString(words.Replace(row))
		}
		golden.Section(t, "../../docs/reference/events.md", section, table.String())
	}
}
