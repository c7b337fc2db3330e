package machines

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var anyTarget = rapid.Custom(func(t *rapid.T) given {
	seldom := rapid.Map(rapid.IntRange(0, 7), func(n int) bool { return n == 0 })
	is := is(rapid.SampledFrom([]health.State{
		health.Healthy, health.Starting, health.Pending, health.Unknown, health.Unhealthy, health.Unhealthy, health.Unhealthy,
	}).Draw(t, "state"))
	is.Deleting, is.Updating, is.OnHost = seldom.Draw(t, "deleting"), seldom.Draw(t, "updating"), seldom.Draw(t, "on a host")
	is.Owned, is.Older = !seldom.Draw(t, "without owner"), seldom.Draw(t, "older check")
	is.Owner = rapid.SampledFrom([]Owner{NotAsked, NotAsked, Asked, CannotRemediate}).Draw(t, "owner")
	requested(rapid.SampledFrom([]Request{NoRequest, NoRequest, NoRequest, ForeignRequest, AdoptableRequest, OwnRequest}).Draw(t, "request"))(&is)
	is.Announced, is.RequestFailed, is.Unusable = seldom.Draw(t, "announced"), seldom.Draw(t, "failed"), seldom.Draw(t, "unusable")
	is.TemplateNotFound, is.ProviderReports = is.RequestFailed && seldom.Draw(t, "template not found"), !is.RequestFailed && seldom.Draw(t, "reports")
	is.Failed = is.Owner != NotAsked || seldom.Draw(t, "marked unhealthy")
	is.AskedWhileHealthy = !is.Failed && seldom.Draw(t, "asked while healthy")
	is.Healthy, is.RequestDeleting = !is.Failed && rapid.Bool().Draw(t, "marked healthy"), seldom.Draw(t, "request is being deleted")
	if seldom.Draw(t, "marked by a person") && is.Verdict.State == health.Unhealthy {
		byPerson(&is)
	}
	if seldom.Draw(t, "cycled") {
		is.Cycle = &Cycle{}
	}
	if seldom.Draw(t, "refused") {
		is.refused = ago(time.Second)
	}
	return is
})

var anyFacts = rapid.Custom(func(t *rapid.T) Facts {
	seldom := rapid.Map(rapid.IntRange(0, 7), func(n int) bool { return n == 0 })
	f := of(rapid.SliceOfN(anyTarget, 0, 7).Draw(t, "targets")...)
	if seldom.Draw(t, "observed") {
		f.Mode = Observed
	}
	if seldom.Draw(t, "unreachable") {
		f.Reach, f.Cluster.Link = Report{Status: conditionFalse}, LinkUnsure
	}
	if seldom.Draw(t, "unsettled") {
		f.Cluster.Link = LinkUnsure
	}
	f.Limits = budget.Limits{
		AtLeast: rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "at least"), AtMost: rapid.IntRange(0, 8).Draw(t, "at most"),
		InFlight: rapid.IntRange(budget.Unlimited, 4).Draw(t, "in flight"),
	}
	f.Invalid, f.Limited = seldom.Draw(t, "invalid"), seldom.Draw(t, "limited")
	if seldom.Draw(t, "cooling") {
		cooldown := time.Minute
		f.Cooldown, f.Storm = &cooldown, budget.Storm{Active: true, CoolingSince: ago(30 * time.Second)}
	}
	if seldom.Draw(t, "storm") {
		f.Storm.Active = true
	}
	if rapid.Bool().Draw(t, "external") {
		for _, is := range []struct {
			name string
			so   func(*Facts)
		}{
			{"external", external}, {"missing", missing}, {"unknown", unknown}, {"syncing", func(f *Facts) { f.Template.Known, f.Template.Syncing = false, true }},
			{"refused", refused}, {"unread", unread},
		} {
			if is.name == "external" || seldom.Draw(t, is.name) {
				is.so(&f)
			}
		}
	}
	for i := range f.Targets { // without a list of requests none is known, and without a template none can be of no use
		if f.Targets[i].Unusable = f.Targets[i].Unusable && f.Template.External; !f.Template.External || !f.Template.Known {
			f.Targets[i].Request = NoRequest
		}
	}
	if seldom.Draw(t, "cycles unread") {
		f.CyclesUnread = noon.Add(time.Minute)
	}
	return f
})

func TestARemediationStartsExactlyIfNothingBlocksItAndNoneIsInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		for i, d := range Decide(f).Decisions {
			if nothing := len(d.Blockers) == 0 && !d.InFlight; d.Starts() != nothing {
				t.Fatalf("machine %d starts: %t, in flight: %t, blocked by %v", i, d.Starts(), d.InFlight, d.Blockers)
			}
		}
	})
}

func TestNothingStartsThatMustNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		p, occupied := Decide(f), 0
		for i, d := range p.Decisions {
			is := f.Targets[i]
			if occupies(d) {
				occupied++
			}
			if !d.Starts() {
				continue
			}
			if f.Template.External || is.Owned {
				occupied++
			}
			for why, forbidden := range map[string]bool{
				"it is not unhealthy":           d.Verdict.State != health.Unhealthy,
				"it is being deleted":           is.Deleting,
				"it is being updated":           is.Updating && byHand(d) == 0,
				"its host is power-cycled":      is.Cycle != nil,
				"an older check acts on it":     is.Older,
				"its remediation is in flight":  d.InFlight,
				"there is a request for it":     is.Request != NoRequest,
				"the check is only observed":    f.Mode != Active,
				"the limits cannot be read":     f.Invalid,
				"too many are not healthy":      p.Population.NotHealthy() > f.Limits.AtMost,
				"too few are not healthy":       p.Population.NotHealthy() < f.Limits.AtLeast,
				"it cools down":                 f.Cooldown != nil && f.Storm.Active,
				"requests are not known":        f.Template.External && (!f.Template.Known || f.Template.Missing != "" || f.Template.Refused || f.Template.Unread),
				"no request can be made for it": is.Unusable,
				"power cycles are not known":    is.OnHost && !f.CyclesUnread.IsZero(),
				"it may be the first of many":   f.Limited,
			} {
				if forbidden {
					t.Fatalf("machine %s starts although %s", is.Name, why)
				}
			}
		}
		if started := slices.ContainsFunc(p.Decisions, (*Decision).Starts); started && f.Limits.InFlight != budget.Unlimited && occupied > f.Limits.InFlight {
			t.Fatalf("%d are in flight, at most %d may be", occupied, f.Limits.InFlight)
		}
	})
}

// What is done about machines that are not unhealthy, or that are somebody else's.
func TestNothingIsSetThatMustNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		p := Decide(f)
		for i, d := range p.Decisions {
			is, state := f.Targets[i], d.Verdict.State
			erases := slices.ContainsFunc(d.Conditions, func(c Condition) bool { return c.Type == OwnerRemediated && c.Remove })
			others := slices.DeleteFunc(slices.Clone(d.Conditions), func(c Condition) bool { return c.Type == mendv1.Remediation })
			unhealthy, asks := d.Sets(HealthCheckSucceeded, conditionFalse), d.Sets(OwnerRemediated, conditionFalse)
			for what, forbidden := range map[string]bool{
				"a machine is marked unhealthy that is not": unhealthy && state != health.Unhealthy,
				"a machine is marked healthy that is not":   d.Sets(HealthCheckSucceeded, conditionTrue) && state != health.Healthy,
				"something is done about a machine in between": (d.Step != NoStep || len(others) > 0) &&
					(state == health.Pending || state == health.Starting || state == health.Unknown),
				"anything is written of a machine that is unknown":                   !d.Idle() && state == health.Unknown,
				"a condition is set on a machine that is being deleted":              !d.Idle() && is.Deleting,
				"a condition is set on a machine of an older check":                  len(d.Conditions) > 0 && is.Older && d.Step != DeleteRequest,
				"the request of a machine that is not healthy is deleted":            d.Step == DeleteRequest && state != health.Healthy,
				"a request is deleted or adopted that somebody else made":            (d.Step == DeleteRequest || d.Step == AdoptRequest) && is.Request == ForeignRequest,
				"a request is deleted before it is this check's":                     d.Step == DeleteRequest && is.Request != OwnRequest,
				"a request is created where there is one, or may be":                 d.Step == CreateRequest && (is.Request != NoRequest || !f.Template.Known),
				"a second remediation starts":                                        d.Starts() && d.InFlight,
				"an owner is asked beyond the limits":                                asks && p.Grant.ShortCircuited(),
				"an owner is asked beside a request":                                 asks && f.Template.External,
				"an owner is asked whose turn it is not":                             asks && !d.Starts() && is.Owner == NotAsked,
				"an owner remediates since its machine is marked, beyond the limits": unhealthy && is.AskedWhileHealthy && !d.InFlight && !erases && d.Step != RequestOwnerRemediation,
			} {
				if forbidden {
					t.Fatalf("machine %s: %s", is.Name, what)
				}
			}
		}
	})
}

// What begins ends: the request of a machine that is healthy is deleted, or is already, or becomes this check's to be deleted by the next reconcile.
func TestARemediationEndsWhenItsMachineIsHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		for i, d := range Decide(f).Decisions {
			is := f.Targets[i]
			if d.Verdict.State != health.Healthy || is.Deleting || is.RequestDeleting {
				continue
			}
			if is.Request == OwnRequest && d.Step != DeleteRequest || is.Request == AdoptableRequest && !is.Older && d.Step != AdoptRequest {
				t.Fatalf("machine %s is healthy, and the step about its request is %q", is.Name, d.Step)
			}
			if is.Request == NoRequest && d.InFlight && !is.Announced {
				t.Fatalf("machine %s is healthy, has no request, and its remediation is in flight", is.Name)
			}
		}
	})
}

// Where time alone changes something, the plan says when. Nothing else causes another decision.
func TestWhatTimeEndsIsLookedAtThen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		p := Decide(f)
		next := health.Earliest(p.Recheck, p.VerdictsUntil)
		for i, d := range p.Decisions {
			only := len(d.Blockers) == 1
			for _, b := range d.Blockers {
				if b.Until.IsZero() || b.Rule == PowerCyclesUnread { // who reads them looks again
					continue
				}
				if !f.Now.Before(b.Until) {
					t.Fatalf("machine %s is blocked by %s until %v, which is over", f.Targets[i].Name, b.Rule, b.Until)
				}
				if only && (next.IsZero() || next.After(b.Until)) {
					t.Fatalf("machine %s is blocked by %s until %v, and the next decision is at %v", f.Targets[i].Name, b.Rule, b.Until, next)
				}
			}
		}
		if !next.IsZero() && !f.Now.Before(next) {
			t.Fatalf("the next decision is at %v, which is over", next)
		}
	})
}

func TestTheOrderOfTheFactsDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		starts := func(f Facts) []string {
			var names []string
			for i, d := range Decide(f).Decisions {
				if d.Starts() {
					names = append(names, f.Targets[i].Name)
				}
			}
			slices.Sort(names)
			return names
		}
		want := starts(f)
		order := rapid.Permutation(Decide(f).Decisions).Draw(t, "another order")
		f.Targets, f.Verdicts = nil, nil
		for _, d := range order {
			f.Targets, f.Verdicts = append(f.Targets, d.Target), append(f.Verdicts, d.Verdict)
		}
		if diff := cmp.Diff(want, starts(f)); diff != "" {
			t.Fatalf("-in one order +in another\n%s", diff)
		}
	})
}
