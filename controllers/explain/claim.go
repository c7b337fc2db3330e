package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// ClaimReason is why the paused annotation of a check is written or not, where a user claims the check for kubemend or releases it.
type ClaimReason string

// The reasons. Where the text of one begins with "Unseen" it is not known whether a controller would act on the check.
const (
	Changes               ClaimReason = "Changes"
	CheckDeleting         ClaimReason = "CheckDeleting"
	PausedByUser          ClaimReason = "PausedByUser"
	AlreadyClaimed        ClaimReason = "AlreadyClaimed"
	AlreadyReleased       ClaimReason = "AlreadyReleased"
	CoreNotRunning        ClaimReason = "CoreNotRunning"
	ActsOnUnclaimed       ClaimReason = "ActsOnUnclaimed" // a manager of kubemend does, so that both it and Cluster API core would act
	NoManagerTakes        ClaimReason = "NoManagerTakes"
	LabelAsks             ClaimReason = "LabelAsks"         // a label asks for the claim, so that the manager would claim the check again at once
	ClaimedOnCheck        ClaimReason = "ClaimedOnCheck"    // where a label is removed: it was not what claimed the check
	InvalidLabelKeeps     ClaimReason = "InvalidLabelKeeps" // likewise: the other label has a value that is not defined
	UnseenCore            ClaimReason = "UnseenCore"
	UnseenCoreAndManagers ClaimReason = "UnseenCoreAndManagers"
	UnseenUnclaimed       ClaimReason = "UnseenUnclaimed" // whether a manager acts on checks that are not claimed
	UnseenManagers        ClaimReason = "UnseenManagers"  // whether there are others
	UnseenTakes           ClaimReason = "UnseenTakes"     // whether one of those that are seen acts on the check
	UnseenLabel           ClaimReason = "UnseenLabel"     // whether the label that claimed it is still there
)

// Claim is what becomes of a check that a user claims for kubemend, or releases.
type Claim struct {
	// Release reports that it goes back to Cluster API core.
	Release bool
	Reason  ClaimReason
	// Forced reports that the annotation is written though it is not known whether a controller would act on the check.
	Forced bool
	// ByLabel reports that it is a label that is written or removed, and kubemend that writes the annotation then. Awaits reports that no manager of kubemend
	// runs that would.
	ByLabel, Awaits bool

	ClaimedCheck
	// Managers are why managers of kubemend do not act on the check; Unlisted is what is not known of others.
	Managers []managerlease.Off
	Unlisted Unlisted
	// Manager is the namespace of the one that acts on checks that are not claimed as well.
	Manager string
	Core    CoreLease
}

// ClaimedCheck is a check, and what is known about it.
type ClaimedCheck struct {
	Check *clusterv1.MachineHealthCheck
	// Writer is the field manager of its paused annotation, and Written when that last changed the check, as far as the API server knows.
	Writer  string
	Written time.Time
	// Cluster is nil if there is none.
	Cluster *clusterv1.Cluster
	// Labels are what decides on a claim by a label.
	Labels claims.Facts
	// Underway are the names of machines that are being remediated.
	Underway map[Remediator][]string
	// Unread are the errors of what could not be read.
	Unread map[ClaimPart]error
}

// Remediator is what remediates a machine.
type Remediator int

// The remediators of a machine.
const (
	ByOwner   Remediator = iota // of the machine; there is no request
	ByCheck                     // a request that kubemend has made for the check, or adopted
	ByCore                      // a request that kubemend would adopt: from the check's template, or of a check of the same name before it
	ByAnother                   // a request that another check has made, or a user from another template
)

// ClaimPart is a part of what is known about a check.
type ClaimPart string

// The parts that are done without, if they cannot be read.
const (
	ItsCluster  ClaimPart = "its Cluster could not be read"
	ItsMachines ClaimPart = "its Machines could not be read, so it is not said which remediations are under way"
	ItsRequests ClaimPart = "remediation requests could not be read, so it is not said which are under way"
)

// Unlisted is why there may be other managers than those that are known; Err is nil if there are none.
type Unlisted struct {
	Err error
	// Usual reports that the usual namespace was read.
	Usual bool
}

// CoreLease is what its lease says of Cluster API core.
type CoreLease struct {
	Alive bool
	// Gone is since when it does not run, if it is known.
	Gone time.Time
	// Err is why no lease could be read; NoLease reports that there is none. Leases are those that may be of somebody else, and why.
	Err     error
	NoLease bool
	Leases  []managerlease.Off
}

// Unseen reports that it is not known whether Cluster API core runs.
func (c CoreLease) Unseen() bool { return !c.Alive && (c.Err != nil || c.NoLease || len(c.Leases) > 0) }

// text is why it is not known whether Cluster API core runs.
func (c CoreLease) text() string {
	switch {
	case c.Err != nil:
		return fmt.Sprintf("list the leases %s: %s", managerlease.CoreLeaseName, c.Err)
	case c.NoLease:
		return fmt.Sprintf("there is no lease %s in any namespace, so it does not run, or elects no leader", managerlease.CoreLeaseName)
	}
	var doubts []string
	for _, l := range c.Leases {
		if l.Reason == managerlease.Unbound {
			doubts = append(doubts, leaseNotTrusted(managerlease.OfCore, l.Manager.Namespace))
		} else {
			doubts = append(doubts, fmt.Sprintf("whether the lease in %s is core's cannot be seen (%s)", l.Manager.Namespace, l.Manager.Unverified))
		}
	}
	return strings.Join(doubts, "; ")
}

// Changes reports whether the annotation is written.
func (c *Claim) Changes() bool { return c.Reason == Changes || c.Forced }

// Unseen reports whether it is not known whether a controller would act on the check.
func (c *Claim) Unseen() bool { return strings.HasPrefix(string(c.Reason), "Unseen") }

// Refused reports whether what the user asked for would do harm, or may.
func (c *Claim) Refused() bool {
	return !c.Changes() && c.Reason != AlreadyClaimed && c.Reason != AlreadyReleased && c.Reason != ClaimedOnCheck && c.Reason != InvalidLabelKeeps
}

// Holds reports whether a label may not be written or removed because of this check: it would have no controller then, or two. Any other check is left as
// it is, and holds up no label.
func (c *Claim) Holds() bool {
	return c.Refused() && (c.Unseen() || c.Reason == NoManagerTakes || c.Reason == CoreNotRunning || c.Reason == ActsOnUnclaimed)
}

// Text is what will be so, or why nothing changes.
func (c *Claim) Text() string {
	if !c.Changes() {
		if ends := ClaimEnds(c.Check, c.Writer); c.Reason == AlreadyClaimed && ends != "" {
			return c.why() + "; " + ends
		}
		return c.why()
	}
	parts := []string{"kubemend will act on it in place of Cluster API core"}
	switch {
	case c.Awaits:
		parts[0] = "it stays claimed until a manager of kubemend runs that acts on it, of which none is seen; then Cluster API core acts on it"
	case c.Release:
		parts[0] = "Cluster API core will act on it in place of kubemend"
	}
	for by := ByOwner; by <= ByAnother; by++ {
		if names := slices.Sorted(slices.Values(c.Underway[by])); len(names) > 0 {
			parts = append(parts, "under way: "+strings.Join(names, ", ")+", "+c.becomes(by, len(names)))
		}
	}
	if c.Forced {
		parts = append(parts, c.why())
	}
	switch {
	case c.Cluster == nil:
		parts = append(parts, fmt.Sprintf("there is no Cluster %s: no controller acts on the check before there is", c.Check.Spec.ClusterName))
	case ptr.Deref(c.Cluster.Spec.Paused, false):
		parts = append(parts, fmt.Sprintf("Cluster %s is paused: no controller acts on the check while it is", c.Cluster.Name))
	case !c.Cluster.DeletionTimestamp.IsZero():
		parts = append(parts, fmt.Sprintf("Cluster %s is being deleted: no controller acts on the check any more", c.Cluster.Name))
	}
	parts = append(parts, c.inGit()...)
	for _, part := range []ClaimPart{ItsCluster, ItsMachines, ItsRequests} {
		if err := c.Unread[part]; err != nil {
			parts = append(parts, string(part)+": "+err.Error())
		}
	}
	return strings.Join(parts, "; ")
}

// inGit is what is to be done where the check comes from.
func (c *Claim) inGit() []string {
	if c.ByLabel {
		return nil
	}
	appliers := AppliersOf(c.Check)
	all := make([]string, 0, len(appliers))
	for _, a := range appliers {
		if !c.Release && a.Tool == topologyTool && (c.Labels.Cluster == claims.Act || c.Labels.Namespace == claims.Act) {
			continue // the label that this would advise is there
		}
		if !c.Release {
			all = append(all, a.claimInGit(c.Check))
		} else if text := a.releaseInGit(); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// why is why the annotation is not written, or would not be.
func (c *Claim) why() string {
	const unseenCore = "it cannot be seen whether Cluster API core is there to take it: "
	switch c.Reason {
	case CheckDeleting:
		return "it is being deleted"
	case PausedByUser:
		return fmt.Sprintf("it is paused: %s is %q%s. Neither Cluster API core nor kubemend acts on it, because another client "+
			"set it; that client, or its user, has to remove it first",
			clusterv1.PausedAnnotation, c.Check.Annotations[clusterv1.PausedAnnotation], c.pausedBy())
	case AlreadyClaimed:
		return "is claimed already"
	case AlreadyReleased:
		return "is not claimed"
	case CoreNotRunning:
		return fmt.Sprintf("Cluster API core has not run since %s, so no controller would act on it", stamp(c.Core.Gone))
	case ActsOnUnclaimed:
		return fmt.Sprintf("kubemend's manager in %s acts on checks that are not claimed as well (--unclaimed-machine-health-checks=act): "+
			"both it and Cluster API core would act on this one", c.Manager)
	case NoManagerTakes:
		return "no manager of kubemend would act on it: " + c.managers()
	case UnseenCore:
		return unseenCore + c.Core.text()
	case UnseenCoreAndManagers:
		return unseenCore + c.Core.text() + "; and " + c.unseenUnclaimed()
	case UnseenUnclaimed:
		return c.unseenUnclaimed()
	case UnseenManagers:
		return "it cannot be seen whether a manager of kubemend is there to take it: " + c.managers()
	case UnseenTakes:
		return "it cannot be seen whether a manager of kubemend would take it: " + c.managers()
	case Changes:
	}
	return c.whyByLabel()
}

// whyByLabel is why, where that has to do with the label that claims checks; empty if it has not.
func (c *Claim) whyByLabel() string {
	switch c.Reason {
	case ClaimedOnCheck:
		return "it was claimed on the check itself, and not by the label, so it stays claimed"
	case InvalidLabelKeeps:
		return fmt.Sprintf("the label %s of its Cluster or its Namespace has another value than %q, so kubemend does not release it", mendv1.ClaimLabel,
			mendv1.ClaimLabelAct)
	case LabelAsks:
		return labelled(c.Labels, c.Check.Namespace, c.Check.Spec.ClusterName) + ", so kubemend would claim it again at once: remove the label, in Git too, " +
			"and all checks that it claims are released: " + unlabel(c.Labels, c.Check.Namespace, c.Check.Spec.ClusterName)
	case UnseenLabel:
		return fmt.Sprintf("it was claimed by the label %s on %s, and it cannot be seen whether that is still there: kubemend would claim it again at once",
			claimLabel, LabelledObject(c.Labels.By, c.Check.Namespace, c.Check.Spec.ClusterName))
	}
	return ""
}

func (c *Claim) unseenUnclaimed() string {
	return "it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: " + c.managers()
}

// managers are why those of kubemend do not act on the check, and what is not known of others.
func (c *Claim) managers() string {
	var reasons []string
	for _, off := range c.Managers {
		because, _ := managerOff(off)
		reasons = append(reasons, because)
	}
	switch {
	case c.Unlisted.Err != nil && c.Unlisted.Usual:
		reasons = append(reasons, "of other namespaces than "+managerlease.UsualNamespace+": "+c.Unlisted.Err.Error())
	case c.Unlisted.Err != nil:
		reasons = append(reasons, c.Unlisted.Err.Error())
	case len(reasons) == 0:
		return "no manager has announced itself"
	}
	return strings.Join(reasons, "; ")
}

// becomes is what happens to the remediations of n machines.
func (c *Claim) becomes(by Remediator, n int) string {
	request, goes, it, machine := "whose request", "goes", "it", "the machine is"
	if n > 1 {
		request, goes, it, machine = "whose requests", "go", "them", "the machines are"
	}
	switch {
	case by == ByOwner && n == 1:
		return "whose owner remediates it, and goes on"
	case by == ByOwner:
		return "whose owners remediate them, and go on"
	case by == ByAnother && n == 1:
		return "whose request is not this check's, and is left alone"
	case by == ByAnother:
		return "whose requests are not this check's, and are left alone"
	case c.Release:
		return fmt.Sprintf("%s %s on, and core deletes %s when %s healthy", request, goes, it, machine)
	case by == ByCore:
		return fmt.Sprintf("%s %s on, and kubemend adopts %s", request, goes, it)
	}
	return fmt.Sprintf("%s %s on as kubemend's own", request, goes)
}

// pausedBy is who wrote the paused annotation, as far as the API server knows; empty if it does not.
func (c *Claim) pausedBy() string {
	switch {
	case c.Writer == "":
		return ""
	case c.Written.IsZero():
		return ", written by " + c.Writer
	}
	return fmt.Sprintf(", written by %s, whose last change of the check was at %s", c.Writer, stamp(c.Written))
}

// stamp is a moment for users.
func stamp(at time.Time) string {
	if at.IsZero() {
		return "a time that is not known"
	}
	return at.UTC().Format(time.RFC3339)
}
