package nodes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestWhatIsDoneAboutRequests(t *testing.T) {
	delay := func(f *Facts) { f.HealthyDelay = 10 * time.Minute }
	listed := func(at time.Time) func(*Node) { return func(n *Node) { n.Listed = &Listing{HealthySince: at} } }
	remembered := func(f *Facts) { f.Memory.Recovered = map[string]bool{"r": true} }
	marked := func(r *Request) { r.DelayedMarked, r.Delayed = true, epoch.Add(-time.Minute) }
	one := []int{0}
	type done struct {
		End, Flag, Delay, Resume, Stop, Adopt, GiveUp []int
		Delayed                                       bool
		Lease                                         LeaseAction
		Start                                         int
	}
	for name, tc := range map[string]struct {
		given Facts
		want  done
	}{
		"the request of a healthy node ends":                     {of(healthy(asked())), done{End: one, Lease: TakeLease, Start: -1}},
		"with a healthy delay it is kept":                        {of(healthy(asked())).with(delay), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"one that is listed without a moment, too":               {of(healthy(asked(), listed(time.Time{}))).with(delay), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"it is kept for the delay":                               {of(healthy(asked(), listed(epoch))).with(delay), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"and ends after it":                                      {of(healthy(asked(), listed(epoch.Add(-time.Hour)))).with(delay), done{End: one, Lease: TakeLease, Start: -1}},
		"a person ends a delay without end":                      {of(healthy(asked())).with(func(f *Facts) { f.HealthyDelay = -1 }), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"by a confirmation":                                      {of(healthy(asked(), func(n *Node) { n.Confirmed = true })).with(func(f *Facts) { f.HealthyDelay = -1 }), done{End: one, Lease: TakeLease, Start: -1}},
		"one that is deleted already is waited for":              {of(healthy(asked(deleting(time.Minute)))), done{Lease: TakeLease, Start: -1}},
		"an old one is counted":                                  {of(lost(asked(func(r *Request) { r.Started = epoch.Add(-49 * time.Hour) }))), done{Flag: one, Lease: TakeLease, Start: -1}},
		"once":                                                   {of(lost(asked(func(r *Request) { r.Started, r.Flagged = epoch.Add(-49*time.Hour), true }))), done{Lease: TakeLease, Start: -1}},
		"a delay that was begun in vain is reverted":             {of(lost(asked(marked))).with(delay), done{Resume: one, Lease: TakeLease, Start: -1}},
		"what had succeeded ends when the node is bad once more": {of(lost(asked(succeeded(escalation.Yes)))).with(remembered), done{End: one, Lease: TakeLease, Start: -1}},
		"but not with an escalation":                             {of(lost(asked(succeeded(escalation.Yes)))).with(steps(reboot(0)), remembered), done{Lease: TakeLease, Start: -1}},
		"nor what was never seen to have":                        {of(lost(asked(succeeded(escalation.Yes)))), done{Lease: TakeLease, Start: -1}},
		"the request of a node that is gone ends":                {of(gone(asked())), done{End: one, Start: -1}},
		"its remediator is notified to stop, if it keeps it":     {of(gone(asked(kept, deleting(0)))), done{Stop: one, Start: -1}},
		"unless that is forbidden":                               {of(gone(asked(kept, deleting(0)))).with(func(f *Facts) { f.Memory.Unpatchable = map[string]bool{"r": true} }), done{Start: -1}},
		"one whose node is not known is left alone":              {of(gone(asked(func(r *Request) { r.Guessed = true }))), done{Start: -1}},
		"one that a remediator keeps waits for the node":         {of(gone(asked(kept))), done{Lease: TakeLease, Start: -1}},
		"one whose Machine is there, too":                        {of(gone(asked(func(r *Request) { r.MachineThere = true }))), done{Lease: TakeLease, Start: -1}},
		"a step that failed is given up":                         {of(lost(asked(succeeded(escalation.No)))).with(steps(reboot(0), reboot(0))), done{GiveUp: one, Start: 1, Lease: TakeLease}},
		"the first step takes the lease":                         {of(lost()), done{Start: 0, Lease: TakeLease}},
		"what is left of the last failure is adopted":            {of(lost(asked(deleting(0), kept))), done{Adopt: one, Start: -1, Lease: TakeLease}},
		"the lease of a healthy node is given back":              {of(healthy(func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Lease: DropLease, Start: -1}},
		"of one that is gone after its last request":             {of(gone(func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Lease: DropLease, Start: -1}},
		"and not before":                                         {of(gone(asked(deleting(0)), func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Start: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := &p.Decisions[0]
			got := done{d.End, d.Flag, d.Delay, d.Resume, d.Stop, d.Adopt, d.GiveUp, d.Delayed, d.Lease, d.Start}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}
