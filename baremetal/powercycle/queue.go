package powercycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// Queue is what a remediation may have to wait for before it acts on its host: the other members of the control plane, another remediation
// of the same machine, and the manager itself.
type Queue struct {
	// Self is the remediation itself.
	Self Queued
	// KeptOffFor is the UID of another remediation that keeps the host off; empty if none does.
	KeptOffFor types.UID
	// SameMachine are the other remediations of the machine.
	SameMachine []Queued
	// Plane is the control plane that Machine is a member of; nil if Machine is a worker.
	Plane   *controlplane.Plane
	Machine string
	// Unasked is why the queue could not be read; empty if it could.
	Unasked string
	// ManagerHere says that the manager runs on the host.
	ManagerHere bool
}

// Queued is a remediation as the others in the queue see it.
type Queued struct {
	Memory
	// Name is the name in messages.
	Name, UID string
	Created   time.Time
	// Unreadable says that the record of the remediation cannot be read.
	Unreadable bool
	// Leaves says that the remediation begins nothing now: it is being deleted, is paused, or waits for a RemediationPolicy or because its
	// host keeps failing.
	Leaves bool
}

// Disrupted returns member, of another machine, with what its remediations do or wait for. keptOff names its host if that is kept powered
// off, else it is empty. obeys says that the host would power off if asked.
func Disrupted(member controlplane.Member, keptOff string, obeys bool, remediations []Queued) controlplane.Member {
	if keptOff != "" {
		member.Remediation = keptOff
		return member
	}
	for _, rem := range remediations {
		switch {
		case rem.Unreadable:
			member.Remediation = rem.Name // it may be under way
		case rem.UnderWay():
			member.Remediation, member.Began = rem.Name, rem.Began
		case (rem.State == Pending || rem.State == Preparing) && rem.Paused.IsZero() && !rem.Leaves && obeys: // else it cannot begin
			member.Due, member.Begun = rem.Created, rem.Attempt > 0
		}
	}
	return member
}

// Ahead is one thing that a remediation waits for in its queue.
type Ahead struct {
	// Text is a clause that names the thing.
	Text string
	// Until is when time alone ends the wait; zero if that is not known.
	Until time.Time
	// Manager says that the remediation waits for another replica of the manager to take over, Policy that it waits for
	// RemediationPolicies.
	Manager, Policy bool
}

// Ahead returns everything that the remediation waits for at now; nothing if it may begin. Of the kinds of obstacles only the first is
// returned, because the later ones may have changed when that one is gone.
func (q *Queue) Ahead(now time.Time) []Ahead {
	switch {
	case q.Unasked != "":
		return []Ahead{{Text: q.Unasked}}
	case q.KeptOffFor != "":
		return []Ahead{{Text: "the host is kept powered off for remediation " + string(q.KeptOffFor)}}
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
		return []Ahead{{Text: "no replica on another node is ready, or one is just taking over", Manager: true}}
	}
	return nil
}

// behind returns why a member of a control plane ("it") has to wait.
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

// plane returns the control plane with what the remediation itself does to its member.
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

// before reports whether r began before self, and is not over.
func (r Queued) before(self Queued) bool {
	// A remediation that is paused before it has touched the host enters the queue again after the pause, and counts as begun then.
	rests := !r.Paused.IsZero() && slices.Contains([]State{Pending, Preparing}, r.State)
	if r.UID == self.UID || !r.Unreadable && (r.Attempt == 0 || r.State.Final() || rests) {
		return false
	}
	if r.Unreadable || self.Attempt == 0 {
		return true // r may be under way, or has begun while self has not
	}
	return cmp.Or(r.beganAt().Compare(self.beganAt()), strings.Compare(r.UID, self.UID)) < 0
}

// UnderWay reports whether the remediation may have acted on its host in this attempt, and is not over.
func (m Memory) UnderWay() bool {
	return m.State != "" && m.State != Pending && m.State != Preparing && !m.State.Final()
}

// beganAt returns when the attempt began. A record cannot make the remediation older than it is.
func (r Queued) beganAt() time.Time {
	if r.Began.Before(r.Created) {
		return r.Created
	}
	return r.Began
}

// Queues reports whether the next step may depend on the place in the queue.
func (f Facts) Queues() bool {
	switch f.State {
	case "", Pending, Preparing, PoweringOff, Rebooting:
		return !f.KeptOff && !f.RebootAsked && !f.Deleting && !f.Stop && f.Machine != MachineGone
	default:
		return false
	}
}

// Condemns reports whether s asks the owner to replace the machine, or retries because the node is still unhealthy.
func (s Step) Condemns() bool {
	return s.Do == MarkHost || s.Do == RequestOwner || s.Reason == NodeStillUnhealthyReason
}

// Begins reports whether s begins what only one remediation of a queue may begin at a time.
func (s Step) Begins() bool {
	switch {
	case s.Do == KeepOff || s.Do == Reboot:
		return true
	case s.From == Pending:
		return s.Do == BeginAttempt
	}
	return s.From == Preparing && (s.Next == PoweringOff || s.Next == Rebooting)
}
