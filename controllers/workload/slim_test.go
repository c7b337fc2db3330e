package workload

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

var noon = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{ProviderID: "metal3://n", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "t"}}},
		Status: corev1.NodeStatus{
			Images: []corev1.ContainerImage{{Names: []string{"image"}}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastTransitionTime: noon, LastHeartbeatTime: noon,
			}},
		},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

func slimmed(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	slim, err := SlimNode(n)
	if err != nil {
		t.Fatal(err)
	}
	return slim.(*corev1.Node)
}

func TestASlimNodeSaysWhoHasFencedIt(t *testing.T) {
	n := node(func(n *corev1.Node) { n.Annotations = map[string]string{"kubemend.io/fenced-by": "uid", "note": "x"} })
	if diff := cmp.Diff(map[string]string{"kubemend.io/fenced-by": "uid"}, slimmed(t, n).Annotations); diff != "" {
		t.Errorf("its annotations (-want +got):\n%s", diff)
	}
}

func TestASlimNodeSaysItsZoneAndNoOtherLabel(t *testing.T) {
	n := node(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "row-3" })
	if diff := cmp.Diff(map[string]string{corev1.LabelTopologyZone: "row-3"}, slimmed(t, n).Labels); diff != "" {
		t.Errorf("its labels (-want +got):\n%s", diff)
	}
	if labels := slimmed(t, node()).Labels; labels != nil {
		t.Errorf("without a zone it has the labels %v", labels)
	}
}

func TestASlimNodeIsSmallWhateverItsKubeletMakesUp(t *testing.T) {
	const long = 1 << 20
	text := strings.Repeat("x", long)
	n := slimmed(t, node(func(n *corev1.Node) {
		n.Spec.ProviderID, n.Status.NodeInfo.BootID = text, text
		n.Annotations = map[string]string{"kubemend.io/fenced-by": text}
		n.Labels[corev1.LabelTopologyZone] = text
		n.Status.Conditions[0].Reason = text
		for i := range 10_000 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(strconv.Itoa(i))})
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: strconv.Itoa(i), Value: text})
		}
	}))
	size, err := n.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if len(size) > 16<<10 {
		t.Errorf("%d bytes are kept of it", len(size))
	}
	if c := n.Status.Conditions[0]; c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}

func TestASlimNodeHoldsWhatIsJudgedAndFenced(t *testing.T) {
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"},
		Spec:       corev1.NodeSpec{ProviderID: "metal3://n", Taints: []corev1.Taint{{Key: "t"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: noon,
		}}},
	}
	if diff := cmp.Diff(want, slimmed(t, node())); diff != "" {
		t.Errorf("SlimNode() (-want +got):\n%s", diff)
	}
}

func TestNodeChanges(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Minute))
	cases := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"W11: a heartbeat is none": {func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime, n.ResourceVersion = later, "2"
		}, false},
		"a new message is none": {func(n *corev1.Node) { n.Status.Conditions[0].Message = "still well" }, false},
		"a label is none":       {func(n *corev1.Node) { n.Labels["a"] = "c" }, false},
		"a status is one":       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"a reason is one":       {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "KubeletNotReady" }, true},
		"a transition is one":   {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = later }, true},
		"one more condition is one": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "X"})
		}, true},
		"another node of the name": {func(n *corev1.Node) { n.UID = "v" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: slimmed(t, node()), ObjectNew: slimmed(t, node(tc.change))}
			if got := NodeChanges().Update(e); got != tc.want {
				t.Errorf("passes: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestOnlyKubeconfigsAreKept(t *testing.T) {
	for name, kept := range map[string]bool{"c1-kubeconfig": true, "c1-ca": false} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": []byte("x")}}
		if _, err := SlimSecret(s); err != nil || (len(s.Data) > 0) != kept {
			t.Errorf("%s keeps its data: %t, want %t (%v)", name, len(s.Data) > 0, kept, err)
		}
	}
}
