package explain

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// How many bytes the message of a condition of a Machine may have; with more the API server refuses the whole status. (Cluster API, the CRD of Machine.)
const (
	longestMessage        = 32768
	longestV1Beta1Message = 10240
)

// MachineMessage is the message of c, a condition of the Machine of d. Failure is why no request could be made from the template.
func MachineMessage(f *machines.Facts, d *machines.Decision, c machines.Condition, failure error) string {
	if c.Type == machines.OwnerRemediated {
		return "Waiting for remediation"
	}
	message := ""
	switch c.Because {
	case machines.RequestInTheWay:
		message = ForeignRequest(f, d.Target)
	case machines.TemplateRefused:
		message = NoTemplate(f)
	case machines.TemplateMissing:
		message = fmt.Sprintf("Error retrieving remediation template %s %s/%s", f.Template.TemplateKind, f.About.Namespace, f.Template.Name)
	case machines.TemplateUnusable:
		message = failure.Error()
	case machines.NoSpareHost, machines.SpareHostsUnread:
		message = waitsForSpare(f, d)
	}
	return short(message, longestMessage)
}

// HealthCheckFailed is the message of a failed health check in both flavours of the condition. Due are its findings in order of precedence. (Cluster API;
// the wording, the order and the empty v1beta1 message of a deleted node are its own.)
func HealthCheckFailed(due []health.Finding) (message, v1beta1 string) {
	if len(due) == 0 {
		return "", ""
	}
	bulleted := short("Health check failed:\n  * "+strings.Join(details(due), "\n  * "), longestMessage)
	switch due[0].Reason {
	case health.MarkedByHand:
		return "Health check failed: " + findingText(due[0]), "Marked for remediation via remediate-machine annotation"
	case health.NodeDeleted:
		return bulleted, ""
	}
	return bulleted, short(strings.Join(details(due), "; "), longestV1Beta1Message)
}

func details(due []health.Finding) []string {
	all := make([]string, len(due))
	for i, f := range due {
		all[i] = findingText(f)
	}
	return all
}

// short is text, cut where it has more bytes than that.
func short(text string, most int) string {
	const more = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// findingText is a finding in the words of Cluster API, as one clause.
func findingText(f health.Finding) string {
	switch f.Reason {
	case health.MarkedByHand:
		return "marked for remediation via " + clusterv1.RemediateMachineAnnotation + " annotation"
	case health.MachineFailed:
		return f.Failure
	case health.NodeDeleted:
		return nodeDeleted(f.Node)
	case health.NodeStartup:
		return fmt.Sprintf("Node failed to report startup in %s", f.Limit)
	case health.MachineCondition, health.NodeCondition:
	}
	is := f.Signal
	return fmt.Sprintf("Condition %s on %s is reporting status %s with reason %s for more than %s", is.Type, is.Source, is.Status, is.Reason, f.Limit)
}

// observed is what a finding is about, without its timeout, which may not have expired.
func observed(f health.Finding) string {
	switch f.Reason {
	case health.NodeStartup:
		if f.Other.Name != "" {
			return otherNode(f.Other)
		}
		return "The machine has no node yet"
	case health.MachineCondition, health.NodeCondition:
		text := fmt.Sprintf("%s condition %s is %s", f.Signal.Source, f.Signal.Type, f.Signal.Status)
		if f.Signal.Reason != "" {
			text += " (" + f.Signal.Reason + ")"
		}
		return text
	}
	return findingText(f)
}

// otherNode says why the node of a machine is not known, and what a person can do.
func otherNode(o health.Other) string {
	if o.Twin() {
		return fmt.Sprintf("Node %s is one of several of provider ID %q: which is the machine's is not known. Delete the others",
			o.Name, o.Wanted)
	}
	return fmt.Sprintf("Node %s has the provider ID %q, and Cluster API looks for %q: that is likely why the machine has no node. "+
		"See whose the node is, and to the cloud controller", o.Name, o.ProviderID, o.Wanted)
}

func nodeDeleted(name string) string { return "Node " + name + " has been deleted" }
