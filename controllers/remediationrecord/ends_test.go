package remediationrecord

import (
	"testing"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A machine of the same name is another one by its UID alone: where one of the UIDs is not known, it may be the same.
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

// What holds up the next step of a ladder may do so for hours, and what is left to come is not given up.
func TestARemediationIsNotGivenUpWhileItsCheckHasAStepLeft(t *testing.T) {
	ladder := mendv1.RecordRef{Kind: "NodeHealthCheck", Name: "nodes"}
	for name, change := range map[string]func(*Facts){
		"after its request has failed":  withRequest(func(r *Request) { r.Acts, r.Failed = true, true }),
		"after its request was deleted": both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, change)
			f.Status = Decide(f).Status // before the check says that it has one
			f.Next, f.IdleSince = ladder, later(2*time.Minute-Idles)
			for _, late := range []time.Duration{2 * time.Minute, Settle + 2*time.Minute, 3 * time.Hour} {
				f.Now = later(late)
				p := Decide(f)
				first := late == 2*time.Minute // a step that was begun a moment ago is not in the cache yet
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

// A check deletes the request of a machine that is healthy again, and marks that a moment later.
func TestARecordAwaitsNoStepInTheMomentInWhichARequestIsDeleted(t *testing.T) {
	f := at(time.Minute, both(withRequest(func(*Request) {}), func(f *Facts) { f.Requests = nil }))
	f.Next = mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "workers"}
	if p := Decide(f); p.Waiting == AwaitingNextStep || !p.Idle || !p.Status.Ended.IsZero() {
		t.Errorf("it waits for %q, idle: %t, and has ended as %q", p.Waiting, p.Idle, p.Status.Outcome)
	}
}

// Steps that were displaced may have been the effect: nothing is said of the target that healed by itself then.
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
