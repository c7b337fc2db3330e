package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// dueOf plays the statuses of a node's Ready condition, one after the other, each seen when it turned, and returns when it is unhealthy after
// the last one; -1 if it is not on its way there.
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

func TestANodeThatNeverReported(t *testing.T) {
	rules := []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 300 * time.Second}}
	mute := healthy(silentMember, created(epoch))
	if got := dueOf(rules, mute); got != 300*time.Second {
		t.Errorf("W27: unhealthy after %v, want 300 s after it was created", got)
	}
	other := []health.Rule{{Source: health.OnNode, Type: "DiskBroken", Status: "True", For: time.Second}}
	if got := dueOf(other, mute); got != -1 {
		t.Errorf("a condition that is missing says nothing; unhealthy after %v", got)
	}
}

// What a condition says of its own age counts if nothing contradicts it that was seen.
func TestANodeIsJudgedByWhatWasSeenOfIt(t *testing.T) {
	const m = time.Minute
	old, missing, made := ready(unknown, -10*m), healthy(silentMember, created(epoch.Add(-2*m))), ready(unknown, -10*m)
	created(epoch.Add(-m))(&made)
	facts := of(old)
	before, _ := facts.Signals(&old)
	seen := func(signals ...health.Signal) func(*Facts) {
		return func(f *Facts) {
			f.Since = epoch.Add(-time.Hour)
			f.Memory = Memory{Known: true, Judged: epoch.Add(-m), Rules: f.Policy.Rules, Seen: map[string]health.Seen{
				"uid-a": {Object: "uid-a", At: epoch.Add(-m), Signals: signals},
			}}
		}
	}
	otherRules := func(f *Facts) { f.Memory.Rules = nil }
	missed := func(f *Facts) {
		f.Memory.Judged = time.Time{}
		f.Memory.Streaks = map[string]Streaks{"uid-a": {"Ready": {Began: epoch.Add(-10 * m), Turned: epoch.Add(-10 * m), Longest: 5 * m}}}
	}
	for name, tc := range map[string]struct {
		given Facts
		want  time.Duration // until it is unhealthy
	}{
		"its stamp counts at the first look":                     {of(old), -5 * m},
		"unless it is older than the node":                       {of(made), 5 * m},
		"or the node was seen to be healthy since":               {of(old).with(seen()), 5 * m},
		"but not by a check that did not ask for that condition": {of(old).with(seen(), otherRules), -5 * m},
		"another stamp is no turn":                               {of(ready(unknown, -m)).with(seen(before...)), -5 * m},
		"but where one may have been missed":                     {of(ready(unknown, -m/2)).with(seen(before...), missed), 9 * m / 2},
		"a new node that reports nothing counts from its making": {of(missing).with(func(f *Facts) { f.Since = epoch.Add(-time.Hour) }), 3 * m},
		"an older one than the process from when that was seen":  {of(missing).with(func(f *Facts) { f.Since = epoch }), 5 * m},
		"and one that has reported from when it was missed":      {of(missing).with(seen()), 5 * m},
	} {
		if got := Decide(tc.given).Decisions[0].Verdict.Findings[0].Due.Sub(epoch); got != tc.want {
			t.Errorf("%s: unhealthy in %s, want %s", name, got, tc.want)
		}
	}
}
