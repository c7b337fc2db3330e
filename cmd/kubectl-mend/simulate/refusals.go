package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
)

// leastStartup is how short a start-up timeout may be. (Cluster API, webhook of MachineHealthChecks.)
const leastStartup = 30

// machineCheckRefusals are why Cluster API's schema or webhook would not let a check in, as far as kubemend knows the rule; was is the one that
// it replaces, or empty.
func machineCheckRefusals(is, was *clusterv1.MachineHealthCheck) []error {
	var why []error
	against := func(ok bool, reason string, args ...any) {
		if !ok {
			why = append(why, fmt.Errorf(reason, args...))
		}
	}
	spec := &is.Spec
	against(spec.ClusterName != "", "spec.clusterName is missing")
	against(was.Spec.ClusterName == "" || was.Spec.ClusterName == spec.ClusterName, "spec.clusterName is immutable: it is %s", was.Spec.ClusterName)
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	against(err == nil, "spec.selector: %v", err)
	against(err != nil || !selector.Empty(), "spec.selector must not be empty")
	if cluster, selects := spec.Selector.MatchLabels[clusterv1.ClusterNameLabel]; selects {
		against(cluster == spec.ClusterName, "spec.selector selects another cluster, %s, than spec.clusterName", cluster)
	}
	if s := spec.Checks.NodeStartupTimeoutSeconds; s != nil {
		against(*s == 0 || *s >= leastStartup, "spec.checks.nodeStartupTimeoutSeconds: %d is neither 0 nor at least %d", *s, leastStartup)
	}
	trigger := spec.Remediation.TriggerIf
	if within := trigger.UnhealthyInRange; within != "" {
		_, err := budget.ParseRange(within)
		against(err == nil, "spec.remediation.triggerIf.unhealthyInRange: %v", err)
	}
	if limit := trigger.UnhealthyLessThanOrEqualTo; limit != nil {
		_, err := budget.ParseAmount(limit.String())
		against(err == nil, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: %v", err)
	}
	if inFlight, set := is.Annotations[mendv1.MaxInFlightAnnotation]; set {
		_, err := budget.ParseAmount(inFlight)
		against(err == nil, "metadata.annotations[%s]: %v, so that kubemend would begin nothing", mendv1.MaxInFlightAnnotation, err)
	}
	_, wrong := machinehealthcheck.CooldownOf(is)
	against(wrong == nil, "%v, so that kubemend would begin nothing", wrong)
	_, wrong = machinehealthcheck.SpareWaitOf(is)
	against(wrong == nil, "%v, so that kubemend would begin nothing", wrong)
	return why
}

// leastTimeout is how short a step of a ladder may be. (The schema of NodeHealthCheck.)
const leastTimeout = time.Minute

// nodeCheckRefusals are why the schema or the webhook of NodeHealthChecks would not let a check in, and what the webhook would warn of.
func nodeCheckRefusals(ctx context.Context, w *snapshot.Snapshot, is, was *nhcv1.NodeHealthCheck) (why []error, warnings []string) {
	spec := &is.Spec
	ladder := spec.EscalatingRemediations
	switch {
	case spec.RemediationTemplate == nil && len(ladder) == 0:
		why = append(why, errors.New("either spec.remediationTemplate or at least one of spec.escalatingRemediations must be set"))
	case spec.RemediationTemplate != nil && len(ladder) > 0:
		why = append(why, errors.New("spec.remediationTemplate and spec.escalatingRemediations are mutually exclusive"))
	}
	orders := map[int]bool{}
	for i := range ladder {
		if orders[ladder[i].Order] {
			why = append(why, fmt.Errorf("spec.escalatingRemediations: more than one has the order %d", ladder[i].Order))
		}
		orders[ladder[i].Order] = true
		if t := ladder[i].Timeout.Duration; t < leastTimeout {
			why = append(why, fmt.Errorf("spec.escalatingRemediations[%d].timeout: %s is less than %s", i, t, explain.Brief(leastTimeout)))
		}
	}
	text := func(limit *intstr.IntOrString) string {
		if limit == nil {
			return ""
		}
		return limit.String()
	}
	if spec.MinHealthy != nil && spec.MaxUnhealthy != nil {
		why = append(why, errors.New("spec.minHealthy and spec.maxUnhealthy cannot be specified at the same time"))
	} else if _, err := budget.NodeLimits(text(spec.MinHealthy), text(spec.MaxUnhealthy), 1); err != nil {
		why = append(why, err)
	}
	webhook := admission.NodeHealthCheck{Live: w.ReadOnly()}
	var err error
	if was.UID != "" {
		warnings, err = webhook.ValidateUpdate(ctx, was, is)
	} else {
		warnings, err = webhook.ValidateCreate(ctx, is)
	}
	if err != nil {
		why = append(why, err)
	}
	return why, warnings
}
