package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Blocker is why a remediation does not start, in words that conditions, events and explanations repeat.
type Blocker struct {
	Reason Reason
	// Message is what the condition, the event and the explanation say; empty if Reason is silent. It has no full stop at its end.
	Message string
	// Fix is what a user has to do to end it; empty if it ends without that. EndsWhen is what else ends it, as a clause that follows "until".
	Fix, EndsWhen string
	// Detail is what the first line of an explanation says of it besides its reason.
	Detail string
	// Event is the reason of the event about it; empty if there is none for each node. Quiet says that none is sent, since it is over soon.
	Event string
	Quiet bool
	// Object is what blocks, if that is one object other than the check; zero if it is not.
	Object rule.Ref
	// Until is when time alone ends it; zero if it does not.
	Until time.Time
	// Again is when it is looked at again, since nothing may tell when it is over; zero if something does.
	Again time.Time
}

func (b Blocker) equal(c Blocker) bool {
	return b.Reason == c.Reason && b.Until.Equal(c.Until) && b.Message == c.Message
}

// skipped is the reason of the events about most blockers of one node.
const skipped = nhcv1.EventRemediationSkipped

// The beginnings of messages, in the words of medik8s, which documents of others quote.
func (n *Node) skippedOn(why string) string {
	return "Remediation skipped on node " + n.Name + ": " + why
}

func (n *Node) skippedBecause(why string) string {
	return "Skipped remediation of node: " + n.Name + ", because " + why
}

// quorumLoss is what the control plane says against the node called name.
func quorumLoss(name string, reason Reason, why string, object rule.Ref) Blocker {
	return Blocker{
		Reason: reason, EndsWhen: "the control plane can do without it", Event: skipped, Object: object,
		Message: "Skipping remediation of " + name + " for preventing control plane / etcd quorum loss, going to retry in a minute: " + why,
	}
}

// StormEnds ends what blocks everything after a storm.
const StormEnds = "the cooldown after the storm is over"

// everybody is all that keeps anything new from starting, in the order in which the check reports it.
func (d *decider) everybody(upgrade *Blocker, settled time.Time) []Blocker {
	f, p := d.f, d.p
	var blockers []Blocker
	if p.Disabled.Is() || slices.ContainsFunc(f.Templates, func(t Template) bool { return t.Object == nil }) {
		blockers = append(blockers, d.unusable())
	}
	if pauses := f.Check.Spec.PauseRequests; len(pauses) > 0 {
		blockers = append(blockers, Blocker{
			Reason: Paused, Message: "Postponing potential remediations because of pause requests",
			Fix: "remove the entries of spec.pauseRequests: " + strings.Join(pauses, ", "), EndsWhen: "spec.pauseRequests is empty",
		})
	}
	if upgrade != nil {
		blockers = append(blockers, *upgrade)
	}
	if !settled.IsZero() && d.awaitsKubelets() {
		blockers = append(blockers, Blocker{
			Reason:   KubeletsAwaited,
			Message:  "Kubelets have not had time to report since the manager was started, or since the API server could be reached again",
			EndsWhen: "kubelets have had time to report", Until: settled,
		})
	}
	if p.Grant.ShortCircuited() {
		blockers = append(blockers, d.tooManyUnhealthy())
	}
	if p.Storm.Blocks {
		ends := StormEnds
		if p.Storm.Recheck.IsZero() { // the cooldown has not begun
			ends = "the storm is over, and the cooldown after it"
		}
		blockers = append(blockers, Blocker{
			Reason: StormNotOver, Message: "Storm recovery active: skipping creation of new remediations", EndsWhen: ends, Until: p.Storm.Recheck,
		})
	}
	return blockers
}

// unusable is why nothing can be made: the check is disabled, or a template of it is not known.
func (d *decider) unusable() Blocker {
	if d.p.Disabled.Is() {
		return Blocker{Reason: CheckDisabled, Message: d.p.Disabled.Message, Fix: d.p.Disabled.fix()}
	}
	if i := slices.IndexFunc(d.f.Templates, func(t Template) bool { return t.Unread }); i >= 0 {
		kinds := d.f.Templates[i].Request.Kind + "s"
		return Blocker{
			Reason: TemplateNotSeen, Message: kinds + " and their templates could not be read with your rights, and the manager may read them",
			Fix: "Ask as a user who may read " + kinds + " and their templates", Detail: kinds,
		}
	}
	return Blocker{Reason: TemplateUnread, Message: "A remediation template could not be read for the moment"}
}

func (d *decider) tooManyUnhealthy() Blocker {
	p, terminating := d.p.Population, ""
	if p.Unknown > 0 {
		terminating = fmt.Sprintf(", %d terminating", p.Unknown)
	}
	return Blocker{
		Reason: TooManyUnhealthy,
		Message: fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or exceed %d "+
			"(%d nodes: %d healthy, %d unhealthy, %d pending, %d recovering%s)",
			p.Healthy, d.p.Minimum(), p.Total(), p.Healthy, p.Unhealthy, p.Pending, p.Recovering, terminating),
		EndsWhen: fmt.Sprintf("at least %d of %d nodes are healthy (now %d)", d.p.Minimum(), p.Total(), p.Healthy),
	}
}

// awaitsKubelets reports whether a kubelet that has had no time to report may be why a node is not healthy. A node that is not selected any more is
// not counted, and its remediation goes on all the same.
func (d *decider) awaitsKubelets() bool {
	for i := range d.p.Decisions {
		if state := d.p.Decisions[i].Verdict.State; state == health.Unhealthy || state == health.Pending {
			return true
		}
	}
	return d.p.Population.Unhealthy > 0
}

// PostponedByUpgrade is what the event says of an upgrade. Only the condition names what is upgraded.
const PostponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"

// upgrade is by what the cluster of the nodes in those states is being changed; nil if by nothing. That it could not be found out blocks, too: medik8s
// goes on then.
func (d *decider) upgrade(states ...health.State) *Blocker {
	var nodes []*Node
	for i := range d.f.Nodes {
		if n := &d.f.Nodes[i]; n.Exists() && slices.Contains(states, d.p.Decisions[i].Verdict.State) {
			nodes = append(nodes, n)
		}
	}
	upgrading := func(what string, object rule.Ref) *Blocker {
		return &Blocker{Reason: Upgrading, Message: PostponedByUpgrade + ": " + what, EndsWhen: "the upgrade is over", Object: object}
	}
	if len(nodes) == 0 {
		return nil
	}
	if d.f.Upgrade.Unread {
		return upgrading("whether the cluster is being upgraded could not be found out", rule.Ref{})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool { return n.reconfiguring() }); i >= 0 {
		name := nodes[i].Name
		return upgrading("the configuration of node "+name+" is being changed", rule.Ref{Kind: "Node", Name: name})
	}
	if version := d.f.Upgrade.Progressing; version != "" {
		return upgrading("ClusterVersion "+version+" is progressing", rule.Ref{Kind: "ClusterVersion", Name: version})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool {
		return n.Machine.There() && n.Machine.Cluster != nil && RollingOut(n.Machine.Cluster)
	}); i >= 0 {
		cluster := nodes[i].Machine.cluster()
		return upgrading(cluster.String()+" is rolling out", cluster)
	}
	return nil
}

// RollingOut reports whether the Cluster is rolling out a new version of its machines.
func RollingOut(cluster *clusterv1.Cluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
}

// asking is the question what keeps a step from starting for one node.
type asking struct {
	*decider
	view *view
	i    int
	n    *Node
	step int
}

func (d *decider) asked(i int, v *view) asking {
	return asking{decider: d, view: v, i: i, n: &d.f.Nodes[i]}
}

// any is what is asked before any step: what the user, or somebody else who holds the node, wants.
func (a asking) any() []Blocker {
	blockers := append(a.excluded(), a.deleting()...)
	blockers = append(blockers, a.machine()...)
	return append(blockers, a.leaseTaken()...)
}

// toRemediate is what is asked about the node in particular. Before the first request that is more: it is no reason to stop halfway.
func (a asking) toRemediate() []Blocker {
	blockers := a.any()
	if a.begun(a.i) {
		return blockers
	}
	return append(append(blockers, a.fresh()...), a.obstacles()...)
}

// toBegin is what is asked before the first request for the node, which adds one to those that are being remediated. Of the control plane's nodes one is
// disrupted at a time.
func (a asking) toBegin() []Blocker {
	blockers := append(a.unselected(), a.toRemediate()...)
	blockers = append(blockers, a.view.blockers...)
	if a.n.ControlPlane() {
		blockers = append(blockers, a.members()...)
	}
	return blockers
}

// toStart is what is asked before a request of the step is made. What is paused is not escalated.
func (a asking) toStart() []Blocker {
	blockers := a.obstacles()
	for _, b := range a.view.blockers {
		if b.Reason == Paused || b.Reason == Upgrading || b.Reason == KubeletsAwaited {
			blockers = append(blockers, b)
		}
	}
	blockers = append(blockers, a.justDeleted()...)
	if a.p.Disabled.Is() || a.f.Templates[a.step].Object == nil { // nothing can be made without the template
		blockers = append(blockers, a.unusable())
	}
	return blockers
}

// distinct are the blockers, each once: some are asked for more than once.
func distinct(blockers []Blocker) []Blocker {
	kept := blockers[:0:0]
	for _, b := range blockers {
		if !slices.ContainsFunc(kept, b.equal) {
			kept = append(kept, b)
		}
	}
	return kept
}
