package nodehealthcheck

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"

	"github.com/kubemend/kubemend/controllers/decide/nodes"
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
		w := &observed{facts: nodes.Facts{Now: epoch, ControlPlane: &nodes.ControlPlane{}}}
		for _, name := range []string{"a", "b", "c"}[:members] {
			w.facts.ControlPlane.Nodes = append(w.facts.ControlPlane.Nodes, nodes.Member{Name: name})
		}
		k.r.observeServers(t.Context(), w)
		if got := controlplane.Servers(w.facts.ControlPlane.Renewed, epoch)["a"]; got != want {
			t.Errorf("of %d members the first one is %v, want %v", members, got, want)
		}
	}
}
