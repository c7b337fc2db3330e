package capacity

import (
	"testing"
	"time"
)

// A control plane of another project may make the new machine before or after it deletes the old one. What follows from the rules of others does not hold.
func TestOfAnOwnerWhoseRulesAreNotKnownNothingIsGuessed(t *testing.T) {
	k3s := func(f *Facts) { f.Owner = Owner{Kind: "K3sControlPlane", Name: "k3s", Known: true, Replicas: 3} }
	is := Object{Kind: "K3sControlPlane", Name: "k3s"}
	surge := func(edit func(*Machine)) func(*Facts) {
		return func(f *Facts) {
			m := worker("w4", 4*time.Minute)
			edit(&m)
			f.Others = append(f.Others, m)
		}
	}
	all := func(edits ...func(*Facts)) func(*Facts) {
		return func(f *Facts) {
			for _, edit := range edits {
				edit(f)
			}
		}
	}
	notReady := surge(func(m *Machine) { m.NodeReady = isFalse("KubeletNotReady", "", time.Minute) })
	rows{
		"when it makes a machine is not known": {
			all(gone(), k3s), says{NoReplacement, OwnerUnfamiliar, "w1", is, ago(5 * time.Minute), time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"nor of one that says no number of machines": {
			all(gone(), k3s, func(f *Facts) { f.Owner.Replicas, f.Owner.Uncounted = 0, true }),
			says{NoReplacement, OwnerUnfamiliar, "w1", is, ago(5 * time.Minute), time.Time{}, false, ReplacementIsMade, "", Replacement{}},
		},
		"one that has all its machines has not been scaled down": {
			all(deleting("DrainingNode"), k3s, surge(func(*Machine) {})),
			says{Back, OwnerComplete, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
		"of one that has made a machine before, that is followed": {
			all(deleting("DrainingNode"), k3s, notReady),
			says{NodeNotReady, NodeNotReadyReason, "w4", Object{Kind: "Node", Name: "node-w4"}, ago(time.Minute), time.Time{}, false, NodeGetsReady, "", Replacement{"w4", ByOrder}},
		},
		"one that has been scaled down to nothing makes none": {
			all(gone(), k3s, func(f *Facts) { f.Owner.Replicas, f.Others = 0, nil }),
			says{NotReplaced, ScaledDown, "w1", Object{}, time.Time{}, time.Time{}, false, Nothing, "", Replacement{}},
		},
	}.run(t)
}
