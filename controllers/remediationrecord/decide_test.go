package remediationrecord

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func later(d time.Duration) time.Time { return noon.Add(d) }

func aStep(at time.Time, reason string, object ...mendv1.RecordRef) mendv1.RecordStep {
	step := mendv1.RecordStep{Time: metav1.NewMicroTime(at), Reason: reason}
	if len(object) > 0 {
		step.Object = &object[0]
	}
	return step
}

var (
	m1    = mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1", UID: "1"}
	m2    = mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w2", UID: "2"}
	cycle = mendv1.RecordRef{Kind: "HostRemediation", Namespace: "metal", Name: "w1", UID: "r"}
)

// at returns the facts of a machine some time after its remediation was decided at noon.
func at(d time.Duration, change func(*Facts)) Facts {
	f := Facts{
		Now: later(d), Decided: noon, Status: mendv1.RemediationRecordStatus{Attempted: moment(noon)},
		Target: Target{RecordRef: m1, Known: true, Exists: true, Machine: true, Checked: No, NodeHealthy: No},
	}
	change(&f)
	return f
}

// asked makes the owner asked a second after noon, in the record as well.
func asked(f *Facts) {
	f.Target.Asked = later(time.Second)
	hasBegun(f, OwnerRequested)
}

func hasBegun(f *Facts, by string) {
	f.Status.Begun = moment(later(time.Second))
	f.Status.Steps = append(f.Status.Steps, aStep(later(time.Second), by))
}

func gone(f *Facts) {
	asked(f)
	f.Target.Exists = false
	f.Status.Steps = append(f.Status.Steps, aStep(later(2*time.Second), TargetDeleting), aStep(later(3*time.Second), TargetGone))
}

func withRequest(change func(*Request)) func(*Facts) {
	return func(f *Facts) {
		r := Request{RecordRef: cycle, Created: later(time.Second)}
		change(&r)
		f.Requests = []Request{r}
		hasBegun(f, RequestCreated)
		f.Status.Requests = []mendv1.RecordRef{cycle}
	}
}

func replacedBy(is *mendv1.RecordReplacement, healthy bool) Capacity {
	return Capacity{Known: true, Back: true, Reason: "Replaced", Since: later(9 * time.Minute), Replacement: is, Healthy: healthy}
}

func both(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func healthy(f *Facts) {
	f.Target.Checked, f.Target.CheckedSince, f.Target.Asked = Yes, later(4*time.Minute), time.Time{}
	f.Target.NodeHealthy, f.Target.NodeReadySince = Yes, later(3*time.Minute)
}

// nodeAlone makes the target a node without a Machine.
func nodeAlone(f *Facts) {
	f.Target.RecordRef, f.Target.Machine = mendv1.RecordRef{Kind: "Node", Name: "w1", UID: "1"}, false
}

func TestHowARecordEnds(t *testing.T) {
	ten := 10 * time.Minute
	for name, tc := range map[string]struct {
		f    Facts
		want mendv1.RecordOutcome
		by   string
		back time.Time
	}{
		"a machine that its owner has replaced is replaced": {
			f:    at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: m2}, true) })),
			want: mendv1.RecordReplaced, back: later(9 * time.Minute),
		},
		"not before the new machine is healthy":       {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: m2}, false) }))},
		"and not by itself":                           {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: m1}, true) }))},
		"nor by a machine that is not known":          {f: at(ten, both(gone, func(f *Facts) { f.Capacity = replacedBy(nil, true) }))},
		"by all machines of a rollout it is replaced": {f: at(ten, both(gone, func(f *Facts) { f.Capacity = Capacity{Known: true, Back: true, Others: 3} })), want: mendv1.RecordReplaced, back: later(ten)},
		"a machine whose owner is scaled down is gone": {
			f:    at(ten, both(gone, func(f *Facts) { f.Capacity = Capacity{Known: true, Over: true, Reason: "ScaledDown"} })),
			want: mendv1.RecordGone, by: "ScaledDown",
		},
		"but not while it is being deleted": {f: at(ten, both(asked, func(f *Facts) {
			f.Target.Deleting = later(time.Minute)
			f.Capacity = Capacity{Known: true, Over: true, Reason: "ScaledDown"}
		}))},
		"a machine that is gone waits while its capacity cannot be read":    {f: at(ten, gone)},
		"a machine that is gone is not healed, whatever its conditions are": {f: at(ten, both(gone, healthy))},
		"a machine that is not read changes nothing":                        {f: at(ten, both(asked, healthy, func(f *Facts) { f.Target.Known = false }))},
		"one that is healthy before its owner acts is healed":               {f: at(ten, both(asked, healthy)), want: mendv1.RecordHealed, by: "Recovered", back: later(4 * time.Minute)},
		"so is one whose owner has not withdrawn what it was asked": {f: at(ten, both(asked, healthy, func(f *Facts) {
			f.Target.Asked = later(time.Second)
		})), want: mendv1.RecordHealed, by: "Recovered", back: later(4 * time.Minute)},
		"not if its node alone says so": {f: at(ten, both(asked, healthy, func(f *Facts) {
			f.Target.Asked, f.Target.Checked = later(time.Second), Unknown
		}))},
		"one that is marked by hand is not": {f: at(ten, both(asked, healthy, func(f *Facts) { f.Target.ByHand = true }))},
		"one that a remediator has healed is healed by it": {
			f: at(ten, both(withRequest(func(*Request) {}), healthy, func(f *Facts) {
				f.Requests = nil
				f.Status.Steps = append(f.Status.Steps, mendv1.RecordStep{Reason: RemediatorActs})
			})),
			want: mendv1.RecordHealed, back: later(4 * time.Minute),
		},
		"not while its request exists":      {f: at(ten, both(withRequest(func(*Request) {}), healthy))},
		"nor while requests cannot be read": {f: at(ten, both(withRequest(func(*Request) {}), healthy, func(f *Facts) { f.Requests, f.RequestsUnread = nil, true }))},
		"a request that has succeeded may":  {f: at(ten, both(withRequest(func(r *Request) { r.Succeeded = true }), healthy)), want: mendv1.RecordHealed, by: "Recovered", back: later(4 * time.Minute)},
		"so may one that has failed":        {f: at(ten, both(withRequest(func(r *Request) { r.Failed = true }), healthy)), want: mendv1.RecordHealed, by: "Recovered", back: later(4 * time.Minute)},
		"a paused Cluster changes nothing":  {f: at(ten, both(asked, healthy, func(f *Facts) { f.Paused = true }))},
		"one that did not begin in time":    {f: at(5*time.Minute, func(*Facts) {}), want: mendv1.RecordCancelled, by: "NotBegun"},
		"not a moment earlier":              {f: at(Unbegun-time.Second, func(*Facts) {})},
		"nor when it was tried again":       {f: at(Unbegun, func(f *Facts) { f.Status.Attempted = moment(later(time.Minute)) })},
		"nor while its requests are unread": {f: at(ten, func(f *Facts) { f.RequestsUnread = true })},
		"one that was begun is not":         {f: at(ten, asked)},
		"nor one of which nothing is known": {f: at(ten, func(f *Facts) {
			hasBegun(f, OwnerRequested)
			f.Target.Checked, f.Target.NodeHealthy = Unknown, Unknown
		})},
		"one that is gone before it began":    {f: at(ten, func(f *Facts) { f.Target.Exists = false })},
		"one that is deleted before it did":   {f: at(ten, func(f *Facts) { f.Target.Deleting = later(time.Second) }), want: mendv1.RecordCancelled, by: "NotBegun"},
		"a node that is gone is gone":         {f: at(ten, both(gone, nodeAlone)), want: mendv1.RecordGone, by: "Deleted"},
		"not while a remediator acts on it":   {f: at(ten, both(gone, nodeAlone, withRequest(func(r *Request) { r.Acts = true })))},
		"nor while its requests are not read": {f: at(ten, both(gone, nodeAlone, func(f *Facts) { f.RequestsUnread = true }))},
		"but once all of them have ended": {
			f: at(ten, both(gone, nodeAlone, withRequest(func(r *Request) { r.Acts, r.Failed = true, true }))), want: mendv1.RecordGone, by: "Deleted",
		},
		"a node that came back is healed by its remediator": {
			f: at(ten, both(gone, nodeAlone, withRequest(func(r *Request) { r.Acts, r.Succeeded = true, true }), healthy, func(f *Facts) {
				f.Target.Exists, f.Target.Checked = true, Unknown
			})), want: mendv1.RecordHealed, back: later(3 * time.Minute),
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(tc.f)
			// The API server confirms that an object is missing. A replacement exists, so that hundreds of machines that come back cost no
			// lists.
			if got := plan.Status.Outcome; got != "" && plan.Confirm != (got != mendv1.RecordReplaced) {
				t.Errorf("it is confirmed past the caches: %t", plan.Confirm)
			}
			got := plan.Status
			if got.Outcome != tc.want || got.EndedBy != tc.by || !got.CapacityBack.Equal(moment(tc.back)) || got.Ended.IsZero() != (tc.want == "") {
				t.Errorf("%q by %q at %v, back at %v; want %q by %q, back at %v", got.Outcome, got.EndedBy, got.Ended, got.CapacityBack, tc.want, tc.by, tc.back)
			}
		})
	}
}

// A remediation that nothing asks for any more is cancelled, or given up if it had an effect, if no other request comes for a while.
func TestARemediationThatIsWithdrawn(t *testing.T) {
	acts := func(f *Facts) {
		f.Status.Steps = append(f.Status.Steps, aStep(later(2*time.Second), RemediatorActs))
	}
	none := func(f *Facts) { f.Requests = nil }
	failed := withRequest(func(r *Request) { r.Failed = true })
	for name, tc := range map[string]struct {
		change func(*Facts)
		reason string
		want   mendv1.RecordOutcome
	}{
		"of its owner":                      {both(asked, func(f *Facts) { f.Target.Asked = time.Time{} }), Withdrawn, mendv1.RecordCancelled},
		"by deleting its request":           {both(withRequest(func(*Request) {}), none), Withdrawn, mendv1.RecordCancelled},
		"after its remediator has acted":    {both(withRequest(func(*Request) {}), acts, none), Withdrawn, mendv1.RecordGivenUp},
		"by its remediator":                 {both(failed, acts), RequestsEnded, mendv1.RecordGivenUp},
		"by its remediator before it acted": {failed, RequestsEnded, mendv1.RecordGivenUp},
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, tc.change)
			p := Decide(f)
			if last := p.Status.Steps[len(p.Status.Steps)-1]; last.Reason != tc.reason || !p.Status.Ended.IsZero() || !p.Again.Equal(later(time.Minute+Settle)) {
				t.Fatalf("first the last step is %v, again at %v, ended %v", last, p.Again, p.Status.Ended)
			}
			f.Status = p.Status
			f.Now = later(time.Minute + Settle - time.Second)
			if p := Decide(f); !p.Status.Ended.IsZero() || !cmp.Equal(p.Status, f.Status) {
				t.Errorf("while it settles: %s", cmp.Diff(f.Status, p.Status))
			}
			again := f
			again.Target.Asked = later(2 * time.Minute)
			if p := Decide(again); p.Status.Steps[len(p.Status.Steps)-1].Reason != OwnerRequested || !p.Status.Ended.IsZero() {
				t.Errorf("the owner is asked meanwhile: %+v", p.Status.Steps)
			}
			f.Now = later(time.Minute + Settle)
			if got := Decide(f).Status; got.Outcome != tc.want || got.EndedBy != tc.reason || !got.CapacityBack.IsZero() {
				t.Errorf("it ends as %q by %q, back %v; want %q", got.Outcome, got.EndedBy, got.CapacityBack, tc.want)
			}
		})
	}
}

// Records writes at once that the owner was asked, or a request created. The cache may show that before it shows the Machine or the
// request. Without the wait each remediation would cause live reads when it begins.
func TestWhatWasAskedForAMomentAgoIsNeitherWithdrawnNorOver(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"of its owner":                         both(asked, func(f *Facts) { f.Target.Asked = time.Time{} }),
		"by a request":                         both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }),
		"of a machine that was healthy before": both(asked, healthy),
	} {
		f := at(time.Second+Idles-time.Millisecond, change)
		if p := Decide(f); len(p.Status.Steps) != 1 || p.Confirm || !p.Again.Equal(later(time.Second+Idles)) {
			t.Errorf("%s: it says %v, reads live: %t, and looks again at %s", name, p.Status.Steps, p.Confirm, p.Again)
		}
	}
}

func TestWhenARemediationIsBegun(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   time.Time
	}{
		"not before anything was done": {func(*Facts) {}, time.Time{}},
		"when its owner is asked":      {func(f *Facts) { f.Target.Asked = later(2 * time.Second) }, later(2 * time.Second)},
		"not before it was decided":    {func(f *Facts) { f.Target.Asked = later(-time.Hour) }, noon},
		"not after now":                {func(f *Facts) { f.Target.Asked = later(time.Hour) }, later(time.Minute)},
		"with its first request": {func(f *Facts) {
			f.Requests = []Request{{RecordRef: cycle, Created: later(3 * time.Second)}}
		}, later(3 * time.Second)},
		"a deletion is not kubemend's":            {func(f *Facts) { f.Target.Deleting = later(time.Second) }, time.Time{}},
		"what is gone may have been begun or not": {func(f *Facts) { f.Target.Exists = false }, time.Time{}},
		"once it was begun, it stays so":          {both(asked, func(f *Facts) { f.Target.Asked = later(50 * time.Second) }), later(time.Second)},
	} {
		if got := Decide(at(time.Minute, tc.change)).Status.Begun; !got.Equal(moment(tc.want)) {
			t.Errorf("%s: begun at %v, want %v", name, got, tc.want)
		}
	}
}

func TestRequestsAreNotedOnce(t *testing.T) {
	f := at(time.Minute, func(f *Facts) {
		f.Requests = []Request{{RecordRef: cycle, Created: later(time.Second), Acts: true, State: "PoweringOff"}}
	})
	p := Decide(f)
	must.Equal(t, []mendv1.RecordRef{cycle}, p.Status.Requests)
	want := []mendv1.RecordStep{
		aStep(later(time.Second), RequestCreated, cycle), aStep(f.Now, RemediatorActs, cycle), aStep(f.Now, "PoweringOff", cycle),
	}
	must.Equal(t, want, p.Status.Steps, "steps")
	f.Status = p.Status
	if again := Decide(f); !cmp.Equal(again.Status, f.Status) {
		t.Errorf("the same facts again: %s", cmp.Diff(f.Status, again.Status))
	}
	f.Requests[0].UID = "another"
	if again := Decide(f); len(again.Status.Requests) != 2 {
		t.Errorf("another one of its name: %v", again.Status.Requests)
	}
	f.Moved = true
	if again := Decide(f); len(again.Status.Requests) != 1 {
		t.Errorf("the same one, moved: %v", again.Status.Requests)
	}
}

// The steps say how long the remediation waited for each reason, also for one that comes again.
func TestWaits(t *testing.T) {
	f := at(time.Minute, asked)
	for _, found := range []struct {
		at     time.Duration
		reason string
		since  time.Duration
		known  bool
	}{
		{time.Minute, "WaitingForRemediation", time.Second, true},
		{2 * time.Minute, "DrainingNode", 90 * time.Second, true},
		{3 * time.Minute, "", 0, false}, // capacity that could not be read changes nothing
		{4 * time.Minute, "WaitingForRemediation", 0, true},
		{5 * time.Minute, "DrainingNode", 4 * time.Minute, true}, // the other wait hid it until now
		{6 * time.Minute, "NoHost", 330 * time.Second, true},
		{8 * time.Minute, "HostChosen", time.Minute, true}, // hidden, too
	} {
		f.Now = later(found.at)
		f.Capacity = Capacity{Known: found.known, Reason: found.reason}
		if found.since > 0 {
			f.Capacity.Since = later(found.since)
		}
		f.Status = Decide(f).Status
	}
	f.Now, f.Target.Exists = later(10*time.Minute), false
	f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: m2, Guessed: true}, true)
	got := Decide(f).Status
	want := map[string]float64{"WaitingForRemediation": 89 + 60, "DrainingNode": 150 + 30, "NoHost": 150, "HostChosen": 60} // until the capacity was back
	must.Equal(t, want, waitedOf(&got), "at its end")
	if !got.Replacement.Guessed || got.Replacement.Machine != m2 {
		t.Errorf("replaced by %+v", got.Replacement)
	}
}

func TestARecordIsBounded(t *testing.T) {
	f := at(time.Minute, asked)
	for i := range 200 {
		f.Now = f.Now.Add(time.Hour)
		f.Capacity = Capacity{Known: true, Reason: string(rune('A' + i))}
		f.Requests = append(f.Requests, Request{RecordRef: mendv1.RecordRef{Kind: "R", UID: string(rune('A' + i))}, Failed: true})
		f.Target.Asked = time.Time{} // withdrawn, then asked again
		f.Status = Decide(f).Status
		f.Target.Asked = f.Now
		f.Status = Decide(f).Status
	}
	if s := f.Status; len(s.Steps) != mendv1.MaxRecordSteps || len(s.Requests) != MaxRequests {
		t.Errorf("%d steps, %d requests", len(s.Steps), len(s.Requests))
	}
	must.Is(t, OwnerRequested, f.Status.Steps[0].Reason, "the first step is")
}

func TestWaitsLeaveRoomForSteps(t *testing.T) {
	f := at(time.Minute, asked)
	for i := range 200 {
		f.Now = f.Now.Add(time.Minute)
		f.Capacity = Capacity{Known: true, Reason: string(rune('A' + i%2))}
		f.Status = Decide(f).Status
	}
	if n := len(f.Status.Steps); n != 32 { // the rest is left for two steps of each of 16 requests
		t.Errorf("%d steps", n)
	}
	f.Target.Exists = false
	f.Status = Decide(f).Status
	if last(&f.Status, TargetGone) == nil || !cmp.Equal(f.Status, Decide(f).Status) {
		t.Errorf("the last steps are %v", f.Status.Steps[len(f.Status.Steps)-2:])
	}
}

func TestAMovedRecordIsFollowedByNames(t *testing.T) {
	there := mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w2", UID: "here"}
	f := at(10*time.Minute, both(gone, func(f *Facts) {
		f.Moved = true
		f.Status.Replacement = &mendv1.RecordReplacement{Machine: m2}
		f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: there}, true)
	}))
	if got := Decide(f).Status; got.Outcome != mendv1.RecordReplaced || last(&got, ReplacementFound) != nil {
		t.Errorf("ended as %q with %v", got.Outcome, got.Steps)
	}
	f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1", UID: "here"}}, true)
	if got := Decide(f).Status; got.Outcome != "" {
		t.Errorf("replaced by itself: %q", got.Outcome)
	}
}

// A node may still boot after its remediator has reported success, and its check has not given up.
func TestARemediatorThatHasSucceededIsNoEnd(t *testing.T) {
	f := at(time.Minute, withRequest(func(r *Request) { r.Acts, r.Succeeded = true, true }))
	for _, late := range []time.Duration{time.Minute, Settle + time.Minute, 3 * time.Hour} {
		f.Now = later(late)
		p := Decide(f)
		if p.Waiting != AwaitingHealth || !p.Status.Ended.IsZero() {
			t.Fatalf("after %s it waits for %q and has ended as %q", late, p.Waiting, p.Status.Outcome)
		}
		f.Status = p.Status
	}
	healthy(&f)
	if got := Decide(f).Status; got.Outcome != mendv1.RecordHealed {
		t.Errorf("of a healthy one it ends as %q", got.Outcome)
	}
}

// Only its UID tells a machine from another one of the same name. If one of the UIDs is not known, it may be the same machine.
func TestAMachineOfTheSameNameReplacesByItsUID(t *testing.T) {
	for name, tc := range map[string]struct {
		target, other string
		want          mendv1.RecordOutcome
	}{
		"another one":                        {target: "1", other: "2", want: mendv1.RecordReplaced},
		"the same one":                       {target: "1", other: "1"},
		"one whose UID is not known":         {target: "1"},
		"one of a target that has no UID":    {other: "2"},
		"one of which neither UID is known.": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := at(10*time.Minute, both(gone, func(f *Facts) {
				f.Target.UID = tc.target
				f.Capacity = replacedBy(&mendv1.RecordReplacement{Machine: mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1", UID: tc.other}}, true)
			}))
			if got := Decide(f).Status; got.Outcome != tc.want {
				t.Errorf("it ends as %q, want %q", got.Outcome, tc.want)
			}
		})
	}
}

// A rule may block the next escalation step for hours. Meanwhile the remediation is not given up.
func TestARemediationIsNotGivenUpWhileItsCheckHasAStepLeft(t *testing.T) {
	ladder := mendv1.RecordRef{Kind: "NodeHealthCheck", Name: "nodes"}
	for name, change := range map[string]func(*Facts){
		"after its request has failed":  withRequest(func(r *Request) { r.Acts, r.Failed = true, true }),
		"after its request was deleted": both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, change)
			f.Status = Decide(f).Status // before the check reports the step
			f.Next, f.IdleSince = ladder, later(2*time.Minute-Idles)
			for _, late := range []time.Duration{2 * time.Minute, Settle + 2*time.Minute, 3 * time.Hour} {
				f.Now = later(late)
				p := Decide(f)
				first := late == 2*time.Minute // a request that was created a moment ago is not cached yet
				if p.Waiting != AwaitingNextStep || p.Object != ladder || !p.Status.Ended.IsZero() || p.Confirm != first {
					t.Fatalf("after %s it waits for %q, has ended as %q, reads live: %t", late, p.Waiting, p.Status.Outcome, p.Confirm)
				}
				f.Status = p.Status
			}
			f.Next = mendv1.RecordRef{}
			f.Now = later(4 * time.Hour)
			p := Decide(f)
			if !p.Status.Ended.IsZero() || !p.Again.Equal(f.Now.Add(Settle)) {
				t.Fatalf("when it has none any more it ends as %q, again at %s", p.Status.Outcome, p.Again)
			}
			f.Status, f.Now = p.Status, p.Again
			if got := Decide(f).Status; got.Ended.IsZero() {
				t.Error("it does not end")
			}
		})
	}
}

// A check deletes the request of a machine that is healthy again, and marks the machine a moment later.
func TestARecordAwaitsNoStepInTheMomentInWhichARequestIsDeleted(t *testing.T) {
	f := at(time.Minute, both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }))
	f.Next = mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "workers"}
	if p := Decide(f); p.Waiting == AwaitingNextStep || !p.Idle || !p.Status.Ended.IsZero() {
		t.Errorf("it waits for %q, idle: %t, and has ended as %q", p.Waiting, p.Idle, p.Status.Outcome)
	}
}

// A full record may have lost the step that had an effect. Then it does not say that the target recovered by itself.
func TestARecordThatIsFullDoesNotSayThatItsTargetRecovered(t *testing.T) {
	for steps, want := range map[int]string{mendv1.MaxRecordSteps - 1: "Recovered", mendv1.MaxRecordSteps: ""} {
		f := at(10*time.Minute, both(asked, healthy))
		for len(f.Status.Steps) < steps {
			f.Status.Steps = append(f.Status.Steps, aStep(later(time.Minute), "NoNode"))
		}
		if got := Decide(f).Status; got.Outcome != mendv1.RecordHealed || got.EndedBy != want {
			t.Errorf("after %d steps it ends as %q by %q, want it healed by %q", steps, got.Outcome, got.EndedBy, want)
		}
	}
}
