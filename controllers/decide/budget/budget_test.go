package budget

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

// of returns ten machines, of which waiting ones are unhealthy and wait for remediation.
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

// begun makes one more machine unhealthy, with a remediation under way.
func begun(p *Population) {
	p.Unhealthy++
	p.InFlight++
}

// lingering is a healthy machine of a MachineHealthCheck whose remediation is not over yet.
func lingering(p *Population) { p.InFlight++ }

// recovering is the same for a node of a NodeHealthCheck.
func recovering(p *Population) {
	p.Recovering++
	p.InFlight++
}

func upTo(most int) Limits { return Limits{AtMost: most} }
func between(least, most int) Limits {
	return Limits{AtLeast: least, AtMost: most}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		p    Population
		l    Limits
		want Grant
	}{
		"none is unhealthy":                           {of(0), upTo(4), Grant{Remaining: 4}},
		"fewer than the limit are":                    {of(3), upTo(4), Grant{Remaining: 1}},
		"exactly the limit is still allowed":          {of(4), upTo(4), Grant{}},
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
		"what recovered does not count against the limit":    {of(4, lingering), upTo(4), Grant{}},
		"a node that recovers counts against the limit":      {of(4, recovering), upTo(4), Grant{Reason: TooMany}},
		"a node that recovers takes one of the limit":        {of(3, recovering), upTo(4), Grant{}},

		"too few for a range":                     {of(1), between(2, 4), Grant{Reason: TooFew}},
		"the lower end belongs to the range":      {of(2), between(2, 4), Grant{Remaining: 2}},
		"the upper end belongs to the range":      {of(4), between(2, 4), Grant{}},
		"too many for a range":                    {of(5), between(2, 4), Grant{Reason: TooMany}},
		"a pending can lift a range to its start": {of(1, pending), between(2, 4), Grant{Remaining: 2}},
		"a range of one number has one number":    {of(2), between(2, 2), Grant{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, Decide(tc.p, tc.l), "Decide(%+v, %+v) =", tc.p, tc.l)
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
			must.Is(t, tc.want, tc.read.Complete(tc.total, tc.healthy))
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

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func coolingSince(t time.Time) Storm { return Storm{Active: true, CoolingSince: t} }

func TestStorm(t *testing.T) {
	const tooMany, few = true, false
	calm, raging := Storm{}, Storm{Active: true}
	ten, none := 10*time.Minute, time.Duration(0)

	cases := map[string]struct {
		was      Storm
		cooldown *time.Duration
		tooMany  bool
		want     StormStep
	}{
		"without a storm nothing is held up":     {calm, &ten, few, StormStep{}},
		"a storm begins with too many":           {calm, &ten, tooMany, StormStep{Storm: raging, Blocks: true, Turn: StormBegan}},
		"it goes on while there are too many":    {raging, &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"the cooldown begins with few enough":    {raging, &ten, few, StormStep{coolingSince(noon), true, noon.Add(ten), StormCooling}},
		"it goes on until it is over":            {coolingSince(ago(4 * time.Minute)), &ten, few, StormStep{coolingSince(ago(4 * time.Minute)), true, noon.Add(6 * time.Minute), StormUnchanged}},
		"the last moment still is the cooldown":  {coolingSince(ago(ten - 1)), &ten, few, StormStep{coolingSince(ago(ten - 1)), true, noon.Add(1), StormUnchanged}},
		"the very moment of its end is its end":  {coolingSince(ago(ten)), &ten, few, StormStep{Turn: StormEnded}},
		"long after its end it has ended too":    {coolingSince(ago(time.Hour)), &ten, few, StormStep{Turn: StormEnded}},
		"C71: a second storm ends the cooldown":  {coolingSince(ago(4 * time.Minute)), &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"even one whose time was over":           {coolingSince(ago(time.Hour)), &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"a cooldown of 0 is over at once":        {raging, &none, few, StormStep{Turn: StormEnded}},
		"a cooldown of 0 does not stop a storm":  {raging, &none, tooMany, StormStep{Storm: raging, Blocks: true}},
		"a cooldown that was cut short is over":  {coolingSince(ago(4 * time.Minute)), &none, few, StormStep{Turn: StormEnded}},
		"W11: without the field a storm ends":    {raging, nil, few, StormStep{Turn: StormEnded}},
		"W11: without it a cooldown ends":        {coolingSince(noon), nil, few, StormStep{Turn: StormEnded}},
		"W11: even while there are too many":     {raging, nil, tooMany, StormStep{Turn: StormEnded}},
		"without the field no storm begins":      {calm, nil, tooMany, StormStep{}},
		"without the field there is no storm":    {calm, nil, few, StormStep{}},
		"a cooldown without a storm is ignored":  {Storm{CoolingSince: noon}, &ten, few, StormStep{}},
		"even without the field":                 {Storm{CoolingSince: noon}, nil, few, StormStep{}},
		"and does not survive the next storm":    {Storm{CoolingSince: noon}, &ten, tooMany, StormStep{Storm: raging, Blocks: true, Turn: StormBegan}},
		"a clock that went back waits that long": {coolingSince(noon.Add(time.Minute)), &ten, few, StormStep{coolingSince(noon.Add(time.Minute)), true, noon.Add(11 * time.Minute), StormUnchanged}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, tc.was.Next(tc.cooldown, tc.tooMany, noon))
		})
	}
}

// C83: the thresholds of a NodeHealthCheck.
func TestThresholds(t *testing.T) {
	cases := map[string]struct {
		minHealthy, maxUnhealthy string
		total, bad               int
		allowed                  bool
	}{
		"C83: as many healthy as the number":                         {"3", "", 5, 2, true},
		"C83: one fewer healthy than the number":                     {"3", "", 5, 3, false},
		"C83: as many healthy as the percentage":                     {"60%", "", 5, 2, true},
		"C83: one fewer healthy than the percentage":                 {"60%", "", 5, 3, false},
		"C83: a percentage of healthy nodes is rounded up":           {"51%", "", 7, 4, false},
		"C83: and no further than that":                              {"51%", "", 7, 3, true},
		"C83: all have to be healthy":                                {"100%", "", 4, 1, false},
		"C83: none has to be healthy":                                {"0", "", 4, 4, true},
		"C83: more have to be healthy than there are":                {"5", "", 4, 1, false},
		"C83: as many unhealthy as the number":                       {"", "2", 5, 2, true},
		"C83: one more unhealthy than the number":                    {"", "2", 5, 3, false},
		"C83, W15: 49% of 3 may be unhealthy, rounded down":          {"", "49%", 3, 1, true},
		"C83, W15: 49% of 3 is not 2":                                {"", "49%", 3, 2, false},
		"C83, W15, seed 0.6, seed 0.12: 40% of 6 is 2":               {"", "40%", 6, 3, false},
		"C83, W15: more may be unhealthy than there are":             {"", "9", 4, 4, true},
		"C83: none may be unhealthy":                                 {"", "0", 4, 1, false},
		"C83, seed 0.11, seed 1.4: without thresholds 51% are asked": {"", "", 3, 1, true},

		"seed 0.11: without thresholds 51% of 3 are not 1":                     {"", "", 3, 2, false},
		"seed 0.13: at most maxUnhealthy, which is not below":                  {"", "40%", 5, 2, true},
		"seed 1.10: at least minHealthy, which is not above":                   {"2", "", 3, 1, true},
		"W16: a single node is not remediated without asking":                  {"", "", 1, 1, false},
		"a single node is remediated where none has to be healthy":             {"0%", "", 1, 1, true},
		"all may be unhealthy":                                                 {"", "100%", 4, 4, true},
		"no node at all is fine by any number of healthy ones":                 {"3", "", 0, 0, true},
		"no node at all is fine without thresholds":                            {"", "", 0, 0, true},
		"all are healthy, which is enough although fewer are there than asked": {"9", "", 4, 0, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := NodeLimits(tc.minHealthy, tc.maxUnhealthy, tc.total)
			must.Do(t, err)
			want := Grant{Reason: TooMany}
			if tc.allowed {
				want = Grant{Remaining: max(l.AtMost-tc.bad, 0)}
			}
			if got := Decide(Population{Healthy: tc.total - tc.bad, Unhealthy: tc.bad, Waiting: tc.bad}, l); got != want {
				t.Errorf("%d of %d nodes are bad, limits %+v: %+v, want %+v", tc.bad, tc.total, l, got, want)
			}
		})
	}
}

// thresholdRow is a row of the table of examples: total, threshold, how many have to be healthy, how many may be unhealthy.
var thresholdRow = regexp.MustCompile("(?m)^\\| ([0-9]+) \\| (?:`(min|max)(?:H|Unh)ealthy: ([0-9]+%?)`|none) \\| ([0-9]+) \\| ([0-9]+|none) \\|")

func TestTheDocumentedThresholds(t *testing.T) {
	page, err := os.ReadFile("../../../docs/nodehealthcheck.md")
	must.Do(t, err)
	rows := thresholdRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != 13 {
		t.Fatalf("%d rows can be read, there were 13", len(rows))
	}
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			given := map[string]string{row[2]: row[3]}
			total, err := strconv.Atoi(row[1])
			must.Do(t, err)
			l, err := NodeLimits(given["min"], given["max"], total)
			must.Do(t, err)
			mayBeBad := strconv.Itoa(l.AtMost)
			if l.AtMost < 0 {
				mayBeBad = "none"
			}
			if healthy := strconv.Itoa(total - l.AtMost); healthy != row[4] || mayBeBad != row[5] {
				t.Errorf("%s have to be healthy and %s may be bad", healthy, mayBeBad)
			}
		})
	}
}

func TestNodeLimitsRefuse(t *testing.T) {
	cases := map[string]struct{ minHealthy, maxUnhealthy, says string }{
		"both":                          {"51%", "49%", "minHealthy and maxUnhealthy cannot be specified at the same time"},
		"both, before anything else":    {"-1", "x", "minHealthy and maxUnhealthy cannot be specified at the same time"},
		"W34: a negative minHealthy":    {"-1", "", "minHealthy must not be negative: -1"},
		"W34: a negative maxUnhealthy":  {"", "-2", "maxUnhealthy must not be negative: -2"},
		"a minHealthy that is no value": {"most", "", `minHealthy must be a number such as 2 or a percentage such as 40%, not "most"`},
		"a maxUnhealthy that is none":   {"", "%", `maxUnhealthy must be a number such as 2 or a percentage such as 40%, not "%"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := NodeLimits(tc.minHealthy, tc.maxUnhealthy, 5)
			if err == nil || err.Error() != tc.says {
				t.Errorf("NodeLimits() = %v, want an error that says %q", err, tc.says)
			}
			if g := Decide(of(1), l); !g.ShortCircuited() {
				t.Errorf("with an error beside it, %+v lets some start", l)
			}
		})
	}
}
