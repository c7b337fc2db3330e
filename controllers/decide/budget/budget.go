// Package budget decides whether remediations may start, by how many machines or nodes are not healthy.
package budget

// Population counts the machines or nodes that a MachineHealthCheck or NodeHealthCheck watches. Each is counted in exactly one of Healthy,
// Unhealthy, Pending, Starting, Recovering, Deleting, Unknown and Unread.
type Population struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"` // whether their remediation has begun or not
	Pending   int `json:"pending"`
	Starting  int `json:"starting"`
	// Recovering counts nodes that are healthy again but whose remediation is not over: the remediator may still keep pods away from them.
	// A MachineHealthCheck counts such machines as Healthy.
	Recovering int `json:"recovering"`
	Deleting   int `json:"deleting"`
	Unknown    int `json:"unknown"`
	// Unread counts those that are not healthy according to the status of the check, and that were not read.
	Unread int `json:"unread,omitempty"`

	// InFlight counts those, in whatever state, whose remediation has begun and is not over.
	InFlight int `json:"inFlight"`
	// Waiting counts those of Unhealthy whose remediation has not begun.
	Waiting int `json:"waiting"`
}

// Class is how one machine or node is counted.
type Class string

// The classes, in the order in which reports name them.
const (
	Healthy    Class = "healthy"
	Unhealthy  Class = "unhealthy"
	Pending    Class = "pending"
	Starting   Class = "starting"
	Recovering Class = "recovering"
	Deleting   Class = "being deleted"
	Unknown    Class = "unknown"
	Unread     Class = "not healthy (not read)"
)

// Count adds one machine or node of class c.
func (p *Population) Count(c Class) {
	switch c {
	case Healthy:
		p.Healthy++
	case Unhealthy:
		p.Unhealthy++
	case Pending:
		p.Pending++
	case Starting:
		p.Starting++
	case Recovering:
		p.Recovering++
	case Deleting:
		p.Deleting++
	default:
		p.Unknown++
	}
}

// Total returns how many machines or nodes are watched.
func (p Population) Total() int { return p.Healthy + p.NotHealthy() }

// NotHealthy returns the number that is compared with the limits: all that are not Healthy. Machines that start, recover, are being deleted
// or could not be judged count too, because their workload depends on the others just as much. (Cluster API: expectedMachines -
// currentHealthy.)
func (p Population) NotHealthy() int {
	return p.Unhealthy + p.Pending + p.Starting + p.Recovering + p.Deleting + p.Unknown + p.Unread
}

// Complete returns the population of total machines, healthy of which are healthy by the check's status. Here p counts the machines that
// were read. They are newer than the status, so they win where the two contradict.
func (p Population) Complete(total, healthy int) Population {
	seen := p.NotHealthy()
	p.Healthy = max(min(healthy, total-seen), p.Healthy)
	p.Unread = max(total-seen-p.Healthy, 0)
	return p
}

// Limits are absolute numbers; percentages are resolved already.
type Limits struct {
	// AtLeast is how many machines have to be not healthy before any remediation starts.
	AtLeast int `json:"atLeast"`
	// AtMost is how many may be not healthy: if more are, nothing starts, because the cause is likely elsewhere. It is negative if
	// minHealthy is greater than the number of nodes.
	AtMost int `json:"atMost"`
}

// Reason says why no remediation may start; empty if one may.
type Reason string

const (
	// Enough means that remediations may start.
	Enough Reason = ""
	// TooMany means that more machines are not healthy than the limit allows.
	TooMany Reason = "TooManyUnhealthy"
	// TooFew means that fewer machines are not healthy than the range requires.
	TooFew Reason = "TooFewUnhealthy"
)

// Grant says whether remediations may start.
type Grant struct {
	Reason Reason
	// Remaining is how many more machines may stop being healthy before no remediation starts any more, as in status.remediationsAllowed.
	Remaining int
}

// ShortCircuited reports whether the population as a whole forbids remediation.
func (g Grant) ShortCircuited() bool { return g.Reason == TooMany || g.Reason == TooFew }

// Decide applies l to p. If all are healthy the result is never TooMany, even if AtMost is negative.
func Decide(p Population, l Limits) Grant {
	bad := p.NotHealthy()
	switch {
	case bad > max(l.AtMost, 0):
		return Grant{Reason: TooMany}
	case bad < l.AtLeast:
		return Grant{Reason: TooFew}
	}
	return Grant{Remaining: max(l.AtMost-bad, 0)}
}
