package hosts

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestANodeIsReleasedWhoseMachineNothingNamesAnyMore(t *testing.T) {
	bothKinds(t, settings{nodeCheck: true, box: stuck}, func(t *testing.T, e *environment) {
		e.comesTo(func(e *environment) bool { return fencedByUs(e.node()) })
		e.vanish(e.management, e.machine())
		// So the garbage collector does it, of an object with another owner.
		edit(e, e.management, e.remediation(), false, func(rem client.Object) {
			rem.SetOwnerReferences(rem.GetOwnerReferences()[:1])
		})
		killed(e)
		e.ends("Ended")
		e.reports(map[string]string{nhcv1.ProcessingCondition: "False/Ended", nhcv1.SucceededCondition: "False/Ended"})
		equal(t, "whether the host is on", e.box.model.Powered(), true)
	})
}
