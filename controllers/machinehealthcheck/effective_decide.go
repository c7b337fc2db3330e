package machinehealthcheck

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:depguard,staticcheck // users may still apply it
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// selectsWithin is how long after a check its Machines, or what makes them, may be created.
const selectsWithin = 10 * time.Minute

// effective is the condition Effective, which a check has while it, or one of its rules, can never act as it is written: nothing else would
// ever show that.
func effective(facts *Facts) metav1.Condition {
	var reasons, lines []string
	flaw := func(reason, text string) {
		reasons, lines = append(reasons, reason), append(lines, text)
	}
	if dropped := droppedField(facts.Check); dropped != "" {
		flaw(mendv1.FieldDroppedReason, dropped)
	}
	for i, rule := range facts.Check.Spec.Checks.UnhealthyNodeConditions {
		switch rule.Status {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			flaw(mendv1.NoSuchStatusReason, fmt.Sprintf("spec.checks.unhealthyNodeConditions[%d] is never met: "+
				"no condition has the status %q, but True, False or Unknown", i, rule.Status))
		}
	}
	if len(facts.Policy.Rules) == 0 && facts.Policy.NodeStartup == 0 {
		flaw(mendv1.NoRulesReason, "The check has no rule, and spec.checks.nodeStartupTimeoutSeconds is 0: "+
			"only a machine whose node is deleted, whose provider says that it has failed, or that a person marks is remediated")
	}
	if facts.SelectsNothing && facts.Initialized() && facts.Now.Sub(facts.Check.CreationTimestamp.Time) >= selectsWithin {
		flaw(mendv1.SelectsNothingReason, "spec.selector matches no Machine of Cluster "+facts.Check.Spec.ClusterName+
			", and the labels of no template of a MachineDeployment or MachineSet: labels of Nodes are not those of Machines")
	}
	switch len(lines) {
	case 0:
		return metav1.Condition{Type: mendv1.Effective}
	case 1:
		return condition(mendv1.Effective, metav1.ConditionFalse, reasons[0], lines[0])
	}
	return condition(mendv1.Effective, metav1.ConditionFalse, reasons[0], "* "+strings.Join(lines, "\n* "))
}

// droppedField says which field of spec a user has applied and the API server has dropped, such as one of another version; empty if none
// is known: kubectl keeps what it applied in an annotation. The API server minds the case of a field.
func droppedField(check *clusterv1.MachineHealthCheck) string {
	var kept struct {
		APIVersion string          `json:"apiVersion"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal([]byte(check.Annotations[corev1.LastAppliedConfigAnnotation]), &kept); err != nil {
		return ""
	}
	var spec any
	switch kept.APIVersion {
	case clusterv1.GroupVersion.String():
		spec = &clusterv1.MachineHealthCheckSpec{}
	case clusterv1beta1.GroupVersion.String():
		spec = &clusterv1beta1.MachineHealthCheckSpec{}
	default:
		return ""
	}
	dropped, _ := kjson.UnmarshalStrict(kept.Spec, spec) // what is of another type the API server has refused
	for _, err := range dropped {
		if field, unknown := strings.CutPrefix(err.Error(), "unknown field "); unknown {
			return fmt.Sprintf("The field %s, which was applied in spec, does not exist in %s: the API server has dropped it",
				health.Quoted(field), kept.APIVersion)
		}
	}
	return ""
}
