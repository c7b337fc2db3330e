package remediationrecord

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func pick[T any](t *rapid.T, name string, of ...T) T { return rapid.SampledFrom(of).Draw(t, name) }

func yes(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }

// random changes the facts as they may change between two reconciles.
func random(t *rapid.T, f *Facts) {
	f.Now = f.Now.Add(time.Duration(rapid.IntRange(-60, 600).Draw(t, "seconds")) * time.Second)
	moment := func(name string) time.Time {
		return pick(t, name, time.Time{}, f.Now, f.Now.Add(-time.Minute), f.Now.Add(-time.Hour), f.Now.Add(time.Second))
	}
	truth := func(name string) Truth { return pick(t, name, Unknown, No, Yes) }
	f.Paused = pick(t, "paused", false, false, false, true)
	f.Target.Known, f.Target.Exists = pick(t, "known", true, true, true, false), f.Target.Exists && pick(t, "exists", true, true, true, false)
	if f.Target.Deleting.IsZero() {
		f.Target.Deleting = pick(t, "deleting", time.Time{}, time.Time{}, time.Time{}, f.Now)
	}
	f.Target.Asked, f.Target.ByHand = moment("asked"), pick(t, "by hand", false, false, true)
	f.Target.Checked, f.Target.NodeHealthy = truth("checked"), truth("node")
	f.Target.CheckedSince, f.Target.NodeReadySince = moment("checked since"), moment("ready since")
	f.Requests, f.RequestsUnread = nil, pick(t, "unread", false, false, true)
	for i := range rapid.IntRange(0, 2).Draw(t, "requests") {
		f.Requests = append(f.Requests, Request{
			RecordRef: mendv1.RecordRef{Kind: "R", Name: "w1", UID: string(rune('a' + i))}, Created: moment("created"), Acts: yes(t, "acts"),
			State: pick[string](t, "state", "", "PoweringOff", "Booting"), Succeeded: yes(t, "succeeded"), Failed: yes(t, "failed"),
		})
	}
	f.Next = pick(t, "next", mendv1.RecordRef{}, mendv1.RecordRef{}, mendv1.RecordRef{Kind: "NodeHealthCheck", Name: "nodes"})
	f.Capacity = Capacity{
		Known: yes(t, "capacity known"), Reason: pick[string](t, "reason", "Draining", "NoHost", "Booting"), Since: moment("since"), Back: yes(t, "back"),
		Over: yes(t, "over"), Healthy: yes(t, "healthy"), Others: rapid.IntRange(0, 1).Draw(t, "others"),
		Replacement: pick(t, "by", nil, &mendv1.RecordReplacement{Machine: m1}, &mendv1.RecordReplacement{Machine: m2}),
	}
}

// Whatever changes in whatever order, a record does not lie about its end.
func TestNoRecordLies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Now: noon, Decided: noon, Moved: pick(t, "moved", false, false, true), Status: mendv1.RemediationRecordStatus{Attempted: moment(noon)},
			Target: Target{RecordRef: m1, Exists: true, Machine: pick(t, "machine", true, true, false)},
		}
		highest := noon
		for range rapid.IntRange(1, 30).Draw(t, "reconciles") {
			random(t, &f)
			before := f.Status
			p := Decide(f)
			rules(t, &f, &before, &p, &highest)
			f.Status = p.Status
			if again := Decide(f); !cmp.Equal(again.Status, f.Status) {
				t.Fatalf("the same facts change it again: %s", cmp.Diff(f.Status, again.Status))
			}
		}
	})
}

func rules(t *rapid.T, f *Facts, before *mendv1.RemediationRecordStatus, p *Plan, highest *time.Time) {
	if f.Now.After(*highest) {
		*highest = f.Now
	}
	s := &p.Status
	for rule, holds := range map[string]bool{
		"nothing after the end":                before.Ended.IsZero() || cmp.Equal(*before, *s),
		"nothing while it is paused":           !f.Paused || cmp.Equal(*before, *s),
		"it is begun once":                     before.Begun.IsZero() || s.Begun.Equal(before.Begun),
		"nothing is lost":                      len(s.Steps) >= len(before.Steps) && len(s.Requests) >= len(before.Requests),
		"it is bounded":                        len(s.Steps) <= mendv1.MaxRecordSteps && len(s.Requests) <= MaxRequests,
		"an outcome and an end come together":  s.Ended.IsZero() == (s.Outcome == ""),
		"capacity is back of these alone":      s.CapacityBack.IsZero() == (s.Outcome != mendv1.RecordHealed && s.Outcome != mendv1.RecordReplaced),
		"capacity is back between the two":     s.CapacityBack.IsZero() || !s.CapacityBack.Before(s.Begun) && !s.Ended.Before(s.CapacityBack),
		"steps are in their order":             inOrder(s.Steps),
		"it does not end before it begins":     s.Ended.IsZero() || !s.Ended.Before(s.Begun),
		"moments are not in the future":        !moment(*highest).Before(s.Begun) && !moment(*highest).Before(s.Ended),
		"it is looked at again later":          p.Again.IsZero() || p.Again.After(f.Now),
		"what ended just now was to be judged": s.Ended.IsZero() || !before.Ended.IsZero() || f.Target.Known,
	} {
		if !holds {
			t.Fatalf("broken: %s\nfacts %+v\nplan %+v", rule, *f, *p)
		}
	}
	if before.Ended.IsZero() && !s.Ended.IsZero() {
		ends(t, f, s)
	}
}

// ends checks the rules for a record that ends now.
func ends(t *rapid.T, f *Facts, s *mendv1.RemediationRecordStatus) {
	target, c := &f.Target, &f.Capacity
	effective := last(s, RemediatorActs, TargetDeleting) != nil
	holds := false
	switch s.Outcome {
	case mendv1.RecordHealed:
		holds = target.Exists && target.Deleting.IsZero() && (target.Asked.IsZero() || target.Checked == Yes) && !target.ByHand && target.Checked != No && !f.RequestsUnread
		for i := range f.Requests {
			holds = holds && f.Requests[i].ended()
		}
	case mendv1.RecordReplaced:
		var other mendv1.RecordRef
		if c.Replacement != nil {
			other = c.Replacement.Machine
		}
		holds = c.Known && target.leaving() && (other.Name == "" && c.Others > 0 || other.Name != "" && other != m1 && c.Healthy)
	case mendv1.RecordGone:
		holds = !target.Exists
		for i := range f.Requests {
			holds = holds && (target.Machine || f.Requests[i].ended())
		}
	case mendv1.RecordCancelled:
		holds = target.Exists && (s.Begun.IsZero() || !effective)
	case mendv1.RecordGivenUp:
		holds = target.Exists && target.Deleting.IsZero() && target.Asked.IsZero() && !s.Begun.IsZero() && f.Next.Name == ""
		if n := len(f.Requests); n > 0 {
			holds = holds && !f.Requests[n-1].Succeeded
		}
	}
	if !holds {
		t.Fatalf("%s is a lie\nfacts %+v\nstate %+v", s.Outcome, *f, *s)
	}
}

func inOrder(steps []mendv1.RecordStep) bool {
	for i := 1; i < len(steps); i++ {
		if steps[i].Time.Before(&steps[i-1].Time) {
			return false
		}
	}
	return true
}
