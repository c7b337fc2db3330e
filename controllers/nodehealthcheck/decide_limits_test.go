package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestWhatTheLimitsCount(t *testing.T) {
	left := func(f *Facts) { f.TerminatingLeft = true }
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Population
	}{
		"healthy nodes": {of(healthy(), healthy()), budget.Population{Healthy: 2}},
		"an unhealthy node without a request waits":       {of(lost(), lost()), budget.Population{Unhealthy: 2, Waiting: 2}},
		"one with a request is in flight":                 {of(lost(asked()), lost(asked())), budget.Population{Unhealthy: 2, InFlight: 2}},
		"an excluded node counts like any other":          {of(lost(excluded)), budget.Population{Unhealthy: 1, Waiting: 1}},
		"a pending node does not wait yet":                {of(lost(since(time.Minute))), budget.Population{Pending: 1}},
		"a healthy node with a request recovers":          {of(healthy(asked())), budget.Population{Recovering: 1, InFlight: 1}},
		"also if it cannot be read":                       {of(healthy(unseen)), budget.Population{Recovering: 1, InFlight: 1}},
		"also if one of two cannot be read":               {of(healthy(asked(), unseen)), budget.Population{Recovering: 1, InFlight: 1}},
		"a node of which an orphaned request is there":    {of(healthy(orphaned)), budget.Population{Recovering: 1}},
		"a node that OpenShift is ending is unknown":      {of(lost(terminating)).with(left), budget.Population{Unknown: 1}},
		"C69: a node that has left the selection":         {of(lost(unselected, asked())), budget.Population{}},
		"a healthy node that has left it":                 {of(healthy(unselected)), budget.Population{}},
		"a node that is gone, whose request is there":     {of(gone(asked())), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request cannot be read":                {of(gone(unseen)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request is not released soon":          {of(gone(asked(deleting(ClingingFor - 1)))), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request is not released for very long": {of(gone(asked(deleting(ClingingFor)))), budget.Population{}},
		"one that a person has deleted":                   {of(gone()), budget.Population{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			if diff := cmp.Diff(tc.want, p.Population); diff != "" {
				t.Errorf("population (-want +got):\n%s", diff)
			}
			if got := p.Minimum() + p.Limits.AtMost; got != p.Population.Total() {
				t.Errorf("%d nodes have to be healthy, of %d of which %d may be unhealthy", p.Minimum(), p.Population.Total(), p.Limits.AtMost)
			}
		})
	}
}

// A node that a remediation took away is missing until there is another one for it: else each replacement would lower the number of which the next ones
// may take their share.
func TestWhichNodesAreMissing(t *testing.T) {
	const minute = time.Minute
	at := func(ago time.Duration) time.Time { return epoch.Add(-ago) }
	away := func(ago time.Duration) Node { return gone(statusLists(at(ago))) }
	made := func(ago time.Duration, changes ...func(*Node)) Node {
		return healthy(append(changes, created(at(ago)))...)
	}
	requests := func(n int) func(*Node) {
		return func(node *Node) { node.Listed = &nhcv1.UnhealthyNode{Remediations: make([]nhcv1.Remediation, n)} }
	}
	reports := func(change func(*Request)) Node { return gone(asked(change)) }
	for name, tc := range map[string]struct {
		given Facts
		want  map[string]time.Time // which are missing, since when
	}{
		"none, as none is gone":                          {of(healthy(), lost()), nil},
		"one that is gone while its request was there":   {of(away(10 * minute)), map[string]time.Time{"a": at(10 * minute)}},
		"one whose request the status lists":             {of(gone(requests(1))), map[string]time.Time{"a": epoch}},
		"W7: none that the status lists without any":     {of(gone(requests(0))), nil},
		"none whose request cannot be read":              {of(gone(unseen, statusLists(at(minute)))), nil},
		"none that is there":                             {of(lost(statusLists(at(minute)))), nil},
		"one for half an hour":                           {of(away(controlplane.ReplacementPatience - 1)), map[string]time.Time{"a": at(controlplane.ReplacementPatience - 1)}},
		"and no longer":                                  {of(away(controlplane.ReplacementPatience)), nil},
		"one whose remediation has succeeded":            {of(reports(succeeded(escalation.Yes))), map[string]time.Time{"a": epoch}},
		"none whose remediation has failed":              {of(reports(failed)), nil},
		"one whose remediator says that it will go":      {of(reports(deletesNode(escalation.Yes))), map[string]time.Time{"a": epoch}},
		"none whose remediator says that it will not":    {of(reports(deletesNode(escalation.No))), nil},
		"one whose Machine stays":                        {of(reports(machineThere)), map[string]time.Time{"a": epoch}},
		"one whose request a remediator keeps":           {of(reports(kept)), map[string]time.Time{"a": epoch}},
		"none that a node was made for since":            {of(away(10*minute), made(5*minute)), nil},
		"one for which none was made since":              {of(away(10*minute), made(15*minute)), map[string]time.Time{"a": at(10 * minute)}},
		"one that a node was made for at the moment":     {of(away(10*minute), made(10*minute)), map[string]time.Time{"a": at(10 * minute)}},
		"the later one of two, for which one was made":   {of(away(10*minute), away(20*minute), made(5*minute)), map[string]time.Time{"a": at(5 * minute)}},
		"none of two for which two were made":            {of(away(10*minute), away(20*minute), made(5*minute), made(6*minute)), nil},
		"none of two for which two were made in between": {of(away(10*minute), away(20*minute), made(5*minute), made(15*minute)), nil},
		"one if the node that was made is another check's": {
			of(away(10*minute), made(5*minute, unselected)), map[string]time.Time{"a": at(10 * minute)},
		},
		"one if the node that was made is gone": {
			of(away(10*minute), gone(func(n *Node) { n.Selected = true })), map[string]time.Time{"a": at(10 * minute)},
		},
		"one if a node has come back that was away itself": {
			of(away(10*minute), made(5*minute, statusLists(at(8*minute)))), map[string]time.Time{"a": at(5 * minute)},
		},
		"none if a node was made that was healthy since": {of(away(10*minute), made(5*minute, statusLists(at(2*minute)))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			got := map[string]time.Time{}
			for i := range p.Decisions {
				if d := &p.Decisions[i]; d.Missing {
					got[tc.given.Nodes[i].Name] = d.MissedSince
					if d.Class != budget.Unhealthy || !d.InFlight {
						t.Errorf("it counts as %q, in flight: %t", d.Class, d.InFlight)
					}
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("missing %v, want %v", got, tc.want)
			}
			for name, since := range tc.want {
				if !got[name].Equal(since) {
					t.Errorf("%s is missing since %v, want %v", name, got[name], since)
				}
			}
			if len(got) > 0 && (p.Recheck.IsZero() || !p.Recheck.After(epoch)) {
				t.Errorf("looked at again at %v", p.Recheck)
			}
		})
	}
}

// Nodes that are not due yet make no storm, or each rollout would; where there is one they prolong it.
func TestWhatAStormIs(t *testing.T) {
	cooldown := cooldown(time.Hour)
	active := func(f *Facts) { f.Storm.Active = true }
	pending := lost(since(time.Minute))
	for name, tc := range map[string]struct {
		given           Facts
		active, blocked bool
	}{
		"too many unhealthy nodes begin one":           {of(lost()).with(limit("0"), cooldown), true, true},
		"as many as may be do not":                     {of(lost()).with(limit("1"), cooldown), false, false},
		"too many pending nodes do not":                {of(pending).with(limit("0"), cooldown), false, false},
		"they prolong it":                              {of(pending).with(limit("0"), cooldown, active), true, true},
		"too few healthy nodes begin none":             {of(healthy()).with(func(f *Facts) { f.Check.Spec.MaxUnhealthy, f.Check.Spec.MinHealthy = nil, new(intstr.Parse("2")) }, cooldown), false, false},
		"it blocks while it cools down":                {of(healthy()).with(storm), true, true},
		"W11: it is over after that":                   {of(healthy()).with(storm, func(f *Facts) { f.Storm.CoolingSince = epoch.Add(-time.Hour) }), false, false},
		"W11: it is over when the cooldown is removed": {of(lost()).with(limit("0"), active), false, false},
	} {
		p := Decide(tc.given)
		if p.Storm.Active != tc.active || p.Storm.Blocks != tc.blocked {
			t.Errorf("%s: active %t, blocks %t; want %t, %t", name, p.Storm.Active, p.Storm.Blocks, tc.active, tc.blocked)
		}
		if cools := p.Storm.Blocks && !p.Storm.CoolingSince.IsZero(); cools && !p.Recheck.Equal(epoch.Add(time.Hour)) {
			t.Errorf("%s: looked at again at %s", name, p.Recheck)
		}
	}
}

// After a start, and after the API server was out of reach, it is not known which kubelets are silent.
func TestForHowLongKubeletsAreAwaited(t *testing.T) {
	const grace = 50 * time.Second
	at := func(ago time.Duration) time.Time { return epoch.Add(-ago) }
	minuteAgo := since(time.Minute)
	since := func(ago time.Duration) func(*Facts) {
		return func(f *Facts) { f.Since, f.Grace = at(ago), grace }
	}
	announced := func(ago time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Check.Status.Conditions = []metav1.Condition{{
				Type: nhcv1.RemediationAllowedCondition, Reason: nhcv1.KubeletsAwaitedReason, LastTransitionTime: metav1.NewTime(at(ago)),
			}}
		}
	}
	outage := func(from, to time.Duration) func(*Facts) {
		return func(f *Facts) { f.Outages = append(f.Outages, Outage{at(from), at(to)}) }
	}
	pending := lost(minuteAgo)
	for name, tc := range map[string]struct {
		given Facts
		want  time.Duration // from now on
	}{
		"for as long as they have to report":                          {of(lost()).with(since(0)), grace},
		"from the start on":                                           {of(lost()).with(since(49 * time.Second)), time.Second},
		"and no longer":                                               {of(lost()).with(since(grace)), 0},
		"from the end of the last outage on":                          {of(lost()).with(since(time.Hour), outage(30*time.Minute, 20*time.Minute), outage(time.Minute, 10*time.Second)), 40 * time.Second},
		"from the start, after all outages":                           {of(lost()).with(since(10*time.Second), outage(time.Hour, time.Minute)), 40 * time.Second},
		"by managers that start again and again, three times as long": {of(lost()).with(since(0), announced(3*grace-1)), grace},
		"and not without end":                                         {of(lost()).with(since(0), announced(3*grace)), 0},
		"but for outages":                                             {of(lost()).with(since(0), announced(3*grace), outage(time.Minute, 10*time.Second)), 40 * time.Second},
		"for a pending node":                                          {of(pending).with(since(0)), grace},
		"for an unhealthy one and a pending one":                      {of(lost(), pending).with(since(0)), grace},
		"if all nodes are healthy there is none for which it matters": {of(healthy()).with(since(0)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var reason Reason
			var until time.Time
			if tc.want > 0 {
				reason, until = "KubeletsAwaited", epoch.Add(tc.want)
			}
			if b := p.Blocker(); b.Reason != reason || !b.Until.Equal(until) {
				t.Errorf("blocked by %+v, want %s until %s", b, reason, until)
			}
			if tc.want > 0 && (p.Recheck.IsZero() || p.Recheck.After(until)) {
				t.Errorf("looked at again at %s", p.Recheck)
			}
		})
	}
}
