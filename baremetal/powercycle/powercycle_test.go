package powercycle

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

// facts are what differs from the ordinary facts of a state (see in).
type facts []func(*Facts)

// nextCase is the step that Next returns for these facts.
type nextCase struct {
	name   string
	given  facts
	do     Action
	next   State
	reason Reason
}

// testNext checks Next in a state.
func testNext(t *testing.T, state State, cases []nextCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := Next(in(state, tc.given...), policy, noon)
			if got.Do != tc.do || got.Next != tc.next || got.Reason != tc.reason {
				t.Errorf("Next(): %s, then %s (%s), want %s, then %s (%s)", got.Do, got.Next, got.Reason, tc.do, tc.next, tc.reason)
			}
		})
	}
}

func TestNextWithoutAKnownState(t *testing.T) {
	testNext(t, "", []nextCase{{"a remediation without a state is new", facts{free}, BeginAttempt, Preparing, "AttemptBegan"}})
	testNext(t, "Sideways", []nextCase{{"a state of a later version begins anew", nil, Advance, Preparing, "StateUnknown"}})
}

func TestEveryStateEndsAndNoneCanHang(t *testing.T) {
	if len(order) != len(table) {
		t.Errorf("order names %d states, the table has %d", len(order), len(table))
	}
	for _, s := range order {
		rows := rowsOf[s]
		if last := rows[len(rows)-1]; last.when.name != always.name {
			t.Errorf("%s: the last row is %q, want %q", s, last.when.name, always.name)
		}
		for i, r := range rows {
			if s.Final() || r.do != Wait || r.when.name == pausedNow.name { // a pause ends only when its author ends it
				continue
			}
			if !boundedBefore(rows[:i]) && r.when.until == nil {
				t.Errorf("%s: %q waits, and nothing before it runs out of time", s, r.when.name)
			}
		}
	}
	for _, s := range allSteps() {
		if s.Do == AskPerson && s.Detail == "" || s.Do != AskPerson && s.Detail == AsksPerson {
			t.Errorf("%s in %s because of %s has the detail %q", s.Do, s.From, s.Reason, s.Detail)
		}
	}
}

// allSteps returns all steps of the table.
func allSteps() []Step {
	var all []Step
	for _, s := range order {
		for _, r := range rowsOf[s] {
			all = append(all, Step{Do: r.action(Facts{}), From: s, Next: r.next, Reason: r.reason, Detail: r.detail()})
		}
	}
	return all
}

// boundedBefore reports whether one of rows holds by time alone, whatever the other facts are. The queue and a host that may be another
// machine's have their own timeouts.
func boundedBefore(rows []row) bool {
	for _, r := range rows {
		switch r.when.name {
		case overdue.name, overduePending.name, late.name, queuedTooLong.name, foreignTooLong.name, poweredOffBySpecLong.name, hostLost.name, servicedLong.name,
			powerUnmanagedLong.name:
			return true
		}
	}
	return false
}

func TestWhenToLookAgain(t *testing.T) {
	cases := map[string]struct {
		given Facts
		want  time.Time
	}{
		"at once after an action":                {in(Pending), noon},
		"when what was undone may be done again": {in(PoweringOff, released, holdsBefore(3, 3*time.Second)), noon.Add(time.Second)},
		"or at the end of the attempt before": {
			in(PoweringOff, off, released, holdsBefore(12, 0), func(f *Facts) { f.Began = ago(599 * time.Second) }), noon.Add(time.Second),
		},
		"at the end of the attempt":                     {in(PoweringOff), noon.Add(9 * time.Minute)},
		"when a host has settled, if that is earlier":   {in(PoweringOff, off, wasOff), noon.Add(30 * time.Second)},
		"when a blind control plane is given up":        {in(MovingWorkload, blind, controlPlane), noon.Add(time.Minute)},
		"not for a worker":                              {in(MovingWorkload, blind), noon.Add(9 * time.Minute)},
		"at the end of booting":                         {in(Booting), noon.Add(19 * time.Minute)},
		"when a turn took too long":                     {in(Pending, anothersTurn), noon.Add(119 * time.Minute)},
		"not during a pause, which no clock ends":       {in(Booting, paused), time.Time{}},
		"W16: never after an end":                       {in(Succeeded, free), time.Time{}},
		"when a node out of sight is given up":          {in(Ended, fenced, blind), noon.Add(9 * time.Minute)},
		"not once it is given up; something else keeps": {in(Ended, blind, free), time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Next(tc.given, policy, noon); !got.Again.Equal(tc.want) {
				t.Errorf("%s (%s): again %s, want %s", got.Do, got.Reason, got.Again, tc.want)
			}
		})
	}
}

// Kubernetes removes neither pods nor volume attachments of a node that is not fenced while its host is off.
func TestWhetherTheFenceGoesBeforeAWait(t *testing.T) {
	waits, asks := row{do: Wait}, row{do: waitForPerson}
	overdue := func(f *Facts) { f.Began, f.Since = ago(time.Hour), ago(time.Hour) }
	for name, tc := range map[string]struct {
		state State
		given facts
		row   row
		want  bool
	}{
		"it stays while the host is off":                    {MovingWorkload, facts{fenced, empty, off, overdue}, waits, false},
		"it goes where the host is on":                      {MovingWorkload, facts{fenced, empty, on, overdue}, waits, true},
		"it stays while the host powers off":                {PoweringOff, facts{fenced, empty, off, overdue}, waits, false},
		"and while it powers on":                            {PoweringOn, facts{fenced, empty, off, overdue}, waits, false},
		"it goes where a person is asked about a lost host": {MovingWorkload, facts{fenced, empty, off, hostLostLong, overdue}, asks, true},
		"but not before":                                    {MovingWorkload, facts{fenced, empty, off, hostLostLong, overdue}, waits, false},
		"nor where a person is asked about anything else":   {MovingWorkload, facts{fenced, empty, off, overdue}, asks, false},
		"while the host boots nothing holds it off":         {Booting, facts{fenced, empty, off, overdue}, waits, true},
		"no other action takes it away":                     {Booting, facts{fenced, empty, on, overdue}, row{do: Advance}, false},
	} {
		s := situation{Facts: in(tc.state, tc.given...), Policy: policy, now: noon}
		must.Is(t, tc.want, s.unfencesFirst(tc.row), "%s:", name)
	}
}

func TestWhichStepsCondemnAMachine(t *testing.T) {
	for step, want := range map[Step]bool{
		{Do: MarkHost}: true, {Do: RequestOwner}: true, {Do: BeginAttempt, Reason: NodeStillUnhealthyReason}: true,
		{Do: BeginAttempt, Reason: AttemptBeganReason}: false, {Do: Fence}: false,
	} {
		if step.Condemns() != want {
			t.Errorf("%s (%s) condemns: %t", step.Do, step.Reason, !want)
		}
	}
}

func TestWhatIsLeftOnTheNodeIsNamedAndCounted(t *testing.T) {
	for count, want := range map[int]string{2: "a, b", 5: "a, b and 3 more"} {
		c := &Cycle{Facts: Facts{Left: []string{"a", "b"}, LeftCount: count}}
		if got := c.LeftOnNode(); got != want {
			t.Errorf("of %d %q is said, want %q", count, got, want)
		}
	}
}
