package fence

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

var anyTaint = rapid.Custom(func(t *rapid.T) corev1.Taint {
	return corev1.Taint{
		Key:    rapid.SampledFrom([]string{infrav1.OutOfServiceTaintKey, "other"}).Draw(t, "key"),
		Value:  rapid.SampledFrom([]string{infrav1.OutOfServiceTaintValue, "", "else"}).Draw(t, "value"),
		Effect: rapid.SampledFrom([]corev1.TaintEffect{"NoExecute", "NoSchedule", "PreferNoSchedule"}).Draw(t, "effect"),
	}
})

// anyNode has taints as an API server admits them: one for each key and effect.
var anyNode = rapid.Custom(func(t *rapid.T) *corev1.Node {
	n := node()
	n.Spec.Taints = rapid.SliceOfNDistinct(anyTaint, 0, 5, func(taint corev1.Taint) string {
		return taint.Key + string(taint.Effect)
	}).Draw(t, "taints")
	if mark := anyMark.Draw(t, "mark"); mark != "" {
		marked(mark)(n)
	}
	return n
})

var anyMark = rapid.SampledFrom([]types.UID{"", "us", "us-before-the-move", "them"})

// Whatever two remediations do to a node, in whatever order, in the end it has the taints of others that it had, and none of theirs.
func TestTwoRemediationsLeaveANodeAsItWas(t *testing.T) {
	them := Owner{UID: "them"}
	rapid.Check(t, func(t *rapid.T) {
		n := anyNode.Draw(t, "node")
		delete(n.Annotations, FencedByAnnotation)
		foreign := slices.Clone(n.Spec.Taints)
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 3)).Draw(t, "steps") {
			by := []Owner{us, them}[step%2]
			if step < 2 {
				putOutOfService(n, by)
			} else {
				putBackInService(n, by)
			}
			if step < 2 && outOfService(n) == nil {
				t.Fatal("fenced, and yet in service")
			}
		}
		putBackInService(n, us)
		putBackInService(n, them)
		if !slices.Equal(foreign, n.Spec.Taints) {
			t.Fatalf("there were %v, there are %v", foreign, n.Spec.Taints)
		}
		if mark, has := n.Annotations[FencedByAnnotation]; has {
			t.Fatalf("the mark of %s is left", mark)
		}
	})
}
