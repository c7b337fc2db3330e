package machinehealthcheck

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/policy"
)

var anyTarget = rapid.Custom(func(t *rapid.T) givenMachine {
	seldom := rapid.Map(rapid.IntRange(0, 7), func(n int) bool { return n == 0 })
	is := is(rapid.SampledFrom([]health.State{
		health.Healthy, health.Starting, health.Pending, health.Unknown, health.Unhealthy, health.Unhealthy, health.Unhealthy,
	}).Draw(t, "state"))
	may := func(change func(*givenMachine), name string) {
		if seldom.Draw(t, name) {
			change(&is)
		}
	}
	may(deleting, "deleting")
	may(updatingNow, "updating")
	may(onHost, "on a host")
	may(unowned, "without owner")
	may(olderActs, "older check")
	for _, other := range []Opinion{{}, {Heard: true, Healthy: true}, {Heard: true, State: health.Unhealthy, Older: true}, {Heard: true, InFlight: true}} {
		may(besideCheck(other), "another check")
	}
	may(unusable, "unusable")
	for _, report := range []func(*givenMachine){announcedBefore, failedBefore, notFound, reports} {
		may(report, "report")
	}
	switch rapid.SampledFrom([]Owner{NotAsked, NotAsked, Asked, CannotRemediate}).Draw(t, "owner") {
	case Asked:
		asked(&is)
	case CannotRemediate:
		refuses(&is)
	case NotAsked:
		may(marked, "marked unhealthy")
		if Failed(is.Machine) == nil {
			may(wasAsked, "asked while healthy")
			may(markedHealthy, "marked healthy")
		}
	}
	hasRequest(rapid.SampledFrom([]Ownership{NoRequest, NoRequest, NoRequest, ForeignRequest, AdoptableRequest, OwnRequest}).Draw(t, "request"))(&is)
	if is.Request != nil {
		may(requestDeleting, "request is being deleted")
	}
	if seldom.Draw(t, "marked by a person") && is.Verdict.State == health.Unhealthy {
		byPerson(&is)
	}
	if seldom.Draw(t, "cycled") {
		cycled(&is)
	}
	if seldom.Draw(t, "refused") {
		is.refused = ago(time.Second)
	}
	return is
})

var anyFacts = rapid.Custom(func(t *rapid.T) Facts {
	seldom := rapid.Map(rapid.IntRange(0, 7), func(n int) bool { return n == 0 })
	f := facts(rapid.SliceOfN(anyTarget, 0, 7).Draw(t, "targets")...)
	if seldom.Draw(t, "observed") {
		f.Mode = Observed
	}
	if seldom.Draw(t, "unreachable") {
		f.Reach, f.Link = metav1.Condition{Status: metav1.ConditionFalse}, health.Unsure
	}
	if seldom.Draw(t, "unsettled") {
		f.Link = health.Unsure
	}
	f.Limits = budget.Limits{
		AtLeast: rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "at least"), AtMost: rapid.IntRange(0, 8).Draw(t, "at most"),
	}
	if f.Limited = seldom.Draw(t, "limited"); seldom.Draw(t, "invalid") {
		invalid(&f)
	}
	if seldom.Draw(t, "no place") {
		noPlace(&f)
	}
	if rapid.Bool().Draw(t, "external") {
		for _, is := range []struct {
			name string
			so   func(*Facts)
		}{
			{"external", external}, {"missing", missing}, {"unknown", unknown}, {"syncing", func(f *Facts) { f.Template.Known, f.Template.Syncing = false, true }},
			{"refused", refused},
		} {
			if is.name == "external" || seldom.Draw(t, is.name) {
				is.so(&f)
			}
		}
	}
	for i := range f.Targets { // no request is known without a list, and only a template can be unusable
		if !f.Template.External {
			f.Targets[i].Unusable = nil
		}
		if !f.Template.External || !f.Template.Known {
			f.Targets[i].Request, f.Targets[i].Ownership = nil, NoRequest
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
		p := Decide(f)
		for i, d := range p.Decisions {
			is := f.Targets[i]
			if !d.Starts() {
				continue
			}
			for why, forbidden := range map[string]bool{
				"it is not unhealthy":            d.Verdict.State != health.Unhealthy,
				"it is being deleted":            Deleting(is.Machine),
				"it is being updated":            health.Updating(is.Machine) != nil && byHand(d) == 0,
				"its host is power-cycled":       is.Cycle != nil,
				"an older check acts on it":      is.OlderCheck != "",
				"another check remediates it":    is.remediatedBy() != nil,
				"another check may remediate it": is.unheard() != nil,
				"its remediation is in flight":   d.InFlight,
				"there is a request for it":      is.Request != nil,
				"the check is only observed":     f.Mode != Active,
				"the limits cannot be read":      f.Invalid != nil,
				"too many are not healthy":       p.Population.NotHealthy() > f.Limits.AtMost,
				"too few are not healthy":        p.Population.NotHealthy() < f.Limits.AtLeast,
				"there is no place for it":       len(f.Placeless) > 0,
				"requests are not known":         f.Template.External && (!f.Template.Known || f.Template.Missing != "" || f.Template.Refused),
				"no request can be made for it":  is.Unusable != nil,
				"power cycles are not known":     OnHost(is.Machine) && !f.CyclesUnread.IsZero(),
				"it may be the first of many":    f.Limited,
			} {
				if forbidden {
					t.Fatalf("machine %s starts although %s", is.Name, why)
				}
			}
		}
	})
}

// Machines that are not unhealthy, and machines of other checks.
func TestNothingIsSetThatMustNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		p := Decide(f)
		for i, d := range p.Decisions {
			is, state := f.Targets[i], d.Verdict.State
			erases := slices.ContainsFunc(d.Conditions, func(c metav1.Condition) bool { return c.Type == OwnerRemediated && c.Status == "" })
			others := slices.DeleteFunc(slices.Clone(d.Conditions), func(c metav1.Condition) bool { return c.Type == mendv1.Remediation })
			unhealthy, asks := d.Sets(HealthCheckSucceeded, metav1.ConditionFalse), d.Sets(OwnerRemediated, metav1.ConditionFalse)
			for what, forbidden := range map[string]bool{
				"a machine is marked unhealthy that is not": unhealthy && state != health.Unhealthy,
				"a machine is marked healthy that is not":   d.Sets(HealthCheckSucceeded, metav1.ConditionTrue) && state != health.Healthy,
				"something is done about a machine in between": (d.Step != NoStep || len(others) > 0) &&
					(state == health.Pending || state == health.Starting || state == health.Unknown),
				"anything is written of a machine that is unknown":                   !d.Idle() && state == health.Unknown,
				"a condition is set on a machine that is being deleted":              !d.Idle() && Deleting(is.Machine),
				"a condition is set on a machine of an older check":                  len(d.Conditions) > 0 && is.OlderCheck != "" && d.Step != DeleteRequest,
				"the request of a machine that is not healthy is deleted":            d.Step == DeleteRequest && state != health.Healthy,
				"a request is deleted or adopted that somebody else made":            (d.Step == DeleteRequest || d.Step == AdoptRequest) && is.Ownership == ForeignRequest,
				"a request is deleted before it is this check's":                     d.Step == DeleteRequest && is.Ownership != OwnRequest,
				"a request is created where there is one, or may be":                 d.Step == CreateRequest && (is.Request != nil || !f.Template.Known),
				"a second remediation starts":                                        d.Starts() && d.InFlight,
				"an owner is asked beyond the limits":                                asks && p.Grant.ShortCircuited(),
				"an owner is asked beside a request":                                 asks && f.Template.External,
				"an owner is asked whose turn it is not":                             asks && !d.Starts() && OwnerOf(is.Machine) == NotAsked,
				"an owner remediates since its machine is marked, beyond the limits": unhealthy && askedWhileHealthy(is.Machine) && !d.InFlight && !erases && d.Step != RequestOwnerRemediation,
			} {
				if forbidden {
					t.Fatalf("machine %s: %s", is.Name, what)
				}
			}
		}
	})
}

// A remediation that began also ends: the request of a healthy machine is deleted, is being deleted already, or is adopted so that the next
// reconcile deletes it.
func TestARemediationEndsWhenItsMachineIsHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		for i, d := range Decide(f).Decisions {
			is := f.Targets[i]
			if d.Verdict.State != health.Healthy || Deleting(is.Machine) || is.RequestDeleting() {
				continue
			}
			if is.Ownership == OwnRequest && d.Step != DeleteRequest || is.Ownership == AdoptableRequest && is.OlderCheck == "" && d.Step != AdoptRequest {
				t.Fatalf("machine %s is healthy, and the step about its request is %q", is.Name, d.Step)
			}
			if is.Request == nil && d.InFlight {
				t.Fatalf("machine %s is healthy, has no request, and its remediation is in flight", is.Name)
			}
		}
	})
}

// Where time alone changes something, the plan says when, because nothing else causes another decision.
func TestWhatTimeEndsIsLookedAtThen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		p := Decide(f)
		next := health.Earliest(p.Recheck, p.VerdictsUntil)
		for i, d := range p.Decisions {
			only := len(d.Blockers) == 1
			for _, b := range d.Blockers {
				if b.Until.IsZero() || b.Rule == PowerCyclesUnread { // observeCycles reads them again
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

// A reconcile for one Node that turns, without reads and writes outside the caches of Machines and Nodes.
func BenchmarkAChangeAmong5000Machines(b *testing.B) {
	for _, policies := range []int{0, 10} {
		b.Run(fmt.Sprintf("%d policies of 100 racks", policies), func(b *testing.B) { benchmarkAChange(b, policies) })
	}
}

func benchmarkAChange(b *testing.B, policies int) {
	ledger, read := &policy.Ledger{Clock: clock.RealClock{}}, []*policy.Policy(nil)
	for i := range policies {
		object := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: fmt.Sprint("policy-", i)}}
		object.Spec.Limits = []mendv1.PolicyLimit{{
			Name: "rack", GroupBy: []mendv1.PolicyGroupKey{{Key: mendv1.GroupByFailureDomain}}, MaxInFlight: new(intstr.FromInt32(2)),
			MaxUnavailable: new(intstr.Parse("25%")), SlowStart: mendv1.SlowStartEnabled,
		}}
		read = append(read, policy.Read(object, "kubemend-system"))
	}
	ledger.Set(read)
	f := newFleet()
	for i := range 5000 {
		name := fmt.Sprintf("machine-%05d", i)
		f.change(name, func(m *clusterv1.Machine) {
			for c := range 10 {
				m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Condition%d", c), Status: "True"})
			}
			markedBefore(&Target{Machine: m})
			m.Spec.FailureDomain = fmt.Sprint("rack-", i%100)
		})
		f.ready(name, corev1.ConditionTrue, noon)
	}
	r, now := &Reconciler{Clusters: &upCluster{}, machines: f.machines, Ledger: ledger}, noon
	pass := func() {
		w := f.check(now)
		w.selector, _ = selectorOf(w.Check)
		r.memory.recall(w)
		if err := r.observeMachines(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		r.observeNodes(b.Context(), w)
		w.attachRequests()
		p := w.decide()
		if ledger.Active(b.Context()) {
			r.takePlaces(b.Context(), w, p)
			r.settlePlaces(w, nil)
		}
		statusAfter(w, p, nil)
		r.memory.leave(w, p)
	}
	pass()
	b.ReportAllocs()
	statuses := []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue}
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Second)
		f.ready("machine-02500", statuses[i%2], now)
		pass()
	}
}
