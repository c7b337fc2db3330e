package powercycle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	policy = PolicyOf(1, 10*time.Minute, 20*time.Minute)
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// in returns ordinary facts for a state: a worker whose node is silent, a minute after its first attempt began. Each test case states only
// what differs.
func in(s State, changes ...func(*Facts)) Facts {
	f := Facts{
		Memory: Memory{State: s, Since: ago(time.Minute), Attempt: 1, Began: ago(time.Minute)},
		Power:  Power{Wanted: true, PoweredOn: true, Provable: true}, Finalizer: true, Node: NodePresent, Looked: true,
	}
	switch s {
	case Pending:
		f.Attempt, f.Began, f.Finalizer = 0, time.Time{}, false
	case PoweringOff:
		f.Asked, f.KeptOff, f.HasPowerAnnotations = ago(time.Minute), true, true
	case MovingWorkload:
		f.Asked, f.KeptOff, f.HasPowerAnnotations, f.PoweredOn = ago(time.Minute), true, true, false
	case PoweringOn:
		f.Asked, f.PoweredOn = ago(time.Minute), false
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func deleting(f *Facts)         { f.Deleting = true }
func toStop(f *Facts)           { f.Stop = true }
func machineGoing(f *Facts)     { f.Machine = MachineDeleting }
func machineVanished(f *Facts)  { f.Machine = MachineGone }
func wellNow(f *Facts)          { f.Healthy = true }
func startedUnhealthy(f *Facts) { f.StartedUnhealthy = true }
func ownerAsked(f *Facts)       { f.OwnerAsked = true }
func controlPlane(f *Facts)     { f.ControlPlane = true }
func anothersTurn(f *Facts)     { f.ControlPlane, f.Ahead = true, []Ahead{{Text: "b"}} }
func managerOnIt(f *Facts)      { f.Ahead = []Ahead{{Manager: true}} }
func fails(f *Facts)            { f.LoopUntil = noon.Add(time.Minute) }
func failed(f *Facts)           { f.LoopUntil = noon }
func hostVanished(f *Facts)     { f.Host = HostGone }
func hostLostLong(f *Facts)     { f.Host, f.Missing = HostGone, ago(time.Hour) }
func hostNeverNamed(f *Facts)   { f.Host, f.HostUnnamed, f.Missing = HostGone, true, ago(10*time.Minute) }
func hostExternally(f *Facts)   { f.External = true }
func withoutOwner(f *Facts)     { f.Ownerless = true }
func hostMadeAnew(f *Facts)     { f.HostAnew = true }
func anothersHost(f *Facts)     { f.Host = HostForeign }
func switchedOff(f *Facts)      { f.Wanted = false }
func off(f *Facts)              { f.PoweredOn = false }
func on(f *Facts)               { f.PoweredOn = true }
func hostPaused(f *Facts)       { f.Unmanaged = "paused" }
func setAside(f *Facts)         { f.Unmanaged, f.SetAside = "paused", true }
func paused(f *Facts)           { f.Paused = true }
func leavingNow(f *Facts)       { f.Teardown = true }
func resumed(f *Facts)          { f.Memory.Paused = ago(time.Hour) }
func heldElsewhere(f *Facts)    { f.KeptOffBy = "somebody" }
func wasKeptOff(f *Facts)       { f.Waited = true }
func booting(f *Facts)          { f.SwitchedOn = true }
func failing(f *Facts)          { f.Fails = true }
func hasFailed(f *Facts)        { f.Faulted = true }
func toldPerson(reason Reason) func(*Facts) {
	return func(f *Facts) { f.Person = reason }
}
func beingServiced(f *Facts) { f.Serviced = true }
func oldBMO(f *Facts)        { f.Provable = false }
func receiptAsked(f *Facts)  { f.ReceiptAsked, f.HasPowerAnnotations = true, true }
func receiptGiven(f *Facts)  { f.ReceiptAsked, f.ReceiptGiven, f.HasPowerAnnotations = true, true, true }
func receiptNoted(f *Facts) {
	receiptGiven(f)
	f.Receipt = ago(10 * time.Second)
}
func contradicted(f *Facts) { f.Doubt = "PowerFailure" }
func anotherBoot(f *Facts)  { f.NewBoot = true }
func renewed(f *Facts)      { f.Asked, f.Sign = ago(time.Minute), ago(30*time.Second) }
func operatorBehind(f *Facts) { // by a minute
	f.Asked, f.Power.Said, f.Sign, f.Memory.Sign, f.SignSeen = ago(time.Second), ago(time.Minute), ago(time.Second), ago(time.Second), noon
}
func restored(f *Facts)  { f.Power.Said, f.Memory.Said = ago(time.Hour), ago(time.Minute) }
func saidSince(f *Facts) { f.Power.Said, f.Memory.Said = ago(10*time.Second), ago(time.Minute) }
func saysNothingNew(f *Facts) {
	f.Power.Said, f.Memory.Said = ago(time.Minute), ago(time.Minute)
}
func renewedAgain(f *Facts) {
	f.Sign, f.Memory.Sign, f.SignSeen = ago(time.Second), ago(11*time.Second), ago(10*time.Second)
}
func lived(f *Facts) {
	f.Lived, f.Sign, f.Memory.Sign, f.SignSeen = true, ago(11*time.Second), ago(11*time.Second), ago(10*time.Second)
}
func clockBehind(f *Facts) { // after lived: by an hour
	f.Sign, f.Memory.Sign = ago(time.Hour), ago(time.Hour)
}
func renewedLate(f *Facts) { f.Sign = ago(time.Hour - 10*time.Second) }
func clockAhead(f *Facts) {
	f.Sign, f.Memory.Sign, f.SignSeen = noon.Add(time.Hour), noon.Add(time.Hour), ago(10*time.Second)
}
func heardSince(f *Facts) { // before the receipt
	f.Sign, f.Memory.Sign, f.SignSeen = ago(20*time.Second), ago(20*time.Second), noon
}
func watchedLong(f *Facts) {
	f.Sign, f.Memory.Sign, f.SignSeen = noon.Add(time.Hour), noon.Add(time.Hour), ago(time.Minute)
}
func outOfReach(f *Facts)  { f.OutOfReach = true }
func changed(f *Facts)     { f.OutOfReach, f.ClusterChanged = true, true }
func upAgain(f *Facts)     { f.Up = true }
func cannotBeOff(f *Facts) { f.NoPowerOff = true }
func heldOff(f *Facts)     { f.KeptOff, f.HasPowerAnnotations = true, true }
func wasHeld(f *Facts)     { f.Held = true }
func released(f *Facts)    { f.KeptOff, f.HasPowerAnnotations = false, false }
func holdsBefore(times int, last time.Duration) func(*Facts) {
	return func(f *Facts) { f.Did = Did{Do: KeepOff, Times: times, At: ago(last)} }
}
func notAsked(f *Facts)    { f.Asked = time.Time{} }
func bootNotSeen(f *Facts) { f.BootUnread = true }
func since(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Since = ago(d) }
}
func wasOff(f *Facts)          { f.WasOff = true }
func rebooted(f *Facts)        { f.RebootAsked, f.HasPowerAnnotations = true, true }
func rebooting(f *Facts)       { f.RebootAsked, f.RebootPending, f.HasPowerAnnotations = true, true, true }
func hostIsMarked(f *Facts)    { f.HostMarked = true }
func disprovedBefore(f *Facts) { f.Disproved = true }
func markedByUs(f *Facts)      { f.HostMarked, f.Marked = true, true }
func blind(f *Facts)           { f.Node = NodeUnseen }
func blindLong(f *Facts)       { f.Node, f.Unseen = NodeUnseen, ago(time.Minute) }
func noNode(f *Facts)          { f.Node = NodeAbsent }
func fenced(f *Facts)          { f.Fenced, f.FencedByUs, f.Fencing = true, true, true }
func mayBeFenced(f *Facts)     { f.Fencing = true }
func fencedByOthers(f *Facts)  { f.Fenced = true }
func empty(f *Facts)           { f.Drained = true }
func fencedBefore(f *Facts)    { f.FencedAt = ago(time.Minute) }
func discarded(f *Facts)       { f.Discarded = true }
func free(f *Facts)            { f.Finalizer = false }
func second(f *Facts)          { f.Attempt = 2 }

// attemptOver sets the clocks so that the attempt's deadline has passed. It must come after the state in a list of changes.
func attemptOver(f *Facts) {
	f.Began = ago(10 * time.Minute)
	if f.State == MovingWorkload {
		f.Since = ago(2 * time.Minute)
	}
}

func stateOver(f *Facts) { f.Since, f.Began = ago(20*time.Minute), ago(30*time.Minute) }
func long(f *Facts)      { f.Since = ago(2 * time.Hour) }
func askedLong(f *Facts) { f.Asked = ago(2 * time.Minute) }
func touched(f *Facts)   { f.Touched = true }
func takenOver(f *Facts) { f.TakenOver, f.Fencing = true, true }
func inheritedFence(f *Facts) {
	f.Fenced, f.FencedByUs, f.Fencing, f.Inherited = true, true, true, true
}
func anothersNode(f *Facts) { f.NodeMismatch = true }
func nodeTwins(f *Facts)    { f.Twin = "n2" }

// longAgo sets Since to five minutes before the pause of resumed began.
func longAgo(f *Facts) { f.Since = ago(65 * time.Minute) }

// anyFacts draws facts, possible or not. Only a machine that is both healthy and unhealthy, and clocks that start during a pause, are
// excluded.
func anyFacts(t *rapid.T) Facts {
	var f Facts
	f.State = rapid.SampledFrom(append([]State{""}, order...)).Draw(t, "state")
	f.Attempt = rapid.IntRange(0, 3).Draw(t, "attempt")
	for _, m := range []*time.Time{&f.Since, &f.Began, &f.Asked, &f.Unseen, &f.Memory.Paused} {
		if back := rapid.IntRange(-1, 3*60*4).Draw(t, "how far back"); back >= 0 {
			*m = noon.Add(-time.Duration(back) * 15 * time.Second)
		}
	}
	if f.State == "" {
		f.Since = time.Time{} // it was not reconciled yet
	}
	var keptOff, managed, first bool
	rare := []*bool{
		&f.WasOff, &f.Touched, &f.StartedUnhealthy, &f.Fencing, &f.Marked, &f.Deleting, &f.Finalizer, &f.Stop, &f.Paused, &f.Teardown, &f.Healthy, &f.Unhealthy, &f.OwnerAsked,
		&f.ControlPlane, &f.NoPowerOff, &keptOff, &f.Fails, &f.KeptOff, &f.HasPowerAnnotations, &f.RebootAsked, &f.RebootPending, &f.HostMarked, &f.Disproved, &f.Looked,
		&f.Fenced, &f.FencedByUs, &f.Drained,
	}
	for _, is := range rare {
		*is = rapid.IntRange(0, 4).Draw(t, "rare") == 1
	}
	for _, is := range []*bool{&first, &f.Wanted, &f.PoweredOn, &managed} {
		*is = rapid.IntRange(0, 4).Draw(t, "usual") != 1
	}
	if keptOff {
		f.KeptOffBy = "somebody"
	}
	if !managed {
		f.Unmanaged = "paused"
	}
	if !first {
		f.Ahead = []Ahead{{}}
	}
	f.Healthy = f.Healthy && !f.Unhealthy
	for _, m := range []*time.Time{&f.Since, &f.Began, &f.Asked, &f.Unseen} {
		if paused := f.Memory.Paused; !paused.IsZero() && m.After(paused) {
			*m = paused
		}
	}
	f.Machine = rapid.SampledFrom([]Machine{MachinePresent, MachinePresent, MachinePresent, MachineDeleting, MachineGone}).Draw(t, "machine")
	f.Host = rapid.SampledFrom([]Host{HostOurs, HostOurs, HostOurs, HostForeign, HostGone}).Draw(t, "host")
	f.Node = rapid.SampledFrom([]Node{NodePresent, NodeUnseen, NodeAbsent}).Draw(t, "node")
	return f
}

func TestWhatIsForeseenHappensThenAndNotBefore(t *testing.T) {
	// One of four facts waits, and one of six waits ends by time alone. With so many facts both kinds occur in every run.
	const factsEach = 30
	foreseen, waits := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range factsEach {
			timed, waited := foresees(t, anyFacts(t))
			foreseen, waits = foreseen+timed, waits+waited
		}
	})
	t.Logf("%d of %d waits end by time alone", foreseen, waits)
	if waits == 0 || foreseen == 0 || foreseen == waits {
		t.Errorf("%d of %d waits end by time alone: the facts are too much alike", foreseen, waits)
	}
}

// foresees checks Again for f. It returns how many waits it saw (one or none), and how many of them end by time alone.
func foresees(t *rapid.T, f Facts) (timed, waits int) {
	step := Next(f, policy, noon)
	at, next := foresee(f, policy, noon)
	if step.Do != Wait {
		if !at.IsZero() {
			t.Fatalf("it foresees something after a step that acts: %s", step.Do)
		}
		return 0, 0
	}
	f.Memory = After(f, step, noon)
	horizon := 10 * time.Hour
	if !at.IsZero() {
		timed = 1
		horizon = at.Sub(noon)
		if then := Next(f, policy, at); then.same(step) || !then.same(next) {
			t.Fatalf("at %s it is %+v, was foreseen as %+v, and was %+v before", at, then, next, step)
		}
	}
	for range 20 {
		before := noon.Add(time.Duration(rapid.Int64Range(0, int64(horizon)-1).Draw(t, "before")))
		if then := Next(f, policy, before); !then.same(step) {
			t.Fatalf("at %s it is %+v already, instead of %+v until %s", before, then, step, at)
		}
	}
	return timed, 1
}

// foresee returns the first moment after now at which time alone changes the step for f, and that step. Until then the facts stay the same,
// and the memory is what a reconcile at now stores. The moment is zero if only an event changes the step, or if the step does not wait.
func foresee(f Facts, p Policy, now time.Time) (at time.Time, next Step) {
	step := Next(f, p, now)
	if step.Do != Wait {
		return time.Time{}, Step{}
	}
	f.Memory = After(f, step, now)
	for at = step.Again; !at.IsZero(); at = next.Again {
		if next = Next(f, p, at); !next.same(step) {
			return at, next
		}
	}
	return time.Time{}, Step{}
}

// same reports whether two steps are equal except for Again.
func (s Step) same(as Step) bool {
	return s.Do == as.Do && s.Next == as.Next && s.Reason == as.Reason && s.Detail == as.Detail
}
