package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAViewOfNodesHasThemAndNoOthers(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	view := ViewOf(node)
	if view.Link != Up || view.Node("n") != node || view.Node("m") != nil {
		t.Errorf("link %d, n is %v, m is %v; want it up, with n alone", view.Link, view.Node("n"), view.Node("m"))
	}
}
