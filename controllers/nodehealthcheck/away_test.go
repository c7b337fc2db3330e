package nodehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// ten is a check of ten nodes, of which four may be away, with a remediator that replaces machines.
func ten(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, append(workers("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"), template("Replace", "replace", false),
		check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) }))...)
}

// redate has an object that is being deleted say since when by the clock of the test.
func (k *fixture) redate(obj client.Object) {
	if at, known := k.deleted.Load(obj.GetUID()); known && obj.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(at.(time.Time))))
	}
}
