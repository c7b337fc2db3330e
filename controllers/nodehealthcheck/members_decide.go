package nodehealthcheck

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// ClingingFor is how long the end of a request is waited for that is being deleted.
const ClingingFor = 10 * time.Minute

// ControlPlane is what is known of the control plane of the cluster.
type ControlPlane struct {
	// Unread is why the control plane could not be read, in words; empty if it was. Searching says that it will be in a moment.
	Unread    string
	Searching bool
	// Members are what their nodes, Machines, requests of whatever check, and API servers say of them; none if it is unread.
	Members []controlplane.Member
	Etcd    Etcd
}

// OrphansUnsearched is why the control plane is unread, besides errors.
const OrphansUnsearched = "orphaned requests could not be searched for"

// Etcd is what is known of OpenShift's etcd. The zero value is a cluster without it.
type Etcd struct {
	There  bool
	Unread bool
	// Budgets is how many PodDisruptionBudgets there are, Budget the only one, Allows whether it allows a disruption.
	Budgets int
	Budget  string
	Allows  bool
	// Guards are the guard pods that are ready, or may be, by node.
	Guards map[string]string
}

// against is why etcd cannot do without the node; empty if it can: its budget allows a disruption, or counts the node as lost already.
// (medik8s.)
func (e Etcd) against(node string) Reason {
	_, ready := e.Guards[node]
	switch {
	case e.Unread:
		return EtcdUnread
	case e.There && e.Budgets != 1:
		return EtcdBudgets
	case e.There && !e.Allows && ready:
		return EtcdAtRisk
	}
	return ""
}

// find is the index of the member of a name; -1 if there is none.
func (c *ControlPlane) find(name string) int {
	return slices.IndexFunc(c.Members, func(member controlplane.Member) bool { return member.Name == name })
}

// join is the member of a name, which joins if there is none yet.
func (c *ControlPlane) join(name string) *controlplane.Member {
	if c.find(name) < 0 {
		c.Members = append(c.Members, controlplane.Member{Name: name, Joining: true})
	}
	return &c.Members[c.find(name)]
}

// addMachine adds what a Machine of the control plane says of its member.
func (c *ControlPlane) addMachine(machine *clusterv1.Machine) {
	node, who, since := machine.Status.NodeRef.Name, "Machine "+machine.Namespace+"/"+machine.Name, replacedSince(machine)
	switch found := c.find(node); {
	case node == "": // nodes are named after their Machines as a rule, and may be there before these know
		c.join(machine.Name)
	case !since.IsZero() && found >= 0:
		c.Members[found].ReplacedBy, c.Members[found].ReplacedSince = who, since
	case since.IsZero() && BeingRemediated(machine):
		c.join(node).Remediation = who
	}
}

// addRequest adds what a request, of whatever check, says of the member called name: node, or, if that is nil, one that is gone since then.
func (c *ControlPlane) addRequest(r *Request, name string, node *corev1.Node, gone, now time.Time) {
	switch {
	case node != nil && !(health.Ready(node) && idleFor(r.Deleting(), controlplane.ReplacementPatience, now)):
		c.join(name).Remediation = r.Ref().String()
	case node == nil && c.find(name) < 0 && (r.MachineThere || !r.Clings(now)): // else it is about nothing that there is
		member := c.join(name)
		member.ReplacedBy, member.ReplacedSince = r.Ref().String(), gone
	}
}

// replacedSince is since when machine is being deleted, or its owner was asked to replace it; zero if neither.
func replacedSince(machine *clusterv1.Machine) time.Time {
	if !machine.DeletionTimestamp.IsZero() {
		return machine.DeletionTimestamp.Time
	}
	asked := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if asked == nil || asked.Status != metav1.ConditionFalse || !BeingRemediated(machine) {
		return time.Time{}
	}
	return asked.LastTransitionTime.Time
}

// BeingRemediated reports whether a MachineHealthCheck has machine remediated, by its owner or on request.
func BeingRemediated(machine *clusterv1.Machine) bool {
	if meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
		return false
	}
	return slices.ContainsFunc(machine.Status.Conditions, func(c metav1.Condition) bool {
		switch {
		case c.Status != metav1.ConditionFalse:
			return false
		case c.Type == clusterv1.MachineExternallyRemediatedCondition:
			return c.Reason != clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason &&
				c.Reason != clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason // no request was made
		default:
			return c.Type == clusterv1.MachineOwnerRemediatedCondition
		}
	})
}

func idleFor(deleting time.Time, d time.Duration, now time.Time) bool {
	return !deleting.IsZero() && !now.Before(deleting.Add(d))
}

// cleared is the control plane with the nodes that are due, as if nothing were done to them. Its API server answers, or there would be no
// facts.
func (d *decider) cleared(due ...int) controlplane.Plane {
	plane := controlplane.Plane{API: controlplane.Answers, Members: slices.Clone(d.f.ControlPlane.Members)}
	for j := range plane.Members {
		for _, i := range due {
			if d.f.Nodes[i].Name == plane.Members[j].Name {
				plane.Members[j].Due, plane.Members[j].Remediation = d.p.Decisions[i].Verdict.OverdueSince(d.f.Now), ""
			}
		}
	}
	return plane
}

// objections are what keeps the node from being disrupted besides its place in the queue. What is done to the node already does not count.
func (d *decider) objections(i int) []controlplane.Objection {
	return d.cleared(i).Against(d.f.Nodes[i].Name, d.f.Now)
}

// queue is the node that goes first, and why etcd forbids it. One that etcd forbids does not block another: its loss may be why the other
// is forbidden.
func (d *decider) queue(due []int) (first int, etcd Reason) {
	first = d.firstOf(due)
	if d.f.ControlPlane.Unread != "" {
		return first, "" // none may be disrupted in any case
	}
	name := func(i int) string { return d.f.Nodes[i].Name }
	etcd = d.f.ControlPlane.Etcd.against(name(first))
	for next, rest := first, slices.Clone(due); len(d.objections(next)) == 0; next = d.firstOf(rest) {
		if d.f.ControlPlane.Etcd.against(name(next)) == "" {
			return next, ""
		}
		if rest = slices.DeleteFunc(rest, func(i int) bool { return i == next }); len(rest) == 0 {
			break
		}
	}
	return first, etcd
}

// firstOf is the node that goes first of those that are due: while it is not known which are alive, the one that has been due for longest.
func (d *decider) firstOf(due []int) int {
	plane := d.cleared(due...)
	first := plane.First(d.f.Now)
	if i := slices.IndexFunc(due, func(i int) bool { return d.f.Nodes[i].Name == first }); i >= 0 {
		return due[i]
	}
	since := func(i int) time.Time { return d.p.Decisions[i].Verdict.OverdueSince(d.f.Now) }
	return slices.MinFunc(due, func(a, b int) int { return since(a).Compare(since(b)) })
}

// mayBegin reports whether a remediation of n may have to begin, for which the control plane is read. Requests of other checks, which may
// not be readable for long, must hold up neither what has begun nor, for a node that is excluded, the other nodes.
func (n *Node) mayBegin() bool {
	excluded, _ := n.Excluded()
	begun := len(n.Unseen) > 0 || slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Deleting().IsZero() })
	return n.Selected && !excluded && !begun
}

// dueMembers are the nodes that only the rest of the control plane blocks. One whose request was refused lately, or that waits since its
// requests are deleted again and again, lets the others go first.
func (d *decider) dueMembers() []int {
	var due, later []int
	waits := func(n *Node) bool {
		return n.Loop.Times > 1 && d.f.Now.Before(n.remade(func(gone *Listed) bool { return gone.Step >= 0 }))
	}
	for i := range d.f.Nodes {
		n := &d.f.Nodes[i]
		if !n.ControlPlane() || !d.startable(i, health.Unhealthy) || len(d.caseOf(i, &d.now).ask(ofNodeAlone)) > 0 {
			continue
		}
		if d.p.Memory.Refusals[n.Name].lately(d.f.Now) || waits(n) {
			later = append(later, i)
		} else {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return later
	}
	return due
}

// nextMember is the node of the control plane that comes due first of those that nothing else will block then; -1 if there is none.
func (d *decider) nextMember() int {
	first := -1
	for i := range d.f.Nodes {
		if !d.f.Nodes[i].ControlPlane() || !d.startable(i, health.Pending) && !d.startable(i, health.Unhealthy) {
			continue
		}
		at := d.p.Decisions[i].Verdict.Recheck
		if first >= 0 && !at.Before(d.p.Decisions[first].Verdict.Recheck) {
			continue
		}
		lasts := func(b Blocker) bool { return b.Until.IsZero() || b.Until.After(at) }
		if !slices.ContainsFunc(d.caseOf(i, &d.ahead).ask(ofNodeAlone), lasts) {
			first = i
		}
	}
	return first
}
