package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

const us = "NodeHealthCheck-nhc"

func leaseOf(holder string, length, acquired, renewed time.Duration) *coordinationv1.Lease {
	at := func(ago time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(epoch.Add(-ago))) }
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(length / time.Second)), AcquireTime: at(acquired), RenewTime: at(renewed),
	}}
}

func TestLeaseStep(t *testing.T) {
	classic, step := term{length: classicLease}, term{length: 5 * time.Minute, overdue: 15 * time.Minute}
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		term  term
		since time.Duration // ago
		want  leasing
	}{
		"none is taken":                                             {nil, classic, time.Minute, takeLease},
		"a fresh one of ours is kept":                               {leaseOf(us, 11*time.Minute, 0, 0), classic, 0, keepLease},
		"ours is kept for half its term":                            {leaseOf(us, 11*time.Minute, 5*time.Minute, 299*time.Second), classic, 0, keepLease},
		"ours is renewed after half its term":                       {leaseOf(us, 11*time.Minute, 6*time.Minute, 5*time.Minute), classic, 0, renewLease},
		"C53: ours is renewed for the next step's term":             {leaseOf(us, 11*time.Minute, 0, 0), step, 0, renewLease},
		"somebody else's is theirs":                                 {leaseOf("NMO", 11*time.Minute, 0, 0), classic, 0, keepLease},
		"C42: somebody else's that has expired is taken over":       {leaseOf("NMO", 60*time.Second, 2*time.Minute, 61*time.Second), classic, 0, takeLease},
		"one renewed in the future counts for nothing":              {leaseOf("NMO", 60*time.Second, 0, -time.Hour), classic, 0, takeLease},
		"one that nobody holds is taken":                            {leaseOf("", 60*time.Second, 0, 0), classic, 0, takeLease},
		"W13: without a ladder it is renewed for ever":              {leaseOf(us, 11*time.Minute, 100*time.Hour, 6*time.Minute), classic, 100 * time.Hour, renewLease},
		"C42: with a ladder that leads nowhere it is given back":    {leaseOf(us, 6*time.Minute, 901*time.Second, 0), step, 901 * time.Second, dropLease},
		"given back, it is not taken again":                         {nil, step, 901 * time.Second, keepLease},
		"given back and somebody else's, it is theirs":              {leaseOf("NMO", 6*time.Minute, 0, 0), step, 901 * time.Second, keepLease},
		"at three times its term it is just not overdue":            {leaseOf(us, 6*time.Minute, 15*time.Minute, 5*time.Minute), step, 15 * time.Minute, renewLease},
		"lost in the middle of a remediation it is taken once more": {nil, step, 10 * time.Minute, takeLease},
	} {
		t.Run(name, func(t *testing.T) {
			got, again := leaseStep(tc.lease, us, tc.term, epoch.Add(-tc.since), epoch)
			if got != tc.want {
				t.Errorf("leaseStep() = %v, want %v", got, tc.want)
			}
			if !again.IsZero() && !again.After(epoch) {
				t.Errorf("to be looked at again at %v, which is over", again)
			}
		})
	}
}

func TestTermsOfRungs(t *testing.T) {
	rungs := []escalation.Rung{{Timeout: 3 * time.Minute}, {Timeout: 20 * time.Minute}, {Timeout: time.Minute}}
	for rung, want := range map[int]term{
		-1: {length: classicLease},
		0:  {length: 3 * time.Minute, overdue: 9 * time.Minute},
		1:  {length: 20 * time.Minute, overdue: 63 * time.Minute}, // W2: of two templates of a kind, each has its own
		2:  {length: time.Minute, overdue: 26 * time.Minute},
		3:  {length: classicLease},
	} {
		if got := termOf(rungs, rung); got != want {
			t.Errorf("termOf(%d) = %v, want %v", rung, got, want)
		}
	}
}

func TestALeaseOfOursWithoutATimeCountsFromTheRemediation(t *testing.T) {
	lease, step := leaseOf(us, 6*time.Minute, 0, 0), term{length: 5 * time.Minute, overdue: 15 * time.Minute}
	lease.Spec.AcquireTime = nil
	if got, _ := leaseStep(lease, us, step, epoch.Add(-901*time.Second), epoch); got != dropLease {
		t.Errorf("got %v, want it to be given back", got)
	}
}

func TestARenewedLeaseIsRenewedAgainAfterHalfItsTerm(t *testing.T) {
	got, again := leaseStep(leaseOf(us, 11*time.Minute, 6*time.Minute, 6*time.Minute), us, term{length: classicLease}, epoch, epoch)
	if want := epoch.Add(classicLease / 2); got != renewLease || !again.Equal(want) {
		t.Errorf("got %v and again at %s, want it renewed and again at %s", got, again, want)
	}
}

func TestALeaseGoesWithItsNode(t *testing.T) {
	owner := func(kind, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "n", UID: types.UID(uid)}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new"}}
	for name, tc := range map[string]struct {
		node        *corev1.Node
		given, want []metav1.OwnerReference
	}{
		"a lease without owner":          {n, nil, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease of an older node":       {n, []metav1.OwnerReference{owner("Node", "old")}, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease with another owner":     {n, []metav1.OwnerReference{owner("Pod", "x")}, []metav1.OwnerReference{owner("Pod", "x"), owner("Node", "new")}},
		"a lease of this node":           {n, []metav1.OwnerReference{owner("Node", "new")}, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease of a node that is gone": {nil, []metav1.OwnerReference{owner("Node", "old")}, []metav1.OwnerReference{owner("Node", "old")}},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tc.given}}
		belongsTo(lease, tc.node)
		if diff := cmp.Diff(tc.want, lease.OwnerReferences); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
