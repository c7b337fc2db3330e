// Package teardown removes what kubemend wrote on objects, so that it can be uninstalled. It reads everything live and remembers nothing that counts, and
// leaves to each controller what that has to end in its own order, such as a power cycle.
package teardown

import (
	"fmt"
	"time"

	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// patience is how long that is waited for which others hold up: a workload cluster that does not answer, a remediator that does not finish
// of its request. Power cycles have deadlines of their own.
const patience = remediationrequest.ClingingFor

// what is the kind of something that kubemend wrote. It is the value of a label of a metric.
type what string

const (
	claim            what = "claim"              // a MachineHealthCheck that is handed to us
	checkRequest     what = "request"            // a request that bears the mark of a MachineHealthCheck
	nodeCheckRequest what = "node-check-request" // a request that a NodeHealthCheck made
	remediation      what = "remediation"        // a remediation of a host with our finalizer, memory or backup
	hostPower        what = "host-power"         // an annotation that acts on the power of a host
	hostMark         what = "host-mark"          // an annotation that names the remediation for which we marked a host as unhealthy
	machineCondition what = "machine-condition"  // conditions of a Machine that only kubemend sets
	nodeFence        what = "node-fence"         // a node that we fenced
	nodeLease        what = "node-lease"         // a lease on a node that a NodeHealthCheck holds
	unseen           what = "unseen"             // a workload cluster whose nodes could not be looked at
)

// whats are all of them, for the metric.
var whats = []what{claim, checkRequest, nodeCheckRequest, remediation, hostPower, hostMark, machineCondition, nodeFence, nodeLease, unseen}

// facts are what is known of it.
type facts struct {
	what what
	// served says that a controller of ours runs that ends it.
	served bool
	// orphaned says that what it belongs to does not exist any more: the check that made a request, the remediation that fenced a node.
	orphaned bool
	// deleted is since when the object is being deleted, failed since when it could not be looked at; zero if not.
	deleted, failed time.Time
}

// action is what becomes of it.
type action string

const (
	wait    action = "wait for it"
	release action = "give the check back" // in one patch, so that Cluster API core takes it up at once
	unmark  action = "take our marks off"
	erase   action = "delete it"
	strip   action = "remove our conditions"
	unfence action = "unfence the node"
	pass    action = "pass it over" // and say so, aloud: there may be something of ours behind it
)

// coreGoesOn is why a check, or a request of one, is left to Cluster API core.
const coreGoesOn = "Cluster API core goes on with it"

// decide returns what becomes of something that kubemend wrote at now, and why.
func decide(f facts, now time.Time) (action, string) {
	switch f.what {
	case claim:
		return release, coreGoesOn
	case checkRequest, nodeCheckRequest:
		return decideRequest(f, now)
	case remediation:
		if f.served {
			return wait, "its power cycle is being released; its status says how far that is"
		}
		return unmark, "no controller of kubemend acts on its kind"
	case hostPower:
		return wait, "its remediation, or the sweep of orphaned marks, releases it"
	case hostMark:
		return unmark, "the host stays marked as unhealthy"
	case machineCondition:
		return strip, "nobody would bring them up to date"
	case nodeFence:
		if f.orphaned {
			return unfence, "the remediation that fenced it is gone"
		}
		return wait, "its remediation takes the fence away"
	case nodeLease:
		return wait, "it is released after the requests for its node"
	default:
		return waitOr(pass, f.failed, now, "its nodes cannot be read")
	}
}

// decideRequest says what becomes of a request. The controller of NodeHealthChecks deletes its own; MachineHealthChecks have none here.
func decideRequest(f facts, now time.Time) (action, string) {
	switch ofNode := f.what == nodeCheckRequest; {
	case ofNode && !f.served:
		return unmark, "another operator acts on NodeHealthChecks"
	case !ofNode && !f.orphaned:
		return unmark, coreGoesOn
	case !f.deleted.IsZero():
		return waitOr(unmark, f.deleted, now, "its remediator has not released it")
	case ofNode:
		return wait, "it is about to be deleted"
	}
	return erase, "no check would ever end it: the MachineHealthCheck that made it is gone"
}

// waitOr waits until patience is over, and then does that.
func waitOr(then action, since, now time.Time, why string) (action, string) {
	if now.Before(since.Add(patience)) {
		return wait, why
	}
	return then, fmt.Sprintf("%s within %s", why, patience)
}
