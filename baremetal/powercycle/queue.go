package powercycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// Queue is what a remediation may have to wait for before it begins to act on its host: the other members of its control plane, another
// remediation of the same machine, and the manager itself. It is read once.
type Queue struct {
	// Self is the remediation itself.
	Self Queued
	// KeptOffFor is another remediation that keeps the host powered off; empty if none does.
	KeptOffFor string
	// SameMachine are the other remediations of the machine.
	SameMachine []Queued
	// Plane is the control plane that the machine called Machine is a member of; nil if it is a worker.
	Plane   *controlplane.Plane
	Machine string
	// Unasked is why the queue could not be read; empty if it could.
	Unasked string
	// ManagerHere says that the manager runs on the host.
	ManagerHere bool
}

// Queued is a remediation in the queue, as it is known to those that may have to wait for it.
type Queued struct {
	Memory
	// Name is how messages call it.
	Name, UID string
	Created   time.Time
	// Unreadable says that what it remembers cannot be read.
	Unreadable bool
	// Leaves says that it is being deleted, is paused or waits since its host fails again and again: it begins nothing now.
	Leaves bool
}

// Disrupted is a member, of another machine, with what its remediations do to it or wait for. keptOff is its host if that is kept powered
// off, empty if it is not; obeys says that the host would power off if it was asked to.
func Disrupted(member controlplane.Member, keptOff string, obeys bool, remediations []Queued) controlplane.Member {
	if keptOff != "" {
		member.Remediation = keptOff
		return member
	}
	for _, rem := range remediations {
		switch {
		case rem.Unreadable:
			member.Remediation = rem.Name // of what cannot be read the worst is assumed
		case rem.UnderWay():
			member.Remediation, member.Began = rem.Name, rem.Began
		case (rem.State == Pending || rem.State == Preparing) && rem.Paused.IsZero() && !rem.Leaves && obeys: // else it could not begin anyhow
			member.Due, member.Begun = rem.Created, rem.Attempt > 0
		}
	}
	return member
}

// Ahead is one thing that a remediation waits for in its queue.
type Ahead struct {
	// Text is what it waits for, as a clause.
	Text string
	// Until is when time alone ends it; zero if that is not known.
	Until time.Time
	// Manager says that it waits for the manager to run elsewhere.
	Manager bool
}

// Ahead returns all that the remediation has to wait for at now; nothing if it may begin. Of what keeps it waiting anyhow only the first
// kind is returned, as what comes after it may have changed by then.
func (q *Queue) Ahead(now time.Time) []Ahead {
	switch {
	case q.Unasked != "":
		return []Ahead{{Text: q.Unasked}}
	case q.KeptOffFor != "":
		return []Ahead{{Text: "the host is kept powered off for remediation " + q.KeptOffFor}}
	}
	for _, other := range q.SameMachine {
		if other.before(q.Self) {
			return []Ahead{{Text: other.Name + " is under way"}}
		}
	}
	if q.Plane != nil {
		var ahead []Ahead
		for _, o := range q.plane().Against(q.Machine, now) {
			ahead = append(ahead, Ahead{Text: behind(o)})
		}
		if len(ahead) > 0 {
			return ahead
		}
	}
	if q.ManagerHere {
		return []Ahead{{Text: "no other replica is ready elsewhere, or it is about to take over", Manager: true}}
	}
	return nil
}

// behind says why a member of a control plane, "it", has to wait.
func behind(o controlplane.Objection) string {
	switch o.Reason {
	case controlplane.BeingRemediated, controlplane.BeingReplaced:
		return fmt.Sprintf("%s is being remediated (%s)", o.Member, o.By)
	case controlplane.MajorityAtRisk:
		return fmt.Sprintf("without it %d of %d control-plane nodes are healthy, and %d are needed", o.Votes, o.Total, o.Needed)
	case controlplane.NotFirst:
		return o.Member + " is ahead in the queue"
	}
	return "it is not known yet which members of the control plane are alive"
}

// plane is the control plane with what the remediation itself does to its member.
func (q *Queue) plane() controlplane.Plane {
	plane := controlplane.Plane{API: q.Plane.API, Members: slices.Clone(q.Plane.Members)}
	i := slices.IndexFunc(plane.Members, func(m controlplane.Member) bool { return m.Name == q.Machine })
	if i < 0 {
		return plane
	}
	plane.Members[i].Due, plane.Members[i].Begun = q.Self.Created, q.Self.Attempt > 0
	if q.Self.UnderWay() {
		plane.Members[i].Remediation, plane.Members[i].Began = q.Self.Name, q.Self.Began
	}
	return plane
}

// before reports whether r has begun, is not over, and began before self, if that has begun too.
func (r Queued) before(self Queued) bool {
	// One that is paused before it has touched the host looks at the queue again when the pause is over, and counts as begun then.
	rests := !r.Paused.IsZero() && slices.Contains([]State{Pending, Preparing}, r.State)
	if r.UID == self.UID || !r.Unreadable && (r.Attempt == 0 || r.State.Final() || rests) {
		return false
	}
	if r.Unreadable || self.Attempt == 0 {
		return true // of what cannot be read the worst is assumed
	}
	return cmp.Or(r.beganAt().Compare(self.beganAt()), strings.Compare(r.UID, self.UID)) < 0
}

// UnderWay reports whether a remediation that remembers m may have done something to its host in this attempt, and is not over.
func (m Memory) UnderWay() bool {
	return m.State != "" && m.State != Pending && m.State != Preparing && !m.State.Final()
}

// beganAt is when an attempt began. None begins before there is a remediation, whatever that says of itself.
func (r Queued) beganAt() time.Time {
	if r.Began.Before(r.Created) {
		return r.Created
	}
	return r.Began
}

// Queues reports whether the next step of a remediation may depend on its place in the queue: something may be begun that only one may
// begin.
func (f Facts) Queues() bool {
	switch f.State {
	case "", Pending, Preparing, PoweringOff, Rebooting:
		return !f.KeptOff && !f.RebootAsked && !f.Deleting && !f.Stop && f.Machine != MachineGone
	default:
		return false
	}
}

// Condemns reports whether s asks the owner to replace the machine, or is taken since its node is unhealthy still.
func (s Step) Condemns() bool {
	return s.Do == MarkHost || s.Do == RequestOwner || s.Reason == NodeStillUnhealthyReason
}

// Begins reports whether s begins something that of several remediations in a queue only one may begin at a time.
func (s Step) Begins() bool {
	switch {
	case s.Do == KeepOff || s.Do == Reboot:
		return true
	case s.From == Pending:
		return s.Do == BeginAttempt
	}
	return s.From == Preparing && (s.Next == PoweringOff || s.Next == Rebooting)
}
