package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/test/must"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fleet is a ledger with the machines of checks, as their reconciles report them.
type fleet struct {
	t       *testing.T
	ledger  *Ledger
	clock   *clocktesting.FakePassiveClock
	targets map[Check][]*Target
	woken   []string
}

func newFleet(t *testing.T, policies ...*mendv1.RemediationPolicy) *fleet {
	f := &fleet{t: t, clock: clocktesting.NewFakePassiveClock(start), targets: map[Check][]*Target{}}
	f.ledger = &Ledger{Clock: f.clock, Installed: func(context.Context) bool { return true }}
	f.ledger.SetUp(MachineHealthCheck, func() []reconcile.Request { return nil }, func(check reconcile.Request, in time.Duration) {
		if in == 0 {
			f.woken = append(f.woken, check.Name)
		}
	})
	f.set(policies...)
	return f
}

func (f *fleet) set(policies ...*mendv1.RemediationPolicy) {
	var read []*Policy
	for _, policy := range policies {
		read = append(read, Read(policy, "kubemend-system"))
	}
	f.ledger.Set(read)
}

func policyWith(limits ...mendv1.PolicyLimit) *mendv1.RemediationPolicy {
	return &mendv1.RemediationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: "racks"}, Spec: mendv1.RemediationPolicySpec{Limits: limits},
	}
}

// rack returns a limit for each failure domain; an empty number sets no limit.
func rack(flying, unavailable string) mendv1.PolicyLimit {
	limit := mendv1.PolicyLimit{Name: "rack", GroupBy: []mendv1.PolicyGroupKey{{Key: mendv1.GroupByFailureDomain}}}
	if flying != "" {
		limit.MaxInFlight = new(intstr.Parse(flying))
	}
	if unavailable != "" {
		limit.MaxUnavailable = new(intstr.Parse(unavailable))
	}
	return limit
}

func check(cluster string) Check {
	return Check{MachineHealthCheck, types.NamespacedName{Namespace: "ns", Name: cluster}}
}

// machines adds n machines of a check in a rack.
func (f *fleet) machines(cluster, rack string, n int) {
	for range n {
		name := fmt.Sprintf("%s-%s-%d", cluster, rack, len(f.targets[check(cluster)]))
		f.targets[check(cluster)] = append(f.targets[check(cluster)], &Target{
			UID: types.UID(name), Namespace: "ns", Name: name, Cluster: cluster, Kind: MachineHealthCheck, Check: cluster, FailureDomain: rack,
		})
	}
	f.report(cluster)
}

func (f *fleet) report(cluster string) { f.ledger.Report(check(cluster), f.targets[check(cluster)]) }

// edit changes the nth machine of a check, and reports it.
func (f *fleet) edit(cluster string, n int, edit func(*Target)) {
	changed := *f.targets[check(cluster)][n]
	edit(&changed)
	f.targets[check(cluster)][n] = &changed
	f.report(cluster)
}

// record counts a record about the nth machine of check a, which began and had its last step at these times.
func (f *fleet) record(n int, begun, stepped time.Time, edit func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
	target := f.targets[check("a")][n]
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("record-", begun.Unix())}}
	record.Spec.Requester.Check = &mendv1.RecordRef{Kind: MachineHealthCheck, Name: "a"}
	record.Spec.Target = mendv1.RecordTarget{
		Machine: &mendv1.RecordRef{UID: string(target.UID), Name: target.Name}, ClusterName: "a", FailureDomain: target.FailureDomain,
	}
	record.Status.Begun, record.Status.Steps = new(metav1.NewTime(begun)), []mendv1.RecordStep{{Time: metav1.NewMicroTime(stepped)}}
	edit(record)
	f.ledger.Follow(record, true)
	return record
}

func capacityBack(r *mendv1.RemediationRecord) { r.Status.CapacityBack = new(metav1.NewTime(start)) }

func sick(t *Target)   { t.Unavailable, t.Due = true, start }
func flying(t *Target) { t.Unavailable, t.InFlight = true, true }
func well(t *Target)   { t.Unavailable, t.InFlight = false, false }

// ask asks for places for all sick machines, and returns the indexes of those that may begin.
func (f *fleet) ask(cluster string) (started []int, blocked map[types.UID][]rule.Blocker) {
	var waiting []types.UID
	for _, target := range f.targets[check(cluster)] {
		if target.Unavailable && !target.InFlight {
			waiting = append(waiting, target.UID)
		}
	}
	blocked = f.ledger.Ask(check(cluster), waiting)
	for i, target := range f.targets[check(cluster)] {
		if slices.Contains(waiting, target.UID) && len(blocked[target.UID]) == 0 {
			started = append(started, i)
		}
	}
	return started, blocked
}

func (f *fleet) wants(cluster string, want ...int) {
	f.t.Helper()
	if started, blocked := f.ask(cluster); !slices.Equal(started, want) {
		f.t.Errorf("%s: %v begin, want %v; %v", cluster, started, want, blocked)
	}
}

// all returns the targets of check a.
func (f *fleet) all() map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, target := range f.targets[check("a")] {
		all[target.UID] = true
	}
	return all
}

func TestOfTwoClustersInOneRackOneBegins(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "")))
	for _, cluster := range []string{"a", "b"} {
		f.machines(cluster, "r1", 2)
		f.machines(cluster, "r2", 1)
		f.edit(cluster, 0, sick)
	}
	f.wants("a", 0)
	f.wants("b")
	f.edit("b", 2, sick)
	f.wants("b", 2) // in another rack
	f.ledger.Settle(check("a"), f.all(), nil)
	f.edit("a", 0, flying)
	f.wants("b", 2)
	f.woken = nil
	f.edit("a", 0, well)
	must.Equal(t, []string{"b"}, f.woken)
	f.wants("b", 0, 2)
}

func TestWhoIsGivenAPlaceAndDoesNotBeginGivesItBack(t *testing.T) {
	for name, tc := range map[string]struct {
		begun, lost bool
		after       time.Duration
		free        bool
	}{
		"it was refused":                        {free: true},
		"it began, and the cache lags":          {begun: true},
		"the answer was lost":                   {lost: true},
		"the answer was lost half a minute ago": {lost: true, after: begin.Settles, free: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, policyWith(rack("1", "")))
			for _, cluster := range []string{"a", "b"} {
				f.machines(cluster, "r1", 1)
				f.edit(cluster, 0, sick)
			}
			f.wants("a", 0)
			f.ledger.Settle(check("a"), map[types.UID]bool{"a-r1-0": tc.begun}, map[types.UID]bool{"a-r1-0": tc.lost})
			if tc.after > 0 || tc.lost { // the check reconciles again, and finds no remediation
				f.clock.SetTime(start.Add(tc.after))
				f.edit("a", 0, sick)
			}
			if started, _ := f.ask("b"); (len(started) > 0) != tc.free {
				t.Errorf("%v begins, want a free place: %t", started, tc.free)
			}
		})
	}
}

// A check that waits for a spare host lists hosts again after another check of its kind and namespace, which takes the same hosts, was
// given a place. Other checks do not.
func TestPlacesThatAreGivenConcernTheChecksOfTheKindAndNamespace(t *testing.T) {
	f := newFleet(t, policyWith(rack("9", "")))
	f.machines("a", "r1", 1)
	f.edit("a", 0, sick)
	f.wants("a", 0)
	for name, tc := range map[string]struct {
		check         Check
		places, begun int
	}{
		"another check":       {check("b"), 1, 1},
		"the check itself":    {check("a"), 1, 0},
		"one elsewhere":       {Check{MachineHealthCheck, types.NamespacedName{Namespace: "other", Name: "b"}}, 0, 0},
		"one of another kind": {Check{NodeHealthCheck, types.NamespacedName{Namespace: "ns", Name: "b"}}, 0, 0},
	} {
		places, begun := f.ledger.Given(tc.check)
		must.Is(t, [2]int{tc.places, tc.begun}, [2]int{places, len(begun)}, name+": places, and those that have not begun:")
	}
}

// The table of 1.2: a rack of 40 machines.
func TestArithmetic(t *testing.T) {
	for name, tc := range map[string]struct {
		limit                mendv1.PolicyLimit
		machines, sick, want int
		reason               string
	}{
		"one":                                   {rack("2", "25%"), 40, 1, 1, ""},
		"three":                                 {rack("2", "25%"), 40, 3, 2, place.GroupInFlight},
		"as many as may be unavailable":         {rack("2", "25%"), 40, 10, 2, place.GroupInFlight},
		"one more":                              {rack("2", "25%"), 40, 11, 0, place.GroupUnavailable},
		"a percentage is rounded up":            {rack("10%", ""), 4, 4, 1, place.GroupInFlight},
		"a percentage of none is none":          {rack("0%", ""), 4, 1, 0, place.GroupInFlight},
		"none at all":                           {rack("0", ""), 4, 1, 0, place.GroupInFlight},
		"what is not limited":                   {mendv1.PolicyLimit{Name: "all"}, 4, 4, 4, ""},
		"what may not be unavailable is no one": {rack("", "0"), 4, 1, 0, place.GroupUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, policyWith(tc.limit))
			f.machines("a", "r1", tc.machines)
			for i := range tc.sick {
				f.edit("a", i, sick)
			}
			started, blocked := f.ask("a")
			if len(started) != tc.want {
				t.Errorf("%v begin, want %d", started, tc.want)
			}
			for _, blockers := range blocked {
				must.Equal(t, tc.reason, blockers[0].Reason)
			}
		})
	}
}

func TestWhatCannotBeJudgedIsInNoNumber(t *testing.T) {
	f := newFleet(t, policyWith(rack("50%", "25%")))
	f.machines("a", "r1", 4)
	f.machines("gone", "r1", 100)
	for i := range 100 {
		f.edit("gone", i, func(t *Target) { t.Unknown = true })
	}
	f.edit("a", 0, sick)
	f.wants("a", 0)
	_, blocked := f.ask("gone")
	must.Equal(t, 0, len(blocked))
	f.edit("a", 1, sick) // two of four
	f.ledger.Settle(check("a"), nil, nil)
	f.wants("a")
}

func TestAPlaceIsTakenUntilTheCapacityIsBackAndForAnHourWithoutAStep(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "")))
	f.machines("a", "r1", 3)
	f.edit("a", 0, flying)
	f.record(0, start, start, func(*mendv1.RemediationRecord) {})
	f.targets[check("a")] = f.targets[check("a")][1:] // the Machine is gone
	f.edit("a", 0, sick)
	f.wants("a")
	f.clock.SetTime(start.Add(stalledAfter))
	f.wants("a", 0)
	f.ledger.Settle(check("a"), nil, nil)
	record := f.record(0, start, start.Add(stalledAfter), func(*mendv1.RemediationRecord) {}) // a new step
	f.wants("a")
	f.woken = nil
	f.ledger.Follow(record, false)
	must.Equal(t, []string{"a"}, f.woken)
	f.wants("a", 0)
}

func TestTheStrictestOfAllPoliciesWinsAndEachIsNamed(t *testing.T) {
	tenant := policyWith(mendv1.PolicyLimit{Name: "few", MaxInFlight: new(intstr.FromInt32(0))})
	tenant.Namespace = "ns"
	elsewhere := tenant.DeepCopy()
	elsewhere.Namespace = "elsewhere"
	f := newFleet(t, policyWith(rack("5", "0%")), tenant, elsewhere)
	f.machines("a", "r1", 1)
	f.edit("a", 0, sick)
	_, blocked := f.ask("a")
	var texts []string
	for _, b := range blocked["a-r1-0"] {
		texts = append(texts, b.Reason+": "+b.Text)
	}
	must.Equal(t, []string{
		"GroupUnavailable: The limit rack of RemediationPolicy kubemend-system/racks in r1 is reached: " +
			"1 of 1 are unavailable, at most 0 may be (maxUnavailable 0%)",
		"GroupInFlight: The limit few of RemediationPolicy ns/racks is reached: 0 of at most 0 are under way (maxInFlight 0)",
	}, texts)
}

func TestATargetWithoutAValueIsBoundByOtherLimitsAlone(t *testing.T) {
	f := newFleet(t, policyWith(rack("0", ""), mendv1.PolicyLimit{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}))
	f.machines("a", "", 2)
	f.edit("a", 0, sick)
	f.edit("a", 1, sick)
	f.wants("a", 0)
	policy := policyWith()
	f.ledger.describe(policy)
	must.Equal(t, mendv1.PolicySelected{Checks: 1, Targets: 2, Ungrouped: 2}, policy.Status.Selected)
	must.Equal(t, []mendv1.PolicyGroup{
		{Limit: "all", Targets: 2, Unavailable: 2, InFlight: 1, Waiting: 1, Reason: place.GroupInFlight},
	}, policy.Status.Groups)
}

func TestAFloodInOneClusterGoesAfterOneFaultInAnother(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "")))
	f.machines("a", "r1", 9)
	f.machines("b", "r1", 1)
	for i := range 9 {
		f.edit("a", i, sick)
	}
	f.wants("a", 0)
	f.ledger.Settle(check("a"), f.all(), nil)
	f.edit("a", 0, flying)
	f.edit("b", 0, func(t *Target) { sick(t); t.Due = start.Add(time.Minute) })
	f.wants("a")
	f.wants("b")
	f.woken = nil
	f.edit("a", 1, func(t *Target) { sick(t); t.ByHand = true })
	f.wants("a")
	f.edit("a", 0, well) // check a asks next; machines marked by hand go first
	f.wants("a", 1)
}

func TestWhatCouldNotBeBegunKeepsNobodyWaiting(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "")))
	f.machines("a", "r1", 2)
	for i := range 2 {
		f.edit("a", i, sick)
	}
	f.wants("a", 0)
	f.ledger.Settle(check("a"), nil, nil)
	f.edit("a", 0, func(t *Target) { sick(t); t.ByHand, t.Refused = true, start })
	f.wants("a", 1)
}

func TestAPlaceIsOfferedToTheNextIfTheFirstDoesNotTakeIt(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "")))
	for i, cluster := range []string{"a", "b", "c"} {
		f.machines(cluster, "r1", 1)
		f.edit(cluster, 0, func(t *Target) { sick(t); t.Due = start.Add(time.Duration(i) * time.Minute) })
	}
	f.edit("a", 0, flying)
	f.wants("b")
	f.wants("c")
	f.edit("a", 0, well)
	f.wants("c") // the place is offered to b
	f.clock.SetTime(start.Add(offeredFor))
	f.wants("c", 0)
}

func TestNothingBeginsBeforeAllThatCountsIsKnown(t *testing.T) {
	f := newFleet(t)
	f.ledger.read = false
	f.machines("a", "r1", 1)
	f.edit("a", 0, sick)
	reasonOf := func() string {
		_, blocked := f.ask("a")
		if len(blocked) == 0 {
			return ""
		}
		return blocked["a-r1-0"][0].Reason
	}
	must.Equal(t, place.PoliciesUnread, reasonOf())
	f.ledger.SetUp(MachineHealthCheck, func() []reconcile.Request {
		return []reconcile.Request{{NamespacedName: check("a").NamespacedName}, {NamespacedName: check("b").NamespacedName}}
	}, func(reconcile.Request, time.Duration) {})
	f.set(policyWith(rack("1", "")))
	f.report("a")
	must.Equal(t, place.PoliciesUnread, reasonOf())
	f.ledger.Forget(check("b")) // b is paused
	must.Equal(t, "", reasonOf())

	f.ledger.Settle(check("a"), nil, nil)
	f.set()
	f.set(policyWith(rack("1", "")))
	must.Equal(t, place.PoliciesUnread, reasonOf())
	f.clock.SetTime(start.Add(heardWithin))
	must.Equal(t, "", reasonOf())
}

// Checks that fail, claim, lose responses and recover in random order never exceed a limit, and leave no place taken.
func TestLimitsHoldInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := newFleet(t, policyWith(rack("2", ""), mendv1.PolicyLimit{Name: "all", MaxInFlight: new(intstr.FromInt32(3))}))
		clusters := []string{"a", "b", "c"}
		for _, cluster := range clusters {
			f.machines(cluster, "r1", 4)
			f.machines(cluster, "r2", 4)
		}
		holds := func() {
			inRack, total := map[string]int{}, 0
			for _, targets := range f.targets {
				for _, target := range targets {
					if target.InFlight {
						inRack[target.FailureDomain]++
						total++
					}
				}
			}
			if inRack["r1"] > 2 || inRack["r2"] > 2 || total > 3 {
				t.Fatalf("seed %d: in flight are %v", seed, inRack)
			}
		}
		for range 300 {
			cluster, n := clusters[random.IntN(3)], random.IntN(8)
			switch random.IntN(6) {
			case 0:
				f.edit(cluster, n, func(t *Target) {
					if !t.InFlight {
						sick(t)
					}
				})
			case 1:
				f.edit(cluster, n, well)
			case 2: // the workload cluster becomes unreachable, or reachable
				for i := range 8 {
					f.edit(cluster, i, func(t *Target) { t.Unknown = !t.Unknown })
				}
			default:
				f.report(cluster)
				started, _ := f.ask(cluster)
				begins := map[types.UID]bool{}
				for _, i := range started {
					if random.IntN(3) > 0 {
						begins[f.targets[check(cluster)][i].UID] = true
						changed := *f.targets[check(cluster)][i]
						changed.InFlight = true
						f.targets[check(cluster)][i] = &changed // in the next report
					}
				}
				f.ledger.Settle(check(cluster), begins, nil)
				holds()
			}
		}
		for _, cluster := range clusters {
			for i := range 8 {
				f.edit(cluster, i, func(t *Target) { well(t); t.Unknown = false })
			}
		}
		must.Is(t, 3, len(f.ledger.groups))
		for key, g := range f.ledger.groups {
			n, want := f.ledger.numbers(g, start), map[string]int{"r1": 12, "r2": 12, "": 24}[key.Group]
			if n.inFlight+n.unavailable+n.waiting+len(g.open) > 0 || n.targets != want {
				t.Fatalf("seed %d: %v is left with %+v", seed, key, n)
			}
		}
	}
}

func slowly(flying string) mendv1.PolicyLimit {
	limit := rack(flying, "")
	limit.SlowStart = mendv1.SlowStartEnabled
	return limit
}

// begins begins all remediations that may begin, and returns how many.
func (f *fleet) begins() int {
	started, _ := f.ask("a")
	f.ledger.Settle(check("a"), f.all(), nil)
	for _, i := range started {
		f.edit("a", i, flying)
	}
	return len(started)
}

func (f *fleet) passes(d time.Duration) {
	f.clock.SetTime(f.clock.Now().Add(d))
	f.report("a")
}

func TestSlowStartLetsOneMoreBeginForEachThatHasProvenItself(t *testing.T) {
	f := newFleet(t, policyWith(slowly("6")))
	f.machines("a", "r1", 40)
	for i := range 30 {
		f.edit("a", i, sick)
	}
	for _, want := range []int{1, 2, 4, 6, 6} {
		must.Is(t, want, f.begins())
		must.Is(t, 0, f.begins())
		for i, target := range f.targets[check("a")] {
			if target.InFlight {
				f.edit("a", i, well)
			}
		}
		f.passes(provenAfter - time.Second)
		if want < 6 {
			must.Is(t, 0, f.begins(), "before they are proven")
		}
		f.passes(time.Second)
		f.edit("a", 39, func(*Target) {}) // any change counts the group again
	}
}

func TestSlowStartPausesLongerAfterEachFailureAndForgets(t *testing.T) {
	f := newFleet(t, policyWith(slowly("")))
	f.machines("a", "r1", 40)
	f.edit("a", 0, sick)
	f.edit("a", 1, sick)
	for _, pause := range []time.Duration{
		time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, longestPause, longestPause,
	} {
		must.Is(t, 1, f.begins())
		for i := range 2 {
			if f.targets[check("a")][i].InFlight {
				f.edit("a", i, func(t *Target) { t.InFlight = false }) // the remediation was given up
			}
		}
		_, blocked := f.ask("a")
		must.Equal(t, f.clock.Now().Add(pause), blocked["a-r1-0"][0].Until)
		f.passes(pause - time.Second)
		must.Is(t, 0, f.begins())
		f.passes(time.Second)
	}
	f.edit("a", 0, well)
	f.edit("a", 1, well)
	f.edit("a", 2, sick)
	must.Is(t, 1, f.begins())
	f.edit("a", 2, well)
	f.passes(time.Minute)
	f.edit("a", 2, sick) // before the remediation was proven
	must.Is(t, 0, f.begins())
	f.passes(firstPause)
	must.Is(t, 1, f.begins())
}

func TestNoMoreBeginWithinAnHourThanMay(t *testing.T) {
	limit := rack("", "")
	limit.MaxPerHour = new(int32(3))
	f := newFleet(t, policyWith(limit))
	f.machines("a", "r1", 9)
	for _, begun := range []time.Duration{-30 * time.Minute, -20 * time.Minute} { // both ended before a restart
		f.record(8, start.Add(begun), start, capacityBack)
	}
	for i := range 3 {
		f.edit("a", i, sick)
	}
	must.Is(t, 1, f.begins())
	f.edit("a", 0, well)
	_, blocked := f.ask("a")
	must.Equal(t, start.Add(30*time.Minute), blocked["a-r1-1"][0].Until)
	f.passes(30*time.Minute - time.Second)
	must.Is(t, 0, f.begins())
	f.passes(time.Second)
	must.Is(t, 1, f.begins())
	must.Is(t, 0, f.begins())
}

// A power cycle that Cluster API core requested is in flight to the check that observes it, and asks for its own place.
func TestOfPowerCyclesThatAllWaitOneBegins(t *testing.T) {
	f := newFleet(t, policyWith(rack("1", "50%")))
	f.machines("core", "r1", 4)
	for i := range 4 {
		f.edit("core", i, func(t *Target) { t.Observed, t.InFlight = true, i < 2 })
	}
	var begun []types.UID
	for _, i := range []int{0, 1, 0} {
		machine := f.targets[check("core")][i]
		cycle := Check{"HostRemediation", types.NamespacedName{Namespace: "ns", Name: machine.Name}}
		asks := *machine
		asks.Kind, asks.Observed, asks.InFlight, asks.Unavailable = cycle.Kind, false, false, true
		f.ledger.Report(cycle, []*Target{&asks})
		if len(f.ledger.Ask(cycle, []types.UID{asks.UID})) == 0 {
			begun = append(begun, asks.UID)
		}
	}
	must.Equal(t, []types.UID{"core-r1-0"}, begun)
	policy := policyWith()
	f.ledger.describe(policy)
	must.Equal(t, mendv1.PolicySelected{Checks: 1, Targets: 4}, policy.Status.Selected)
	must.Equal(t, []mendv1.PolicyGroup{
		{Limit: "rack", Group: "r1", Targets: 4, Unavailable: 2, InFlight: 1, Waiting: 1, Reason: place.GroupInFlight},
	}, policy.Status.Groups)
}

func TestARecordThatDoesNotSayThatItBeganCountsOnceNothingReportsItsTarget(t *testing.T) {
	f := newFleet(t, policyWith(mendv1.PolicyLimit{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}))
	f.machines("a", "r1", 3)
	f.record(0, start, start, func(r *mendv1.RemediationRecord) { r.Status.Attempted, r.Status.Begun = r.Status.Begun, nil })
	f.edit("a", 0, sick)
	f.wants("a", 0) // its own record does not block it
	f.edit("a", 1, sick)
	f.ledger.Report(check("a"), f.targets[check("a")][1:]) // the first machine is not reported any more
	must.Equal(t, 1, len(f.ledger.Ask(check("a"), []types.UID{f.targets[check("a")][1].UID})))
}

func TestTheRecordOfANodeCountsAsThatNode(t *testing.T) {
	f := newFleet(t, policyWith(mendv1.PolicyLimit{Name: "all", MaxInFlight: new(intstr.FromInt32(2))}))
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "record"}}
	record.Spec.Target.Node, record.Spec.Target.Machine = &mendv1.RecordRef{Name: "n", UID: "gone"}, &mendv1.RecordRef{Name: "m", UID: "m"}
	record.Spec.Requester.Check = &mendv1.RecordRef{Kind: NodeHealthCheck, Name: "nodes"}
	record.Status.Begun = new(metav1.NewTime(start))
	f.ledger.Follow(record, true)
	nodes := Check{NodeHealthCheck, types.NamespacedName{Name: "nodes"}}
	f.ledger.Report(nodes, []*Target{{
		UID: place.NodeID("n"), Name: "n", Kind: NodeHealthCheck, Check: "nodes", InFlight: true, Unavailable: true,
	}})
	f.machines("a", "r1", 2)
	f.edit("a", 0, sick)
	f.edit("a", 1, sick)
	f.wants("a", 0)
}
