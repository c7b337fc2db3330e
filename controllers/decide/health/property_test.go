package health

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// There are only few values on purpose, so that signals often match rules and times are often equal.
var (
	sources  = rapid.SampledFrom([]Source{OnMachine, OnNode})
	types    = rapid.SampledFrom([]string{"Ready", "DiskPressure", "HostHealthy", NodeReady, "EtcdPodHealthy"})
	statuses = rapid.SampledFrom([]string{"True", "False", "Unknown"})
	reasons  = rapid.SampledFrom([]string{"SomeReason", ConnectionDown, InternalError, InspectionFailed})
	seldom   = rapid.Map(rapid.IntRange(0, 9), func(n int) bool { return n == 9 })
	moments  = rapid.Map(rapid.IntRange(-15, 2), func(m int) time.Time { return in(time.Duration(m) * time.Minute) })
	waits    = rapid.Map(rapid.IntRange(0, 12), func(m int) time.Duration { return time.Duration(m) * time.Minute })
)

var anySignal = rapid.Custom(func(t *rapid.T) Signal {
	return Signal{
		Source: sources.Draw(t, "source"), Type: types.Draw(t, "type"), Status: statuses.Draw(t, "status"),
		Reason: reasons.Draw(t, "reason"), Since: moments.Draw(t, "since"),
	}
})

var anyRule = rapid.Custom(func(t *rapid.T) Rule {
	return Rule{
		Source: sources.Draw(t, "source"), Type: types.Draw(t, "type"), Status: statuses.Draw(t, "status"),
		For: waits.Draw(t, "for"),
	}
})

var anyPolicy = rapid.Custom(func(t *rapid.T) Policy {
	return Policy{Rules: rapid.SliceOfN(anyRule, 0, 8).Draw(t, "rules"), NodeStartup: waits.Draw(t, "startup")}
})

type condition struct {
	source Source
	name   string
}

// conditionOf identifies the condition of s: an object has at most one condition of a type.
func conditionOf(s Signal) condition { return condition{s.Source, s.Type} }

var anyTarget = rapid.Custom(func(t *rapid.T) Target {
	return Target{
		Marked:  seldom.Draw(t, "marked"),
		Failure: rapid.SampledFrom([]string{"", "", "", "", "it failed"}).Draw(t, "failure"),
		Paused:  seldom.Draw(t, "paused"),
		Resumed: rapid.OneOf(rapid.Just(time.Time{}), moments).Draw(t, "resumed"),
		Reached: rapid.OneOf(rapid.Just(time.Time{}), moments).Draw(t, "reached"),
		Gate: rapid.SampledFrom([]Gate{
			Open, Open, Open, ControlPlaneNotInitialized, InfrastructureNotReady,
		}).Draw(t, "gate"),
		Node: rapid.SampledFrom([]Node{
			NodeUnseen, NodeAwaited, NodePresent, NodePresent, NodePresent, NodeGone,
		}).Draw(t, "node"),
		NodeName:     "node-1",
		AwaitedSince: moments.Draw(t, "awaited since"),
		Signals:      rapid.SliceOfNDistinct(anySignal, 0, 6, conditionOf).Draw(t, "signals"),
	}
})

func holds(t *testing.T, rule func(*rapid.T, Target, Policy)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { rule(t, anyTarget.Draw(t, "target"), anyPolicy.Draw(t, "policy")) })
}

func same(t *rapid.T, what string, want, got Verdict) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: -want +got\n%s", what, diff)
	}
}

// The verdict changes at Recheck, and not before.
func TestNothingChangesBeforeRecheckAndSomethingDoesThen(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		v := Judge(target, p, noon)
		if v.Recheck.IsZero() {
			later := in(time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "later")))
			same(t, "time alone changed what it never was to change", v, Judge(target, p, later))
			return
		}
		if !v.Recheck.After(noon) {
			t.Fatalf("asks at %v to be woken at %v", noon, v.Recheck)
		}
		before := v.Recheck.Add(-time.Duration(rapid.Int64Range(1, int64(v.Recheck.Sub(noon))).Draw(t, "before")))
		same(t, "the verdict changed before its time", v, Judge(target, p, before))

		then := Judge(target, p, v.Recheck)
		if then.State != Unhealthy {
			t.Fatalf("at its recheck the target is %s", then.State)
		}
		if was, is := len(v.Due(noon)), len(then.Due(v.Recheck)); is <= was {
			t.Fatalf("at its recheck %d findings are due, %d were before", is, was)
		}
	})
}

func TestEveryStateHasItsMeaning(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		v := Judge(target, p, noon)
		due := len(v.Due(noon)) > 0
		asked, doubted := target.Gate == Open && target.Node != NodeUnseen, v.Doubted(NotSincePause)

		var means bool
		switch v.State {
		case Healthy:
			means = asked && target.Node == NodePresent && len(v.Findings) == 0 && v.Recheck.IsZero() && !doubted
		case Starting:
			means = asked && target.Node == NodeAwaited && !due
		case Pending:
			means = asked && target.Node == NodePresent && !due && !v.Recheck.IsZero()
		case Unknown:
			means = (!asked || doubted) && !due
		case Unhealthy:
			means = due
		}
		if !means {
			t.Fatalf("%s is not what this is: %+v", v.State, v)
		}
		if v.Gate != target.Gate {
			t.Fatalf("gate %q became %q", target.Gate, v.Gate)
		}
	})
}

// A machine that could not be read must be Unknown: this must neither start nor end a remediation.
func TestWhoCouldNotBeAskedIsNotActedOn(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		v := Judge(target, p, noon)
		switch {
		case target.Gate != Open:
			if want := target.Marked || failed(target); (v.State == Unhealthy) != want || (v.State != Unknown) != want {
				t.Fatalf("behind gate %s: %s", target.Gate, v.State)
			}
		case target.Node == NodeUnseen:
			if want := target.Marked || failed(target) || machineFails(target, p); (v.State == Unhealthy) != want || (v.State != Unknown) != want {
				t.Fatalf("without connection: %s, want unhealthy: %t", v.State, want)
			}
			for _, f := range v.Findings {
				if f.Reason != MarkedByHand && f.Reason != MachineFailed && f.Reason != MachineCondition {
					t.Fatalf("without connection there is a finding about the node: %+v", f)
				}
			}
		}
	})
}

// failed reports whether t has a terminal failure that counts.
func failed(t Target) bool { return t.Failure != "" && !t.Paused }

// machineFails reports whether the Machine's own conditions make it unhealthy at noon while its node cannot be read. It computes this in
// another way than Judge.
func machineFails(t Target, p Policy) bool {
	return slices.ContainsFunc(t.Signals, func(s Signal) bool {
		looked := s.Type != NodeReady && s.Type != "EtcdPodHealthy" && s.Reason == "SomeReason"
		from := s.Since
		if from.Before(t.Resumed) {
			from = t.Resumed.Add(time.Minute)
		}
		if s.Status == "Unknown" && from.Before(t.Reached) {
			from = t.Reached.Add(time.Minute)
		}
		return s.Source == OnMachine && looked && !t.Paused && slices.ContainsFunc(p.Rules, func(r Rule) bool {
			return r.Source == OnMachine && r.Type == s.Type && r.Status == s.Status && noon.Sub(from) >= r.For
		})
	})
}

// A condition from before a pause does not count until it is confirmed, and time in which its writer could not check it does not count.
func TestTimeInWhichTheAuthorDidNotLookCountsForNothing(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		for _, f := range Judge(target, p, noon).Due(noon) {
			s := f.Signal
			if s == (Signal{}) {
				continue
			}
			if f.Due.Before(s.Since.Add(f.Limit)) {
				t.Fatalf("counts before its time: %+v", f)
			}
			if s.Source == OnMachine && target.Paused {
				t.Fatalf("counts while Cluster API has not looked since the pause: %+v", f)
			}
			blind := s.Source == OnMachine && (s.Type == NodeReady || s.Status == "Unknown")
			if blind && s.Since.Before(target.Reached) && noon.Sub(target.Reached) < f.Limit {
				t.Fatalf("out of reach until %v, and yet %+v", target.Reached, f)
			}
			if s.Source == OnMachine && s.Type != NodeReady && s.Since.Before(target.Resumed) && noon.Sub(target.Resumed) < f.Limit {
				t.Fatalf("paused until %v, and yet %+v", target.Resumed, f)
			}
		}
	})
}

func TestAnotherSignalNeverHelps(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		was, another := Judge(target, p, noon), anySignal.Draw(t, "another")
		if another.Source == OnNode && another.Type == "Ready" {
			t.Skip("it may show that what Cluster API saw of the node is over")
		}
		target.Signals = slices.Insert(slices.Clone(target.Signals), rapid.IntRange(0, len(target.Signals)).Draw(t, "at"), another)
		is := Judge(target, p, noon)
		if was.State == Unhealthy && is.State != Unhealthy {
			t.Fatalf("another signal made an unhealthy target %s", is.State)
		}
		if is.State == Healthy && was.State != Healthy {
			t.Fatalf("another signal made a %s target healthy", was.State)
		}
		for _, f := range was.Findings {
			if !slices.Contains(is.Findings, f) {
				t.Fatalf("another signal hides %+v", f)
			}
		}
	})
}

// The verdict must not depend on the order of the conditions, or else the status would change again and again.
func TestTheOrderOfSignalsDoesNotShow(t *testing.T) {
	holds(t, func(t *rapid.T, target Target, p Policy) {
		want := Judge(target, p, noon)
		target.Signals = slices.Clone(target.Signals)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(target.Signals), func(i, j int) {
			target.Signals[i], target.Signals[j] = target.Signals[j], target.Signals[i]
		})
		same(t, "the order of signals shows", want, Judge(target, p, noon))
	})
}
