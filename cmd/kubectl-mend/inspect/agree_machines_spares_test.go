package inspect

import (
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

func waitsForSpare(reason string) bool {
	return reason == mendv1.NoSpareHostReason || reason == mendv1.SpareHostsUnreadReason
}

// waitsForSpares reports whether machines of a check wait for spare hosts.
func (s *machineScene) waitsForSpares(said *explain.Check) bool {
	return slices.ContainsFunc(s.checks, func(c *clusterv1.MachineHealthCheck) bool {
		return c.Name == said.Name && c.Annotations[mendv1.WaitForSpareAnnotation] == "true"
	})
}

// spareBlocker is that a machine waits for a spare host; nil if it does not.
func spareBlocker(t *explain.Target) *explain.Blocker {
	for i := range t.Blockers {
		if waitsForSpare(t.Blockers[i].Reason) {
			return &t.Blockers[i]
		}
	}
	return nil
}

// compareSpare compares what a machine is said to wait for with what it says after the pass.
func (p *machinePlay) compareSpare(t *explain.Target, is *clusterv1.Machine) {
	p.Helper()
	c, waits := conditions.Get(is, mendv1.SpareHostAvailable), spareBlocker(t)
	switch {
	case waits == nil && c != nil && t.State == health.Healthy:
		p.Errorf("%s is said to be healthy, and the pass says %+v", t.Name, c)
	case waits == nil && c != nil && len(t.Blockers) == 0:
		p.Errorf("%s is said to wait for nothing, and the pass says %+v", t.Name, c)
	case waits != nil && (c == nil || c.Status != metav1.ConditionFalse || c.Reason != waits.Reason || !strings.HasPrefix(c.Message, waits.Text+". ")):
		p.Errorf("%s is said to be blocked by %+v, and the pass says %+v", t.Name, waits, c)
	}
}

var hostKind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// randomSpares puts machines on hosts, adds hosts that are spare or are not, and has checks wait for them.
func (s *machineScene) randomSpares(t *rapid.T) {
	for _, c := range s.checks {
		if does := pick(t, "waits for spares", "", "true", "true", "true", "false", "perhaps"); does != "" {
			c.Annotations[mendv1.WaitForSpareAnnotation] = does
		}
		if long := pick(t, "at most", "", "5m", "10m", "10m", "1h", "never"); long != "" {
			c.Annotations[mendv1.WaitForSpareTimeoutAnnotation] = long
		}
	}
	for _, m := range s.machines {
		if !odds(t, "elsewhere", 5) {
			s.randomMetal(t, m)
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "hosts") {
		s.others = append(s.others, randomHost(t, fmt.Sprintf("spare-%d", i)))
	}
}

// randomMetal puts a machine on bare metal: mostly it has a host.
func (s *machineScene) randomMetal(t *rapid.T, m *clusterv1.Machine) {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "metal-" + m.Name}
	if !odds(t, "missing Metal3Machine", 15) {
		s.others = append(s.others, aMetal3Machine(m, pick[any](t, "asks for", nil, nil, map[string]any{"matchLabels": map[string]any{"row": "a"}},
			map[string]any{"matchLabels": map[string]any{"row": "b"}},
			map[string]any{"matchExpressions": []any{map[string]any{"key": "row", "operator": "Exists"}}},
			map[string]any{"matchExpressions": []any{map[string]any{"key": "row", "operator": "Resembles"}}})))
	}
	if !odds(t, "without host", 8) {
		s.others = append(s.others, occupied(aHost("host-"+m.Name), m))
	}
	if odds(t, "waited", 4) {
		say(m, mendv1.SpareHostAvailable, metav1.ConditionFalse, pick(t, "for", mendv1.NoSpareHostReason, mendv1.SpareHostsUnreadReason), ago(t, "waited"))
	}
}

// randomHost is one that most machines could take, or none.
func randomHost(t *rapid.T, name string) *bmov1alpha1.BareMetalHost {
	h := aHost(name)
	if row := pick(t, "row", "", "a", "a", "b"); row != "" {
		h.Labels = map[string]string{"row": row}
	}
	switch pick(t, "host", "", "", "", "", "", "ready", "preparing", "paused", "in error", "detached", "unhealthy", "somebody's", "reused", "being deleted") {
	case "ready":
		h.Status.Provisioning.State = bmov1alpha1.StateReady
	case "preparing":
		h.Status.Provisioning.State = bmov1alpha1.StatePreparing
	case "paused":
		h.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
	case "in error":
		h.Status.ErrorMessage = "the BMC does not answer"
	case "detached":
		h.Status.OperationalStatus = bmov1alpha1.OperationalStatusDetached
	case "unhealthy":
		h.Annotations = map[string]string{infrav1.UnhealthyAnnotation: ""}
	case "somebody's":
		h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "rented"}
	case "reused":
		h.Labels = map[string]string{host.NodeReuseLabel: "md-elsewhere"}
	case "being deleted":
		leaving(h)
	}
	return h
}

// aHost is a host that is available.
func aHost(name string) *bmov1alpha1.BareMetalHost {
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}}
	h.SetGroupVersionKind(hostKind)
	h.Status.Provisioning.State = bmov1alpha1.StateAvailable
	return h
}

// occupied gives a host to a machine.
func occupied(h *bmov1alpha1.BareMetalHost, m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	h.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "ns", Name: m.Spec.InfrastructureRef.Name,
	}
	h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	return h
}

// aMetal3Machine is that of a machine, which asks for such a host; for any if selector is nil.
func aMetal3Machine(m *clusterv1.Machine, selector any) *unstructured.Unstructured {
	spec := map[string]any{}
	if selector != nil {
		spec["hostSelector"] = selector
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
	u.SetNamespace("ns")
	u.SetName(m.Spec.InfrastructureRef.Name)
	return u
}
