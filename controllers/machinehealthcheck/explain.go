package machinehealthcheck

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explain returns what a reconcile of the check called key would find at now and what it would do, and does none of it; nil if there is no
// such check. The machines of a check that is paused, or that others act on, are read too. What reconciles remember of each other it does
// not know, but for what the checks that were explained before say of Machines that both select.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Check, error) {
	state, err := r.find(ctx, key, now)
	if err != nil || state == nil {
		return nil, err
	}
	if state.Explains = true; state.Cluster.UID != "" && state.SelectorErr == nil { // else there is nothing to judge
		if err := r.observe(ctx, state); err != nil {
			return nil, err
		}
	}
	plan := r.decide(ctx, state)
	r.memory.tell(key, plan.Memory.Opinions)
	return explained(state, plan), nil
}

// explained explains p, with the conditions that the check would have.
func explained(state *observed, plan *Plan) *explain.Check {
	check := MachineHealthCheck(&state.Facts, plan)
	if check.CountedByStatus {
		check.StatusChanged, check.Conditions = cliv1.Moment(StatusChanged(state.Check)), state.Check.Status.Conditions
	} else {
		check.Conditions = statusAfter(state, plan, result{}).Status.Conditions
	}
	// A reader has neither what kubectl applied nor the templates of machines: it repeats what the manager wrote of the check as it is.
	written := ConditionOf(state.Check, mendv1.Effective)
	if written != nil && written.Status == metav1.ConditionFalse && state.Check.Status.ObservedGeneration == state.Check.Generation {
		meta.SetStatusCondition(&check.Conditions, *written)
	}
	return check
}

// Unselected says why check does not select machine, as a clause that follows "because": of another cluster, or which label; empty if it
// selects it. An empty selector selects nothing. (Cluster API.)
func Unselected(check *clusterv1.MachineHealthCheck, machine *clusterv1.Machine) string {
	switch selector := check.Spec.Selector; {
	case check.Spec.ClusterName != machine.Spec.ClusterName:
		return fmt.Sprintf("it is about cluster %s, and the machine is of cluster %s", check.Spec.ClusterName, machine.Spec.ClusterName)
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		return "its spec.selector is empty, which selects nothing"
	default:
		return explain.Unmatched(selector, machine.Labels)
	}
}

// Counted are the numbers of check's targets in its status, for a reader that does not read them all; nil where the status is not about the
// check as it is, or not kept up to date: kubemend does not write it while the check is paused.
func Counted(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) *StatusCounts {
	status := &check.Status
	current := status.ObservedGeneration == check.Generation && modeFor(check, cluster, Act) == Active
	if !current || status.ExpectedMachines == nil || status.CurrentHealthy == nil {
		return nil
	}
	return &StatusCounts{Total: int(*status.ExpectedMachines), Healthy: int(*status.CurrentHealthy)}
}

// Calm reports whether the manager says in the status of check that all targets are healthy, and that nothing keeps it from seeing or
// remediating them.
func Calm(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	counted := Counted(check, cluster)
	if counted == nil || counted.Healthy != counted.Total || !check.DeletionTimestamp.IsZero() {
		return false
	}
	if template := ConditionOf(check, mendv1.RemediationTemplateAvailable); template != nil && template.Status != metav1.ConditionTrue {
		return false
	}
	allowed := ConditionTrue(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return allowed != nil && allowed.Message == "" && ConditionTrue(check, mendv1.WorkloadClusterReachable) != nil
}

// StatusChanged is when the numbers in the status of check last changed, by what the API server notes of its writers; zero if it does not
// say.
func StatusChanged(check *clusterv1.MachineHealthCheck) time.Time {
	for _, entry := range check.ManagedFields {
		if WritesStatus(entry) && entry.Time != nil {
			return entry.Time.Time
		}
	}
	return time.Time{}
}

// WritesStatus reports whether an entry of a check's managed fields is of the writer of the numbers in its status. The API server moves the
// time of an entry when its writer changes a value.
func WritesStatus(entry metav1.ManagedFieldsEntry) bool {
	return entry.Subresource == "status" && entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:currentHealthy"`))
}
