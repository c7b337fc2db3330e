package budget

import (
	"testing"

	"pgregory.net/rapid"
)

// of returns ten machines, of which the given ones are unhealthy and wait.
func of(waiting int, change ...func(*Population)) Population {
	p := Population{Unhealthy: waiting, Waiting: waiting}
	for _, c := range change {
		c(&p)
	}
	p.Healthy = 10 - p.NotHealthy()
	return p
}

func pending(p *Population)  { p.Pending++ }
func starting(p *Population) { p.Starting++ }
func deleting(p *Population) { p.Deleting++ }
func unknown(p *Population)  { p.Unknown++ }
func unread(p *Population)   { p.Unread++ }

// begun is one more unhealthy machine whose remediation is under way.
func begun(p *Population) {
	p.Unhealthy++
	p.InFlight++
}

// lingering is a healthy machine whose remediation is not over yet.
func lingering(p *Population) { p.InFlight++ }

// recovering is a node of which a NodeHealthCheck would say the same.
func recovering(p *Population) {
	p.Recovering++
	p.InFlight++
}

func upTo(most int) Limits { return Limits{AtMost: most, InFlight: Unlimited} }
func between(least, most int) Limits {
	return Limits{AtLeast: least, AtMost: most, InFlight: Unlimited}
}
func atOnce(n int) Limits { return Limits{AtMost: 10, InFlight: n} }

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		p    Population
		l    Limits
		want Grant
	}{
		"none waits, nothing starts":                  {of(0), upTo(4), Grant{Remaining: 4}},
		"all that wait may start":                     {of(3), upTo(4), Grant{Start: 3, Remaining: 1}},
		"exactly the limit is still allowed":          {of(4), upTo(4), Grant{Start: 4}},
		"one above the limit forbids all":             {of(5), upTo(4), Grant{Reason: TooMany}},
		"a limit of zero allows none":                 {of(1), upTo(0), Grant{Reason: TooMany}},
		"a limit of zero is met when all are healthy": {of(0), upTo(0), Grant{}},
		"so is a limit below zero":                    {of(0), upTo(-2), Grant{}},
		"a limit below zero allows none":              {of(1), upTo(-2), Grant{Reason: TooMany}},

		"a pending counts against the limit":                 {of(4, pending), upTo(4), Grant{Reason: TooMany}},
		"a machine that starts counts against the limit":     {of(4, starting), upTo(4), Grant{Reason: TooMany}},
		"a machine that is deleted counts against the limit": {of(4, deleting), upTo(4), Grant{Reason: TooMany}},
		"an unknown machine counts against the limit":        {of(4, unknown), upTo(4), Grant{Reason: TooMany}},
		"a machine that was not read counts too":             {of(4, unread), upTo(4), Grant{Reason: TooMany}},
		"what was begun counts against the limit":            {of(4, begun), upTo(4), Grant{Reason: TooMany}},
		"what recovered does not count against the limit":    {of(4, lingering), upTo(4), Grant{Start: 4}},
		"a node that recovers counts against the limit":      {of(4, recovering), upTo(4), Grant{Reason: TooMany}},
		"a node that recovers takes one of the limit":        {of(3, recovering), upTo(4), Grant{Start: 3}},
		"only those that wait are started":                   {of(1, begun, pending), upTo(4), Grant{Start: 1, Remaining: 1}},

		"too few for a range":                     {of(1), between(2, 4), Grant{Reason: TooFew}},
		"the lower end belongs to the range":      {of(2), between(2, 4), Grant{Start: 2, Remaining: 2}},
		"the upper end belongs to the range":      {of(4), between(2, 4), Grant{Start: 4}},
		"too many for a range":                    {of(5), between(2, 4), Grant{Reason: TooMany}},
		"a pending can lift a range to its start": {of(1, pending), between(2, 4), Grant{Start: 1, Remaining: 2}},
		"a range of one number has one number":    {of(2), between(2, 2), Grant{Start: 2}},

		"a free place is taken":                         {of(3, begun), atOnce(2), Grant{Start: 1, Reason: AtWork, Remaining: 6}},
		"no place is free":                              {of(3, begun, begun), atOnce(2), Grant{Reason: AtWork, Remaining: 5}},
		"as many places as wait hold nothing back":      {of(2), atOnce(2), Grant{Start: 2, Remaining: 8}},
		"more places than wait hold nothing back":       {of(2, begun), atOnce(9), Grant{Start: 2, Remaining: 7}},
		"a place is kept until the remediation is over": {of(1, lingering), atOnce(1), Grant{Reason: AtWork, Remaining: 9}},
		"a lowered limit ends nothing that was begun":   {of(1, begun, begun), atOnce(1), Grant{Reason: AtWork, Remaining: 7}},
		"no place at all starts nothing":                {of(1), atOnce(0), Grant{Reason: AtWork, Remaining: 9}},
		"none is blocked where none waits":              {of(0, begun), atOnce(1), Grant{Remaining: 9}},
		"the short circuit comes before the places":     {of(5), Limits{AtMost: 4, InFlight: 0}, Grant{Reason: TooMany}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.p, tc.l); got != tc.want {
				t.Errorf("Decide(%+v, %+v) = %+v, want %+v", tc.p, tc.l, got, tc.want)
			}
		})
	}
}

func TestMachinesThatWereNotReadAreCompletedFromTheStatus(t *testing.T) {
	cases := map[string]struct {
		read           Population
		total, healthy int
		want           Population
	}{
		"of none that was read the status counts all":     {Population{}, 10, 8, Population{Healthy: 8, Unread: 2}},
		"those that are not healthy go before the status": {Population{Unhealthy: 1, Pending: 1}, 10, 10, Population{Unhealthy: 1, Pending: 1, Healthy: 8}},
		"so do those that are healthy":                    {Population{Healthy: 3}, 10, 2, Population{Healthy: 3, Unread: 7}},
		"an unhealthy one that the status counts is one":  {Population{Unhealthy: 1}, 10, 9, Population{Unhealthy: 1, Healthy: 9}},
		"more were read than the status knows":            {Population{Healthy: 3, Unhealthy: 2}, 4, 4, Population{Healthy: 3, Unhealthy: 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.read.Complete(tc.total, tc.healthy); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestEveryClassIsCountedInItsPlace(t *testing.T) {
	var got Population
	for n, class := range []Class{Healthy, Unhealthy, Pending, Starting, Recovering, Deleting, Unknown} {
		for range n + 1 {
			got.Count(class)
		}
	}
	want := Population{Healthy: 1, Unhealthy: 2, Pending: 3, Starting: 4, Recovering: 5, Deleting: 6, Unknown: 7}
	if got != want || got.NotHealthy() != 27 || got.Total() != 28 {
		t.Errorf("got %+v, %d of %d not healthy; want %+v, 27 of 28", got, got.NotHealthy(), got.Total(), want)
	}
}

var few = rapid.IntRange(0, 6)

// anyPopulation is any that can be: those who wait are unhealthy, and what is begun was begun on some machine.
var anyPopulation = rapid.Custom(func(t *rapid.T) Population {
	p := Population{
		Healthy: few.Draw(t, "healthy"), Unhealthy: few.Draw(t, "unhealthy"), Pending: few.Draw(t, "pending"),
		Starting: few.Draw(t, "starting"), Recovering: few.Draw(t, "recovering"), Deleting: few.Draw(t, "deleting"), Unknown: few.Draw(t, "unknown"),
	}
	p.Waiting = rapid.IntRange(0, p.Unhealthy).Draw(t, "waiting")
	p.InFlight = rapid.IntRange(0, p.Total()-p.Waiting).Draw(t, "in flight")
	return p
})

var anyLimits = rapid.Custom(func(t *rapid.T) Limits {
	l := Limits{AtLeast: few.Draw(t, "at least"), InFlight: rapid.IntRange(Unlimited, 8).Draw(t, "in flight")}
	l.AtMost = l.AtLeast + rapid.IntRange(0, 30).Draw(t, "at most")
	if rapid.IntRange(0, 9).Draw(t, "more have to be healthy than there are") == 0 {
		l.AtLeast, l.AtMost = 0, -1-few.Draw(t, "by")
	}
	return l
})

// holds checks a rule for many populations under many limits.
func holds(t *testing.T, rule func(*rapid.T, Population, Limits)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { rule(t, anyPopulation.Draw(t, "population"), anyLimits.Draw(t, "limits")) })
}

// What is allowed is granted, and no more; every refusal has a reason that a user can read, and none is given where nothing was refused.
func TestAGrantStaysWithinItsLimits(t *testing.T) {
	holds(t, func(t *rapid.T, p Population, l Limits) {
		g, bad := Decide(p, l), p.NotHealthy()
		if g.Start < 0 || g.Start > p.Waiting {
			t.Fatalf("starts %d, %d wait", g.Start, p.Waiting)
		}
		if inside := l.AtLeast <= bad && bad <= max(l.AtMost, 0); inside == g.ShortCircuited() {
			t.Fatalf("%d not healthy is within the limits: %t, and yet %+v", bad, inside, g)
		}
		if g.ShortCircuited() && (g.Start != 0 || g.Remaining != 0) {
			t.Fatalf("short circuited, and yet %+v", g)
		}
		if l.InFlight != Unlimited && g.Start > 0 && p.InFlight+g.Start > l.InFlight {
			t.Fatalf("%d in flight and %d more are above %d", p.InFlight, g.Start, l.InFlight)
		}
		if g.Remaining < 0 || (!g.ShortCircuited() && g.Remaining != max(l.AtMost-bad, 0)) {
			t.Fatalf("%d more may turn bad, want %d", g.Remaining, l.AtMost-bad)
		}
		if blocked := g.Start < p.Waiting || g.ShortCircuited(); blocked != (g.Reason != Enough) {
			t.Fatalf("%d wait: %+v", p.Waiting, g)
		}
	})
}
