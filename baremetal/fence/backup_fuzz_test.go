package fence

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A tenant who may write a remediation can write its backup. What a node has is not changed by one, what says where it may run is not added, and what is
// kept of a node is the same after it was read and written.
func FuzzBackup(f *testing.F) {
	f.Add(`{"a":"1"}`, `{"topology":"x"}`, `{"taints":[{"key":"k","effect":"NoSchedule"}],"unschedulable":true}`)
	f.Add("", "", "")
	f.Add(`{"kubemend.io/fenced-by":"me","has":"other"}`, `{"node-role.kubernetes.io/control-plane":"","node-restriction.kubernetes.io/a":"b"}`, `{}`)
	f.Add("null", `{"has":"other"}`, `{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"},{"key":"has","value":"other","effect":"NoSchedule"}]}`)
	f.Add("[]", "7", "{")
	f.Fuzz(func(t *testing.T, annotations, labels, spec string) {
		kept, err := Backup{Annotations: annotations, Labels: labels, Spec: spec}.parse()
		if err != nil {
			if !kept.empty() {
				t.Errorf("what could not be read keeps %+v", kept)
			}
			return
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"has": "it"}, Labels: map[string]string{"has": "it"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "has", Value: "it", Effect: corev1.TaintEffectNoSchedule}}},
		}
		kept.giveBack(node)
		if node.Annotations["has"] != "it" || node.Labels["has"] != "it" || node.Spec.Taints[0].Value != "it" {
			t.Errorf("what the node had was changed: %+v", node)
		}
		if _, fenced := node.Annotations[FencedByAnnotation]; fenced {
			t.Error("the node says that it is fenced")
		}
		for key := range node.Labels {
			if hasPrefix(key, protected) {
				t.Errorf("the node got the label %s", key)
			}
		}
		for _, taint := range node.Spec.Taints {
			if hasPrefix(taint.Key, lifecycleTaints) {
				t.Errorf("the node got the taint %s", taint.Key)
			}
		}
		once := node.DeepCopy()
		kept.giveBack(node)
		if diff := cmp.Diff(once, node); diff != "" {
			t.Errorf("given back twice, it is another node (-once +twice):\n%s", diff)
		}
		written, err := kept.format()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		read, err := written.parse()
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if again, err := read.format(); err != nil || again != written {
			t.Errorf("written again it is %+v, %v; want %+v", again, err, written)
		}
	})
}
