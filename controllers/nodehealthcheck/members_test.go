package nodehealthcheck

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestTheLeasesOfAPIServersSayWhichMembersLive(t *testing.T) {
	serves := func(node string, ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewMicroTime(epoch.Add(-ago))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "apiserver-" + node, Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: node,
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &at},
		}
	}
	k := newFixture(t, serves("a", time.Second), serves("b", 40*time.Second), serves("c", 2*time.Second))
	for members, want := range map[int]controlplane.Sign{1: controlplane.Unknown, 3: controlplane.Alive} {
		w := &observed{facts: Facts{Now: epoch, ControlPlane: &ControlPlane{}}}
		for _, name := range []string{"a", "b", "c"}[:members] {
			w.facts.ControlPlane.Nodes = append(w.facts.ControlPlane.Nodes, controlplane.Member{Name: name})
		}
		k.r.observeServers(t.Context(), w)
		if got := controlplane.Servers(w.facts.ControlPlane.Renewed, epoch)["a"]; got != want {
			t.Errorf("of %d members the first one is %v, want %v", members, got, want)
		}
	}
}

func TestARequestWithoutItsAnnotationIsOfTheNodeThatItIsNamedAfter(t *testing.T) {
	there := map[string]*corev1.Node{"cp-0": {}, "cp-1-bcdfg": {}}
	for name, want := range map[string]string{
		remediationrequest.UniqueName("cp-0", "check", "template"): "cp-0", // as kubemend names it
		"cp-0-x7kq2":   "cp-0",         // as metadata.generateName does
		"cp-1-bcdfg":   "cp-1-bcdfg",   // a node that is called so
		"cp-2-x7kq2":   "cp-2-x7kq2",   // the node is not there
		"cp-0-storage": "cp-0-storage", // nothing that is made up
	} {
		if got := namedAfter(&unstructured.Unstructured{Object: map[string]any{}}, name, there); got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
	annotated := &unstructured.Unstructured{Object: map[string]any{}}
	annotated.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: "cp-0-x7kq2"})
	if got := namedAfter(annotated, "cp-0-x7kq2", there); got != "cp-0-x7kq2" {
		t.Errorf("with its annotation it is of %s", got)
	}
}

// k3s and RKE2 label servers that run etcd alone by that role only; and whoever has the lease on a node may take it down at any moment.
func TestEtcdKeepsItsMajority(t *testing.T) {
	pressure := func(k *fixture, name string) {
		n := k.node(name)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: "DiskPressure", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch),
		})
		if err := k.client.Status().Update(k.t.Context(), n); err != nil {
			k.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		happens func(k *fixture)
		want    int // requests
	}{
		"one is silent and excluded, and another, Ready, is needed for the majority": {func(k *fixture) {
			k.turn("e0", corev1.ConditionUnknown)
			k.label("e0", map[string]string{nhcv1.ExcludeLabel: nhcv1.ExcludeValue})
			pressure(k, "e1")
		}, 0},
		"one is in maintenance": {func(k *fixture) {
			at, holder := metav1.NewMicroTime(epoch.Add(5*time.Minute)), "node-maintenance"
			k.create(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: k.r.LeaseNamespace, Name: leaseName("e0")},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: &at},
			})
			pressure(k, "e1")
		}, 0},
		"all of them are well but the one": {func(k *fixture) { pressure(k, "e1") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
				s.UnhealthyConditions = append(s.UnhealthyConditions, nhcv1.UnhealthyCondition{
					Type: "DiskPressure", Status: "True", Duration: metav1.Duration{Duration: time.Minute},
				})
			})
			objects := append(workers("w0", "w1", "w2", "w3", "w4"), template("Reboot", "reboot", false), c, member("c0"), member("c1"))
			for _, server := range []string{"e0", "e1", "e2"} {
				objects = append(objects, node(server, map[string]string{"node-role.kubernetes.io/etcd": "true"}))
			}
			k := newFixture(t, objects...)
			k.settle("nhc")
			tc.happens(k)
			k.after(300 * time.Second)
			k.settle("nhc")
			if got := k.requests(); len(got) != tc.want {
				t.Errorf("%d are remediated, want %d: %v; %v", len(got), tc.want, got, k.events())
			}
		})
	}
}
