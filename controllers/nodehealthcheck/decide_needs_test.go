package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The Machines of a node, and requests of their names, are read only if something may be decided by them.
func TestWhichNodesConcern(t *testing.T) {
	for name, tc := range map[string]struct {
		node Node
		want bool
	}{
		"a healthy one does not":                   {healthy(), false},
		"an unhealthy one does":                    {lost(), true},
		"a pending one does":                       {lost(since(time.Minute)), true},
		"one that never reported does":             {healthy(silentMember), true},
		"one that is gone does not":                {gone(asked()), false},
		"one with another status or type does not": {healthy(terminating), false},
	} {
		facts := of(tc.node)
		if got := facts.Concerns(&facts.Nodes[0]); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What a deleted check has begun ends: its requests first, and the lease on a node when the last of them is gone.
func TestWhatADeletedCheckReleases(t *testing.T) {
	type released struct {
		End   []int
		Lease LeaseAction
	}
	ours := func(renewed time.Duration) func(*Node) {
		return leased(leaseFor(us, 11*time.Minute, time.Hour, renewed))
	}
	clings := asked(kept, deleting(ClingingFor))
	for name, tc := range map[string]struct {
		node         Node
		uninstalling bool
		want         released
		again        time.Duration
	}{
		"the requests of a node":                 {lost(asked(), asked(), ours(0)), false, released{End: []int{0, 1}}, 5 * time.Minute},
		"also if it is healthy":                  {healthy(asked(), ours(0)), false, released{End: []int{0}}, 5 * time.Minute},
		"also if it is gone":                     {gone(asked(), ours(0)), false, released{End: []int{0}}, 5 * time.Minute},
		"not what is being deleted":              {lost(asked(deleting(time.Minute)), ours(0)), false, released{}, 5 * time.Minute},
		"the lease is renewed for as long":       {lost(asked(deleting(time.Minute)), ours(6*time.Minute)), false, released{Lease: RenewLease}, 5 * time.Minute},
		"the lease after the last request":       {lost(ours(0)), false, released{Lease: DropLease}, 0},
		"not the lease of another holder":        {lost(leased(leaseFor("NMO", time.Hour, 0, 0))), false, released{}, 0},
		"not while a remediator keeps a request": {lost(clings, ours(0)), false, released{}, 5 * time.Minute},
		"but during an uninstall":                {lost(clings, ours(0)), true, released{Lease: DropLease}, 0},
		"which waits for ten minutes":            {lost(asked(kept, deleting(ClingingFor-1)), ours(0)), true, released{}, 5 * time.Minute},
		"for all requests of the node":           {lost(clings, asked(deleting(0)), ours(0)), true, released{}, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(tc.node).with(func(f *Facts) { f.Templates = nil })
			p := Release(f, tc.uninstalling)
			d := &p.Decisions[0]
			if diff := cmp.Diff(tc.want, released{d.End, d.Lease}); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			if d.Starts() || d.Would >= 0 {
				t.Errorf("step %d starts, %d would", d.Start, d.Would)
			}
			var again time.Time
			if tc.again > 0 {
				again = epoch.Add(tc.again)
			}
			if !p.Recheck.Equal(again) {
				t.Errorf("looked at again at %s, want %s", p.Recheck, again)
			}
		})
	}
	t.Run("the first node that is looked at again says when", func(t *testing.T) {
		f := of(lost(asked(), ours(2*time.Minute)), lost(asked(), ours(time.Minute)), lost(ours(0)))
		f.Recheck = epoch.Add(4 * time.Minute)
		if p := Release(f, false); !p.Recheck.Equal(epoch.Add(3*time.Minute)) || len(p.Order) != 3 {
			t.Errorf("looked at again at %s, in the order %v", p.Recheck, p.Order)
		}
	})
}
