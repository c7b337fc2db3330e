package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func leaseOf(holder string, length, acquired, renewed time.Duration) *coordinationv1.Lease {
	at := func(ago time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(epoch.Add(-ago))) }
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(length / time.Second)), AcquireTime: at(acquired), RenewTime: at(renewed),
	}}
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
		must.Equal(t, tc.want, lease.OwnerReferences, "%s", name)
	}
}
