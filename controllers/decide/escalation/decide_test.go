package escalation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/test/must"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func in(d time.Duration) time.Time  { return noon.Add(d) }
func ago(d time.Duration) time.Time { return noon.Add(-d) }

var (
	// single is the one step of a check with a remediationTemplate.
	single = []Step{{}}
	two    = []Step{{5 * time.Minute}, {10 * time.Minute}}
	// three has two templates of one kind. With these, medik8s' operator never reaches the last step.
	three = []Step{{5 * time.Minute}, {5 * time.Minute}, {10 * time.Minute}}
	// patient has no timeout for its first step; the webhook refuses such checks today.
	patient = []Step{{0}, {10 * time.Minute}}
)

// asked returns a request that was created a minute ago and that its remediator works on.
func asked(step int, change ...func(*Request)) Request {
	r := Request{Step: step, Started: ago(time.Minute), Processing: Yes, Succeeded: Unsure, ProcessingSince: ago(time.Minute)}
	for _, c := range change {
		c(&r)
	}
	return r
}

func late(r *Request)      { r.Started = ago(time.Hour) }
func atOnce(r *Request)    { r.Started = noon }
func silent(r *Request)    { r.Succeeded, r.Processing, r.ProcessingSince = Unsaid, Unsaid, time.Time{} }
func succeeded(r *Request) { r.Succeeded, r.Processing = Yes, No }
func failed(r *Request)    { r.Succeeded, r.Processing = No, No }
func leaving(r *Request)   { r.Deleting = true }
func gone(r *Request)      { r.Gone = true }
func refused(r *Request)   { r.Gone, r.Refused = true, true }
func given(r *Request)     { r.GivenUp = ago(time.Second) }
func told(r *Request)      { r.Notified = true }
func both(r *Request)      { given(r); told(r) }

func started(d time.Duration) func(*Request) { return func(r *Request) { r.Started = ago(d) } }

// stopped sets Processing to False, as a remediator that does not use Succeeded.
func stopped(d time.Duration) func(*Request) {
	return func(r *Request) { r.Succeeded, r.Processing, r.ProcessingSince = Unsaid, No, ago(d) }
}

func start(step int, reason string) Decision { return Decision{Do: Start, Step: step, Reason: reason} }
func wait(step int, reason string, recheck time.Time) Decision {
	return Decision{Step: step, Reason: reason, Recheck: recheck}
}
func tell(step int, reason string) Decision {
	return Decision{Do: GiveUp, Step: step, Notify: true, Reason: reason}
}
func note(step int, reason string) Decision { return Decision{Do: GiveUp, Step: step, Reason: reason} }
func exhausted(step int) Decision           { return Decision{Do: Exhausted, Step: step, Reason: NoTemplateLeft} }

var never time.Time

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		steps    []Step
		requests []Request
		want     Decision
	}{
		"seed 2.15: without a request the template of a check without a ladder is started": {single, nil, start(0, FirstStep)},
		"seed 2.15: without a request the lowest step is started":                          {two, nil, start(0, FirstStep)},
		"a request of a template that the check does not name is not there":                {two, []Request{asked(2, both), asked(-1)}, start(0, FirstStep)},
		"a check that names no template has none left":                                     {nil, nil, exhausted(0)},

		"a remediator at work is waited for until its time has passed":  {two, []Request{asked(0)}, wait(0, InProgress, in(4*time.Minute))},
		"a remediator that says nothing is waited for as long":          {two, []Request{asked(0, silent)}, wait(0, InProgress, in(4*time.Minute))},
		"one that succeeded is waited for too, the node is not back":    {two, []Request{asked(0, succeeded)}, wait(0, AwaitingNode, in(4*time.Minute))},
		"a step without a timeout is waited for without end":            {patient, []Request{asked(0, late)}, wait(0, InProgress, never)},
		"a step without a timeout is given up when its remediator asks": {patient, []Request{asked(0, failed)}, tell(0, Failed)},

		"seed 2.13: a step whose time has passed is given up, and its remediator is notified": {two, []Request{asked(0, late)}, tell(0, TimedOut)},
		"the very moment of the timeout is too late":                                          {two, []Request{asked(0, started(5*time.Minute))}, tell(0, TimedOut)},
		"a nanosecond before is not":                                                          {two, []Request{asked(0, started(5*time.Minute-1))}, wait(0, InProgress, in(1))},
		"seed 2.13: a step that was given up is followed by the next":                         {two, []Request{asked(0, late, both)}, start(1, NextStep)},
		"C52: one that succeeded and whose node stays away is given up without a word":        {two, []Request{asked(0, late, succeeded)}, note(0, TimedOut)},
		"C52: the next one is started after it all the same":                                  {two, []Request{asked(0, late, succeeded, given)}, start(1, NextStep)},
		"one that succeeded, was given up, and begins anew is notified":                       {two, []Request{asked(0, late, given)}, tell(0, NotNotified)},
		"C54: a remediator that failed is given up at once":                                   {two, []Request{asked(0, failed, atOnce)}, tell(0, Failed)},
		"C54: failure says more than a timeout":                                               {two, []Request{asked(0, failed, late)}, tell(0, Failed)},
		"a failure counts whatever the clock of the API server":                               {two, []Request{asked(0, failed, started(-time.Hour))}, tell(0, Failed)},

		"seed 2.14: an old remediator that stopped 30 seconds ago is given up":             {two, []Request{asked(0, stopped(30*time.Second))}, tell(0, Stopped)},
		"seed 2.14: one that stopped later is waited for until then":                       {two, []Request{asked(0, stopped(10*time.Second))}, wait(0, InProgress, in(20*time.Second))},
		"seed 2.14: unless its time passes before":                                         {two, []Request{asked(0, stopped(10*time.Second), started(5*time.Minute-time.Second))}, wait(0, InProgress, in(time.Second))},
		"seed 2.14: one that was never at work has 30 seconds from its request on":         {two, []Request{asked(0, stopped(time.Hour), atOnce)}, wait(0, InProgress, in(30*time.Second))},
		"NHC#208: one that does not know whether it succeeded is waited for":               {two, []Request{asked(0, stopped(time.Minute), func(r *Request) { r.Succeeded = Unsure })}, wait(0, InProgress, in(4*time.Minute))},
		"seed 2.14: one whose Processing is Unknown is waited for":                         {two, []Request{asked(0, stopped(time.Minute), func(r *Request) { r.Processing = Unsure })}, wait(0, InProgress, in(4*time.Minute))},
		"the last template that failed is given up like others":                            {two, []Request{asked(0, both), asked(1, failed)}, tell(1, Failed)},
		"when the last one was given up the ladder is at its end":                          {two, []Request{asked(0, both), asked(1, both)}, exhausted(1)},
		"it stays so when its request is gone":                                             {two, []Request{asked(0, both), asked(1, given, gone)}, exhausted(1)},
		"a ladder of one step with a timeout is a ladder":                                  {two[:1], []Request{asked(0, late)}, tell(0, TimedOut)},
		"W1: of two templates of one kind the second is started after the first":           {three, []Request{asked(0, both)}, start(1, NextStep)},
		"W1: of two templates of one kind the second times out":                            {three, []Request{asked(0, both), asked(1, late)}, tell(1, TimedOut)},
		"W1: after two templates of one kind the third step is started":                    {three, []Request{asked(0, both), asked(1, both)}, start(2, NextStep)},
		"W28: a lost status is rebuilt from what is on the requests":                       {three, []Request{asked(0, told), asked(1, told)}, start(2, NextStep)},
		"W28: where nothing is left below, the ladder goes on from the highest":            {three, []Request{asked(1, both)}, start(2, NextStep)},
		"a remediator that takes our annotation off gets no second turn":                   {three, []Request{asked(0), asked(1)}, wait(1, InProgress, in(4*time.Minute))},
		"nor is it put on again: its remediator knew":                                      {three, []Request{asked(0, given), asked(1)}, wait(1, InProgress, in(4*time.Minute))},
		"what is asked twice on one step is given up when one of the two was":              {two, []Request{asked(0, both), asked(0, atOnce, told)}, start(1, NextStep)},
		"and not before the other one is notified":                                         {two, []Request{asked(0, both), asked(0, atOnce)}, tell(0, NotNotified)},
		"a crash after the annotation: the next step follows":                              {two, []Request{asked(0, late, told)}, start(1, NextStep)},
		"a crash after the status: the remediator is notified before the next step starts": {two, []Request{asked(0, late, given)}, tell(0, NotNotified)},
		"a crash after the status on the last step leaves no remediator without notice":    {two, []Request{asked(0, both), asked(1, given)}, Decision{Do: GiveUp, Step: 1, Notify: true, Reason: NotNotified, Recheck: in(59 * time.Second)}},
		"one that takes our annotation off on the last step has a minute for it":           {two, []Request{asked(0, both), asked(1, late, func(r *Request) { r.GivenUp = ago(NotifiedAgainFor) })}, exhausted(1)},
		"nor one that was given up again later":                                            {two, []Request{asked(1, late, told, func(r *Request) { r.GivenUp = ago(time.Hour) }), asked(1, given)}, Decision{Do: GiveUp, Step: 1, Notify: true, Reason: NotNotified, Recheck: in(59 * time.Second)}},
		"a request that is gone has no remediator to notify":                               {two, []Request{asked(0, late, given, gone)}, start(1, NextStep)},

		"a request that somebody deletes is waited for to its end":         {two, []Request{asked(0, leaving)}, wait(0, AwaitingDeletion, in(4*time.Minute))},
		"a request that somebody deleted is made again":                    {two, []Request{asked(0, gone)}, Decision{Do: Start, Reason: Vanished, Recheck: in(4 * time.Minute)}},
		"on the step it was on":                                            {three, []Request{asked(0, both), asked(1, gone)}, Decision{Do: Start, Step: 1, Reason: Vanished, Recheck: in(4 * time.Minute)}},
		"W8: a node is not kept waiting by a request that is gone":         {single, []Request{asked(0, gone)}, start(0, Vanished)},
		"a finalizer that is kept for ever holds up one step's time only":  {two, []Request{asked(0, leaving, late)}, tell(0, TimedOut)},
		"then the next step starts beside it":                              {two, []Request{asked(0, leaving, late, both)}, start(1, NextStep)},
		"one that failed is given up also when it is being deleted":        {two, []Request{asked(0, leaving, failed)}, tell(0, Failed)},
		"one whose time has passed is not made again because it is gone":   {two, []Request{asked(0, gone, late)}, note(0, TimedOut)},
		"one that was made again has the time that the first one left":     {two, []Request{asked(0, gone, started(4*time.Minute)), asked(0)}, wait(0, InProgress, in(time.Minute))},
		"nor does their order matter":                                      {two, []Request{asked(0), asked(0, gone, started(4*time.Minute))}, wait(0, InProgress, in(time.Minute))},
		"one that was made again late is given up with the first one":      {two, []Request{asked(0, gone, late), asked(0)}, tell(0, TimedOut)},
		"one that was made again and is gone as well is made a third time": {two, []Request{asked(0, gone, started(2*time.Minute)), asked(0, gone)}, Decision{Do: Start, Reason: Vanished, Recheck: in(3 * time.Minute)}},

		"the only template is waited for without end":                      {single, []Request{asked(0, late)}, wait(0, InProgress, never)},
		"the only template that succeeded is waited for":                   {single, []Request{asked(0, late, succeeded)}, wait(0, AwaitingNode, never)},
		"C52: the only template that succeeded is not told anything":       {single, []Request{asked(0, late, succeeded, given)}, wait(0, AwaitingNode, never)},
		"nothing follows the only template when it failed":                 {single, []Request{asked(0, failed)}, wait(0, Failed, never)},
		"nothing follows the only template when it stopped":                {single, []Request{asked(0, stopped(time.Hour), late)}, wait(0, Stopped, never)},
		"W13: the only template is not given up after 30 minutes":          {single, []Request{asked(0, started(31*time.Minute))}, wait(0, InProgress, never)},
		"W13: what another operator gave up after 30 minutes has no end":   {single, []Request{asked(0, late, both)}, wait(0, ToldToStop, never)},
		"W13: what another operator's status gave up is at work":           {single, []Request{asked(0, late, given)}, wait(0, InProgress, never)},
		"W13: what another operator gave up is made again when it is gone": {single, []Request{asked(0, late, both, gone)}, start(0, Vanished)},
		"the only template that is being deleted is waited for to its end": {single, []Request{asked(0, leaving, both)}, wait(0, AwaitingDeletion, never)},
		"a negative timeout is none":                                       {[]Step{{-time.Minute}}, []Request{asked(0)}, wait(0, InProgress, never)},
		"pending, then unhealthy for long: the time went on (C50)":         {two, []Request{asked(0, both), asked(1, started(10*time.Minute))}, tell(1, TimedOut)},

		"one that succeeded and is gone is awaited": {two, []Request{asked(0, succeeded, gone)}, wait(0, AwaitingNode, in(4*time.Minute))},
		"the only one as long as a boot may take":   {single, []Request{asked(0, succeeded, gone)}, wait(0, AwaitingNode, in(29*time.Minute))},
		"and then it is made again":                 {single, []Request{asked(0, succeeded, gone, late)}, start(0, Vanished)},
		"one that could not be made is tried again": {two, []Request{asked(0, refused)}, Decision{Reason: NotMade, Do: Start, Recheck: in(4 * time.Minute)}},
		"for ever, where its step has no timeout":   {patient, []Request{asked(0, refused)}, start(0, NotMade)},
		"and given up when its time is over":        {two, []Request{asked(0, refused, late)}, note(0, NeverMade)},
		"and the step after it follows":             {two, []Request{asked(0, refused, late, given)}, start(1, NextStep)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Decide(tc.steps, tc.requests, noon)
			got.Expires = time.Time{} // see TestExpires
			must.Equal(t, tc.want, got)
		})
	}
}

func TestExpires(t *testing.T) {
	cases := map[string]struct {
		steps    []Step
		requests []Request
		want     time.Time
	}{
		"the time of a step counts from its request":           {two, []Request{asked(0)}, in(4 * time.Minute)},
		"from the first one, if it was made again":             {two, []Request{asked(0, gone, started(3*time.Minute)), asked(0)}, in(2 * time.Minute)},
		"however soon its remediator is given up for stopping": {two, []Request{asked(0, stopped(0))}, in(4 * time.Minute)},
		"a step without a timeout never expires":               {patient, []Request{asked(0, late)}, never},
		"nor does the only template":                           {single, []Request{asked(0)}, never},
		"nor what was given up":                                {two, []Request{asked(0, both)}, never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.steps, tc.requests, noon).Expires; !got.Equal(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

func TestWhatNothingFollows(t *testing.T) {
	for is, want := range map[Decision]bool{
		{Reason: Failed}: true, {Reason: Stopped}: true, {Reason: ToldToStop}: true, {Reason: InProgress}: false, {Do: GiveUp, Reason: Failed}: false,
	} {
		must.Is(t, want, is.NothingFollows(), "%+v:", is)
	}
}

// The check's status may have a request that was created again since.
func TestTheRequestThatExistsIsTheOneToGoBy(t *testing.T) {
	for name, tc := range map[string]struct {
		given []Request
		want  int
	}{
		"the younger of two that exist":             {[]Request{asked(0, late), asked(0)}, 1},
		"also if it comes first":                    {[]Request{asked(0), asked(0, late)}, 0},
		"one that exists before a younger one gone": {[]Request{asked(0, late), asked(0, gone)}, 0},
		"also if the one that is gone comes first":  {[]Request{asked(0, gone), asked(0, late)}, 1},
		"the younger of two that are gone":          {[]Request{asked(0, gone, late), asked(0, gone)}, 1},
	} {
		if _, asked := highest(1, tc.given); !cmp.Equal(tc.given[tc.want], asked[0]) {
			t.Errorf("%s: it is %+v", name, asked[0])
		}
	}
}

// There are only few values on purpose, so that requests are often on the same step and times are often equal.
var (
	moments  = rapid.Map(rapid.IntRange(-24, 2), func(n int) time.Time { return in(time.Duration(n) * 30 * time.Second) })
	timeouts = rapid.Map(rapid.IntRange(0, 10), func(n int) time.Duration { return time.Duration(n) * time.Minute })
	answers  = rapid.SampledFrom([]Status{Unsaid, Unsaid, Yes, No, Unsure})
	seldom   = rapid.Map(rapid.IntRange(0, 4), func(n int) bool { return n == 0 })
)

var anyLadder = rapid.Custom(func(t *rapid.T) []Step {
	steps := make([]Step, rapid.IntRange(1, 4).Draw(t, "steps"))
	for i := range steps {
		steps[i] = Step{Timeout: timeouts.Draw(t, "timeout")}
	}
	return steps
})

// anyRequest generates requests, also on steps that do not exist.
var anyRequest = rapid.Custom(func(t *rapid.T) Request {
	r := Request{
		Step: rapid.IntRange(-1, 4).Draw(t, "step"), Started: moments.Draw(t, "started"), Notified: seldom.Draw(t, "told"),
		Succeeded: answers.Draw(t, "succeeded"), Processing: answers.Draw(t, "processing"),
		ProcessingSince: rapid.OneOf(moments, rapid.Just(never)).Draw(t, "since"),
		Deleting:        seldom.Draw(t, "leaving"), Gone: seldom.Draw(t, "gone"),
	}
	if seldom.Draw(t, "given up") {
		r.GivenUp = moments.Draw(t, "when")
	}
	return r
})

// anyRequests generates requests of which no two have the same step and time, because it would be undefined which one is younger.
var anyRequests = rapid.SliceOfNDistinct(anyRequest, 0, 6, func(r Request) string { return fmt.Sprint(r.Step, r.Started) })

func holds(t *testing.T, rule func(*rapid.T, []Step, []Request)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { rule(t, anyLadder.Draw(t, "ladder"), anyRequests.Draw(t, "requests")) })
}

func on(requests []Request, step int) []Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return r.Step != step })
}

// top returns the highest step with a request, computed in another way than in Decide; -1 if there is none.
func top(steps []Step, requests []Request) int {
	for step := len(steps) - 1; step >= 0; step-- {
		if len(on(requests, step)) > 0 {
			return step
		}
	}
	return -1
}

func isLadder(steps []Step) bool { return len(steps) > 1 || steps[0].Timeout > 0 }

func TestNoStepIsSkippedOrRepeated(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s, here := Decide(steps, requests, noon), top(steps, requests)
		if s.Do != Start {
			if s.Step != here {
				t.Fatalf("on step %d: %+v", here, s)
			}
			return
		}
		switch s.Step {
		case here:
			if slices.ContainsFunc(on(requests, here), func(r Request) bool { return !r.Gone }) {
				t.Fatalf("step %d is started again beside a request that is there", here)
			}
		case here + 1:
			if here >= 0 && !slices.ContainsFunc(on(requests, here), func(r Request) bool { return r.Notified || !r.GivenUp.IsZero() }) {
				t.Fatalf("step %d is started, and step %d was not given up", s.Step, here)
			}
		default:
			t.Fatalf("on step %d: %+v", here, s)
		}
	})
}

func TestNothingIsGivenUpWithoutAReasonThatHolds(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Do != GiveUp {
			return
		}
		here, timeout := on(requests, s.Step), steps[s.Step].Timeout
		reasons := map[string]func(Request) bool{
			Failed:   func(r Request) bool { return r.Succeeded == No },
			TimedOut: func(r Request) bool { return timeout > 0 && noon.Sub(r.Started) >= timeout },
			Stopped: func(r Request) bool {
				return r.Succeeded == Unsaid && r.Processing == No && noon.Sub(r.Started) >= StoppedFor && noon.Sub(r.ProcessingSince) >= StoppedFor
			},
			NotNotified: func(r Request) bool { return (r.Notified || !r.GivenUp.IsZero()) && s.Notify },
		}
		if !isLadder(steps) || reasons[s.Reason] == nil || !slices.ContainsFunc(here, reasons[s.Reason]) {
			t.Fatalf("%+v does not hold for %+v", s, here)
		}
		open := func(r Request) bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }
		if s.Notify != slices.ContainsFunc(here, open) {
			t.Fatalf("tells %t, of %+v", s.Notify, here)
		}
	})
}

func TestEveryWaitEndsByItselfOrSaysWhatItIsFor(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Reason == "" {
			t.Fatalf("no reason: %+v", s)
		}
		if s.Do != Wait {
			return
		}
		if timed := steps[s.Step].Timeout > 0; timed && s.Recheck.IsZero() {
			t.Fatalf("waits without end: %+v", s)
		}
		there := func(r Request) bool { return !r.Gone }
		if s.Recheck.IsZero() && !slices.ContainsFunc(on(requests, s.Step), there) {
			t.Fatalf("waits for no remediator: %+v", s)
		}
	})
}

// If Recheck is zero, time must not change the action. It may change the reason.
func TestNothingChangesBeforeRecheckAndSomethingDoesThen(t *testing.T) {
	same := func(a, b Decision) bool { return a.Do == b.Do && a.Step == b.Step && a.Notify == b.Notify }
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Recheck.IsZero() {
			later := in(time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "later")))
			if then := Decide(steps, requests, later); !same(s, then) {
				t.Fatalf("%+v became %+v, which it never was to", s, then)
			}
			return
		}
		if !s.Recheck.After(noon) {
			t.Fatalf("asks at %v to be woken at %v", noon, s.Recheck)
		}
		before := s.Recheck.Add(-time.Duration(rapid.Int64Range(1, int64(s.Recheck.Sub(noon))).Draw(t, "before")))
		if diff := cmp.Diff(s, Decide(steps, requests, before)); diff != "" {
			t.Fatalf("changed before its time: -at noon +before the recheck\n%s", diff)
		}
		then, want := Decide(steps, requests, s.Recheck), map[Action]Action{Wait: GiveUp, Start: GiveUp, GiveUp: Exhausted}[s.Do]
		if s.Do == Wait && steps[s.Step].Timeout <= 0 && s.Reason == AwaitingNode { // after BootsFor
			want = Start
		}
		if then.Do != want {
			t.Fatalf("%+v became %+v", s, then)
		}
	})
}

// The result must not depend on the order of the requests.
func TestTheOrderOfRequestsDoesNotShow(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		given := slices.Clone(requests)
		want := Decide(steps, requests, noon)
		if diff := cmp.Diff(given, requests); diff != "" {
			t.Fatalf("Decide() changed what it was given:\n%s", diff)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		if diff := cmp.Diff(want, Decide(steps, requests, noon)); diff != "" {
			t.Fatalf("the order of requests shows: -want +got\n%s", diff)
		}
	})
}

func TestTakingStepsEndsInAWaitOrAtTheEnd(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		for taken := 0; ; taken++ {
			s := Decide(steps, requests, noon)
			switch s.Do {
			case Wait, Exhausted:
				return
			case Start:
				requests = append(requests, Request{Step: s.Step, Started: noon})
			case GiveUp:
				giveUp(requests, s)
			}
			// On each step: create a missing request again, notify the remediator, give up.
			if taken > 3*len(steps) {
				t.Fatalf("no end after %d steps, the last one %+v", taken, s)
			}
		}
	})
}

// giveUp does what the caller of Decide has to do for GiveUp.
func giveUp(requests []Request, s Decision) {
	for i := range requests {
		r := &requests[i]
		if r.Step != s.Step {
			continue
		}
		r.Notified = r.Notified || s.Notify && !r.Gone && r.Succeeded != Yes
		if r.GivenUp.IsZero() {
			r.GivenUp = noon
		}
	}
}
