package machinehealthcheck

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

var modes = map[mode]machines.Mode{
	ignoring: machines.Ignored, orphaned: machines.NoCluster, paused: machines.Paused, observing: machines.Observed, acting: machines.Active,
}

// about is what sentences about the check name.
func (w *observed) about(invalid *InvalidField) machines.About {
	is := machines.About{
		Namespace: w.check.Namespace, Name: w.check.Name, Cluster: w.check.Spec.ClusterName, Mode: modes[w.mode], Idle: w.cluster.UID == "",
		Deleting: !w.check.DeletionTimestamp.IsZero(), ClusterDeleting: !w.cluster.DeletionTimestamp.IsZero(), ClusterPaused: clusterPaused(w.cluster),
		WatchFilter: w.filtered,
		Spelled:     machines.Spelled{MaxUnhealthy: mostUnhealthy(w.check), Range: w.check.Spec.Remediation.TriggerIf.UnhealthyInRange},
		Reach:       report(&w.reach),
	}
	if value, annotated := w.check.Annotations[clusterv1.PausedAnnotation]; annotated && !claimed(w.check) {
		is.PausedBy = &value
	}
	if value, set := w.check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		is.Spelled.InFlight = &value
	}
	if value, set := w.check.Annotations[mendv1.StormCooldownAnnotation]; set {
		is.Spelled.Cooldown = &value
	}
	if invalid != nil {
		is.InvalidField, is.InvalidWhy = invalid.Field, invalid.Err.Error()
	}
	is.Allowed = ptr.Deref(reportOf(w.check, clusterv1.MachineHealthCheckRemediationAllowedCondition), machines.Report{})
	is.Template = ptr.Deref(reportOf(w.check, mendv1.RemediationTemplateAvailable), machines.Report{})
	for _, err := range w.trouble {
		is.Trouble = append(is.Trouble, err.Error())
	}
	return is
}

// reportOf is the condition of that type; nil if there is none.
func reportOf(obj conditions.Getter, kind string) *machines.Report {
	c := conditionOf(obj, kind)
	if c == nil {
		return nil
	}
	is := report(c)
	return &is
}

func report(c *metav1.Condition) machines.Report {
	return machines.Report{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
}

// leftAloneBy are the annotations by which the user of m wants it left alone. (Cluster API: such a machine is no target, and not counted.)
func leftAloneBy(m *clusterv1.Machine) []string {
	var by []string
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, annotated := m.Annotations[annotation]; annotated {
			by = append(by, annotation)
		}
	}
	return by
}
