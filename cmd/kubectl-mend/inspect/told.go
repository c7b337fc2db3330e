package inspect

import (
	"fmt"
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
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// blind replaces what c depends on if the user may not see the nodes of the workload cluster, and the manager may: by what the
// manager has written, or else by why it is not known, since numbers without the nodes would be wrong. Before the control plane is
// initialized the manager reads no nodes either.
func (a *Asker) blind(c *explain.Check, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) {
	why, _, blind := a.Snapshot.Unseen(client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
	if !blind || c.NodesUnknown == nil || !conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition) ||
		a.Managers.sayUnseen(check, cluster) {
		return
	}
	unread := unreadNodes(check.Spec.ClusterName, why)
	c.NodesUnknown, c.Reason, c.Message = &cliv1.NodesUnknown{Reason: unread.Reason, Message: unread.Text}, "", ""
	cond := conditions.Get(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	if cond != nil && cond.Status == metav1.ConditionFalse {
		c.Reason, c.Message = cond.Reason, cond.Message
	}
	a.tell(c, check, cluster, unread)
}

// tell replaces the verdict on each target of c whose node the user may not see by what the manager has written, or else by unread.
func (a *Asker) tell(c *explain.Check, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, unread explain.Blocker) {
	acts := c.Mode == explain.Acting && a.Managers.attended(check, cluster)
	untold := false // where it does not act, or does not run any more, what it wrote says nothing of now
	for i := range c.Targets {
		target := &c.Targets[i]
		if target.State == cliv1.StateUnknown && target.Node != "" && (!acts || !a.told(target)) {
			target.Blockers, target.Next = []explain.Blocker{unread}, explain.Step{Reason: unread.Reason, Text: unread.Fix, Manual: true}
			untold = true
		}
	}
	if untold || !acts {
		return
	}
	c.NodesUnknown, c.Next, c.Counts = nil, explain.Soonest(c.Targets), budget.Population{InFlight: c.Counts.InFlight}
	for i := range c.Targets {
		if c.Targets[i].Skipped == "" {
			c.Counts.Count(c.Targets[i].Class)
		}
	}
	if counted := machinehealthcheck.Counted(check, cluster); c.CountedByStatus && counted != nil { // not all machines were read
		c.Counts = c.Counts.Complete(counted.Total, counted.Healthy)
	}
}

// unreadNodes is what blocks an answer about targets whose nodes the user may not see, or that do not answer the user.
func unreadNodes(cluster, why string) explain.Blocker {
	unread := explain.Blocker{
		Reason: explain.MissingPermission, Cause: explain.NodesUnread, Detail: "nodes of cluster " + cluster,
		Text: fmt.Sprintf("The nodes of cluster %s could not be read with your rights: %s", cluster, why),
		Fix:  "Ask as a user who may read its kubeconfig, and can reach it",
	}
	if explain.Silent(why) { // which says nothing about rights
		unread.Reason, unread.Text = explain.ClusterSilent, fmt.Sprintf("Cluster %s does not answer you: %s", cluster, why)
		unread.Fix = "See to its API server, load balancer and network; if it does not answer the manager either, the check says so"
	}
	return unread
}

// told judges a target whose node the reader may not see by what the manager wrote on the Machine: the condition
// kubemend.io/Remediation, which is there while the machine is not healthy, or HealthCheckSucceeded=True. It reports whether there is
// either.
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
	case cond.Status == metav1.ConditionTrue && target.InFlight: // the page names the request or the owner
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
