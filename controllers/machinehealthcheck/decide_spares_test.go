package machinehealthcheck

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// waitsFor makes a check wait that long for spare hosts. fits are the hosts that fit each machine, in the order of the machines' names.
func waitsFor(d time.Duration, fits ...[]string) func(*Facts) {
	return func(f *Facts) {
		f.SpareWait, f.Read.Spares, f.Spares.Fits = func(*clusterv1.Machine) time.Duration { return d }, true, map[types.UID][]string{}
		for i, hosts := range fits {
			f.Spares.Fits[f.Targets[i].UID] = hosts
		}
	}
}

func expecting(hosts ...string) func(*Facts) {
	return func(f *Facts) { f.Spares.Expected = append(slices.Clone(f.Spares.Expected), hosts) }
}

func failedFor(d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) { has(t.Machine, since(HealthCheckSucceeded, metav1.ConditionFalse, "", ago(d))) }
}

func toldToWait(t *givenMachine) {
	has(t.Machine, condition(mendv1.SpareHostAvailable, metav1.ConditionFalse, string(NoSpareHost), ""))
}

var (
	none = []string{}
	one  = []string{"h1"}
	two  = []string{"h1", "h2"}
)

func TestARemediationWaitsForASpareHost(t *testing.T) {
	const wait = 10 * time.Minute
	until := noon.Add(wait - time.Minute) // each has been unhealthy for a minute
	marked := func(t *givenMachine) { failedFor(5 * time.Minute)(t) }
	var nothing blockerEnd
	for name, tc := range map[string]struct {
		given Facts
		want  blockerEnd // of the first machine; none if it starts
	}{
		"while no host fits, until its deadline":               {facts(bad(onHost)).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, until}},
		"not if one fits":                                      {facts(bad(onHost)).with(waitsFor(wait, one)), nothing},
		"not if the check does not ask for it":                 {facts(bad(onHost)), nothing},
		"not if a template says how":                           {facts(bad(onHost)).with(waitsFor(wait, none), external), nothing},
		"not if the machine is on no host":                     {facts(bad()).with(waitsFor(wait, none)), nothing},
		"while it is not known whether one fits":               {facts(bad(onHost)).with(waitsFor(wait)), blockerEnd{SpareHostsUnread, until}},
		"while no host can be read":                            {facts(bad(onHost)).with(waitsFor(wait, one), func(f *Facts) { f.Spares.Unread = "no rights" }), blockerEnd{SpareHostsUnread, until}},
		"if another machine will take the host":                {facts(bad(onHost)).with(waitsFor(wait, one), expecting("h1")), blockerEnd{NoSpareHost, until}},
		"if another one may take any that fits":                {facts(bad(onHost)).with(waitsFor(wait, two), expecting("h1"), expecting("h2", "h3")), blockerEnd{NoSpareHost, until}},
		"not if it is left with one":                           {facts(bad(onHost)).with(waitsFor(wait, two), expecting("h1", "h2")), nothing},
		"not because of one that takes another host":           {facts(bad(onHost)).with(waitsFor(wait, one), expecting("h2"), expecting()), nothing},
		"from when the machine was marked, if that is earlier": {facts(bad(onHost, marked)).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, noon.Add(5 * time.Minute)}},
		"from when it was due, if that is earlier":             {facts(bad(onHost, due(8*time.Minute), marked)).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, noon.Add(2 * time.Minute)}},
		"not longer than its deadline":                         {facts(bad(onHost, due(wait))).with(waitsFor(wait, none)), nothing},
		"a moment before it still":                             {facts(bad(onHost, due(wait-time.Second))).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, noon.Add(time.Second)}},
		"nor without knowing of hosts":                         {facts(bad(onHost, due(wait))).with(waitsFor(wait)), nothing},
		"a mark by hand waits too":                             {facts(bad(onHost, byPerson)).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, until}},
		"one that is marked by hand alone, from now": {facts(bad(onHost, func(t *givenMachine) {
			t.Verdict.Findings = []health.Finding{{Reason: health.MarkedByHand}}
		})).with(waitsFor(wait, none)), blockerEnd{NoSpareHost, noon.Add(wait)}},
		"what is in flight goes on": {facts(bad(onHost, asked)).with(waitsFor(wait, none)), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := p.Decisions[0]
			var want []blockerEnd
			if tc.want != nothing {
				want = []blockerEnd{tc.want}
			}
			if !slices.Equal(d.blockerEnds(), want) {
				t.Errorf("blocked by %v, want %v", d.Blockers, want)
			}
			must.Is(t, len(want) == 0 && !d.InFlight, d.Starts(), "starts:")
			if len(want) > 0 && !p.Recheck.Equal(tc.want.until) {
				t.Errorf("it is looked at again at %v, want %v", p.Recheck, tc.want.until)
			}
			if late := d.Spare != nil && d.Spare.Late; late != (len(want) == 0 && d.Spare != nil && d.Spare.Lacks != "") {
				t.Errorf("it starts without a host: %t, %+v", late, d.Spare)
			}
		})
	}
}

// Hosts are read exactly when a decision needs them.
func TestHostsAreReadOnlyForARemediationThatNeedsOne(t *testing.T) {
	unread := func(f *Facts) { f.Read.Spares = false }
	for name, tc := range map[string]struct {
		given Facts
		want  Needs
	}{
		"of an unhealthy machine that an owner is to replace":   {facts(bad(onHost)).with(waitsFor(time.Hour), unread, cyclesRead), Needs{Spares: true}},
		"after the power cycles":                                {facts(bad(onHost)).with(waitsFor(time.Hour), unread), Needs{Cycles: true}},
		"the machine's own, if the check does not wait for one": {facts(bad(onHost)).with(cyclesRead), Needs{Hosts: true}},
		"but not once more":                                     {facts(bad(onHost, withHost(Host{}))).with(cyclesRead), Needs{}},
		"nor where a template needs none":                       {facts(bad(onHost)).with(cyclesRead, external, func(f *Facts) { f.Read.Template = true }), Needs{}},
		"but for an update that takes long":                     {facts(bad(onHost, updatingFor(2*time.Hour))).with(cyclesRead, external), Needs{Hosts: true}},
		"not while all machines are healthy":                    {facts(is(health.Healthy, onHost)).with(waitsFor(time.Hour), unread), Needs{}},
		"not of one that is pending":                            {facts(is(health.Pending, onHost)).with(waitsFor(time.Hour), unread, cyclesRead), Needs{}},
		"not once more":                                         {facts(bad(onHost)).with(waitsFor(time.Hour), cyclesRead), Needs{}},
		"not of what is in flight":                              {facts(bad(onHost, asked)).with(waitsFor(time.Hour), unread, cyclesRead), Needs{}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, Decide(tc.given).Needs, "needs")
		})
	}
}

func cyclesRead(f *Facts) { f.Read.Cycles = true }

// Of two machines that one host fits, the first in order starts. The other waits, and takes no place from others.
func TestTwoMachinesDoNotCountOnTheSameHost(t *testing.T) {
	hour := waitsFor(time.Hour, one, one)
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"the one that has been due for longer":                      {facts(bad(onHost), bad(onHost, due(2*time.Minute))).with(hour), "b"},
		"the one that a person has marked":                          {facts(bad(onHost, byPerson), bad(onHost, due(2*time.Minute))).with(hour), "a"},
		"both if each has one":                                      {facts(bad(onHost), bad(onHost)).with(waitsFor(time.Hour, one, []string{"h2"})), "ab"},
		"both of two hosts":                                         {facts(bad(onHost), bad(onHost)).with(waitsFor(time.Hour, two, two)), "ab"},
		"one that waits no longer counts on the host it may get":    {facts(bad(onHost), bad(onHost, due(2*time.Hour))).with(waitsFor(time.Hour, one, none)), "ab"},
		"one whose hosts include the only one of another one waits": {facts(bad(onHost, byPerson), bad(onHost)).with(waitsFor(time.Hour, one, two)), "a"},
		"nor does another one count on that":                        {facts(bad(onHost), bad(onHost, due(2*time.Hour))).with(waitsFor(time.Hour, one, one), expecting("h1")), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.given.starting(); got != tc.want {
				t.Errorf("%q start, want %q", got, tc.want)
			}
		})
	}
}

// stormBefore says that too many machines were unhealthy in the decision before, too.
func stormBefore(f *Facts) { f.Memory.ShortCircuited = true }

func TestWhatIsSaidOfAWaitForASpareHost(t *testing.T) {
	says := metav1.Condition{Type: mendv1.SpareHostAvailable, Status: metav1.ConditionFalse, Reason: string(NoSpareHost)}
	gone := metav1.Condition{Type: mendv1.SpareHostAvailable}
	hour := time.Hour
	for name, tc := range map[string]struct {
		given Facts
		want  metav1.Condition // of the first machine; zero if it stands as it was
	}{
		"that it waits":                                {facts(bad(onHost)).with(waitsFor(hour, none)), says},
		"also if its limits block it as well":          {facts(bad(onHost)).with(waitsFor(hour, none), tooMany), says},
		"nothing of a machine that needs no host":      {facts(bad()).with(waitsFor(hour)), metav1.Condition{}},
		"no longer when a host fits":                   {facts(bad(onHost, toldToWait)).with(waitsFor(hour, one)), gone},
		"nor if limits block it then":                  {facts(bad(onHost, toldToWait)).with(waitsFor(hour, one), tooMany), gone},
		"nor when it starts without one":               {facts(bad(onHost, toldToWait, due(2*hour))).with(waitsFor(hour, none)), gone},
		"nor when it is in flight":                     {facts(bad(onHost, toldToWait, asked)).with(waitsFor(hour, none)), gone},
		"nor when the check does not ask for it":       {facts(bad(onHost, toldToWait)), gone},
		"nor when a template says how":                 {facts(bad(onHost, toldToWait)).with(waitsFor(hour, none), external), gone},
		"nor when the machine is healthy":              {facts(is(health.Healthy, onHost, toldToWait)).with(waitsFor(hour)), gone},
		"what is pending in between says it still":     {facts(is(health.Pending, onHost, toldToWait)).with(waitsFor(hour, none)), metav1.Condition{}},
		"that it waits, of what was just seen":         {facts(bad(onHost)).with(waitsFor(hour, none), limitsMatter), says},
		"also in a storm, in which all was just seen":  {facts(bad(onHost)).with(waitsFor(hour, none), limitsMatter, tooMany, stormBefore), says},
		"still of what was just seen after a restart":  {facts(bad(onHost, toldToWait)).with(waitsFor(hour, none), limitsMatter), says},
		"no longer in a storm when a host fits":        {facts(bad(onHost, toldToWait)).with(waitsFor(hour, one), limitsMatter, tooMany, stormBefore), gone},
		"nor in a storm when the wait is over":         {facts(bad(onHost, toldToWait, due(2*hour))).with(waitsFor(hour, none), limitsMatter, tooMany, stormBefore), gone},
		"nothing on a machine that is being deleted":   {facts(bad(onHost, toldToWait, deleting)).with(waitsFor(hour, none)), metav1.Condition{}},
		"nothing on a machine that an older check has": {facts(bad(onHost, toldToWait, olderActs)).with(waitsFor(hour, none)), metav1.Condition{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var got metav1.Condition
			for _, c := range p.Decisions[0].Conditions {
				if c.Type == mendv1.SpareHostAvailable {
					got, got.Message = c, ""
				}
			}
			must.Is(t, tc.want, got, "says")
			at := slices.IndexFunc(p.Conditions, func(c metav1.Condition) bool { return c.Type == mendv1.SpareHostAvailable })
			if at < 0 || (p.Conditions[at].Status == "") != (tc.want != says) {
				t.Errorf("the check says %+v", p.Conditions)
			}
		})
	}
	mixed := Decide(facts(bad(onHost), bad(onHost)).with(func(f *Facts) {
		waitsFor(hour, none)(f)
		f.Spares.Fits[f.Targets[1].UID] = none
		delete(f.Spares.Fits, f.Targets[0].UID)
	}))
	if at := slices.IndexFunc(mixed.Conditions, func(c metav1.Condition) bool { return c.Reason == string(NoSpareHost) }); at < 0 {
		t.Errorf("of an unknown host and of none the check says %+v", mixed.Conditions)
	}
}

// Each machine that starts early has a host, whichever hosts CAPM3 picks for the others. No machine waits beyond its deadline, and a
// waiting machine takes no place.
func TestWhateverIsKnownOfSpareHosts(t *testing.T) {
	host := rapid.Map(rapid.IntRange(0, 4), func(n int) string { return fmt.Sprint("h", n) })
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		hosts := rapid.SliceOfNDistinct(host, 0, 4, func(h string) string { return h })
		wait := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "wait")
		waitsFor(wait)(&f)
		for _, is := range f.Targets {
			if at := rapid.SampledFrom([]time.Time{{}, ago(time.Second), ago(2 * time.Minute), ago(2 * time.Hour)}).Draw(t, "failed since"); Failed(is.Machine) != nil {
				Failed(is.Machine).LastTransitionTime = metav1.NewTime(at)
			}
			if rapid.IntRange(0, 7).Draw(t, "unread") > 0 {
				f.Spares.Fits[is.UID] = hosts.Draw(t, "fits")
			}
		}
		f.Spares.Expected = rapid.SliceOfN(hosts, 0, 3).Draw(t, "expected")
		p := Decide(f)
		claims, late := slices.Clone(f.Spares.Expected), false // a machine that starts without a host may take any
		for _, d := range p.Decisions {
			if s := d.Spare; s != nil && s.Lacks == "" && d.Starts() {
				claims = append(claims, f.Spares.Fits[d.Target.UID])
			}
			late = late || d.Spare != nil && d.Spare.Late
		}
		for _, d := range p.Decisions {
			s := d.Spare
			if s == nil {
				if d.Blocked(NoSpareHost) || d.Blocked(SpareHostsUnread) {
					t.Fatalf("machine %s needs no host, and is blocked by %v", d.Target.Name, d.Blockers)
				}
				continue
			}
			if n, fits := wanting(f.Spares.Fits[d.Target.UID], claims), len(f.Spares.Fits[d.Target.UID]); s.Lacks == "" && d.Starts() && !late && n > fits {
				t.Fatalf("machine %s counts on %d hosts, on which %d machines do", d.Target.Name, fits, n)
			}
			if s.blocks() && !f.Now.Before(s.Until) {
				t.Fatalf("machine %s waits until %v, which is over", d.Target.Name, s.Until)
			}
			if s.Until.After(f.Now.Add(wait)) {
				t.Fatalf("machine %s waits until %v, which is longer than %s", d.Target.Name, s.Until, wait)
			}
			if s.blocks() && d.Tried {
				t.Fatalf("machine %s waits for a host, and is tried", d.Target.Name)
			}
			if s.blocks() && (p.Recheck.IsZero() || p.Recheck.After(s.Until)) {
				t.Fatalf("machine %s waits until %v, and the next decision is at %v", d.Target.Name, s.Until, p.Recheck)
			}
			if nothing := len(d.Blockers) == 0 && !d.InFlight; d.Starts() != nothing {
				t.Fatalf("machine %s starts: %t, blocked by %v", d.Target.Name, d.Starts(), d.Blockers)
			}
		}
	})
}

// A restart loses the memory and a crash can happen at any moment, but the deadline stays the same.
func TestTheDeadlineOfAWaitOutlivesTheProcess(t *testing.T) {
	wait := waitsFor(10*time.Minute, none)
	first := facts(bad(onHost)).with(wait)
	until := Decide(first).Decisions[0].Spare.Until
	for _, later := range []time.Duration{time.Second, 5 * time.Minute, 9*time.Minute - time.Second} {
		for name, change := range map[string]func(*givenMachine){
			"the node's condition stands as it was":             failedFor(-time.Second),
			"the node's condition has turned since":             func(t *givenMachine) { due(-later)(t); failedFor(0)(t) },
			"the process crashed before the machine was marked": func(*givenMachine) {},
		} {
			f := facts(bad(onHost, change)).with(wait)
			f.Now = noon.Add(later)
			got := Decide(f).Decisions[0]
			if limit := until.Add(time.Minute); !got.Blocked(NoSpareHost) || got.Spare.Until.After(limit) || name != "the node's condition has turned since" && !got.Spare.Until.Equal(until) {
				t.Errorf("%s later, %s: it waits until %v, want %v", later, name, got.Spare.Until, until)
			}
		}
	}
}

func TestHowManyReplacementsAreStillToCome(t *testing.T) {
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	made := func(m int) Sibling {
		return Sibling{Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(m))}}}
	}
	asked := made(-60)
	askedAt := func(sibling Sibling, m int) Sibling { return Sibling{Machine: sibling.Machine, Asked: at(m)} }
	old := func(m int) Sibling { return askedAt(made(-60), m) }
	again := made(1)
	again.DeletionTimestamp = &again.CreationTimestamp
	sameSecond := old(0)
	sameSecond.Asked = noon.Add(900 * time.Millisecond)
	for name, tc := range map[string]struct {
		given []Sibling
		want  []int
	}{
		"none of an owner that was not asked":               {[]Sibling{asked, made(1)}, nil},
		"one while no new machine is made":                  {[]Sibling{old(0), asked}, []int{0}},
		"none once it is made":                              {[]Sibling{old(0), made(1)}, nil},
		"none if it is made in the same second":             {[]Sibling{sameSecond, made(0)}, nil},
		"one that was made before replaces nothing":         {[]Sibling{old(5), made(1)}, []int{0}},
		"one new machine replaces one":                      {[]Sibling{old(0), old(1), made(2)}, []int{0}},
		"what was made before the second was asked for":     {[]Sibling{old(0), made(1), made(2), old(5)}, []int{3}},
		"one that is being deleted again replaces nothing":  {[]Sibling{old(0), again}, []int{0}},
		"a new one whose replacement was asked for neither": {[]Sibling{old(0), askedAt(made(1), 2)}, []int{1, 0}},
		"none of two that are both replaced":                {[]Sibling{old(0), old(3), made(1), made(4)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var want []*clusterv1.Machine
			for _, i := range tc.want {
				want = append(want, tc.given[i].Machine)
			}
			if got := ToCome(tc.given); !slices.Equal(got, want) {
				t.Errorf("%d are to come, want %d", len(got), len(want))
			}
		})
	}
}
