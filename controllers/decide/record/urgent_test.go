package record

import (
	"testing"
	"time"
)

// A machine of the same name is another one by its UID alone: where one of the UIDs is not known, it may be the same.
func TestAMachineOfTheSameNameReplacesByItsUID(t *testing.T) {
	for name, tc := range map[string]struct {
		target, other string
		want          Outcome
	}{
		"another one":                        {target: "1", other: "2", want: Replaced},
		"the same one":                       {target: "1", other: "1"},
		"one whose UID is not known":         {target: "1"},
		"one of a target that has no UID":    {other: "2"},
		"one of which neither UID is known.": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := at(10*time.Minute, both(gone, func(f *Facts) {
				f.Target.UID = tc.target
				f.Capacity = replacedBy(Replacement{Machine: Ref{Kind: "Machine", Namespace: "metal", Name: "w1", UID: tc.other}}, true)
			}))
			if got := Decide(f).State; got.Outcome != tc.want {
				t.Errorf("it ends as %q, want %q", got.Outcome, tc.want)
			}
		})
	}
}

// Once nothing acts on an unhealthy target any more, that is what is waited for.
func TestWhatIsWaitedForWhenNothingIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   Reason
	}{
		"its requests have ended":      {withRequest(func(r *Request) { r.Failed = true }), RequestsEnded},
		"its owner is asked no more":   {both(asked, func(f *Facts) { f.Target.Asked = time.Time{} }), Withdrawn},
		"a request goes on":            {withRequest(func(r *Request) { r.State = "PoweringOff" }), "PoweringOff"},
		"one goes on that says little": {withRequest(func(*Request) {}), RemediationInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			if p := Decide(at(time.Minute, tc.change)); p.Waiting != tc.want {
				t.Errorf("it waits for %q, want %q", p.Waiting, tc.want)
			}
		})
	}
}

// What may not be found out any more in a moment is written at once; what goes on being so, together with what follows.
func TestWhatIsUrgent(t *testing.T) {
	known := func(r *Request) { r.Acts = true }
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   bool
	}{
		"that it begins":            {func(f *Facts) { f.Target.Asked = after(time.Second) }, true},
		"that it ends":              {both(asked, healthy), true},
		"a new request":             {both(asked, func(f *Facts) { f.Requests = []Request{{Ref: cycle}} }), true},
		"that a remediator acts":    {withRequest(known), true},
		"not that one still does":   {both(withRequest(known), func(f *Facts) { f.State.Steps = append(f.State.Steps, Step{Reason: RemediatorActs}) }), false},
		"not what is waited for":    {both(asked, func(f *Facts) { f.Capacity = Capacity{Known: true, Reason: "DrainingNode"} }), false},
		"not that it is deleted":    {both(asked, func(f *Facts) { f.Target.Deleting = after(time.Minute) }), false},
		"not that nothing is new":   {func(*Facts) {}, false},
		"not while it is paused":    {both(asked, healthy, func(f *Facts) { f.Paused = true }), false},
		"not a request that it has": {withRequest(func(*Request) {}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if p := Decide(at(2*time.Minute, tc.change)); p.Urgent != tc.want {
				t.Errorf("urgent: %t, want %t, with %v", p.Urgent, tc.want, p.State.Steps)
			}
		})
	}
}
