package explain

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

// CheckReleased is that a MachineHealthCheck was given back to Cluster API core. Template is the kind of its template if no controller acts on what is
// made from that any more; else it is empty.
func CheckReleased(template string) string {
	text := "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
	if template != "" {
		text += ". No controller acts on what is made from a " + template + " any more: have it name another template, or none"
	}
	return text
}
