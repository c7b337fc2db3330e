package hosts

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/partners/bmo"
)

// processing fails the test unless the remediation says so of itself as a whole.
func (e *environment) processing(processing, succeeded, why string) {
	e.t.Helper()
	e.reports(map[string]string{nhcv1.ProcessingCondition: processing + "/" + why, nhcv1.SucceededCondition: succeeded + "/" + why})
}

func TestANodeHealthCheckHearsHowItsRemediationStands(t *testing.T) {
	bothKinds(t, settings{nodeCheck: true, box: stuck}, func(t *testing.T, e *environment) {
		e.stands("MovingWorkload")
		e.processing("True", "Unknown", "WorkloadMoving")
		e.evict()
		e.detach()
		e.ends("Succeeded")
		e.processing("False", "True", "MachineHealthy")
		e.power(bmo.Off, bmo.On)
		stopped(e)
		e.until(time.Hour)
		equal(t, "the state, once it is stopped after its end,", e.memory(), "Succeeded")
		e.processing("False", "True", "MachineHealthy")
		e.goneOnceDeleted()
	})
}

func TestARemediationThatIsStoppedBeforeItsHostWasAskedDoesNotTouchIt(t *testing.T) {
	as := standstills[0].settings
	as.nodeCheck = true
	for name, seen := range map[string]bool{"before it was seen": false, "while its host is not ready": true} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, as, func(t *testing.T, e *environment) {
				asked := e.sees(sight{"the host is asked", func() bool { return held(e.host()) }})
				if seen {
					e.stands("Preparing")
					e.until(time.Second)
					e.processing("True", "Unknown", "HostNotReady")
				}
				stopped(e)
				e.ends("Stopped")
				standstills[0].resume(e)
				e.until(time.Hour)
				e.power()
				e.went(*asked)
				e.processing("False", "False", "TimedOutByCheck")
				equal(t, "the phase", e.says().Phase, "Failed")
				e.tells("The health check that asked for the remediation has timed it out")
			})
		})
	}
}

func TestANodeHealthChecksRemediationInVainAsksTheOwnerAndTakesThatBackOnceTheNodeIsHealthy(t *testing.T) {
	bothKinds(t, settings{nodeCheck: true, box: mute(-1)}, func(t *testing.T, e *environment) {
		e.ends("OwnerRequested")
		e.processing("False", "False", "OwnerRequested")
		e.marked(true)
		e.ownerIsAsked()
		e.box.start()
		e.until(time.Minute)
		e.processing("False", "True", "MachineHealthy")
		e.marked(false)
		for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
			equal(t, "whether the machine has "+kind, conditions.Has(e.machine(), kind), false)
		}
	})
}

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
		e.processing("False", "False", "Ended")
		equal(t, "whether the host is on", e.box.model.Powered(), true)
	})
}
