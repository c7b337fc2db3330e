package simulate

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// Limits are the names that --set knows.
var Limits = []string{"maxUnhealthy", "minHealthy", "unhealthyInRange", "maxInFlight"}

// CheckLimit says what is wrong with a value of --set, which is NAME=VALUE.
func CheckLimit(text string) error {
	name, value, _ := strings.Cut(text, "=")
	var err error
	switch name {
	case "unhealthyInRange":
		_, err = budget.ParseRange(value)
	case "maxUnhealthy", "minHealthy", "maxInFlight":
		_, err = budget.ParseAmount(value)
	default:
		return fmt.Errorf("--set %s: expected NAME=VALUE, where NAME is one of %s", text, strings.Join(Limits, ", "))
	}
	if err != nil {
		return fmt.Errorf("--set %s: %w", text, err)
	}
	return nil
}

// setLimits gives the checks that the question is about the limits of --set. Each has to be one that a check can have.
func (s *simulation) setLimits() error {
	for _, text := range s.Set {
		name, value, _ := strings.Cut(text, "=")
		set := false
		for _, check := range snapshot.All[clusterv1.MachineHealthCheck](s.snapshot, "") {
			changed := check.DeepCopy()
			if s.simulates(check) && s.concerns(refOf(machineCheckKind, check)) && limitMachines(changed, name, value) {
				set = true
				_ = s.snapshot.Add(changed) // checks are known by their types
			}
		}
		for _, check := range snapshot.All[nhcv1.NodeHealthCheck](s.snapshot, "") {
			changed := check.DeepCopy()
			if s.simulatesNodes(check) && s.concerns(refOf(nodeCheckKind, check)) && limitNodes(&changed.Spec, name, value) {
				set = true
				_ = s.snapshot.Add(changed)
			}
		}
		if !set {
			return fmt.Errorf("--set %s: none of the checks that are simulated can have that limit", text)
		}
	}
	return nil
}

// limitMachines gives a check a limit, in place of the one that excludes it; false if a check of its kind has none of that name.
func limitMachines(check *clusterv1.MachineHealthCheck, name, value string) bool {
	trigger, amount := &check.Spec.Remediation.TriggerIf, intstr.Parse(value)
	switch name {
	case "maxUnhealthy":
		trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = &amount, ""
	case "unhealthyInRange":
		trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = nil, value
	case "maxInFlight":
		metav1.SetMetaDataAnnotation(&check.ObjectMeta, mendv1.MaxInFlightAnnotation, value)
	default:
		return false
	}
	return true
}

// limitNodes is the same of a NodeHealthCheck.
func limitNodes(spec *nhcv1.NodeHealthCheckSpec, name, value string) bool {
	amount := intstr.Parse(value)
	switch name {
	case "maxUnhealthy":
		spec.MaxUnhealthy, spec.MinHealthy = &amount, nil
	case "minHealthy":
		spec.MaxUnhealthy, spec.MinHealthy = nil, &amount
	default:
		return false
	}
	return true
}
