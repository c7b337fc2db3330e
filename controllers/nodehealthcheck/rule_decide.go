package nodehealthcheck

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Rule is one reason for which no step starts for a node.
type Rule struct {
	Reason Reason
	Event  string // reason of the event about it; empty if there is none for each node
	Quiet  bool   // none is sent, since it is over soon
	asked  moment
	When   func(*Case) bool
	Object func(*Case) rule.Ref
	// Message is what users read, empty if the reason goes without saying; Fix is what they have to do, EndsWhen what else ends it, and
	// Detail what the first line of an explanation says. {node} is the name of the node, {object} the object, {name} its name, {what
	// enables it} the fix of a disabled check; {healthy}, {minimum} and {total} count nodes. Other braces hold an example of what Why says.
	Message, Fix, EndsWhen, Detail string
	Why                            func(*Case) string
	// Until is when time alone ends it, Again when it is looked at again, since nothing may tell when it is over.
	Until, Again func(*Case) time.Time
}

var inBraces = regexp.MustCompile(`{[^}]+}`)

func (r *Rule) blocker(c *Case) Blocker {
	b := Blocker{Reason: r.Reason, Quiet: r.Quiet}
	if b.Blocker.Reason = string(r.Reason); r.Event != "" {
		b.Blocker.Reason, b.Cause = r.Event, string(r.Reason)
	}
	if r.Message == "" {
		return b
	}
	why := valueOf(r.Why, c)
	b.Object, b.Until, b.Again = valueOf(r.Object, c), valueOf(r.Until, c), valueOf(r.Again, c)
	values := map[string]string{
		"{object}": b.Object.String(), "{name}": b.Object.Name, "{what enables it}": fixes[c.p.Disabled.Reason],
		"{healthy}": strconv.Itoa(c.p.Population.Healthy), "{minimum}": strconv.Itoa(c.p.Minimum()),
		"{total}": strconv.Itoa(c.p.Population.Total()),
	}
	if c.n != nil {
		values["{node}"] = c.n.Name
	}
	fill := func(text string) string {
		return inBraces.ReplaceAllStringFunc(text, func(name string) string {
			if value, found := values[name]; found {
				return value
			}
			return why
		})
	}
	b.Text, b.Fix, b.EndsWhen, b.Detail = fill(r.Message), fill(r.Fix), fill(r.EndsWhen), fill(r.Detail)
	return b
}

// valueOf is what a rule says of the case; the zero value if it says nothing.
func valueOf[T any](says func(*Case) T, c *Case) (value T) {
	if says != nil {
		value = says(c)
	}
	return value
}

// moment is when a rule is asked; a rule may be asked at several.
type moment int

const (
	ofState        moment = 1 << iota // of a node that is not unhealthy: why not
	beforeFirst                       // before the first request for a node, which adds one to those that are being remediated
	beforeNext                        // before a step of a remediation: what is paused is not escalated
	whileHeld                         // of a pending node with requests: whether a user, or another controller, keeps it
	ofNodeAlone                       // before the first request, as far as the node alone decides
	ofControlPlane                    // before the first request for a node of the control plane: of these one is disrupted at a time
	ofSelection                       // of a node without requests that the check does not select: whatever else there is does not matter
	ofAnswer                          // when the escalation starts nothing
	ofCheck                           // of the check itself: why nothing new starts at all

	always = beforeFirst | beforeNext | whileHeld | ofNodeAlone
	ofStep = beforeFirst | beforeNext | ofNodeAlone
)

// stuckFor is how long the deletion of a Node may take. Karpenter drains it and ends its instance meanwhile.
const stuckFor = time.Hour

// Blocker is why a remediation does not start, in the words of its Rule, which conditions, events and explanations repeat. They have no
// full stop at their end.
type Blocker struct {
	Reason       Reason
	Quiet        bool
	Again        time.Time
	rule.Blocker // as pages have it: its Reason is that of the event, where there is one
}

// Case is one node, and what a rule depends on besides it. Of the plan it is the part that was decided so far.
type Case struct {
	*decider
	*Decision
	view   *view
	i      int
	n      *Node
	step   int                 // that is asked about
	begins bool                // the step is the first one
	answer escalation.Decision // of the escalation
}

func (d *decider) caseOf(i int, v *view) *Case {
	c := &Case{decider: d, Decision: &d.p.Decisions[i], view: v, i: i, n: &d.f.Nodes[i], begins: true}
	if step := d.suitable(c.n, 0); step < len(d.f.Templates) {
		c.step = step
	}
	return c
}

func (c *Case) ask(at moment) []Blocker {
	var blockers []Blocker
	for i := range rules {
		r := &rules[i]
		if r.asked&at != 0 && r.When(c) {
			blockers = append(blockers, r.blocker(c))
		}
	}
	return blockers
}

// toBegin is when all is asked that keeps the first request from being made.
func (c *Case) toBegin() moment {
	if c.n.ControlPlane() {
		return beforeFirst | ofControlPlane
	}
	return beforeFirst
}

const skipped = nhcv1.EventRemediationSkipped

// inAMinute is when a node is looked at again that waits for a request of another maker, or for another member: neither enqueues the
// check. (medik8s.)
func inAMinute(c *Case) time.Time { return c.f.Now.Add(time.Minute) }

// is reports whether the node, of which everything was read, is in the state.
func (c *Case) is(state health.State) bool {
	return len(c.n.Unseen) == 0 && c.n.Exists() && c.Verdict.State == state
}

// timeout is which condition of the pending node comes due first.
func (c *Case) timeout() string {
	i := slices.IndexFunc(c.Verdict.Findings, func(f health.Finding) bool { return f.Due.Equal(c.Verdict.Recheck) })
	if i < 0 {
		return ""
	}
	f := &c.Verdict.Findings[i]
	return fmt.Sprintf("Its timeout of %s has not expired: Node condition %s is %s (%s)",
		f.Limit, f.Signal.Type, f.Signal.Status, f.Signal.Reason)
}

// stuckAt is when a Node that is being deleted is stuck; zero if it is not being deleted.
func (c *Case) stuckAt() time.Time {
	if c.n.Object == nil || c.n.Object.DeletionTimestamp == nil {
		return time.Time{}
	}
	return c.n.Object.DeletionTimestamp.Add(stuckFor)
}

func (c *Case) machine() rule.Ref { return c.n.Machine.Ref() }

func (c *Case) machineName() string { return c.n.Machine.Object.Name }

func (c *Case) notHealthy() string {
	p, terminating := c.p.Population, ""
	if p.Unknown > 0 {
		terminating = fmt.Sprintf(", %d terminating", p.Unknown)
	}
	return fmt.Sprintf("%d unhealthy, %d pending, %d recovering%s", p.Unhealthy, p.Pending, p.Recovering, terminating)
}

// StormEnds ends what blocks everything after a storm.
const StormEnds = "the cooldown after the storm is over"

// PostponedByUpgrade is what the event says of an upgrade. Only the condition names what is upgraded.
const PostponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"

// upgrade is by what the cluster of the nodes in those states is being changed, and the object that says so. Not knowing blocks too,
// unlike in medik8s.
func (d *decider) upgrade(states ...health.State) (string, rule.Ref) {
	var nodes []*Node
	for i := range d.f.Nodes {
		if n := &d.f.Nodes[i]; n.Exists() && slices.Contains(states, d.p.Decisions[i].Verdict.State) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return "", rule.Ref{}
	}
	if d.f.Upgrade.Unread {
		return "whether the cluster is being upgraded could not be found out", rule.Ref{}
	}
	reconfiguring := func(n *Node) bool {
		desired := n.Object.Annotations[OpenShiftDesiredConfig]
		return desired != "" && desired != n.Object.Annotations[OpenShiftCurrentConfig]
	}
	if i := slices.IndexFunc(nodes, reconfiguring); i >= 0 {
		return "the configuration of node " + nodes[i].Name + " is being changed", rule.Ref{Kind: "Node", Name: nodes[i].Name}
	}
	if version := d.f.Upgrade.Progressing; version != "" {
		return "ClusterVersion " + version + " is progressing", rule.Ref{Kind: "ClusterVersion", Name: version}
	}
	rolling := func(n *Node) bool {
		return n.Machine.There() && n.Machine.Cluster != nil && RollingOut(n.Machine.Cluster)
	}
	if i := slices.IndexFunc(nodes, rolling); i >= 0 {
		cluster := nodes[i].Machine.cluster()
		return cluster.String() + " is rolling out", cluster
	}
	return "", rule.Ref{}
}

// RollingOut reports whether the Cluster is rolling out a new version of its machines.
func RollingOut(cluster *clusterv1.Cluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
}

// unreadTemplate is a template without which nothing can be made: of the check before the first request, else of the step.
func (c *Case) unreadTemplate() *Template {
	if c.p.Disabled.Is() {
		return nil
	}
	needed := c.f.Templates
	if !c.begins {
		needed = needed[c.step : c.step+1]
	}
	i := slices.IndexFunc(needed, func(t Template) bool { return t.Object == nil })
	if i < 0 {
		return nil
	}
	if j := slices.IndexFunc(c.f.Templates, func(t Template) bool { return t.Unread }); j >= 0 {
		return &c.f.Templates[j]
	}
	return &needed[i]
}

// template is that of the step; nil if there is none.
func (c *Case) template() *Template {
	if len(c.f.Templates) == 0 {
		return nil
	}
	return &c.f.Templates[c.step]
}

func (c *Case) unsuitable() Reason {
	if c.template() == nil {
		return ""
	}
	reason, _ := c.template().Unsuitable(c.n)
	return reason
}

func (c *Case) whyUnsuitable() string {
	_, why := c.template().Unsuitable(c.n)
	return why
}

// foreign is another maker's request that is for the node, or has the name that the check's would have; nil if there is none.
func (c *Case) foreign() *unstructured.Unstructured {
	t := c.template()
	if t == nil {
		return nil
	}
	for _, other := range c.n.Others {
		if other.GroupVersionKind().GroupKind() == t.Request.GroupKind() && !c.n.orphaned(other) {
			return other
		}
	}
	named, own := c.namesake()
	if own != nil {
		return nil
	}
	return named
}

// namesake is the request that has the name which the one of this step would have; nil if there is none. Own is the same as a request that
// the check made; nil if it did not.
func (c *Case) namesake() (named *unstructured.Unstructured, own *Request) {
	if t := c.template(); t == nil || t.Object == nil || c.step >= len(c.n.Named) {
		return nil, nil
	}
	if named = c.n.Named[c.step]; named == nil || c.n.orphaned(named) {
		return nil, nil
	}
	if i := slices.IndexFunc(c.n.Requests, func(r Request) bool { return r.Object.GetUID() == named.GetUID() }); i >= 0 {
		own = &c.n.Requests[i]
	}
	return named, own
}

// otherStep is that request, if the check made it from another template, or for a step before that has the same one; nil if it did not.
func (c *Case) otherStep() *Request {
	_, own := c.namesake()
	if own != nil && own.Object.GetAnnotations()[nhcv1.TemplateNameAnnotation] == c.template().Name && own.Step >= c.step {
		return nil
	}
	return own
}

func (n *Node) orphaned(request *unstructured.Unstructured) bool {
	return slices.ContainsFunc(n.Orphaned, func(o *unstructured.Unstructured) bool { return o.GetUID() == request.GetUID() })
}

// queued reports whether the queue of the control plane was read. It is not as long as something else blocks all of its nodes.
func (c *Case) queued() bool {
	return c.f.ControlPlane != nil && !c.f.ControlPlane.Searching && c.view.first >= 0
}

// objection is what the control plane has against the disruption of the node for one of those reasons; nil if nothing.
func (c *Case) objection(reasons ...controlplane.Reason) *controlplane.Objection {
	if !c.queued() || c.f.ControlPlane.Unread != "" {
		return nil
	}
	objections := c.objections(c.i)
	if i := slices.IndexFunc(objections, func(o controlplane.Objection) bool { return slices.Contains(reasons, o.Reason) }); i >= 0 {
		return &objections[i]
	}
	return nil
}

func (c *Case) disrupted() *controlplane.Objection {
	return c.objection(controlplane.BeingRemediated, controlplane.BeingReplaced)
}

func (c *Case) etcd() Reason {
	if c.f.ControlPlane == nil || c.view.first != c.i {
		return ""
	}
	return c.view.etcd
}

// remake is the age at which a deleted request is made again for the first time: a remediator that deletes its requests at once would get
// one after the other.
const remake = time.Minute

func (c *Case) remadeAt() time.Time {
	return c.n.remade(func(gone *Listed) bool { return gone.Step == c.step })
}

// remade is the first moment at which a request that is gone may be made again; zero if there was none.
func (n *Node) remade(on func(*Listed) bool) time.Time {
	var at time.Time
	for i := range n.Gone {
		if gone := &n.Gone[i]; on(gone) && gone.TimedOut == nil {
			again := health.Latest(n.LoopAwaited, n.Loop.Until(gone.Started.Time, time.Hour))
			at = health.Latest(health.Latest(at, gone.Started.Add(remake)), again)
		}
	}
	return at
}

func (c *Case) waits() bool {
	return c.answer.Do == escalation.Wait || c.answer.Do == escalation.GiveUp
}

// stillDeleted is a request of the last time that is waited for, which is still being deleted; nil if there is none.
func (c *Case) stillDeleted() *Request {
	if c.answer.Do != escalation.Wait || c.answer.Reason != escalation.AwaitingDeletion {
		return nil
	}
	for j := range c.n.Requests {
		if r := &c.n.Requests[j]; c.Requests[j].Former(r) {
			return r
		}
	}
	return nil
}
