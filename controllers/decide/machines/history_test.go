package machines

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// anyVersion is a version of a machine: mostly a healthy one with a node that is Ready.
func anyVersion(t *rapid.T, name string) *Target {
	is := anyTarget.Draw(t, "machine").Target
	is.Name, is.ID, is.Healthy = name, "uid-of-"+name+rapid.SampledFrom([]string{"", "", "", "-again"}).Draw(t, "id"), rapid.Bool().Draw(t, "said to be healthy")
	is.Health = health.Target{
		Node: rapid.SampledFrom([]health.Node{health.NodePresent, health.NodePresent, health.NodePresent, health.NodeAwaited, health.NodeUnseen, health.NodeGone}).Draw(t, "node"),
		Signals: []health.Signal{{
			Source: health.OnNode, Type: "Ready", Status: rapid.SampledFrom([]string{"True", "True", "True", "Unknown"}).Draw(t, "ready"),
			Since: ago(rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "since")),
		}},
		AwaitedSince: ago(time.Minute), Marked: rapid.IntRange(0, 9).Draw(t, "marked") == 0,
	}
	if rapid.IntRange(0, 2).Draw(t, "plain") > 0 {
		is = Target{ID: is.ID, Name: name, Owned: true, Healthy: true, Health: is.Health}
	}
	return &is
}

// anyChange is another f: a machine is another one, or gone, or new, time has passed, or anything else has changed.
func anyChange(t *rapid.T, f Facts) Facts {
	at := func(name string) (int, bool) {
		return slices.BinarySearchFunc(f.Targets, name, func(is *Target, name string) int { return cmp.Compare(is.Name, name) })
	}
	f.Targets = slices.Clone(f.Targets)
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
	place, known := at(name)
	switch change := rapid.SampledFrom([]string{"machine", "machine", "machine", "gone", "time", "time", "back", "others", "cluster", "policy", "limits"}).Draw(t, "change"); {
	case change == "machine" && known:
		f.Targets[place] = anyVersion(t, name)
	case change == "machine":
		f.Targets = slices.Insert(f.Targets, place, anyVersion(t, name))
	case change == "gone" && known:
		f.Targets = slices.Delete(f.Targets, place, place+1)
	case change == "time":
		f.Now = f.Now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, Settling, time.Minute, time.Hour}).Draw(t, "passes"))
	case change == "back":
		f.Now = f.Now.Add(-time.Minute)
	case change == "others":
		is := anyFacts.Draw(t, "facts")
		f.Mode, f.Template, f.CyclesUnread = is.Mode, is.Template, is.CyclesUnread
	case change == "cluster":
		f.Cluster.Paused, f.Cluster.Initialized = rapid.Bool().Draw(t, "paused"), rapid.Bool().Draw(t, "initialized")
	case change == "policy":
		f.Generation++
		f.Policy.Rules = []health.Rule{{
			Source: health.OnNode, Type: "Ready", Status: "Unknown", For: rapid.SampledFrom([]time.Duration{0, time.Minute, 5 * time.Minute}).Draw(t, "timeout"),
		}}
	case change == "limits":
		f.Limits = budget.Limits{AtMost: rapid.IntRange(0, 5).Draw(t, "at most"), InFlight: rapid.IntRange(budget.Unlimited, 2).Draw(t, "in flight")}
		f.Limited, f.Storm.Active = rapid.Bool().Draw(t, "limited"), rapid.Bool().Draw(t, "storm")
	}
	return f
}

func TestWhatADecisionComesToDoesNotDependOnWhatTheOneBeforeSaw(t *testing.T) {
	likes := gocmp.Options{
		cmpopts.IgnoreFields(Decision{}, "At"), cmpopts.IgnoreFields(Memory{}, "Decisions", "Basis", "seen"), cmpopts.EquateEmpty(),
	}
	rapid.Check(t, func(t *rapid.T) {
		f := of()
		f.Policy.Rules = []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: time.Minute}}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			f = anyChange(t, f)
			anew := f
			anew.Memory.Decisions, anew.Memory.Basis, anew.Memory.seen = nil, Basis{}, seen{}
			kept, fresh := Decide(f), Decide(anew)
			if diff := gocmp.Diff(fresh, kept, likes); diff != "" {
				t.Fatalf("-decided anew +decided after the one before\n%s", diff)
			}
			f.Memory = kept.Memory
			for _, i := range kept.Open {
				if d := kept.Decisions[i]; d.Starts() && rapid.Bool().Draw(t, "begins") {
					f.Memory.Began(d.Target.ID, f.Kind, f.Now)
				} else if d.Starts() {
					f.Memory.Failed(d.Target.ID, f.Now)
				}
			}
		}
	})
}

// Of a machine about which nothing has changed, that is healthy and that nothing is done about, a decision does not even look at the one before.
func TestADecisionJudgesWhatHasChanged(t *testing.T) {
	f := of()
	f.Policy.Rules = []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown"}}
	ready := func(name, status string) *Target {
		return &Target{ID: name, Name: name, Healthy: true, Owned: true, Health: health.Target{
			Node: health.NodePresent, Signals: []health.Signal{{Source: health.OnNode, Type: "Ready", Status: status, Since: ago(time.Hour)}},
		}}
	}
	f.Targets = []*Target{ready("a", "True"), ready("b", "True"), ready("c", "Unknown")}
	first := Decide(f)
	f.Memory, f.Now = first.Memory, noon.Add(time.Second)
	f.Targets = []*Target{f.Targets[0], ready("b", "Unknown"), f.Targets[2]}
	second := Decide(f)
	if second.Decisions[0] != first.Decisions[0] || !slices.Equal(second.Open, []int{1, 2}) {
		t.Errorf("open are %v, a was decided anew: %t", second.Open, second.Decisions[0] != first.Decisions[0])
	}
	if b, c := second.Decisions[1].At, second.Decisions[2].At; !b.Equal(f.Now) || !c.Equal(noon) {
		t.Errorf("b was judged at %v, c at %v; want b a second after noon, and c at noon", b, c)
	}
}
