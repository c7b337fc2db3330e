package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

var (
	m1    = Ref{Kind: "Machine", Namespace: "metal", Name: "w1", UID: "1"}
	m2    = Ref{Kind: "Machine", Namespace: "metal", Name: "w2", UID: "2"}
	cycle = Ref{Kind: "HostRemediation", Namespace: "metal", Name: "w1", UID: "r"}
)

// at are facts of a machine whose remediation was decided at noon, some time after that.
func at(d time.Duration, change func(*Facts)) Facts {
	f := Facts{
		Now: after(d), Decided: noon, State: State{Attempted: noon},
		Target: Target{Ref: m1, Known: true, Exists: true, Machine: true, Checked: No, Evidence: Yes, NodeReady: No},
	}
	change(&f)
	return f
}

// asked has the owner asked a second after noon, and the record say so.
func asked(f *Facts) {
	f.Target.Asked = after(time.Second)
	begun(f, OwnerRequested)
}

func begun(f *Facts, by Reason) {
	f.State.Begun, f.State.BegunBy = after(time.Second), "kubemend"
	f.State.Steps = append(f.State.Steps, Step{Time: after(time.Second), Reason: by})
}

func gone(f *Facts) {
	asked(f)
	f.Target.Exists = false
	f.State.Steps = append(f.State.Steps, Step{Time: after(2 * time.Second), Reason: TargetDeleting}, Step{Time: after(3 * time.Second), Reason: TargetGone})
}

func withRequest(change func(*Request)) func(*Facts) {
	return func(f *Facts) {
		r := Request{Ref: cycle, Created: after(time.Second)}
		change(&r)
		f.Requests = []Request{r}
		begun(f, RequestCreated)
		f.State.Requests = []Ref{cycle}
	}
}

func replacedBy(is Replacement, healthy bool) Capacity {
	return Capacity{Known: true, Back: true, Reason: "Replaced", Since: after(9 * time.Minute), Replacement: is, Healthy: healthy}
}

func both(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func healthy(f *Facts) {
	f.Target.Checked, f.Target.CheckedSince, f.Target.Asked = Yes, after(4*time.Minute), time.Time{}
	f.Target.Evidence, f.Target.NodeReady, f.Target.NodeReadySince = No, Yes, after(3*time.Minute)
}

// node makes the target a node without a Machine.
func node(f *Facts) { f.Target.Ref, f.Target.Machine = Ref{Kind: "Node", Name: "w1", UID: "1"}, false }

func TestHowARecordEnds(t *testing.T) {
	ten := 10 * time.Minute
	for name, tc := range map[string]struct {
		f    Facts
		want Outcome
		by   string
		back time.Time
	}{
		"a machine that its owner has replaced is replaced": {
			f:    at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(Replacement{Machine: m2}, true) })),
			want: Replaced, back: after(9 * time.Minute),
		},
		"not before the new machine is healthy":       {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(Replacement{Machine: m2}, false) }))},
		"and not by itself":                           {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(Replacement{Machine: m1}, true) }))},
		"nor by a machine that is not known":          {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(Replacement{}, true) }))},
		"by all machines of a rollout it is replaced": {f: at(ten, both(gone, func(f *Facts) { f.Capacity = Capacity{Known: true, Back: true, Others: 3} })), want: Replaced, back: after(ten)},
		"a machine whose owner is scaled down is gone": {
			f:    at(ten, both(gone, func(f *Facts) { f.Capacity = Capacity{Known: true, Over: true, Reason: "ScaledDown"} })),
			want: Gone, by: "ScaledDown",
		},
		"but not while it is being deleted": {f: at(ten, both(asked, func(f *Facts) {
			f.Target.Deleting = after(time.Minute)
			f.Capacity = Capacity{Known: true, Over: true, Reason: "ScaledDown"}
		}))},
		"a machine that is gone waits while its capacity cannot be read":    {f: at(ten, gone)},
		"a machine that is gone is not healed, whatever its conditions are": {f: at(ten, both(gone, healthy))},
		"a machine that is not read changes nothing":                        {f: at(ten, both(asked, healthy, func(f *Facts) { f.Target.Known = false }))},
		"one that is healthy before its owner acts is healed":               {f: at(ten, both(asked, healthy)), want: Healed, by: "Recovered", back: after(4 * time.Minute)},
		"one that its owner is asked for still is not": {f: at(ten, both(asked, healthy, func(f *Facts) {
			f.Target.Asked = after(time.Second)
		}))},
		"one that is marked by hand is not": {f: at(ten, both(asked, healthy, func(f *Facts) { f.Target.ByHand = true }))},
		"one that a remediator has healed is healed by it": {
			f:    at(ten, both(withRequest(func(*Request) {}), healthy, func(f *Facts) { f.Requests = nil; f.State.Steps = append(f.State.Steps, Step{Reason: RemediatorActs}) })),
			want: Healed, back: after(4 * time.Minute),
		},
		"not while its request exists":      {f: at(ten, both(withRequest(func(*Request) {}), healthy))},
		"nor while requests cannot be read": {f: at(ten, both(withRequest(func(*Request) {}), healthy, func(f *Facts) { f.Requests, f.RequestsUnread = nil, true }))},
		"a request that has succeeded may":  {f: at(ten, both(withRequest(func(r *Request) { r.Succeeded = true }), healthy)), want: Healed, by: "Recovered", back: after(4 * time.Minute)},
		"so may one that has failed":        {f: at(ten, both(withRequest(func(r *Request) { r.Failed = true }), healthy)), want: Healed, by: "Recovered", back: after(4 * time.Minute)},
		"a paused Cluster changes nothing":  {f: at(ten, both(asked, healthy, func(f *Facts) { f.Paused = true }))},
		"one that did not begin in time":    {f: at(5*time.Minute, func(*Facts) {}), want: Cancelled, by: "NotBegun"},
		"not a moment earlier":              {f: at(Unbegun-time.Second, func(*Facts) {})},
		"nor when it was tried again":       {f: at(Unbegun, func(f *Facts) { f.State.Attempted = after(time.Minute) })},
		"nor while its requests are unread": {f: at(ten, func(f *Facts) { f.RequestsUnread = true })},
		"one that was begun is not":         {f: at(ten, asked)},
		"nor one of which nothing is known": {f: at(ten, func(f *Facts) {
			begun(f, OwnerRequested)
			f.Target.Checked, f.Target.Evidence, f.Target.NodeReady = Unknown, Unknown, Unknown
		})},
		"one that is gone before it began":    {f: at(ten, func(f *Facts) { f.Target.Exists = false })},
		"one that is deleted before it did":   {f: at(ten, func(f *Facts) { f.Target.Deleting = after(time.Second) }), want: Cancelled, by: "NotBegun"},
		"a node that is gone is gone":         {f: at(ten, both(gone, node)), want: Gone, by: "Deleted"},
		"not while a remediator acts on it":   {f: at(ten, both(gone, node, withRequest(func(r *Request) { r.Acts = true })))},
		"nor while its requests are not read": {f: at(ten, both(gone, node, func(f *Facts) { f.RequestsUnread = true }))},
		"but once all of them have ended": {
			f: at(ten, both(gone, node, withRequest(func(r *Request) { r.Acts, r.Failed = true, true }))), want: Gone, by: "Deleted",
		},
		"a node that came back is healed by its remediator": {
			f: at(ten, both(gone, node, withRequest(func(r *Request) { r.Acts, r.Succeeded = true, true }), healthy, func(f *Facts) {
				f.Target.Exists, f.Target.Checked = true, Unknown
			})), want: Healed, back: after(3 * time.Minute),
		},
		"a host whose request has succeeded": {
			f: at(ten, both(withRequest(func(r *Request) { r.Succeeded = true }), func(f *Facts) {
				f.Target = Target{Ref: Ref{Kind: "BareMetalHost", Name: "h"}, Known: true, Exists: true}
			})), want: Healed, by: "Recovered", back: after(ten),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(tc.f).State
			if got.Outcome != tc.want || got.EndedBy != tc.by || !got.Back.Equal(tc.back) || got.Ended.IsZero() != (tc.want == "") {
				t.Errorf("%q by %q at %v, back at %v; want %q by %q, back at %v", got.Outcome, got.EndedBy, got.Ended, got.Back, tc.want, tc.by, tc.back)
			}
		})
	}
}

// What nothing asks for any more is cancelled, or given up if it had an effect, once no other request has come for a while.
func TestARemediationThatIsWithdrawn(t *testing.T) {
	acts := func(f *Facts) {
		f.State.Steps = append(f.State.Steps, Step{Time: after(2 * time.Second), Reason: RemediatorActs})
	}
	none := func(f *Facts) { f.Requests = nil }
	failed := withRequest(func(r *Request) { r.Failed = true })
	for name, tc := range map[string]struct {
		change func(*Facts)
		reason Reason
		want   Outcome
	}{
		"of its owner":                        {both(asked, func(f *Facts) { f.Target.Asked = time.Time{} }), Withdrawn, Cancelled},
		"by deleting its request":             {both(withRequest(func(*Request) {}), none), Withdrawn, Cancelled},
		"after its remediator has acted":      {both(withRequest(func(*Request) {}), acts, none), Withdrawn, GivenUp},
		"by its remediator":                   {both(failed, acts), RequestsEnded, GivenUp},
		"by its remediator before it acted":   {failed, RequestsEnded, GivenUp},
		"of a host whose only one has failed": {both(failed, func(f *Facts) { f.Target = Target{Ref: Ref{Kind: "BareMetalHost"}, Known: true, Exists: true} }), RequestsEnded, GivenUp},
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, tc.change)
			p := Decide(f)
			if last := p.State.Steps[len(p.State.Steps)-1]; last.Reason != tc.reason || !p.State.Ended.IsZero() || !p.Again.Equal(after(time.Minute+Settle)) {
				t.Fatalf("first the last step is %v, again at %v, ended %v", last, p.Again, p.State.Ended)
			}
			f.State = p.State
			f.Now = after(time.Minute + Settle - time.Second)
			if p := Decide(f); !p.State.Ended.IsZero() || !cmp.Equal(p.State, f.State) {
				t.Errorf("while it settles: %s", cmp.Diff(f.State, p.State))
			}
			again := f
			again.Target.Asked = after(2 * time.Minute)
			if p := Decide(again); p.State.Steps[len(p.State.Steps)-1].Reason != OwnerRequested || !p.State.Ended.IsZero() {
				t.Errorf("the owner is asked meanwhile: %+v", p.State.Steps)
			}
			f.Now = after(time.Minute + Settle)
			if got := Decide(f).State; got.Outcome != tc.want || got.EndedBy != string(tc.reason) || !got.Back.IsZero() {
				t.Errorf("it ends as %q by %q, back %v; want %q", got.Outcome, got.EndedBy, got.Back, tc.want)
			}
		})
	}
}

func TestWhenARemediationIsBegun(t *testing.T) {
	newRequest := func(by string, created time.Time) func(*Facts) {
		return func(f *Facts) { f.Requests = []Request{{Ref: cycle, Created: created, By: by}} }
	}
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   time.Time
		by     string
	}{
		"not before anything was done":            {func(*Facts) {}, time.Time{}, ""},
		"when its owner is asked":                 {func(f *Facts) { f.Target.Asked = after(2 * time.Second) }, after(2 * time.Second), "kubemend"},
		"not before it was decided":               {func(f *Facts) { f.Target.Asked = after(-time.Hour) }, noon, "kubemend"},
		"not after now":                           {func(f *Facts) { f.Target.Asked = after(time.Hour) }, after(time.Minute), "kubemend"},
		"with its first request":                  {newRequest("", after(3*time.Second)), after(3 * time.Second), "kubemend"},
		"which a user may have made":              {newRequest("alice", after(3*time.Second)), after(3 * time.Second), "alice"},
		"a deletion is not kubemend's":            {func(f *Facts) { f.Target.Deleting = after(time.Second) }, time.Time{}, ""},
		"what is gone may have been begun or not": {func(f *Facts) { f.Target.Exists = false }, time.Time{}, ""},
		"once it was begun, it stays so":          {both(asked, func(f *Facts) { f.Target.Asked = after(50 * time.Second) }), after(time.Second), "kubemend"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(at(time.Minute, tc.change)).State
			if !got.Begun.Equal(tc.want) || got.BegunBy != tc.by {
				t.Errorf("begun at %v by %q, want %v by %q", got.Begun, got.BegunBy, tc.want, tc.by)
			}
		})
	}
}

func TestRequestsAreNotedOnce(t *testing.T) {
	f := at(time.Minute, func(f *Facts) {
		f.Requests = []Request{{Ref: cycle, Created: after(time.Second), Acts: true, State: "PoweringOff"}}
	})
	p := Decide(f)
	if diff := cmp.Diff([]Ref{cycle}, p.State.Requests); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := []Step{
		{Time: after(time.Second), Reason: RequestCreated, Object: cycle}, {Time: f.Now, Reason: RemediatorActs, Object: cycle},
		{Time: f.Now, Reason: "PoweringOff", Object: cycle},
	}
	if diff := cmp.Diff(want, p.State.Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	f.State = p.State
	if again := Decide(f); !cmp.Equal(again.State, f.State) {
		t.Errorf("the same facts again: %s", cmp.Diff(f.State, again.State))
	}
	f.Requests[0].UID = "another"
	if again := Decide(f); len(again.State.Requests) != 2 {
		t.Errorf("another one of its name: %v", again.State.Requests)
	}
	f.Moved = true
	if again := Decide(f); len(again.State.Requests) != 1 {
		t.Errorf("the same one, moved: %v", again.State.Requests)
	}
}

// The waits say how long each cause has held it up, also one that comes again.
func TestWaits(t *testing.T) {
	f := at(time.Minute, asked)
	for _, is := range []struct {
		at     time.Duration
		reason Reason
		since  time.Duration
		known  bool
	}{
		{time.Minute, "WaitingForRemediation", time.Second, true},
		{2 * time.Minute, "DrainingNode", 90 * time.Second, true},
		{3 * time.Minute, "", 0, false}, // what is not read changes nothing
		{4 * time.Minute, "WaitingForRemediation", 0, true},
		{5 * time.Minute, "DrainingNode", 4 * time.Minute, true}, // hidden by the other one until now
		{6 * time.Minute, "NoHost", 330 * time.Second, true},
		{8 * time.Minute, "HostChosen", time.Minute, true}, // likewise
	} {
		f.Now = after(is.at)
		f.Capacity = Capacity{Known: is.known, Reason: is.reason}
		if is.since > 0 {
			f.Capacity.Since = after(is.since)
		}
		f.State = Decide(f).State
	}
	want := []Wait{
		{Reason: "WaitingForRemediation", Seconds: 89 + 60}, {Reason: "DrainingNode", Seconds: 150 + 30}, {Reason: "NoHost", Seconds: 150},
		{Reason: "HostChosen", Since: after(8 * time.Minute)},
	}
	if diff := cmp.Diff(want, f.State.Waits); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.Now, f.Target.Exists = after(10*time.Minute), false
	f.Capacity = replacedBy(Replacement{Machine: m2, Guessed: true}, true)
	got := Decide(f).State
	want[3] = Wait{Reason: "HostChosen", Seconds: 60} // until the capacity was back
	if diff := cmp.Diff(want, got.Waits); diff != "" {
		t.Errorf("at its end (-want +got):\n%s", diff)
	}
	if !got.Replacement.Guessed || got.Replacement.Machine != m2 {
		t.Errorf("replaced by %+v", got.Replacement)
	}
}

func TestARecordIsBounded(t *testing.T) {
	f := at(time.Minute, asked)
	for i := range 200 {
		f.Now = f.Now.Add(time.Hour)
		f.Capacity = Capacity{Known: true, Reason: Reason(rune('A' + i))}
		f.Requests = append(f.Requests, Request{Ref: Ref{Kind: "R", UID: string(rune('A' + i))}, Failed: true})
		f.Target.Asked = time.Time{} // withdrawn, and asked for again
		f.State = Decide(f).State
		f.Target.Asked = f.Now
		f.State = Decide(f).State
	}
	if s := f.State; len(s.Steps) != MaxSteps || len(s.Waits) != MaxWaits || len(s.Requests) != MaxRequests {
		t.Errorf("%d steps, %d waits, %d requests", len(s.Steps), len(s.Waits), len(s.Requests))
	}
	if first := f.State.Steps[0].Reason; first != OwnerRequested {
		t.Errorf("the first step is %s", first)
	}
	if last := f.State.Waiting(); last != OtherReason {
		t.Errorf("it waits for %s", last)
	}
}

// Waits that come and go do not displace what was done.
func TestWaitsLeaveRoomForSteps(t *testing.T) {
	f := at(time.Minute, asked)
	for i := range 200 {
		f.Now = f.Now.Add(time.Minute)
		f.Capacity = Capacity{Known: true, Reason: Reason(rune('A' + i%2))}
		f.State = Decide(f).State
	}
	if n := len(f.State.Steps); n != 32 { // as many are left for two of each of 16 requests
		t.Errorf("%d steps", n)
	}
	f.Target.Exists = false
	f.State = Decide(f).State
	if !f.State.has(TargetGone) || !cmp.Equal(f.State, Decide(f).State) {
		t.Errorf("the last steps are %v", f.State.Steps[len(f.State.Steps)-2:])
	}
}

func TestAMovedRecordIsFollowedByNames(t *testing.T) {
	there := Ref{Kind: "Machine", Namespace: "metal", Name: "w2", UID: "here"}
	f := at(10*time.Minute, both(gone, func(f *Facts) {
		f.Moved = true
		f.State.Replacement.Machine = m2
		f.Capacity = replacedBy(Replacement{Machine: there}, true)
	}))
	if got := Decide(f).State; got.Outcome != Replaced || got.has(ReplacementFound) {
		t.Errorf("ended as %q with %v", got.Outcome, got.Steps)
	}
	f.Capacity = replacedBy(Replacement{Machine: Ref{Kind: "Machine", Name: "w1", UID: "here"}}, true)
	if got := Decide(f).State; got.Outcome != "" {
		t.Errorf("replaced by itself: %q", got.Outcome)
	}
}

// A remediator that says that it has succeeded has not healed a node that still boots, and its check has not given up.
func TestARemediatorThatHasSucceededIsNoEnd(t *testing.T) {
	f := at(time.Minute, withRequest(func(r *Request) { r.Acts, r.Succeeded = true, true }))
	for _, late := range []time.Duration{time.Minute, Settle + time.Minute, 3 * time.Hour} {
		f.Now = after(late)
		p := Decide(f)
		if p.Waiting != AwaitingHealth || !p.State.Ended.IsZero() {
			t.Fatalf("after %s it waits for %q and has ended as %q", late, p.Waiting, p.State.Outcome)
		}
		f.State = p.State
	}
	healthy(&f)
	if got := Decide(f).State; got.Outcome != Healed {
		t.Errorf("of a healthy one it ends as %q", got.Outcome)
	}
}
