package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
