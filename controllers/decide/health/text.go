package health

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Text describes f in the words of Cluster API, as one clause, which is true once the timeout has expired.
func (f Finding) Text() string {
	switch f.Reason {
	case MarkedByHand:
		return "marked for remediation via " + clusterv1.RemediateMachineAnnotation + " annotation"
	case MachineFailed:
		return f.Failure
	case NodeDeleted:
		return "Node " + f.Node + " has been deleted"
	case NodeStartup:
		return fmt.Sprintf("Node failed to report startup in %s", f.Limit)
	case MachineCondition, NodeCondition:
	}
	signal := f.Signal
	return fmt.Sprintf("Condition %s on %s is reporting status %s with reason %s for more than %s",
		signal.Type, signal.Source, signal.Status, signal.Reason, f.Limit)
}

// Texts returns the Text of each finding.
func Texts(findings []Finding) []string {
	texts := make([]string, len(findings))
	for i, finding := range findings {
		texts[i] = finding.Text()
	}
	return texts
}

// Observed describes f without its timeout, which may not have expired.
func (f Finding) Observed() string {
	switch f.Reason {
	case NodeStartup:
		if f.Other.Name != "" {
			return f.Other.Text()
		}
		return "The machine has no node yet"
	case MachineCondition, NodeCondition:
		text := fmt.Sprintf("%s condition %s is %s", f.Signal.Source, f.Signal.Type, f.Signal.Status)
		if f.Signal.Reason != "" {
			text += " (" + f.Signal.Reason + ")"
		}
		return text
	case MarkedByHand, MachineFailed, NodeDeleted:
	}
	return f.Text()
}

// Text says why the Node of a machine is not known, and what a user can do.
func (o Other) Text() string {
	if o.Twin() {
		return fmt.Sprintf("Several nodes have the provider ID %q, among them %s, so the node of the machine is not known. Delete the "+
			"wrong ones",
			o.Wanted, o.Name)
	}
	return fmt.Sprintf("Node %s has the provider ID %q, and Cluster API looks for %q. This is likely why the machine has no node. "+
		"Find out which machine the node belongs to, and check the cloud controller", o.Name, o.ProviderID, o.Wanted)
}

// Since says when a timeout with the doubt d begins, as a clause that follows "counted from"; empty if at the condition's last transition.
func (d Doubt) Since() string {
	switch d {
	case NotSincePause:
		return Settling.String() + " after a pause in which the condition was not renewed"
	case NotSinceOutage:
		return Settling.String() + " after an outage of the workload cluster; the manager may count from earlier"
	case ThroughOutage:
		return "when it was first seen, without the time in which the workload cluster was out of reach"
	case NotSinceStamp:
		return "when it was first seen, because its lastTransitionTime is missing or wrong; the manager may count from earlier"
	case NodeDiffers:
	}
	return ""
}
