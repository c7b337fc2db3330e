package controlplane

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func labelled(labels ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, label := range labels {
		node.Labels[label] = "true"
	}
	return node
}

func TestWhoIsAMember(t *testing.T) {
	const role = "node-role.kubernetes.io/"
	for name, tc := range map[string]struct {
		node   *corev1.Node
		member bool
		etcd   Etcd
	}{
		"kubeadm, Talos":                     {labelled(role + "control-plane"), true, EtcdNotLabelled},
		"kubeadm before 1.24":                {labelled(role + "master"), true, EtcdNotLabelled},
		"RKE2 and k3s, a server with etcd":   {labelled(role+"control-plane", role+"master", role+"etcd"), true, EtcdLabelled},
		"RKE2 and k3s, etcd alone":           {labelled(role + "etcd"), true, EtcdLabelled},
		"RKE2 and k3s, a server without":     {labelled(role+"control-plane", role+"master"), true, EtcdNotLabelled},
		"RKE1":                               {labelled(role + "controlplane"), true, EtcdNotLabelled},
		"Harvester's witness":                {labelled(role+"etcd", "node-role.harvesterhci.io/witness"), true, EtcdLabelled},
		"OpenShift's arbiter":                {labelled(role + "arbiter"), true, EtcdNotLabelled},
		"MicroK8s":                           {labelled("microk8s.io/cluster", "node.kubernetes.io/microk8s-controlplane"), true, EtcdNotLabelled},
		"MicroK8s, a worker":                 {labelled("microk8s.io/cluster", "node.kubernetes.io/microk8s-worker"), false, EtcdNotLabelled},
		"a worker":                           {labelled(role + "worker"), false, EtcdNotLabelled},
		"a node that was not seen":           {nil, false, EtcdUnknown},
		"compact: control plane and worker":  {labelled(role+"control-plane", role+"worker"), true, EtcdNotLabelled},
		"infrastructure, ingress and others": {labelled(role+"infra", "kubernetes.io/role"), false, EtcdNotLabelled},
	} {
		t.Run(name, func(t *testing.T) {
			if member, etcd := IsMember(tc.node), EtcdOf(tc.node); member != tc.member || etcd != tc.etcd {
				t.Errorf("a member: %t, etcd: %d; want %t, %d", member, etcd, tc.member, tc.etcd)
			}
		})
	}
}

func TestWhoIsInMaintenance(t *testing.T) {
	says := func(kind string, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeConditionType(kind), Status: status}}
		}
	}
	tainted := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"none":                       {func(*corev1.Node) {}, false},
		"a cordon":                   {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		"the taint of a cordon":      {tainted(corev1.TaintNodeUnschedulable), false},
		"the drain taint of medik8s": {tainted("medik8s.io/drain"), true},
		"a maintenance":              {says("MaintenanceInProgress", corev1.ConditionTrue), true},
		"a drain":                    {says("DrainInProgress", corev1.ConditionTrue), true},
		"one that is over":           {says("MaintenanceInProgress", corev1.ConditionFalse), false},
		"one that is planned":        {says("MaintenancePlanned", corev1.ConditionTrue), false},
	} {
		t.Run(name, func(t *testing.T) {
			node := labelled()
			tc.change(node)
			if got := InMaintenance(node); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestALeaseOfAnotherHolderTakesItsNode(t *testing.T) {
	lease := func(holder string, renewed time.Duration, owners ...string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &metav1.MicroTime{Time: noon.Add(renewed)},
		}}
		for i := 0; i < len(owners); i += 2 {
			l.OwnerReferences = append(l.OwnerReferences, metav1.OwnerReference{Kind: owners[i], UID: types.UID(owners[i+1])})
		}
		return l
	}
	never := lease("other", 0)
	never.Spec.RenewTime = nil
	node := labelled()
	node.UID = "new"
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		node  *corev1.Node
		want  bool
	}{
		"renewed within its minute":            {lease("other", -time.Minute+1), node, true},
		"a minute ago":                         {lease("other", -time.Minute), node, false},
		"never":                                {never, node, false},
		"by the holder that asks":              {lease("self", 0), node, false},
		"by no one":                            {lease("", 0), node, false},
		"by a clock that is half a minute off": {lease("other", 30*time.Second), node, true},
		"by one that is more off":              {lease("other", 30*time.Second+1), node, false},
		"and owned by the node":                {lease("other", 0, "Node", "old", "Node", "new"), node, true},
		"and owned by a former node":           {lease("other", 0, "Node", "old", "ConfigMap", "new"), node, false},
		"and owned by another object":          {lease("other", 0, "ConfigMap", "old"), node, true},
		"of a node that is gone":               {lease("other", 0, "Node", "old"), nil, true},
	} {
		if got := Leased(tc.lease, tc.node, "self", noon); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
