package powercycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// queuedAs returns a remediation in a queue, with that UID and memory.
func queuedAs(uid string, m Memory) Queued {
	return Queued{Memory: m, Name: "HostRemediation " + uid, UID: uid, Created: noon.Add(-time.Hour)}
}

func begunAt(s State, began time.Time) Memory { return Memory{State: s, Attempt: 1, Began: began} }

func TestWhichRemediationOfAMachineGoesFirst(t *testing.T) {
	self := func(attempt int, began time.Time) Queued {
		return queuedAs("m", Memory{Attempt: attempt, Began: began})
	}
	begun, notBegun := begunAt(PoweringOff, noon), self(0, time.Time{})
	paused := func(s State) Memory {
		m := begunAt(s, noon)
		m.Paused = noon
		return m
	}
	unreadable := Queued{UID: "x", Unreadable: true}
	for name, tc := range map[string]struct {
		other, self Queued
		want        bool
	}{
		"one that has begun goes before one that has not":           {queuedAs("x", begun), notBegun, true},
		"one that has not begun goes before none":                   {queuedAs("x", Memory{State: Pending}), notBegun, false},
		"nor does one that is new":                                  {queuedAs("x", Memory{}), notBegun, false},
		"nor one that is over":                                      {queuedAs("x", begunAt(Succeeded, noon)), notBegun, false},
		"of two that have begun the earlier goes first":             {queuedAs("x", begun), self(1, noon.Add(time.Second)), true},
		"and the later does not":                                    {queuedAs("x", begun), self(1, noon.Add(-time.Second)), false},
		"of two that began together one goes, by its UID":           {queuedAs("a", begun), self(1, noon), true},
		"and the other does not":                                    {queuedAs("x", begun), self(1, noon), false},
		"nor one that is paused before it has touched its host":     {queuedAs("x", paused(Preparing)), notBegun, false},
		"but one that is paused while its host boots does":          {queuedAs("x", paused(Booting)), notBegun, true},
		"no remediation goes before itself":                         {queuedAs("m", begun), notBegun, false},
		"of what cannot be read the worst is assumed":               {unreadable, self(1, noon.Add(-time.Hour)), true},
		"H-D4: none has begun before it was created, as it may say": {queuedAs("x", begunAt(PoweringOff, noon.Add(-24*time.Hour))), self(1, noon.Add(-2*time.Hour)), false},
	} {
		q := Queue{Self: tc.self, SameMachine: []Queued{tc.other}}
		if got := len(q.Ahead(noon)) > 0; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// memberAs returns a live member of a control plane, whose host would power off.
func memberAs(name string, remediations ...Queued) controlplane.Member {
	return Disrupted(controlplane.Member{Name: name, Node: controlplane.Alive}, "", true, remediations)
}

func TestWhatARemediationWaitsForInItsQueue(t *testing.T) {
	began := noon.Add(-time.Minute)
	plane := func(others ...controlplane.Member) func(*Queue) {
		return func(q *Queue) {
			own := memberAs("m")
			own.Node = controlplane.Silent
			q.Plane = &controlplane.Plane{API: controlplane.Answers, Members: append([]controlplane.Member{own}, others...)}
		}
	}
	forbidden := func(by string) Ahead {
		return Ahead{Text: "b is being remediated (" + by + ")"}
	}
	keptOff := Disrupted(memberAs("b"), "BareMetalHost b", true, nil)
	deaf := Disrupted(controlplane.Member{Name: "b", Node: controlplane.Silent}, "", false, []Queued{queuedAs("r", Memory{State: Pending})})
	waiting := func(m Memory, edits ...func(*Queued)) controlplane.Member {
		r := queuedAs("r", m)
		r.Created = noon.Add(-2 * time.Hour)
		for _, edit := range edits {
			edit(&r)
		}
		is := memberAs("b", r)
		is.Node = controlplane.Silent
		return is
	}
	createdLater := func(r *Queued) { r.Created = noon.Add(-time.Minute) }
	first := Ahead{Text: "b is ahead in the queue"}
	here := Ahead{Manager: true}
	here.Text = "no replica on another node is ready, or one is just taking over"
	for name, tc := range map[string]struct {
		is   func(*Queue)
		want []Ahead
	}{
		"a worker alone waits for nothing":                  {func(*Queue) {}, nil},
		"a queue that could not be read keeps it waiting":   {func(q *Queue) { q.Unasked = "why" }, []Ahead{{Text: "why"}}},
		"another remediation keeps its host powered off":    {func(q *Queue) { q.KeptOffFor = "x" }, []Ahead{{Text: "the host is kept powered off for remediation x"}}},
		"another remediation of its machine has begun":      {func(q *Queue) { q.SameMachine = []Queued{queuedAs("x", begunAt(Booting, began))} }, []Ahead{{Text: "HostRemediation x is under way"}}},
		"the manager runs on its host":                      {func(q *Queue) { q.ManagerHere = true }, []Ahead{here}},
		"members that are healthy keep none waiting":        {plane(memberAs("b"), memberAs("c")), nil},
		"a member that is being power-cycled does":          {plane(memberAs("b", queuedAs("r", begunAt(PoweringOff, began)))), []Ahead{forbidden("HostRemediation r")}},
		"one whose host is kept powered off does":           {plane(keptOff), []Ahead{forbidden("BareMetalHost b")}},
		"one whose remediation cannot be read does":         {plane(memberAs("b", Queued{Name: "r", UID: "r", Unreadable: true})), []Ahead{forbidden("r")}},
		"one whose remediation is over does not":            {plane(memberAs("b", queuedAs("r", begunAt(Succeeded, began)))), nil},
		"a lost member that has waited for longer is first": {plane(waiting(Memory{State: Pending}), memberAs("c")), []Ahead{first}},
		"also if its attempt has begun":                     {plane(waiting(Memory{State: Preparing, Attempt: 1}), memberAs("c")), []Ahead{first}},
		"one whose attempt has begun goes before one that has waited for longer": {
			plane(waiting(Memory{State: Preparing, Attempt: 1}, createdLater), memberAs("c")), []Ahead{first},
		},
		"one that has waited for less does not": {plane(waiting(Memory{State: Preparing}, createdLater), memberAs("c")), nil},
		"nor does the control plane hide that the manager runs on its host": {
			func(q *Queue) { plane(memberAs("b"), memberAs("c"))(q); q.ManagerHere = true }, []Ahead{here},
		},
		"not if it has not looked at the queue yet": {plane(waiting(Memory{}), memberAs("c")), nil},
		"nor if it is paused":                       {plane(waiting(Memory{State: Pending, Paused: began}), memberAs("c")), nil},
		"nor if it is being deleted":                {plane(waiting(Memory{State: Pending}, func(r *Queued) { r.Leaves = true }), memberAs("c")), nil},
		"nor if its host would not power off":       {plane(deaf, memberAs("c")), nil},
	} {
		q := Queue{Machine: "m", Self: queuedAs("m", Memory{State: Pending})}
		tc.is(&q)
		if diff := cmp.Diff(tc.want, q.Ahead(noon)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhichStepsBeginWhatOnlyOneMayBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		step Step
		want bool
	}{
		"the first attempt":     {Step{Do: BeginAttempt, From: Pending, Next: Preparing}, true},
		"not to wait":           {Step{Do: Wait, From: Pending, Next: Pending}, false},
		"not to give up":        {Step{Do: Advance, From: Pending, Next: Failed}, false},
		"to power the host off": {Step{Do: Advance, From: Preparing, Next: PoweringOff}, true},
		"or to reboot it":       {Step{Do: Advance, From: Preparing, Next: Rebooting}, true},
		"to ask for it":         {Step{Do: KeepOff, From: PoweringOff, Next: PoweringOff}, true},
		"or for the reboot":     {Step{Do: Reboot, From: Rebooting, Next: Rebooting}, true},
		"not the next attempt, which asks again later": {Step{Do: BeginAttempt, From: PoweringOn, Next: Preparing}, false},
		"not to go on":                  {Step{Do: Advance, From: PoweringOff, Next: MovingWorkload}, false},
		"not to power it off once more": {Step{Do: Advance, From: MovingWorkload, Next: PoweringOff}, false},
	} {
		if got := tc.step.Begins(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
