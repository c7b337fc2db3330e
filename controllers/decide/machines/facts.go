// Package machines decides which machines of a MachineHealthCheck are remediated now, and what keeps the others from it.
//
// Decide is a function from Facts to a Plan: it does no I/O and reads no clock, and what it has to remember goes in with the facts and comes out
// with the plan.
package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Facts is everything that one decision depends on, read once.
type Facts struct {
	Now time.Time
	// Acts says that kubemend acts on the check; otherwise it only judges.
	Acts bool
	// Settled says that the numbers can be relied on. While an answer of the workload cluster is awaited, no machine can be judged for a moment.
	Settled bool
	// Reachable says that the nodes can be read.
	Reachable bool

	// Limits are absolute numbers; Invalid says that the check's limits or its cooldown cannot be read.
	Limits  budget.Limits
	Invalid bool
	// Limited says that more unhealthy machines could forbid to remediate any.
	Limited  bool
	Cooldown *time.Duration // nil: none
	Storm    budget.Storm   // as of the reconcile before

	Template Template
	// CyclesUnread is until when no remediation starts for machines on hosts, as it is not known which power cycles are in progress; zero if
	// it is known.
	CyclesUnread time.Time

	// Healthy counts the targets about which nothing is to be decided: they are healthy, and nothing was begun for them. Targets are the others,
	// in the order of their names.
	Healthy int
	Targets []Target
	// Counted are the numbers of all targets for a reader that has read some of them; nil for one that has read all.
	Counted *Counted
	Memory  Memory
}

// Counted are the targets of a check as its status counts them.
type Counted struct{ Total, Healthy int }

// Template is what is known of the remediation template of a check, and of the requests that are made from it.
type Template struct {
	// External says that the check has a template; without one the owners of the machines remediate them.
	External bool
	// Known says that it is known which requests exist. While it is not, none is made.
	Known bool
	// Refused says that the check names what can be no template, Missing that there is no such template or kind.
	Refused, Missing bool
	// Unread says that the reader may not read the template or the requests, which kubemend may.
	Unread bool
}

// Request is how the remediation request of a machine relates to the check.
type Request int

const (
	// NoRequest is that there is none.
	NoRequest Request = iota
	// ForeignRequest is one that another check made, or nobody known, or that is for another Machine.
	ForeignRequest
	// OwnRequest is one that this check made, or takes over.
	OwnRequest
)

// Owner is how far the owner of a machine has got that was asked to remediate it.
type Owner int

const (
	// NotAsked is an owner that was not asked, or that has finished.
	NotAsked Owner = iota
	// Asked is one that was asked.
	Asked
	// CannotRemediate is one that was asked and says that it cannot, or that does not exist.
	CannotRemediate
)

// Cycle is a power cycle of a machine in progress that the check did not request.
type Cycle struct {
	// Until is when it counts as over although nobody has ended it; zero if it counts for as long as it lasts.
	Until time.Time
}

// Target is what is known of one machine that the check selects.
type Target struct {
	ID      string // tells it from one of the same name that was there before
	Name    string
	Verdict health.Verdict

	Deleting bool
	Updating bool // in place, and no person wants it remediated all the same
	OnHost   bool // of bare metal
	Owned    bool // there is an owner that could replace it
	Older    bool // an older check selects it too, and acts on it

	Owner   Owner
	Request Request
	// Announced says that the machine's conditions announce a request, RequestFailed that they say that none could be made.
	Announced, RequestFailed bool
	// Unusable says that no request can be made for the machine from the template as it is.
	Unusable bool
	Cycle    *Cycle

	// Begun says that this process began a remediation that the caches do not show yet.
	Begun bool
	// Refused is when this process last tried to begin a remediation and could not; zero if it did not, or could.
	Refused time.Time
}

// Memory is what a decision must know of those before it. A process that has none waits for as long as it would after a change.
type Memory struct {
	// Known says that there was a decision before.
	Known bool
	// NotHealthy is since when machines are not healthy, by Target.ID.
	NotHealthy map[string]time.Time
	// ShortCircuited says that too many machines were not healthy, or too few; Calm is when that ended, as far as this process has seen it.
	ShortCircuited bool
	Calm           time.Time
}
