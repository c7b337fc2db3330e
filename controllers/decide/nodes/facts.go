// Package nodes decides which nodes of a NodeHealthCheck are remediated now, by which step of its escalation, and what blocks the others.
//
// Decide is a function from Facts to a Plan: it does no I/O and reads no clock, and what it has to remember goes in with the facts and comes out
// with the plan. A blocker carries the words that conditions, events and explanations repeat.
package nodes

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Facts is everything that one decision depends on, read once.
type Facts struct {
	Now   time.Time
	Check string // name of the NodeHealthCheck
	// Awaited are the kinds whose objects were not all read yet. As long as there is one nothing may be decided: what was not read is not "none".
	Awaited []string

	Policy health.Policy
	// MinHealthy and MaxUnhealthy are the limits as the check spells them; empty if it does not set them.
	MinHealthy, MaxUnhealthy string
	Cooldown                 *time.Duration // after a storm; nil: none
	Storm                    budget.Storm   // as of the reconcile before
	HealthyDelay             time.Duration  // below zero a person ends it
	PauseRequests            []string
	Resync                   time.Duration

	// Templates are the steps of the escalation, in the order of use. Single says that the check names one template and no escalation.
	Templates []Template
	Single    bool
	// Disabled is why the check can do nothing; zero if it can.
	Disabled Disabled

	// Upgrade is what of the whole cluster is being upgraded. TerminatingLeft says that a MachineHealthCheck of OpenShift ends nodes with the
	// condition Terminating.
	Upgrade         Upgrade
	TerminatingLeft bool

	// Outages are the times in which the API server was out of reach, in their order. Since is when this process began to reconcile, Grace how
	// long kubelets have to report then, and AwaitedSince since when the check says that it waits for them; zero if it does not.
	Outages      []Outage
	Since        time.Time
	Grace        time.Duration
	AwaitedSince time.Time

	// Nodes are those that the check selects or has not done with, in the order of their names.
	Nodes []Node
	// ControlPlane is nil as long as nothing is decided about one of its nodes.
	ControlPlane *ControlPlane

	// Conditions are those of the check's status.
	Conditions []metav1.Condition

	// Recheck is when what was read has to be read again, since nothing tells when it changes; Retry is when what could not be read is tried again.
	Recheck, Retry time.Time
	// Trouble is what could not be read, of what a decision can do without.
	Trouble []string
	Memory  Memory
}

// Outage is a time in which the API server could not be reached.
type Outage struct{ From, To time.Time }

// after is how much of o there was after at.
func (o Outage) after(at time.Time) time.Duration {
	if at.Before(o.From) {
		at = o.From
	}
	return max(0, o.To.Sub(at))
}

// Upgrade is what is known of upgrades of the cluster that no single node tells.
type Upgrade struct {
	// Unread says that it could not be found out.
	Unread bool
	// Progressing names the ClusterVersion that is progressing; empty if none is.
	Progressing string
}

// Ref names an object.
type Ref struct{ Kind, Namespace, Name string }

// String is the object as people write it.
func (r Ref) String() string { return r.Kind + " " + r.Key() }

// Key is the namespace and name of the object.
func (r Ref) Key() string { return r.Namespace + "/" + r.Name }

// Node is what is known of one node.
type Node struct {
	Name string
	ID   string // tells it from one of the same name that was there before
	// Exists says that it is there, Selected that the check selects it. A node that leaves the selection while it is being remediated is remediated
	// to the end.
	Exists, Selected bool
	Created          time.Time
	ControlPlane     bool
	// Deleting is since when it is being deleted, zero if it is not, and Finalizers are what keep it then.
	Deleting   time.Time
	Finalizers []string
	// Excluded says that its user wants it left alone; ExcludedEmpty that the label for that has no value, which counts for nothing.
	Excluded, ExcludedEmpty bool
	// Confirmed says that a person has confirmed that it is healthy.
	Confirmed bool
	// Reconfiguring says that OpenShift is changing its configuration.
	Reconfiguring bool
	// Terminating says that it has the condition of that type: OpenShift is ending it.
	Terminating bool
	// Conditions are those that meet a rule of the check, whatever their age; Reported says that the node has reported whether it is ready.
	Conditions []health.Signal
	Reported   bool

	Requests []Request // of this check; oldest first
	// Gone are the requests that exist no more and that only the status remembers, Unseen those that cannot be read now.
	Gone, Unseen []Listed
	// Orphaned are requests of a check of the same name that was there before, Others those of others that name the node.
	Orphaned, Others []Foreign
	// Named are the requests that have the name which one of the check would have, by template; read only if a remediation may start.
	Named []Named
	// Listed is what the status of the check says of the node; nil if it does not list it.
	Listed *Listing
	Lease  *Lease
	// Machine is the Machine of Cluster API behind the node; nil if it was not looked for, as nothing is decided by it.
	Machine *Machine
	// OpenShift is the Machine of OpenShift that the node names; zero if it names none.
	OpenShift Ref
}

// Request is a remediation request that the check made.
type Request struct {
	Ref
	ID       string
	Template string // as its annotation says
	Step     int    // of the template it was made from; -1 if the check does not name that any more
	Started  time.Time
	Deleting time.Time // zero if it is not being deleted
	// Kept says that it has finalizers.
	Kept bool
	// GivenUp is when it was given up, Notified says that its remediator was notified of that.
	GivenUp  time.Time
	Notified bool
	// Flagged says that it is marked as old. Delayed is since when its end is delayed, as it says itself; DelayedMarked says that it has the mark.
	// Relapsed says that its node had recovered, and was found to be unhealthy again.
	Flagged, DelayedMarked, Relapsed bool
	Delayed                          time.Time
	// Guessed says that nothing says which node it is about: it is listed under its own name.
	Guessed bool
	// MachineThere says that it is about a Machine that is there, and stays; read only if its node is gone.
	MachineThere bool

	// Listed says that the status lists it, with Counted as the moment from which its time counts, and ListedHealthy that it says that the node was
	// healthy since.
	Listed, ListedHealthy bool
	Counted               time.Time

	Succeeded, Processing, DeletesNode escalation.Status
	SucceededSince, ProcessingSince    time.Time
	// Says are the conditions of the contract, as the remediator wrote them.
	Says []metav1.Condition
}

// Listed is a request as only the status of the check remembers it.
type Listed struct {
	Ref
	Step    int // -1 if the check does not name its template any more
	Started time.Time
	GivenUp time.Time
}

// Foreign is a request that the check did not make.
type Foreign struct {
	Ref
	ID, Type string
	Deleting bool
}

// Named is a request that has the name which the request from a template would have; Exists says that there is one.
type Named struct {
	Ref
	ID       string
	Exists   bool
	Own      bool // the check made it
	Template string
}

// Listing is what the status says of a node.
type Listing struct {
	HealthySince time.Time
	Delayed      bool
	Requests     int
}

// Machine is what is known of the Machine of Cluster API behind a node, of the cluster that the check runs in.
type Machine struct {
	// Unread says that not all of it could be read.
	Unread bool
	// Ref is zero if there is none.
	Ref
	Cluster string
	ID      string
	// WatchedBy is a MachineHealthCheck that selects it and acts on it.
	WatchedBy                                string
	Deleting, Skipped, Paused, ClusterPaused bool
	RollingOut, Updating                     bool
}

// There reports whether m is known.
func (m *Machine) There() bool { return m != nil && m.Name != "" }

// Lease is the lease on a node.
type Lease struct {
	Holder            string // empty if it has none
	Own               bool   // the check has it
	Acquired, Renewed time.Time
	Duration          time.Duration
}

// Memory is what a decision must know of those before it. Losing it delays a remediation at worst.
type Memory struct {
	// Known says that there was a decision before; Judged is when nodes were judged last, zero if the last reconcile did not get to that.
	Known  bool
	Judged time.Time
	// Seen are the conditions of the nodes that met one of the Rules when they were judged last, by Node.ID.
	Seen  map[string]health.Seen
	Rules []health.Rule
	// Streaks are for how long conditions have been bad, by Node.ID and type.
	Streaks map[string]Streaks
	// Started is from when on the time of a request counts, if not from its creation, and Decided to when outages are in that.
	Started map[string]time.Time
	Decided time.Time
	// Flagged are requests that were counted as old, Unpatchable those that may not be annotated so that their remediators stop, Recovered those that had
	// succeeded when their node was seen healthy; by Request.ID.
	Flagged, Unpatchable, Recovered map[string]bool
	// Refused is when a request for a node was refused last, by its name.
	Refused map[string]time.Time
}
