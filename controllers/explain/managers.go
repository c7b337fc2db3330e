package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// The reasons of what blocks everything of an object.
const (
	// NotServed is that of a kind that kubemend does not act on.
	NotServed = "KindNotServed"
	// NoManager is that of an object that no manager acts on.
	NoManager = "NoManager"
	// NodesUnread and MachineUnread are the causes of blockers with the reason MissingPermission: the reader may not read the nodes of a workload cluster, or
	// the Machine of a node.
	NodesUnread = "NodesUnread"
	// ClusterSilent is that a workload cluster did not answer the reader in time.
	ClusterSilent = "NoAnswer"
	MachineUnread = "MachineUnread"
	// CannotBeExplained is the reason of a check that could not be explained, since something is missing that its controller reads.
	NotExplained = "CannotBeExplained"
)

// Unexplained describes a check that could not be explained.
func Unexplained(check Ref, why error) Check {
	return Check{
		Check: cliv1.Check{Reference: check, Mode: Unknown, Reason: NotExplained, Message: "It could not be explained: " + why.Error()},
		Next:  Step{Reason: NotExplained, Text: "Ask as a user who may read that", Manual: true},
	}
}

// KindNotServed is why nothing of a kind is acted on.
func KindNotServed(because string) string { return "kubemend does not serve the kind: " + because }

// NothingUntil is the next step where nothing happens as long as b lasts.
func NothingUntil(b Blocker) Step { return Step{Reason: b.Reason, Text: resumes(&b)} }

// NoManagerActs is why none of managers acts on an object, and what a user can do: offs are the reasons of those that run, if any does.
func NoManagerActs(managers []managerlease.Manager, offs []managerlease.Off) (because, fix string) {
	var reasons, fixes []string
	for _, off := range offs {
		because, fix := managerOff(off)
		if because != "" {
			reasons = append(reasons, because)
		}
		if fix != "" && !slices.Contains(fixes, fix) {
			fixes = append(fixes, fix)
		}
	}
	if len(reasons) > 0 {
		return "No manager of kubemend would act on it: " + strings.Join(reasons, "; "), strings.Join(fixes, ", or ")
	}
	because, fix = "No manager of kubemend has announced itself; one that keeps no manager lease is not seen",
		"Start the manager of kubemend, or see in its log why it keeps no lease"
	var gone time.Time
	var untrusted []string
	for i := range managers {
		if m := &managers[i]; m.Unbound {
			untrusted = append(untrusted, leaseNotTrusted(m.Namespace))
		} else if !m.Alive && !m.Gone.Before(gone) {
			gone, fix = m.Gone, "Start the manager of kubemend"
			because = fmt.Sprintf("The manager of kubemend in namespace %s has not run since %s", m.Namespace, stamp(gone))
			if gone.IsZero() {
				because = fmt.Sprintf("The manager of kubemend in namespace %s does not run", m.Namespace)
			}
		}
	}
	return strings.Join(append([]string{because}, untrusted...), "; "), fix
}

// managerOff is why a manager does not act on an object, as a clause, and what a user can do about that; that is empty if there is nothing but to start
// a manager.
func managerOff(o managerlease.Off) (because, fix string) {
	m, where := o.Manager, "the one in "+o.Manager.Namespace
	switch o.Reason {
	case managerlease.Unbound:
		return leaseNotTrusted(m.Namespace), "start the manager of kubemend"
	case managerlease.NotRunning:
		if m.Gone.IsZero() {
			return where + " does not run", ""
		}
		return fmt.Sprintf("%s is gone since %s", where, m.Gone.UTC().Format(time.RFC3339)), ""
	case managerlease.Unverified:
		return fmt.Sprintf("whether the lease in %s is a manager's cannot be seen (%s)", m.Namespace, m.Unverified), ""
	case managerlease.OtherRights:
		return fmt.Sprintf("%s has rights in namespace %s alone", where, strings.Join(m.Within, ", ")), "start a manager for namespace " + o.Namespace
	case managerlease.NotUnderstood:
		return fmt.Sprintf("what %s says cannot be understood (%s)", where, m.Trouble), ""
	case managerlease.NotAnnounced:
		return where + " is of a release that does not say what it watches", ""
	case managerlease.OtherNamespace:
		return fmt.Sprintf("%s watches namespace %s alone", where, m.Announcement.Namespace), "start a manager for namespace " + o.Namespace
	case managerlease.OtherLabel:
		label, object := clusterv1.WatchLabel+": "+m.Announcement.WatchFilter, "it"
		if o.OrCluster {
			object = "it, or its Cluster,"
		}
		return fmt.Sprintf("%s watches only objects with the label %s", where, label), fmt.Sprintf("give %s the label %s", object, label)
	case managerlease.InTeardown:
		return where + " is in teardown, and starts nothing", ""
	}
	return "", ""
}

// leaseNotTrusted is why a lease in a namespace proves nothing of a manager.
func leaseNotTrusted(namespace string) string {
	return fmt.Sprintf("the lease in %s is not believed, since %s", namespace, notBound())
}

// notBound is that no binding gives a manager its rights. A binding without the label is not asked for: that there is none would not be true.
func notBound() string {
	manager := managerlease.OfKubemend
	return fmt.Sprintf("no binding with the label %s binds a ServiceAccount %s of that namespace to the ClusterRole %s",
		labels.Set(manager.Labelled), manager.Account, manager.Roles[0])
}

// ManagersUnknown is what is not known of managers; others says that one is known to run.
func ManagersUnknown(others bool, why string) string {
	if others {
		return "Whether other managers of kubemend run as well is not known: " + why
	}
	return "Whether a manager of kubemend runs is not known: " + why
}
