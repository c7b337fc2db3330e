// Package budget decides whether remediations may start, by how many machines or nodes are not healthy.
package budget

// Population is the state of everything one MachineHealthCheck or NodeHealthCheck
// watches. Every machine, or node, is counted in exactly one of Healthy, Unhealthy,
// Pending, Starting, Recovering, Deleting, Unknown and Unread.
type Population struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"` // to be remediated, whether that has begun or not
	Pending   int `json:"pending"`
	Starting  int `json:"starting"`
	// Recovering counts those that are healthy again and whose remediation is not over: a remediator may still
	// keep workload away. A NodeHealthCheck counts them here, a MachineHealthCheck under Healthy.
	Recovering int `json:"recovering"`
	Deleting   int `json:"deleting"`
	Unknown    int `json:"unknown"`
	// Unread counts those that are not healthy by what the status of the check says, and that were not read.
	Unread int `json:"unread,omitempty"`

	// InFlight counts the machines, in whatever state, whose remediation was
	// begun and is not over.
	InFlight int `json:"inFlight"`
	// Waiting counts those of Unhealthy whose remediation has not begun.
	Waiting int `json:"waiting"`
}

// Class is what one machine, or node, is counted as.
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

// Count counts one more of a class.
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

// Total is the number of machines that are watched.
func (p Population) Total() int { return p.Healthy + p.NotHealthy() }

// NotHealthy is what the limits are compared with: everything that is not plainly
// well. Machines that start, recover, are deleted or could not be asked count too, since
// their workload needs the others just as much. (Cluster API: expectedMachines - currentHealthy.)
func (p Population) NotHealthy() int {
	return p.Unhealthy + p.Pending + p.Starting + p.Recovering + p.Deleting + p.Unknown + p.Unread
}

// Complete returns the population of total machines of which healthy are healthy, where p counts those of them that were read. What was
// read is newer than the numbers, so it goes before them.
func (p Population) Complete(total, healthy int) Population {
	seen := p.NotHealthy()
	p.Healthy = max(min(healthy, total-seen), p.Healthy)
	p.Unread = max(total-seen-p.Healthy, 0)
	return p
}

// Limits are absolute numbers; percentages are resolved before they get here.
type Limits struct {
	AtLeast int `json:"atLeast"` // with fewer machines not healthy than this, nothing is started
	// AtMost is the number above which nothing is started: the fault is elsewhere. It is below zero where more
	// nodes have to be healthy than there are.
	AtMost int `json:"atMost"`
}

// Reason says what held a grant back. The zero value is: nothing did.
type Reason string

const (
	// Enough means that remediations may start.
	Enough Reason = ""
	// TooMany means that more machines are not healthy than the limit allows.
	TooMany Reason = "TooManyUnhealthy"
	// TooFew means that fewer machines are not healthy than the range asks for.
	TooFew Reason = "TooFewUnhealthy"
)

// Grant is the answer: whether remediations may start.
type Grant struct {
	Reason Reason
	// Remaining is how many more machines may turn bad before nothing is started any more;
	// it is what status.remediationsAllowed shows.
	Remaining int
}

// ShortCircuited reports whether the population as a whole forbids remediation.
func (g Grant) ShortCircuited() bool { return g.Reason == TooMany || g.Reason == TooFew }

// Decide applies l to p. Where none is unhealthy, none is too many.
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
