package powercycle

import (
	"reflect"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

func TestWhatIsRememberedOfAnAttempt(t *testing.T) {
	begun := func(attempt int, finalizer bool) Memory {
		f := Facts{Finalizer: finalizer, Memory: Memory{State: Pending, Attempt: attempt}}
		return After(f, Step{Do: BeginAttempt, Next: Preparing}, noon)
	}
	for name, tc := range map[string]struct {
		attempt         int
		finalizer, want bool
	}{
		"somebody else has begun it":               {0, true, true},
		"no attempt has begun":                     {0, false, false},
		"a later attempt is not somebody else's":   {1, true, false},
		"nor is one whose finalizer was taken off": {1, false, false},
	} {
		if m := begun(tc.attempt, tc.finalizer); m.TakenOver != tc.want || m.Attempt != tc.attempt+1 || !m.Began.Equal(noon) {
			t.Errorf("%s: %+v, want it taken over %t", name, m, tc.want)
		}
	}
	for next, acts := range map[State]bool{PoweringOff: true, Rebooting: true, Preparing: false, Failed: false} {
		m := After(Facts{Memory: Memory{State: Preparing, Attempt: 1}}, Step{Do: Advance, Next: next}, noon)
		if m.Acted.Equal(noon) != acts {
			t.Errorf("it comes to %s, and acts since %s", next, m.Acted)
		}
	}
	for state, may := range map[State]bool{PoweringOff: true, PoweringOn: true, Rebooting: true, Preparing: false, MovingWorkload: false, Booting: false} {
		for _, next := range []State{state, RequestingOwner} {
			f := Facts{Power: Power{Fails: true}, Memory: Memory{State: state}}
			if m := After(f, Step{Do: Wait, Next: next}, noon); m.Faulted != (may && next == state) {
				t.Errorf("from %s to %s its power fails, and it remembers that as a fault: %t", state, next, m.Faulted)
			}
		}
	}
}

// If an owner repairs a host for nine minutes, the host must not count as faulty a minute later because of an error from the repair.
func TestTheTimeInWhichOthersKeepAHostOffIsNotThatOfTheHost(t *testing.T) {
	for _, others := range []func(*Facts){switchedOff, heldElsewhere, setAside} {
		f := in(PoweringOn, others, failing, second, func(f *Facts) { f.Power.Said = noon })
		f.Memory = After(f, Next(f, policy, noon), noon)
		f.Wanted, f.KeptOffBy, f.SetAside, f.Unmanaged = true, "", false, ""
		now := noon.Add(9*time.Minute + 30*time.Second)
		f.Memory = After(f, Next(f, policy, now), now)
		if f.Faulted || f.Waited || !f.Since.Equal(now) {
			t.Errorf("released by others it remembers %+v", f.Memory)
		}
		if step := Next(f, policy, now.Add(9*time.Minute)); step.Do != Wait || step.Reason != PoweringOnReason {
			t.Errorf("%s (%s)", step.Do, step.Reason)
		}
	}
}

// A host that its owner has switched on again boots anyway: to power it off during the boot would only take longer.
func TestAHostThatIsSwitchedOnAgainIsGivenTheTimeOfABoot(t *testing.T) {
	for name, tc := range map[string]struct {
		state State
		power func(*Facts)
		waits bool
	}{
		"a host that was off boots":                  {Preparing, off, true},
		"also before its attempt was counted":        {Pending, off, true},
		"one that stayed on has nothing to wait for": {Preparing, on, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, now := in(tc.state, tc.power, wasKeptOff), noon
			for i := 0; i < 3 && Next(f, policy, now).Do != Wait; i++ {
				f = Expect(f, Next(f, policy, now), now)
			}
			if got := Next(f, policy, now.Add(policy.Boot-time.Second)).Reason == BootingReason; got != tc.waits {
				t.Errorf("it waits for the boot: %t, want %t (%+v)", got, tc.waits, f.Memory)
			}
			if step := Next(f, policy, now.Add(policy.Boot)); tc.waits && step.Next != PoweringOff {
				t.Errorf("after the time of a boot: %s, then %s", step.Do, step.Next)
			}
		})
	}
}

func TestAnErrorOfBeforeTheRequestIsNone(t *testing.T) {
	for said, want := range map[time.Time]bool{ago(time.Hour): false, noon: false, noon.Add(time.Second): true, {}: true} {
		facts := Facts{Power: Power{Fails: true, Said: said}, Memory: Memory{Said: noon}}
		must.Is(t, want, facts.powerFails(), "one of %s counts:", said)
	}
}

func TestWhatTheOperatorHadSaidWhenTheHostWasAskedIsRemembered(t *testing.T) {
	f := Facts{Power: Power{Said: ago(time.Minute)}, Memory: Memory{State: PoweringOff, Said: ago(time.Hour)}}
	for step, want := range map[Step]time.Time{
		{Do: KeepOff, Next: PoweringOff}:                                f.Power.Said,
		{Do: NoteAsked, Next: PoweringOff}:                              f.Power.Said,
		{Do: Reboot, Next: Rebooting}:                                   f.Power.Said,
		{Do: Advance, Next: PoweringOff, Reason: SignOfLifeReason}:      f.Power.Said,
		{Do: NoteOn, Next: PoweringOff}:                                 f.Memory.Said,
		{Do: BeginAttempt, Next: Preparing, Reason: AttemptBeganReason}: {},
	} {
		if got := After(f, step, noon).Said; !got.Equal(want) {
			t.Errorf("%+v: %s, want %s", step, got, want)
		}
	}
	f.State = PoweringOn // a failed power-off says nothing about the power-on
	if got := After(f, Step{Do: Release, Next: PoweringOn}, noon).Said; !got.Equal(f.Power.Said) {
		t.Errorf("released: %s, want %s", got, f.Power.Said)
	}
}

// What was seen on the old host object proves nothing about the new one.
func TestAHostThatIsRegisteredAnewIsNotSeenToGoOff(t *testing.T) {
	for name, tc := range map[string]struct {
		on, anew, want bool
	}{
		"a host that is on is":       {true, false, false},
		"one that is off is not":     {false, false, true},
		"nor is one that is made so": {true, true, true},
	} {
		m := After(Facts{Power: Power{PoweredOn: tc.on}, HostAnew: tc.anew, Memory: Memory{State: PoweringOff}}, Step{Do: KeepOff, Next: PoweringOff}, noon)
		must.Is(t, tc.want, m.WasOff, "%s: a receipt is wanted", name)
	}
}

func TestAPauseCostsNoTime(t *testing.T) {
	late := in(PoweringOff, paused, attemptOver)
	late.Began = late.Began.Add(time.Second) // a second is left
	m := After(late, Next(late, policy, noon), noon)
	if m.State != Preparing || !m.Began.Equal(noon) || m.Attempt != 1 {
		t.Errorf("in %s, attempt %d begun at %s; want it to start over with all of its time, and the same count", m.State, m.Attempt, m.Began)
	}
	f := in(Preparing)
	f.Memory = m
	for _, days := range []int{1, 2} {
		now := noon.AddDate(0, 0, days)
		f.Paused, f.KeptOff, f.HasPowerAnnotations = true, false, false
		f.Memory = After(f, Next(f, policy, now), now)
	}
	f.Paused = false
	now := noon.AddDate(0, 0, 3)
	if step := Next(f, policy, now); step.Do != Advance || step.Next != PoweringOff {
		t.Errorf("after three days: %s, then %s (%s); want it to go on", step.Do, step.Next, step.Reason)
	}
	if m := After(f, Next(f, policy, now), now); !m.Began.Equal(now) || !m.Paused.IsZero() {
		t.Errorf("after three days the attempt began at %s, paused since %s; want now, and not paused", m.Began, m.Paused)
	}
}

// The node tells whether the machine was unhealthy, and the node may be seen only after the attempt has begun.
func TestAMachineIsSeenToBeBadUntilItsHostIsTouched(t *testing.T) {
	for name, tc := range map[string]struct {
		f    Facts
		want bool
	}{
		"while it waits for its turn":           {Facts{Memory: Memory{State: Pending}, Machine: MachinePresent, Unhealthy: true}, true},
		"while its host is not ready":           {Facts{Memory: Memory{State: Preparing, Attempt: 1}, Unhealthy: true}, true},
		"not by a node that is healthy":         {Facts{Memory: Memory{State: Preparing, Attempt: 1}, Healthy: true}, false},
		"nor when its host was asked":           {Facts{Memory: Memory{State: PoweringOff, Attempt: 1, Asked: noon, Touched: true}, Unhealthy: true, Marks: Marks{KeptOff: true}}, false},
		"nor by what a first attempt has left":  {Facts{Memory: Memory{State: Preparing, Attempt: 2, Touched: true}, Unhealthy: true}, false},
		"once seen it stays so, whatever comes": {Facts{Memory: Memory{State: Preparing, Attempt: 1, StartedUnhealthy: true}}, true},
	} {
		tc.f.Wanted, tc.f.Finalizer, tc.f.Began = true, true, noon
		step := Next(tc.f, Policy{Timeout: time.Hour, Queue: time.Hour}, noon)
		if got := After(tc.f, step, noon).StartedUnhealthy; got != tc.want {
			t.Errorf("%s: started bad %t, want %t, after %+v", name, got, tc.want, step)
		}
	}
}

// A pause stops all clocks. The record must not change with every reconcile.
func TestDuringAPauseTheSameIsRemembered(t *testing.T) {
	given := in(Booting, paused, resumed, longAgo)
	if got := After(given, Step{Do: Wait, Next: Booting}, noon); got != given.Memory {
		t.Errorf("got  %+v\nwant %+v", got, given.Memory)
	}
	for name, step := range map[string]Step{"it goes on to another state": {Do: Wait, Next: PoweringOn}, "it acts": {Do: BeginAttempt, Next: Booting}} {
		if got := After(given, step, noon); got.Since.Equal(given.Memory.Since) {
			t.Errorf("%s: the state still counts since %s", name, got.Since)
		}
	}
}

func TestTheFirstCauseOfAnEndCounts(t *testing.T) {
	caused := func(f *Facts) { f.Cause = Cause{Step: Step{Reason: "First"}} }
	for name, tc := range map[string]struct {
		given Facts
		next  State
		want  Reason
	}{
		"before the end there is none":             {in(Booting, caused), PoweringOn, ""},
		"the step that ends it is the cause":       {in(Booting), Failed, "Now"},
		"so is the step that hands it over":        {in(Booting), RequestingOwner, "Now"},
		"that a hand-over failed is not the cause": {in(RequestingOwner, caused), Failed, "First"},
		"while its owner is asked the cause stays": {in(RequestingOwner, caused), RequestingOwner, "First"},
		"success needs no older cause":             {in(RequestingOwner, caused), Succeeded, "Now"},
		"after the end the cause stays":            {in(Succeeded, caused), Succeeded, "First"},
		"an end without a cause gets none later":   {in(Failed), Failed, ""},
	} {
		if got := causeOf(tc.given, Step{Next: tc.next, Reason: "Now"}); got.Reason != tc.want {
			t.Errorf("%s: got %q, want %q", name, got.Reason, tc.want)
		}
	}
}

// If the host is about to be powered off and its node is still fenced, signs of life are normal and disprove nothing.
func TestASignOfLifeBeforeTheProofDisprovesNothing(t *testing.T) {
	given := in(PoweringOff, fenced, func(f *Facts) { f.Sign = ago(time.Second) })
	step := Next(given, policy, noon)
	if got := After(given, step, noon); step.Do != Unfence || got.Lived {
		t.Errorf("after %s it is remembered that the node lived on: %t", step.Do, got.Lived)
	}
}

// H-11: the timeouts that a user sets are raised to what an attempt needs, and lowered to what waiting clients can bear.
func TestAnAttemptHasEnoughTimeHoweverShortItIsAndAnEndNotMore(t *testing.T) {
	short := policy
	short.Timeout = 100 * time.Second
	for name, tc := range map[string]struct {
		m    Memory
		want time.Duration
	}{
		"the time that is given":                        {Memory{State: PoweringOff}, 100 * time.Second},
		"what it waited before it acted is not counted": {Memory{State: PoweringOff, Acted: noon.Add(time.Minute)}, 160 * time.Second},
		"a host that was off needs to be proven so":     {Memory{State: PoweringOff, WasOff: true}, 185 * time.Second},
		"that is not given again and again":             {Memory{State: PoweringOff, WasOff: true, Asked: noon.Add(time.Minute)}, 185 * time.Second},
		"the workload needs time to move":               {Memory{State: MovingWorkload, Since: noon.Add(90 * time.Second)}, 210 * time.Second},
		"which it may have":                             {Memory{State: MovingWorkload, Since: noon.Add(-time.Hour)}, 100 * time.Second},
	} {
		tc.m.Began = noon
		if got := tc.m.Deadline(short); !got.Equal(noon.Add(tc.want)) {
			t.Errorf("%s: the deadline is %s after it began, want %s", name, got.Sub(noon), tc.want)
		}
	}
	forEver := policy
	forEver.Timeout = 1 << 62
	f := in(Ended, deleting, fenced, blind)
	if step := Next(f, forEver, noon); step.Do != Wait {
		t.Errorf("a node out of sight: %s, want it waited for", step.Do)
	}
	f.Since = noon.Add(-policy.Releasing)
	if step := Next(f, forEver, noon); step.Do != DropFinalizer {
		t.Errorf("after %s: %s, want the finalizer dropped", policy.Releasing, step.Do)
	}
}

// A manager with a fast clock stores moments in the future. Timeouts that count from these would keep a host off too long.
func TestNoMomentIsToCome(t *testing.T) {
	m := Memory{}
	fields := reflect.ValueOf(&m).Elem()
	for _, value := range fields.Fields() {
		if at, is := value.Addr().Interface().(*time.Time); is {
			*at = noon.Add(2 * time.Hour)
		}
	}
	m = m.NotAfter(noon)
	for field, value := range fields.Fields() {
		foreign := field.Name == "Said" || field.Name == "Sign" // by the clocks of BMO and of the node
		if at, is := value.Addr().Interface().(*time.Time); is && at.Equal(noon) == foreign {
			t.Errorf("%s is %s", field.Name, at)
		}
	}
}

func TestASignOfLifeIsRememberedForAsLongAsTheFenceMayStand(t *testing.T) {
	sign := Step{Do: Unfence, From: PoweringOn, Next: PoweringOn, Reason: SignOfLifeReason}
	seen := After(in(PoweringOn, fenced, renewedAgain), sign, noon)
	if !seen.Lived || !seen.Sign.Equal(ago(time.Second)) || !seen.SignSeen.Equal(noon) {
		t.Errorf("after a sign: %+v", seen)
	}
	for _, tc := range []struct {
		name  string
		given Facts
		step  Step
		lived bool
		kept  bool
	}{
		{"until the host boots", in(PoweringOn, lived), Step{Do: Advance, Next: Booting}, true, true},
		{"not under a new boot", in(Booting, lived, anotherBoot), Step{Do: Wait, Next: Booting}, false, true},
		{"nor without a fence at the end", in(Booting, lived), Step{Do: Advance, Next: Ended}, false, false},
		{"with one until that is removed", in(Booting, lived, fenced), Step{Do: Advance, Next: Ended}, true, true},
		{"nor after the attempt", in(Booting, lived), Step{Do: BeginAttempt, Next: Preparing}, false, false},
		{"nor if the host is proven off anew", in(PoweringOff, lived), Step{Do: Advance, Next: MovingWorkload}, false, false},
	} {
		if m := After(tc.given, tc.step, noon); m.Lived != tc.lived || m.SignSeen.IsZero() == tc.kept {
			t.Errorf("%s: %+v", tc.name, m)
		}
	}
}

func TestWhatIsRemembered(t *testing.T) {
	var never time.Time
	to := func(next State, reason Reason) Step { return Step{Do: Advance, Next: next, Reason: reason} }
	stay := func(state State) Step { return Step{Do: Wait, Next: state} }
	moves, goesOn := stay(MovingWorkload), to(PoweringOn, "")
	fencedAt := func(m Memory) any { return m.FencedAt }
	unseen := func(m Memory) any { return m.Unseen }
	held := func(m Memory) any { return m.Held }
	waited := func(m Memory) any { return m.Waited }
	moved := func(m Memory) any { return m.Moved }
	began := func(m Memory) any { return m.Began }
	asked := func(m Memory) any { return m.Asked }
	off := func(m Memory) any { return m.WasOff }
	lastOne := func(f *Facts) { f.Asked, f.Moved = ago(time.Minute), WorkloadMovedReason }
	next := Step{Do: BeginAttempt, Next: Preparing}
	asksPerson := Step{Do: AskPerson, Next: PoweringOn, Reason: HostKeptOffReason}
	before := ago(10 * time.Minute)
	answering := func(f *Facts) { f.Node = NodePresent }
	notLooked := func(f *Facts) { f.Looked = false }
	for name, tc := range map[string]struct {
		given Facts
		step  Step
		of    func(Memory) any
		want  any
	}{
		"the node is fenced":                     {in(MovingWorkload), Step{Do: Fence, Next: MovingWorkload}, fencedAt, noon},
		"another client has fenced it":           {in(MovingWorkload, fencedByOthers), moves, fencedAt, noon},
		"it is gone":                             {in(MovingWorkload, noNode), moves, fencedAt, noon},
		"so it was before its cluster was lost":  {in(MovingWorkload, noNode, notLooked), moves, fencedAt, never},
		"it is not fenced":                       {in(MovingWorkload), moves, fencedAt, never},
		"it was fenced before":                   {in(MovingWorkload, fenced, fencedBefore), moves, fencedAt, ago(time.Minute)},
		"its workload has moved":                 {in(MovingWorkload, fenced, fencedBefore), goesOn, fencedAt, ago(time.Minute)},
		"it is unfenced":                         {in(PoweringOn, fenced, fencedBefore), Step{Do: Unfence, Next: PoweringOn}, fencedAt, never},
		"its cluster is out of reach":            {in(MovingWorkload, blind), moves, unseen, noon},
		"it stays out of reach":                  {in(MovingWorkload, blindLong), moves, unseen, ago(time.Minute)},
		"it answers again":                       {in(MovingWorkload, blindLong, answering), moves, unseen, never},
		"it is not asked any more":               {in(MovingWorkload, blindLong), goesOn, unseen, never},
		"the host is kept off":                   {in(PoweringOff), moves, held, true},
		"the attempt waits in its queue again":   {in(PoweringOff), to(Preparing, ""), held, false},
		"one that is kept off later was not":     {in(MovingWorkload), moves, held, false},
		"it is powered on as that has moved":     {in(MovingWorkload), to(PoweringOn, WorkloadMovedReason), moved, WorkloadMovedReason},
		"or as it has not in time":               {in(MovingWorkload), to(PoweringOn, "WorkloadStuck"), moved, Reason("WorkloadStuck")},
		"or as that was not proven":              {in(PoweringOff), to(PoweringOn, "Any"), moved, Reason("Any")},
		"or as it is serviced":                   {in(MovingWorkload), to(Servicing, "HostServiced"), moved, Reason("HostServiced")},
		"not while the workload is waited for":   {in(MovingWorkload), moves, moved, Reason("")},
		"nor where none was to move":             {in(PoweringOn), to(Servicing, "HostServiced"), moved, Reason("")},
		"the next attempt knows nothing of that": {in(Preparing, lastOne), next, moved, Reason("")},
		"the same one does":                      {in(Preparing, lastOne), stay(Preparing), moved, WorkloadMovedReason},
		"nor when the host was asked":            {in(Preparing, lastOne), next, asked, never},
		"nor that it was off":                    {in(Preparing, wasOff), next, off, false},
		"which the same one knows":               {in(Preparing, wasOff), stay(Preparing), off, true},
		"its time does not run in its queue":     {in(Preparing, anothersTurn, attemptOver), stay(Preparing), began, noon},
		"it runs while it waits for its host":    {in(Preparing, attemptOver), stay(Preparing), began, before},
		"and when it goes on":                    {in(Preparing, anothersTurn, attemptOver), to(PoweringOff, ""), began, before},
		"and in later states":                    {in(Booting, anothersTurn, attemptOver), stay(Booting), began, before},
		"a person is asked about its owner":      {in(PoweringOn), asksPerson, waited, true},
		"it is left to its owner":                {in(Booting), to(PoweringOn, HostKeptOffReason), waited, false},
	} {
		must.Is(t, tc.want, tc.of(After(tc.given, tc.step, noon)), "%s: got", name)
	}
}
