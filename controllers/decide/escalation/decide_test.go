package escalation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func in(d time.Duration) time.Time  { return noon.Add(d) }
func ago(d time.Duration) time.Time { return noon.Add(-d) }

var (
	// single is the one step of a check with a remediationTemplate.
	single = []Step{{}}
	// two is a ladder of two templates.
	two = []Step{{5 * time.Minute}, {10 * time.Minute}}
	// three has two templates of one kind, and is what upstream gets stuck on.
	three = []Step{{5 * time.Minute}, {5 * time.Minute}, {10 * time.Minute}}
	// patient waits for its first template without end; the webhook admits no such check today.
	patient = []Step{{0}, {10 * time.Minute}}
)

// asked is a request of a step that was made a minute ago and is worked on.
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

// started is a request that was made so long ago.
func started(d time.Duration) func(*Request) { return func(r *Request) { r.Started = ago(d) } }

// stopped is what a remediator does that knows Processing but not Succeeded.
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
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
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
		if got := is.NothingFollows(); got != want {
			t.Errorf("%+v: %t", is, got)
		}
	}
}

// A status may remember a request that was made again.
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
