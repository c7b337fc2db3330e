package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestTheNodesForWhichARemediationStartsComeFirst(t *testing.T) {
	p := Decide(of(healthy(asked()), lost(since(20*time.Minute)), lost(since(30*time.Minute)), lost(excluded), healthy()))
	if want := []int{2, 1, 0, 3}; !slices.Equal(p.Order, want) {
		t.Errorf("order %v, want %v", p.Order, want)
	}
}

func TestTheFirstReasonThatDisablesACheckIsKept(t *testing.T) {
	p := Decide(of(lost()).with(func(f *Facts) { f.Disabled = Disabled{"Other", "x"} }, limit("many")))
	if p.Disabled.Reason != "Other" {
		t.Errorf("got %+v", p.Disabled)
	}
}

// Whatever is done about a node, it comes in the order of those about which something is done: what does not is not carried out.
func TestANodeAboutWhichAnythingIsDoneIsInTheOrder(t *testing.T) {
	ours := leased(leaseFor(us, 11*time.Minute, 0, 0))
	pending := since(time.Minute)
	old := startedBefore(tooOld + 1)
	marked := delayedSince(0)
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"nothing": {of(healthy()), false},
		"nothing about a request that is waited for":     {of(lost(asked(), ours)), false},
		"a request is counted as old":                    {of(lost(asked(old), ours, pending)), true},
		"its delay begins":                               {of(healthy(asked(), ours)).with(healthyDelay(time.Minute)), true},
		"it is counted and its delay begins":             {of(healthy(asked(old), ours)).with(healthyDelay(time.Minute)), true},
		"its delay was in vain":                          {of(lost(asked(marked), ours, pending)), true},
		"it ends":                                        {of(healthy(asked(), ours)), true},
		"it ends and is counted":                         {of(healthy(asked(old), ours)), true},
		"its remediator is notified to stop":             {of(gone(asked(kept, deleting(0)), ours)), true},
		"it is left of the last failure":                 {of(lost(asked(deleting(0), kept), asked(on(1)), leased(leaseFor(us, 6*time.Minute, 0, 0)))).with(steps(reboot(0), reboot(0))), true},
		"it has failed and no step follows":              {of(lost(asked(failed), ours)).with(steps(reboot(0))), true},
		"the lease is taken":                             {of(lost(asked())), true},
		"a confirmation is removed":                      {of(healthy(confirmed)), true},
		"something blocks an unhealthy node":             {of(lost(excluded)), true},
		"something will block a pending node":            {of(lost(excluded, pending)), false},
		"a remediation starts":                           {of(lost()), true},
		"a request of which nothing can be read is kept": {of(lost(unseen, ours)), false},
	} {
		if got := len(Decide(tc.given).Order) > 0; got != tc.want {
			t.Errorf("%s: in the order: %t", name, got)
		}
	}
}

// What is reported first of what blocks a node, or everything.
func TestWhatIsReportedFirst(t *testing.T) {
	p := Decide(of(lost(excluded), lost()).with(pausedBy("me"), limit("0")))
	if got := p.Blocker().Reason; got != Paused {
		t.Errorf("of the check: %q", got)
	}
	if got := p.Decisions[0].Blocker().Reason; got != "NodeExcluded" {
		t.Errorf("of the node: %q", got)
	}
	p = Decide(of(lost()))
	if got, all := p.Decisions[0].Blocker().Reason, p.Blocker().Reason; got != "" || all != "" {
		t.Errorf("of a node that nothing blocks: %q, of its check %q", got, all)
	}
}

func TestWhichRequestsOfASingleRemediationAreRepeated(t *testing.T) {
	pending, delayed := since(time.Minute), listedDelayed(time.Time{})
	success := asked(succeeded(escalation.Yes))
	for name, tc := range map[string]struct {
		given Facts
		want  int
	}{
		"that of a node that is pending again": {of(lost(success, pending, delayed)), 1},
		"of one that is unhealthy again":       {of(lost(success, delayed)), 1},
		"not one that has not succeeded":       {of(lost(asked(), delayed)), 0},
		"nor of a node that never was healthy": {of(lost(success, statusLists(epoch))), 0},
		"nor of one that is healthy":           {of(healthy(success, delayed)), 0},
		"nor of one that is gone":              {of(gone(success, delayed)), 0},
		"nor of a check with steps":            {of(lost(success, pending, delayed)).with(steps(reboot(0))), 0},
		"nor a request that is being deleted":  {of(lost(asked(succeeded(escalation.Yes), deleting(0)), pending, delayed)), 0},
	} {
		d := &Decide(tc.given).Decisions[0]
		if got := d.repeats(&tc.given, &tc.given.Nodes[0]); len(got) != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The API server has the last word before a remediation starts.
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
		want string
	}{
		"the node is as it was":         {live(lost()), ""},
		"the node is gone":              {nil, "the node is gone"},
		"it is another one of its name": {live(other), "the node is another one"},
		"it is healthy":                 {live(healthy()), "the node is healthy"},
		"its time is not over":          {live(lost(since(time.Minute))), "the node is pending"},
		"it has turned unseen":          {live(lost(since(2 * time.Hour))), "the node is pending"},
		"its user has excluded it":      {live(lost(excluded)), "the node is excluded"},
	} {
		f := of(lost())
		if got := Decide(f).Decisions[0].Confirm(&f, &f.Nodes[0], tc.now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	f := of(healthy(silentMember))
	if got := Decide(f).Decisions[0].Confirm(&f, &f.Nodes[0], live(healthy())); got != "the node is healthy" {
		t.Errorf("Ready is missing in the cache alone: %+v", got)
	}
}

func TestWhereATemplateIsFound(t *testing.T) {
	cluster, second := reboot(0), reboot(0)
	cluster.Namespace = ""
	second.Step = &nhcv1.EscalatingRemediation{Order: 2}
	for want, template := range map[string]*Template{
		"RebootTemplate reboot":                       &cluster,
		"RebootTemplate remediators/reboot":           new(reboot(0)),
		"RebootTemplate remediators/reboot (order 2)": &second,
	} {
		if got := template.Place(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is remembered is the plan's own: to change it changes no facts.
func TestADecisionKeepsNothingOfItsFacts(t *testing.T) {
	f := of(lost(asked(failed)), healthy(asked(deleting(0)))).with(steps(reboot(0), reboot(0)))
	f.Memory = Decide(f).Memory
	before := encoded(t, f)
	p := Decide(f)
	p.Memory.Flagged["r"], p.Memory.Refusals["a"], p.Memory.Started["r"] = true, Refusal{}, epoch
	p.Memory.Unpatchable["r"], p.Memory.Streaks["uid-a"] = true, Streaks{}
	if after := encoded(t, f); after != before {
		t.Errorf("the facts were\n%s\nand are\n%s", before, after)
	}
}
