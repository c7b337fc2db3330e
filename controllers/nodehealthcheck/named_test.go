package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// watches are the kinds of requests that are watched.
func (k *fixture) watches(want ...string) {
	k.t.Helper()
	got := make([]string, 0, len(want))
	for _, kind := range slices.DeleteFunc(k.r.Kinds.InUse(), func(kind schema.GroupVersionKind) bool { return kind.Group != remediatorGroup }) {
		got = append(got, kind.Kind)
	}
	if !slices.Equal(got, want) {
		k.t.Fatalf("%v are watched, want %v", got, want)
	}
}

func TestAKindThatNoCheckNamesAnyMoreIsWatchedUntilItsLastRequestIsGone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false), check("nhc"))...)
	badB(k)
	k.watches("Reboot")

	named := k.check("nhc")
	ref := refTo("Replace", "replace")
	named.Spec.RemediationTemplate = &ref
	if err := k.client.Update(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	k.settle("nhc")
	k.watches("Reboot", "Replace")

	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.settle("nhc")
	k.wants("the node is healthy")
	k.settle("nhc")
	k.watches("Replace")

	k.remove(&nhcv1.NodeHealthCheck{ObjectMeta: named.ObjectMeta})
	k.settle("nhc")
	k.watches()
}
