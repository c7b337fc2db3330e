package explain

import (
	"fmt"
	"strings"
	"time"
)

// The reasons of what blocks everything of an object.
const (
	// NotServed is that of a kind that kubemend does not act on.
	NotServed = "KindNotServed"
	// NoManager is that of an object that no manager acts on.
	NoManager = "NoManager"
	// NodesUnread and MachineUnread are the causes of blockers with the reason MissingPermission: the reader may not read the nodes of a workload cluster, or
	// the Machine of a node.
	NodesUnread   = "NodesUnread"
	MachineUnread = "MachineUnread"
	// CannotBeExplained is the reason of a check that could not be explained, since something is missing that its controller reads.
	NotExplained = "CannotBeExplained"
)

// Unknown is the mode of such a check.
const Unknown Mode = "unknown"

// Unexplained describes a check that could not be explained.
func Unexplained(check Ref, why error) Check {
	return Check{
		Ref: check, Mode: Unknown, Reason: NotExplained, Text: "It could not be explained: " + why.Error(),
		Next: Step{Text: "Ask as somebody who may read that", Manual: true},
	}
}

// NodesNotRead blocks what depends on the nodes of a workload cluster, which the reader may not read.
func NodesNotRead(cluster, why string) Blocker {
	return Blocker{
		Reason: MissingPermission, Cause: NodesUnread, Text: fmt.Sprintf("The nodes of cluster %s could not be read with your rights: %s", cluster, why),
		Fix: "Ask as somebody who may read its kubeconfig, and can reach it",
	}
}

// MachineNotRead blocks what depends on the Machine of a node, which the reader may not read.
func MachineNotRead() Blocker {
	return Blocker{
		Reason: MissingPermission, Cause: MachineUnread, Text: "What its Machine says could not be read with your rights, and the manager may read it",
		Fix: "Ask as somebody who may read the Machine, its Cluster and its MachineHealthChecks",
	}
}

// KindNotServed is why nothing of a kind is acted on.
func KindNotServed(because string) string { return "kubemend does not serve the kind: " + because }

// What happens to the objects of a kind that kubemend does not serve.
var (
	OtherServes = Step{Text: "the controller that serves the kind acts on it"}
	OtherMayAct = Step{Text: "another controller acts on it, if one serves the kind"}
	NoneServes  = Step{Text: "See to what keeps kubemend from serving the kind", Manual: true}
	CoreActs    = Step{Text: "Cluster API core acts on it"}
)

// NotClaimed is why Cluster API core acts on a check that no manager of kubemend observes.
func NotClaimed(because string) string {
	return "The check is not claimed for kubemend: Cluster API core acts on it. " + because
}

// ManagerTeardown blocks the targets of a claimed check whose only manager is leaving.
func ManagerTeardown(because string) Blocker {
	return Blocker{Reason: NoManager, Text: because, EndsWhen: "the manager that leaves has given the check back to Cluster API core"}
}

// Unmanaged blocks the targets of a claimed check that no manager acts on.
func Unmanaged(because, person, namespace, check string) Blocker {
	return Blocker{
		Reason: NoManager, Text: because,
		Fix: person + ", or hand the check back to Cluster API core: kubectl mend release mhc/" + check + " -n " + namespace,
	}
}

// NothingUntil is the next step where nothing happens as long as b lasts.
func NothingUntil(b Blocker) Step { return Step{Text: "nothing, until " + b.EndsWhen} }

// What happens next where no manager acts and there is nothing to do for a person.
const (
	RevertedNext  = "nothing: what was begun is reverted"
	NoManagerNext = "nothing, as long as no manager reconciles it"
	StartManager  = "Start the manager of kubemend"
)

// ManagerInTeardown is why the manager in a namespace starts nothing.
func ManagerInTeardown(namespace string) string {
	return "the one in " + namespace + " is in teardown, and starts nothing"
}

// NoManagerActs is why the managers that run do not act on an object.
func NoManagerActs(reasons []string) string {
	return "No manager of kubemend would act on it: " + strings.Join(reasons, "; ")
}

// NoManagerSeen is that no manager has announced itself, but for leases that are not believed.
func NoManagerSeen(disbelieved string) string {
	return "No manager of kubemend has announced itself" + disbelieved
}

// ManagerGone is since when the manager in a namespace does not run.
func ManagerGone(namespace string, since time.Time, disbelieved string) string {
	return fmt.Sprintf("The manager of kubemend in namespace %s has not run since %s%s", namespace, since.UTC().Format(time.RFC3339), disbelieved)
}

// LeaseNotTrusted follows on why no manager acts.
func LeaseNotTrusted(namespace, why string) string {
	return fmt.Sprintf("; the lease in %s is not believed, since %s", namespace, why)
}

// LeaseUnverified is what is not known of a lease whose bindings could not be read.
func LeaseUnverified(namespace, why string) string {
	return fmt.Sprintf("whether the lease in namespace %s is a manager's cannot be seen (%s)", namespace, why)
}

// ManagersUnknown is what is not known of managers; others says that one is known to run.
func ManagersUnknown(others bool, why string) string {
	if others {
		return "Whether other managers of kubemend run as well is not known: " + why
	}
	return "Whether a manager of kubemend runs is not known: " + why
}
