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

// ControlPlane is what is known about the control plane of the cluster.
type ControlPlane struct {
	Unread string // why the control plane could not be read; empty if it was read
	// Members come from nodes, Machines, requests of all checks, and leases of API servers; none if the control plane is unread.
	Members []controlplane.Member
	Etcd    Etcd
}

// Etcd is what is known about OpenShift's etcd; zero for a cluster without it.
type Etcd struct {
	There   bool
	Unread  bool
	Budgets int    // number of PodDisruptionBudgets in its namespace
	Budget  string // the PodDisruptionBudget, if there is exactly one
	Allows  bool   // Budget allows a disruption
	// Guards are the names of the guard pods that are or may be ready, by node.
	Guards map[string]string
}

// against returns why etcd cannot do without the node; empty if it can, because the PodDisruptionBudget allows a disruption or already
// counts the node as lost. (medik8s.)
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

// find returns the index of a member; -1 if there is none.
func (c *ControlPlane) find(name string) int {
	return slices.IndexFunc(c.Members, func(member controlplane.Member) bool { return member.Name == name })
}

// join returns the member called name, and adds it as joining if there is none yet.
func (c *ControlPlane) join(name string) *controlplane.Member {
	if c.find(name) < 0 {
		c.Members = append(c.Members, controlplane.Member{Name: name, Joining: true})
	}
	return &c.Members[c.find(name)]
}

// addMachine adds what a control-plane Machine says about its member.
func (c *ControlPlane) addMachine(machine *clusterv1.Machine) {
	node, who, since := machine.Status.NodeRef.Name, "Machine "+machine.Namespace+"/"+machine.Name, replacedSince(machine)
	switch found := c.find(node); {
	case node == "": // the Node usually has the Machine's name, and may exist before status.nodeRef is set
		c.join(machine.Name)
	case !since.IsZero() && found >= 0:
		c.Members[found].ReplacedBy, c.Members[found].ReplacedSince = who, since
	case since.IsZero() && BeingRemediated(machine):
		c.join(node).Remediation = who
	}
}

// addRequest adds what a request of any check says about the member called name, whose Node is node; if nil, it is gone since gone.
func (c *ControlPlane) addRequest(r *Request, name string, node *corev1.Node, gone, now time.Time) {
	switch {
	case node != nil && !(health.Ready(node) && idleFor(r.Deleting(), controlplane.ReplacementPatience, now)):
		c.join(name).Remediation = r.ref().String()
	case node == nil && c.find(name) < 0 && (r.MachineThere || !r.clings(now)): // otherwise it is about a machine that is gone too
		member := c.join(name)
		member.ReplacedBy, member.ReplacedSince = r.ref().String(), gone
	}
}

// replacedSince returns since when machine is being deleted, or since when remediation by its owner is requested; zero if neither.
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

// BeingRemediated reports whether a MachineHealthCheck has requested the remediation of machine, by its owner or by a remediation request.
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
				c.Reason != clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason // there is no request
		default:
			return c.Type == clusterv1.MachineOwnerRemediatedCondition
		}
	})
}

func idleFor(deleting time.Time, d time.Duration, now time.Time) bool {
	return !deleting.IsZero() && !now.Before(deleting.Add(d))
}

// cleared returns the control plane with the due nodes, as if they were not being remediated. An API server answers, or there would be no
// facts.
func (d *decider) cleared(due ...*Decision) controlplane.Plane {
	plane := controlplane.Plane{API: controlplane.Answers, Members: slices.Clone(d.f.ControlPlane.Members)}
	for j := range plane.Members {
		for _, decision := range due {
			if decision.Name == plane.Members[j].Name {
				plane.Members[j].Due, plane.Members[j].Remediation = decision.Verdict.OverdueSince(d.f.Now), ""
			}
		}
	}
	return plane
}

// mayBegin reports whether a remediation of n may have to begin, so that the control plane has to be read. That needs the requests of other
// checks, which may be unreadable for long. This must block neither begun remediations nor, because of an excluded node, other nodes.
func (n *Node) mayBegin() bool {
	excluded, _ := n.Excluded()
	begun := len(n.Unseen) > 0 || slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Deleting().IsZero() })
	return n.Selected && !excluded && !begun
}

// firstMember returns the control-plane node that is first in the queue; nil if none waits. Nodes that etcd forbids go last, because etcd
// may forbid them only because another due node is down. While the members are not known, the node that has been due for longest is first.
func (d *decider) firstMember() *Node {
	due := d.dueMembers()
	if d.f.ControlPlane == nil || len(due) == 0 {
		return nil
	}
	forbidden := func(decision *Decision) bool { return d.f.ControlPlane.Etcd.against(decision.Name) != "" }
	if allowed := slices.DeleteFunc(slices.Clone(due), forbidden); len(allowed) > 0 {
		due = allowed
	}
	first := d.cleared(due...).First(d.f.Now)
	if i := slices.IndexFunc(due, func(decision *Decision) bool { return decision.Name == first }); i >= 0 {
		return due[i].Node
	}
	return slices.MinFunc(due, func(a, b *Decision) int {
		return a.Verdict.OverdueSince(d.f.Now).Compare(b.Verdict.OverdueSince(d.f.Now))
	}).Node
}

// dueMembers returns the nodes that only the rest of the control plane blocks. It leaves out nodes whose request was refused lately, or
// that wait because their requests are deleted again and again, unless there are no others.
func (d *decider) dueMembers() []*Decision {
	var due, later []*Decision
	for _, decision := range d.p.Decisions {
		n := decision.Node
		if !n.controlPlane() || !decision.startable(health.Unhealthy) || len(d.caseOf(decision).ask(ofNodeAlone)) > 0 {
			continue
		}
		waits := n.Loop.Times > 1 && d.f.Now.Before(n.remade(func(gone *Listed) bool { return gone.Step >= 0 }))
		if waits || d.p.Memory.Refusals[n.Name].lately(d.f.Now) {
			later = append(later, decision)
		} else {
			due = append(due, decision)
		}
	}
	if len(due) == 0 {
		return later
	}
	return due
}

// nextMember returns the control-plane node that will be due first, of the nodes that nothing else will block then; nil if there is
// none. Without it explain would promise a start to a node that will have to queue.
func (d *decider) nextMember() *Node {
	var first *Decision
	for _, decision := range d.p.Decisions {
		at := decision.Verdict.Recheck
		if !decision.controlPlane() || !decision.startable(health.Pending, health.Unhealthy) ||
			first != nil && !at.Before(first.Verdict.Recheck) {
			continue
		}
		lasts := func(b Blocker) bool { return b.Until.IsZero() || b.Until.After(at) }
		if !slices.ContainsFunc(d.caseOf(decision).ask(ofNodeAlone), lasts) {
			first = decision
		}
	}
	if first == nil || d.f.ControlPlane == nil {
		return nil
	}
	return first.Node
}
