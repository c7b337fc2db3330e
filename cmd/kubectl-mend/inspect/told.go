package inspect

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
)

// told judges a target whose node the reader may not see by what the manager wrote on the Machine: the condition kubemend.io/Remediation, which is
// there while the machine is not healthy, or HealthCheckSucceeded=True. It reports whether there is either.
func (a *Asker) told(target *explain.Target) bool {
	machine := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: target.Namespace, Name: target.Name})
	if machine == nil {
		return false
	}
	cond := conditions.Get(machine, mendv1.Remediation)
	if cond == nil {
		if !conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) {
			return false
		}
		target.Told = conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition)
		target.State, target.Class, target.Blockers, target.Next = cliv1.StateHealthy, budget.Healthy, nil, explain.Step{}
		return true
	}
	target.Told, target.State, target.Class, target.Blockers = cond, cliv1.StateUnhealthy, budget.Unhealthy, nil
	said := explain.Blocker{Reason: cond.Reason, Text: strings.Join(strings.Fields(strings.TrimPrefix(cond.Message, "* ")), " ")}
	switch {
	case cond.Status == metav1.ConditionTrue && target.InFlight: // it is known by whom
	case cond.Status == metav1.ConditionTrue:
		target.InFlight, target.InFlightSince = true, &cond.LastTransitionTime
		target.Next = explain.Step{Reason: cond.Reason, Text: said.Text}
	case cond.Reason == explain.WithinTimeout:
		target.State, target.Class, target.Next = cliv1.StatePending, budget.Pending, explain.Step{Reason: cond.Reason, Text: said.Text}
	default:
		target.Blockers, target.Next = []explain.Blocker{said}, explain.NothingUntil(said)
	}
	return true
}
