package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// of are the facts of a check that kubemend acts on, without limits, whose owners remediate.
func of(targets ...given) Facts {
	f := Facts{
		Now: noon, Mode: Active, Cluster: Cluster{Initialized: true, InfrastructureReady: true, Link: LinkUp},
		Template: Template{Known: true}, Limits: budget.Limits{AtMost: 100, InFlight: budget.Unlimited},
	}
	f.Memory = Memory{Basis: f.basis(), Begun: map[string]Begun{}, Refused: map[string]time.Time{}}
	for i := range targets {
		t := &targets[i]
		t.Name = string(rune('a' + i))
		t.ID = "uid-of-" + t.Name
		f.Targets = append(f.Targets, &t.Target)
		f.Memory.Decisions = append(f.Memory.Decisions, &Decision{Target: &t.Target, Verdict: t.Verdict, At: noon})
		if t.begun {
			f.Memory.Began(t.ID, f.Kind, noon)
		}
		if !t.refused.IsZero() {
			f.Memory.Failed(t.ID, t.refused)
		}
	}
	return f
}

// given is a machine with the verdict that it was given at noon.
type given struct {
	Target
	Verdict health.Verdict
	begun   bool
	refused time.Time
}

func (f Facts) with(change func(*Facts)) Facts {
	change(&f)
	return f
}

// is a machine in a state, which has an owner; one that is unhealthy has been so for a minute, and the timeout of others expires in one.
func is(state health.State, changes ...func(*given)) given {
	t := given{Target: Target{Owned: true}, Verdict: health.Verdict{State: state}}
	switch state {
	case health.Unhealthy:
		t.Verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Due: ago(time.Minute)}}
	case health.Pending, health.Starting:
		t.Verdict.Recheck = noon.Add(time.Minute)
	case health.Healthy, health.Unknown:
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func bad(changes ...func(*given)) given { return is(health.Unhealthy, changes...) }

func due(d time.Duration) func(*given) {
	return func(t *given) { t.Verdict.Findings[0].Due = ago(d) }
}

func byPerson(t *given) {
	t.Verdict.Findings = append(t.Verdict.Findings, health.Finding{Reason: health.MarkedByHand})
}

func external(f *Facts) { f.Template.External = true }

func atOnce(n int) func(*Facts) { return func(f *Facts) { f.Limits.InFlight = n } }

func TestWhatBlocksARemediation(t *testing.T) {
	const minute = time.Minute
	cooldown := 10 * minute
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason // of the first machine
	}{
		"nothing blocks an unhealthy machine":             {of(bad()), nil},
		"a healthy machine is not unhealthy":              {of(is(health.Healthy)), []Reason{NotUnhealthy}},
		"a pending machine is within its timeout":         {of(is(health.Pending)), []Reason{WithinTimeout}},
		"a starting machine too":                          {of(is(health.Starting)), []Reason{WithinTimeout}},
		"also if it starts without a timeout":             {of(is(health.Starting, func(t *given) { t.Verdict.Recheck = time.Time{} })), []Reason{WithinTimeout}},
		"a machine of an unreachable cluster is unjudged": {of(is(health.Unknown)).with(func(f *Facts) { f.Cluster.Link = LinkDown }), []Reason{ClusterUnreachable}},
		"so is one whose node could not be asked for":     {of(is(health.Unknown)), []Reason{NodeNotSeen}},
		"so is one that Cluster API has not looked at since a pause": {of(is(health.Unknown, func(t *given) {
			t.Verdict.Void = []health.Void{{Doubt: health.NotSincePause}}
		})), []Reason{AwaitsClusterAPI}},
		"so is one whose control plane is not initialized": {of(is(health.Unknown, func(t *given) {
			t.Verdict.Gate = health.ControlPlaneNotInitialized
		})), []Reason{ControlPlaneNotInitialized}},
		"so is one whose infrastructure is not ready": {of(is(health.Unknown, func(t *given) {
			t.Verdict.Gate = health.InfrastructureNotReady
		})), []Reason{InfrastructureNotReady}},
		"a machine that is being deleted":          {of(bad(func(t *given) { t.Deleting = true })), []Reason{MachineDeleting}},
		"a machine of an older check":              {of(bad(func(t *given) { t.Older = true })), []Reason{OlderCheckActs}},
		"a check that is not acted on":             {of(bad()).with(func(f *Facts) { f.Mode = Observed }), []Reason{NotActing}},
		"an update in place":                       {of(bad(func(t *given) { t.Updating = true })), []Reason{MachineUpdating}},
		"a power cycle":                            {of(bad(func(t *given) { t.Cycle = &Cycle{} })), []Reason{PowerCycleInProgress}},
		"power cycles that cannot be read":         {of(bad(func(t *given) { t.OnHost = true })).with(func(f *Facts) { f.CyclesUnread = noon.Add(minute) }), []Reason{PowerCyclesUnread}},
		"but only on a host":                       {of(bad()).with(func(f *Facts) { f.CyclesUnread = noon.Add(minute) }), nil},
		"too many":                                 {of(bad()).with(func(f *Facts) { f.Limits.AtMost = 0 }), []Reason{TooManyUnhealthy}},
		"too few":                                  {of(bad()).with(func(f *Facts) { f.Limits.AtLeast = 2 }), []Reason{TooFewUnhealthy}},
		"a limit that cannot be read":              {of(bad()).with(func(f *Facts) { f.Invalid = true }), []Reason{InvalidLimit}},
		"a cooldown after too many":                {of(bad()).with(func(f *Facts) { f.Cooldown, f.Storm = &cooldown, budget.Storm{Active: true} }), []Reason{CoolingDown}},
		"no place for any":                         {of(bad()).with(atOnce(0)), []Reason{NoneAtOnce}},
		"no place for one more":                    {of(bad(), bad(func(t *given) { t.Owner = Asked })).with(atOnce(1)), []Reason{RemediationsInProgress}},
		"a request that is not the check's":        {of(bad(func(t *given) { t.Request = ForeignRequest })).with(external), []Reason{RequestInTheWay}},
		"a template that is missing":               {of(bad()).with(external).with(func(f *Facts) { f.Template.Missing = "it is gone" }), []Reason{TemplateMissing}},
		"a template that can be none":              {of(bad()).with(external).with(func(f *Facts) { f.Template.Refused = true }), []Reason{TemplateRefused}},
		"a template of no use":                     {of(bad(func(t *given) { t.Unusable = true })).with(external), []Reason{TemplateUnusable}},
		"requests that are not known":              {of(bad()).with(func(f *Facts) { f.Template = Template{External: true} }), []Reason{RequestsUnread}},
		"a template that may not be read":          {of(bad()).with(func(f *Facts) { f.Template = Template{External: true, Unread: true} }), []Reason{TemplateUnread}},
		"a change that may be the first of many":   {of(bad()).with(func(f *Facts) { f.Limited = true }), []Reason{JustSeen}},
		"all that has to change is said":           {of(bad(func(t *given) { t.Older, t.Updating = true, true })).with(func(f *Facts) { f.Limits.AtMost = 0 }), []Reason{OlderCheckActs, MachineUpdating, TooManyUnhealthy}},
		"nothing blocks what is in flight already": {of(bad(func(t *given) { t.Owner = Asked })).with(func(f *Facts) { f.Limits.AtMost = 0 }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var got []Reason
			for _, b := range p.Decisions[0].Blockers {
				got = append(got, b.Reason)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("blocked by %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWhichMachinesStart(t *testing.T) {
	const hour = time.Hour
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"all that are unhealthy":                                {of(bad(), is(health.Pending), bad()), "ac"},
		"the longest overdue is first":                          {of(bad(), bad(due(hour))).with(atOnce(1)), "b"},
		"before it, one that a person marked":                   {of(bad(due(hour)), bad(byPerson)).with(atOnce(1)), "b"},
		"by name where that is the same":                        {of(bad(), bad()).with(atOnce(1)), "a"},
		"last is one that could not be begun":                   {of(bad(due(hour), func(t *given) { t.refused = ago(1) }), bad()).with(atOnce(1)), "b"},
		"and one without an owner, which takes no place":        {of(bad(due(hour), func(t *given) { t.Owned = false }), bad(), bad(func(t *given) { t.Owned = false })).with(atOnce(1)), "b"},
		"with a template it is no matter who owns it":           {of(bad(due(hour), func(t *given) { t.Owned = false }), bad()).with(external).with(atOnce(1)), "a"},
		"one without a usable template lets the next go":        {of(bad(func(t *given) { t.Unusable = true }), bad()).with(external).with(atOnce(1)), "b"},
		"one whose owner cannot remediate takes no place":       {of(bad(func(t *given) { t.Owner = CannotRemediate }), bad()).with(atOnce(1)), "b"},
		"one that is being deleted does":                        {of(bad(func(t *given) { t.Owner, t.Deleting = CannotRemediate, true }), bad()).with(atOnce(1)), ""},
		"a power cycle takes a place":                           {of(bad(func(t *given) { t.Cycle = &Cycle{} }), bad()).with(atOnce(1)), ""},
		"what was begun a moment ago does":                      {of(bad(func(t *given) { t.begun = true }), bad()).with(atOnce(1)), ""},
		"an owner that was asked before there was a template":   {of(bad(func(t *given) { t.Owner = CannotRemediate })).with(external), "a"},
		"what is healthy again is not in flight for its owner":  {of(is(health.Healthy, func(t *given) { t.Owner = Asked }), bad()).with(atOnce(1)), "b"},
		"a request that was announced counts if it is not read": {of(is(health.Pending, func(t *given) { t.Announced = true })).with(func(f *Facts) { f.Template = Template{External: true, Unread: true} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for i, d := range Decide(tc.given).Decisions {
				if d.Starts() {
					names = append(names, tc.given.Targets[i].Name)
				}
			}
			if got := strings.Join(names, ""); got != tc.want {
				t.Errorf("%q start, want %q", got, tc.want)
			}
		})
	}
}

var anyTarget = rapid.Custom(func(t *rapid.T) given {
	seldom := rapid.Map(rapid.IntRange(0, 7), func(n int) bool { return n == 0 })
	is := is(rapid.SampledFrom([]health.State{
		health.Healthy, health.Starting, health.Pending, health.Unknown, health.Unhealthy, health.Unhealthy, health.Unhealthy,
	}).Draw(t, "state"))
	is.Deleting, is.Updating, is.OnHost = seldom.Draw(t, "deleting"), seldom.Draw(t, "updating"), seldom.Draw(t, "on a host")
	is.Owned, is.Older = !seldom.Draw(t, "without owner"), seldom.Draw(t, "older check")
	is.Owner = rapid.SampledFrom([]Owner{NotAsked, NotAsked, Asked, CannotRemediate}).Draw(t, "owner")
	is.Request = rapid.SampledFrom([]Request{NoRequest, NoRequest, NoRequest, ForeignRequest, OwnRequest}).Draw(t, "request")
	is.Announced, is.RequestFailed, is.Unusable = seldom.Draw(t, "announced"), seldom.Draw(t, "failed"), seldom.Draw(t, "unusable")
	if is.begun = seldom.Draw(t, "begun"); seldom.Draw(t, "cycled") {
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
		f.Reach, f.Cluster.Link, f.Memory.Basis.Cluster.Link = Report{Status: conditionFalse}, LinkUnsure, LinkUnsure
	}
	if seldom.Draw(t, "unsettled") {
		f.Cluster.Link, f.Memory.Basis.Cluster.Link = LinkUnsure, LinkUnsure
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
	f.Template = Template{
		External: rapid.Bool().Draw(t, "external"), Known: !seldom.Draw(t, "unknown"), Refused: seldom.Draw(t, "refused"),
		Missing: map[bool]string{true: "it is gone"}[seldom.Draw(t, "missing")], Unread: seldom.Draw(t, "unread"),
	}
	if !f.Template.External {
		f.Template = Template{Known: true}
		for i := range f.Targets {
			f.Targets[i].Request, f.Targets[i].Unusable = NoRequest, false
		}
	}
	if f.Template.Unread {
		f.Template.Known = false
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
				"it is being updated":           is.Updating,
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
		order := rapid.Permutation(f.Memory.Decisions).Draw(t, "another order")
		f.Memory.Decisions, f.Targets = order, nil
		for _, d := range order {
			f.Targets = append(f.Targets, d.Target)
		}
		if diff := cmp.Diff(want, starts(f)); diff != "" {
			t.Fatalf("-in one order +in another\n%s", diff)
		}
	})
}

func TestWhatIsSeenStartsASettlingTimeLater(t *testing.T) {
	f := of(bad()).with(func(f *Facts) { f.Limited = true })
	p := Decide(f)
	if p.Decisions[0].Starts() || !p.Recheck.Equal(noon.Add(Settling)) {
		t.Fatalf("starts at once: %t, is looked at again at %v", p.Decisions[0].Starts(), p.Recheck)
	}
	for after, want := range map[time.Duration]bool{Settling - 1: false, Settling: true} {
		t.Run(after.String(), func(t *testing.T) {
			f.Now, f.Memory = noon.Add(after), p.Memory
			if got := Decide(f).Decisions[0].Starts(); got != want {
				t.Errorf("starts: %t", got)
			}
		})
	}
}
