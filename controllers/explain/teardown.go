package explain

import (
	"fmt"
	"time"
)

// Why a teardown waits for something that kubemend wrote, or removes it, as clauses.
const (
	CoreGoesOn          = "Cluster API core goes on with it"
	PowerCycleReleased  = "its power cycle is being released; its status says how far that is"
	NoControllerActs    = "no controller of kubemend acts on its kind"
	RemediationReleases = "its remediation, or the sweep of orphaned marks, releases it"
	HostStaysMarked     = "the host stays marked as unhealthy"
	FencerGone          = "the remediation that fenced it is gone"
	RemediationUnfences = "its remediation takes the fence away"
	LeaseAfterRequests  = "it is released after the requests for its node"
	NodesUnseen         = "its nodes cannot be read"
	NodeChecksOfOthers  = "another operator acts on NodeHealthChecks"
	RemediatorHolds     = "its remediator has not released it"
	AboutToBeDeleted    = "it is about to be deleted"
	CheckGone           = "no check would ever end it: the MachineHealthCheck that made it is gone"
)

// Within follows on why a teardown waits for something no longer.
func Within(why string, patience time.Duration) string {
	return fmt.Sprintf("%s within %s", why, patience)
}

// CheckReleased is that a MachineHealthCheck was given back to Cluster API core. Template is the kind of its template if no controller acts on what is
// made from that any more; else it is empty.
func CheckReleased(template string) string {
	text := "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
	if template != "" {
		text += ". No controller acts on what is made from a " + template + " any more: have it name another template, or none"
	}
	return text
}

// NotLookedAt is that nodes of a cluster may have something of kubemend's.
func NotLookedAt(cause error) string {
	return fmt.Sprintf("Its nodes could not be read: %v. A node that is fenced there has annotation kubemend.io/fenced-by (docs/uninstall.md)", cause)
}

// NodeUnfenced is that a node was unfenced, and why.
func NodeUnfenced(node, why string) string { return fmt.Sprintf("Unfenced %s: %s", node, why) }

// RequestDeleted is that a request was deleted, and why.
func RequestDeleted(why string) string { return "Deleted: " + why }

// MarksRemoved is that the marks of kubemend were taken off an object, and why.
func MarksRemoved(why string) string {
	return "kubemend is being removed: its marks were removed; " + why
}
