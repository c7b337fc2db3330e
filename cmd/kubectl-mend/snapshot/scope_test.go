package snapshot

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAScopeIsKeptTo(t *testing.T) {
	from := aManagementCluster(t, map[string]*rest.Config{"c1": workloadOf(t), "c2": workloadOf(t)})
	if err := from.Add(aMachine("elsewhere", func(m *clusterv1.Machine) { m.Namespace = "other" })); err != nil {
		t.Fatal(err)
	}
	w := readAll(t, from, Scope{Namespace: "ns", Cluster: "c1"})
	list, clusters := &clusterv1.MachineList{}, &clusterv1.ClusterList{}
	if err := errors.Join(w.ReadOnly().List(t.Context(), list), w.ReadOnly().List(t.Context(), clusters)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "m" || len(clusters.Items) != 1 || len(w.Workloads()) != 0 {
		t.Errorf("%d machines, %d clusters, %v seen", len(list.Items), len(clusters.Items), w.Workloads())
	}
	if err := w.ReadOnly().Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "m"}, &clusterv1.Machine{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("what is out of scope: %v", err)
	}
}

func TestWhereOneNodeIsLookedForOthersAreNot(t *testing.T) {
	from := aManagementCluster(t, map[string]*rest.Config{"c1": workloadOf(t), "c2": workloadOf(t)})
	for name, cluster := range map[string]string{"a": "c1", "b": "c2", "c": "c2"} {
		err := from.Add(aMachine("on-"+name, func(m *clusterv1.Machine) {
			m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel], m.Status.NodeRef.Name = cluster, cluster, name
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[string][]client.ObjectKey{"a": {key("c1")}, "b": {key("c2")}, "unknown": nil, "": {key("c1"), key("c2")}} {
		w := readAll(t, from, Scope{Namespace: "ns", Nodes: true, Node: node})
		if got := w.Workloads(); !slices.Equal(got, want) {
			t.Errorf("for node %q the nodes of %v were read, want %v", node, got, want)
		}
		if missing := w.Missing(); len(missing) > 0 {
			t.Errorf("for node %q it is said that there are missing %v", node, missing)
		}
	}
}
