package record

import (
	"testing"
	"time"
)

// What holds up the next step of a ladder may do so for hours, and what is left to come is not given up.
func TestARemediationIsNotGivenUpWhileItsCheckHasAStepLeft(t *testing.T) {
	ladder := Ref{Kind: "NodeHealthCheck", Name: "nodes"}
	for name, change := range map[string]func(*Facts){
		"after its request has failed":  withRequest(func(r *Request) { r.Acts, r.Failed = true, true }),
		"after its request was deleted": both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, change)
			f.State = Decide(f).State // before the check says that it has one
			f.Next = ladder
			for _, late := range []time.Duration{2 * time.Minute, Settle + 2*time.Minute, 3 * time.Hour} {
				f.Now = after(late)
				p := Decide(f)
				if p.Waiting != AwaitingNextStep || p.Object != ladder || !p.State.Ended.IsZero() {
					t.Fatalf("after %s it waits for %q and has ended as %q", late, p.Waiting, p.State.Outcome)
				}
				f.State = p.State
			}
			f.Next = Ref{}
			f.Now = after(4 * time.Hour)
			p := Decide(f)
			if !p.State.Ended.IsZero() || !p.Again.Equal(f.Now.Add(Settle)) {
				t.Fatalf("when it has none any more it ends as %q, again at %s", p.State.Outcome, p.Again)
			}
			f.State, f.Now = p.State, p.Again
			if got := Decide(f).State; got.Ended.IsZero() {
				t.Error("it does not end")
			}
		})
	}
}

// A moment that has passed would have the record looked at again at once, for ever.
func TestWhatHasPassedIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		after  time.Duration
		unread bool
		want   time.Time
	}{
		"until it is due to begin":                             {after: time.Minute, want: after(Unbegun)},
		"also if its requests cannot be read":                  {after: time.Minute, unread: true, want: after(Unbegun)},
		"not after that, while its requests cannot be read":    {after: Unbegun, unread: true},
		"nor long after that, while its requests are not read": {after: time.Hour, unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			if p := Decide(at(tc.after, func(f *Facts) { f.RequestsUnread = tc.unread })); !p.Again.Equal(tc.want) || !p.State.Ended.IsZero() {
				t.Errorf("again at %v, want %v; it has ended as %q", p.Again, tc.want, p.State.Outcome)
			}
		})
	}
}
