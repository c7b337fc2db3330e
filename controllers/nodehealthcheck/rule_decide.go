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

// Rule is one reason why no step starts for a node.
type Rule struct {
	Reason Reason
	Event  string // reason of the event about a node; empty if there is none
	Quiet  bool   // no event is sent, because the blocker ends soon
	asked  moment
	When   func(*Case) bool
	Object func(*Case) rule.Ref
	// Message is what users read; empty if no message is needed. Fix is what users can do. EndsWhen is what else ends the blocker. Detail
	// is part of the first line of kubectl mend explain. In these texts {node} is the node's name, {object} the object, {name} its name,
	// {what enables it} the fix of a disabled check; {healthy}, {minimum} and {total} are numbers of nodes. Other braces have an example
	// of what Why returns.
	Message, Fix, EndsWhen, Detail string
	Why                            func(*Case) string
	// Until is when the blocker ends by itself. Again is when to check it again if no watch shows its end.
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
	if c.Decision != nil {
		values["{node}"] = c.Name
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

// valueOf returns says(c); the zero value if says is nil.
func valueOf[T any](says func(*Case) T, c *Case) (value T) {
	if says != nil {
		value = says(c)
	}
	return value
}

// moment says in which situations a rule applies.
type moment int

const (
	ofState        moment = 1 << iota // the node is not unhealthy, or not known to be
	beforeFirst                       // before the first request for a node, which begins another remediation
	beforeNext                        // before any step of a remediation
	whileHeld                         // the node is pending and has requests
	ofNodeAlone                       // before the first request, without the rules about the check and the control plane
	ofControlPlane                    // before the first request for a control-plane node
	ofSelection                       // the check does not select the node, and there are no requests for it
	ofAnswer                          // the escalation starts nothing
	ofCheck                           // no new remediation of the check starts at all

	always = beforeFirst | beforeNext | whileHeld | ofNodeAlone
	ofStep = beforeFirst | beforeNext | ofNodeAlone
)

// stuckFor is how long the deletion of a Node may take. Karpenter drains the Node and terminates its instance in that time.
const stuckFor = time.Hour

// Blocker is why a remediation does not start, with the texts of its Rule for conditions, events and kubectl mend explain. The texts do not
// end with a full stop.
type Blocker struct {
	Reason       Reason
	Quiet        bool
	Again        time.Time
	rule.Blocker // its Reason is that of the event, if there is one
}

// Case is one node with all that a rule depends on, including what is decided so far.
type Case struct {
	*decider
	*Decision
	upgrade *upgrade            // the upgrade that affects the node
	head    *Node               // the control-plane node that is first in the queue; nil if none waits
	step    int                 // the step that the rules are about
	begins  bool                // the step would begin a remediation
	answer  escalation.Decision // what the escalation decides
}

func (d *decider) caseOf(decision *Decision) *Case {
	c := &Case{decider: d, Decision: decision, upgrade: &d.now, head: d.first, begins: true}
	if step := d.suitable(c.Node, 0); step < len(d.f.Templates) {
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

// toBegin returns the moments of all rules that may block the first request.
func (c *Case) toBegin() moment {
	if c.controlPlane() {
		return beforeFirst | ofControlPlane
	}
	return beforeFirst
}

const skipped = nhcv1.EventRemediationSkipped

// inAMinute is when to check a node again that waits for somebody else's request or for another control-plane node, because their changes
// do not enqueue the check. (medik8s.)
func inAMinute(c *Case) time.Time { return c.f.Now.Add(time.Minute) }

// is reports whether the node exists, all its requests could be read, and it is in the state.
func (c *Case) is(state health.State) bool {
	return len(c.Unseen) == 0 && c.exists() && c.Verdict.State == state
}

// timeout describes the condition of the pending node that is due first.
func (c *Case) timeout() string {
	i := slices.IndexFunc(c.Verdict.Findings, func(f health.Finding) bool { return f.Due.Equal(c.Verdict.Recheck) })
	if i < 0 {
		return ""
	}
	f := &c.Verdict.Findings[i]
	return fmt.Sprintf("Its timeout of %s has not expired: %s", f.Limit, f.Observed())
}

// stuckAt returns when the deletion of the Node counts as stuck; zero if the Node is not being deleted.
func (c *Case) stuckAt() time.Time {
	if c.Object == nil || c.Object.DeletionTimestamp == nil {
		return time.Time{}
	}
	return c.Object.DeletionTimestamp.Add(stuckFor)
}

func (c *Case) machine() rule.Ref { return c.Machine.ref() }

func (c *Case) machineName() string { return c.Machine.Object.Name }

func (c *Case) notHealthy() string {
	p, terminating := c.p.Population, ""
	if p.Unknown > 0 {
		terminating = fmt.Sprintf(", %d terminating", p.Unknown)
	}
	return fmt.Sprintf("%d unhealthy, %d pending, %d recovering%s", p.Unhealthy, p.Pending, p.Recovering, terminating)
}

// StormEnds is what ends the blocker StormRecovery.
const StormEnds = "the cooldown after the storm is over"

// PostponedByUpgrade is the message of the event about an upgrade. Only the condition names the object that is upgraded.
const PostponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"

// upgrading returns the upgrade that affects the nodes in these states. If this cannot be read, it counts as an upgrade, unlike in medik8s.
func (d *decider) upgrading(states ...health.State) upgrade {
	nodes := slices.DeleteFunc(slices.Clone(d.p.Decisions), func(decision *Decision) bool {
		return !decision.exists() || !slices.Contains(states, decision.Verdict.State)
	})
	switch {
	case len(nodes) == 0:
		return upgrade{}
	case d.f.Upgrade.Unread:
		return upgrade{text: "whether the cluster is being upgraded could not be found out"}
	}
	reconfiguring := func(n *Decision) bool {
		desired := n.Object.Annotations[OpenShiftDesiredConfig]
		return desired != "" && desired != n.Object.Annotations[OpenShiftCurrentConfig]
	}
	if i := slices.IndexFunc(nodes, reconfiguring); i >= 0 {
		return upgrade{"the configuration of node " + nodes[i].Name + " is being changed", rule.Ref{Kind: "Node", Name: nodes[i].Name}}
	}
	if version := d.f.Upgrade.Progressing; version != "" {
		return upgrade{"ClusterVersion " + version + " is progressing", rule.Ref{Kind: "ClusterVersion", Name: version}}
	}
	rolling := func(n *Decision) bool {
		return n.Machine.there() && n.Machine.Cluster != nil && RollingOut(n.Machine.Cluster)
	}
	if i := slices.IndexFunc(nodes, rolling); i >= 0 {
		cluster := nodes[i].Machine.cluster()
		return upgrade{cluster.String() + " is rolling out", cluster}
	}
	return upgrade{}
}

// RollingOut reports whether the Cluster's condition RollingOut is True.
func RollingOut(cluster *clusterv1.Cluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
}

// unreadTemplate returns a template that is needed and could not be read: before the first request any of the check's, else the step's.
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

// template returns the template of the step; nil if the check has no templates.
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
	reason, _ := c.template().Unsuitable(c.Node)
	return reason
}

func (c *Case) whyUnsuitable() string {
	_, why := c.template().Unsuitable(c.Node)
	return why
}

// foreign returns a request that the check did not create, if it is for the node or has the name that the step's request would have; else
// nil.
func (c *Case) foreign() *unstructured.Unstructured {
	t := c.template()
	if t == nil {
		return nil
	}
	for _, other := range c.Others {
		if other.GroupVersionKind().GroupKind() == t.Request.GroupKind() && !c.orphaned(other) {
			return other
		}
	}
	named, own := c.namesake()
	if own != nil {
		return nil
	}
	return named
}

// namesake returns the existing request with the name that the step's request would have; nil if there is none. Own is the same request if
// the check created it, else nil.
func (c *Case) namesake() (named *unstructured.Unstructured, own *Request) {
	if t := c.template(); t == nil || t.Object == nil || c.step >= len(c.Named) {
		return nil, nil
	}
	if named = c.Named[c.step]; named == nil || c.orphaned(named) {
		return nil, nil
	}
	if i := slices.IndexFunc(c.Requests, func(r RequestState) bool { return r.Object.GetUID() == named.GetUID() }); i >= 0 {
		own = c.Requests[i].Request
	}
	return named, own
}

// otherStep returns the namesake if the check created it from another template, or for an earlier step; nil otherwise.
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

// objection returns why the control plane forbids the disruption of the node, without regard to the queue and to its own remediation, if
// that is for one of the reasons; nil otherwise.
func (c *Case) objection(reasons ...controlplane.Reason) *controlplane.Objection {
	if c.f.ControlPlane == nil || c.f.ControlPlane.Unread != "" {
		return nil
	}
	objections := c.cleared(c.Decision).Against(c.Name, c.f.Now)
	if i := slices.IndexFunc(objections, func(o controlplane.Objection) bool { return slices.Contains(reasons, o.Reason) }); i >= 0 {
		return &objections[i]
	}
	return nil
}

func (c *Case) disrupted() *controlplane.Objection {
	return c.objection(controlplane.BeingRemediated, controlplane.BeingReplaced)
}

func (c *Case) etcd() Reason {
	if c.f.ControlPlane == nil || c.f.ControlPlane.Unread != "" || c.head != nil && c.head != c.Node {
		return ""
	}
	return c.f.ControlPlane.Etcd.against(c.Name)
}

// remake is how long after its creation a deleted request is first created again. Without this wait a remediator that deletes its requests
// at once would get one after the other.
const remake = time.Minute

func (c *Case) remadeAt() time.Time {
	return c.remade(func(gone *Listed) bool { return gone.Step == c.step })
}

// remade returns when a request that is gone may be created again; zero if no request on those steps is gone.
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

// stillDeleted returns a request of an earlier failure whose deletion the escalation waits for; nil if there is none.
func (c *Case) stillDeleted() *Request {
	if c.answer.Do != escalation.Wait || c.answer.Reason != escalation.AwaitingDeletion {
		return nil
	}
	for j := range c.Requests {
		if r := &c.Requests[j]; r.Former() {
			return r.Request
		}
	}
	return nil
}
