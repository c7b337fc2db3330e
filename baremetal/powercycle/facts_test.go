package powercycle

import "time"

var (
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	policy = PolicyOf(1, 10*time.Minute, 20*time.Minute)
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// in returns ordinary facts for a state: a worker whose node is silent, a minute after its first attempt began. Each case states only
// what is special about it.
func in(s State, changes ...func(*Facts)) Facts {
	f := Facts{
		Memory: Memory{State: s, Since: ago(time.Minute), Attempt: 1, Began: ago(time.Minute)},
		Power:  Power{Wanted: true, PoweredOn: true, Provable: true}, Finalizer: true, First: true, Looked: true,
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
func anothersTurn(f *Facts)     { f.ControlPlane, f.First = true, false }
func managerOnIt(f *Facts)      { f.ManagerHere = true }
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

// attemptOver comes after the state that it is about.
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
func nodeTwins(f *Facts)    { f.Twins = true }
