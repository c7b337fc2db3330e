package simulate

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	var checks []client.Object
	for _, check := range snapshot.All[clusterv1.MachineHealthCheck](s.snapshot, "") {
		if s.simulates(check) && s.concerns(refOf(machineCheckKind, check)) {
			checks = append(checks, check.DeepCopy())
		}
	}
	for _, check := range snapshot.All[nhcv1.NodeHealthCheck](s.snapshot, "") {
		if s.simulates(check) && s.concerns(refOf(nodeCheckKind, check)) {
			checks = append(checks, check.DeepCopy())
		}
	}
	for _, text := range s.Set {
		name, value, _ := strings.Cut(text, "=")
		set := false
		for _, check := range checks {
			set = limit(check, name, value) || set
		}
		if !set {
			return fmt.Errorf("--set %s: none of the checks that are simulated can have that limit", text)
		}
	}
	return s.snapshot.Add(checks...)
}

// limit gives a check a limit, in place of the one that excludes it; false if a check of its kind has none of that name.
func limit(check client.Object, name, value string) bool {
	amount := intstr.Parse(value)
	switch check := check.(type) {
	case *clusterv1.MachineHealthCheck:
		switch trigger := &check.Spec.Remediation.TriggerIf; name {
		case "maxUnhealthy":
			trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = &amount, ""
			return true
		case "unhealthyInRange":
			trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = nil, value
			return true
		case "maxInFlight":
			metav1.SetMetaDataAnnotation(&check.ObjectMeta, mendv1.MaxInFlightAnnotation, value)
			return true
		}
	case *nhcv1.NodeHealthCheck:
		switch name {
		case "maxUnhealthy":
			check.Spec.MaxUnhealthy, check.Spec.MinHealthy = &amount, nil
			return true
		case "minHealthy":
			check.Spec.MaxUnhealthy, check.Spec.MinHealthy = nil, &amount
			return true
		}
	}
	return false
}
