package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
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
	Object Ref
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

func quorumLoss(node, why string) string {
	return "Skipping remediation of " + node + " for preventing control plane / etcd quorum loss, going to retry in a minute: " + why
}

// StormEnds ends what blocks everything after a storm.
const StormEnds = "the cooldown after the storm is over"

// everybody is all that keeps anything new from starting, in the order in which the check reports it.
func (d *decider) everybody(upgrade *Blocker, settled time.Time) []Blocker {
	f, p := d.f, d.p
	var blockers []Blocker
	if p.Disabled.Is() || slices.ContainsFunc(f.Templates, func(t Template) bool { return !t.Usable }) {
		blockers = append(blockers, d.unusable())
	}
	if len(f.PauseRequests) > 0 {
		blockers = append(blockers, Blocker{
			Reason: Paused, Message: "Postponing potential remediations because of pause requests",
			Fix: "remove the entries of spec.pauseRequests: " + strings.Join(f.PauseRequests, ", "), EndsWhen: "spec.pauseRequests is empty",
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
		kinds := d.f.Templates[i].RequestKind + "s"
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
		if n := &d.f.Nodes[i]; n.Exists && slices.Contains(states, d.p.Decisions[i].Verdict.State) {
			nodes = append(nodes, n)
		}
	}
	upgrading := func(what string, object Ref) *Blocker {
		return &Blocker{Reason: Upgrading, Message: PostponedByUpgrade + ": " + what, EndsWhen: "the upgrade is over", Object: object}
	}
	if len(nodes) == 0 {
		return nil
	}
	if d.f.Upgrade.Unread {
		return upgrading("whether the cluster is being upgraded could not be found out", Ref{})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool { return n.Reconfiguring }); i >= 0 {
		name := nodes[i].Name
		return upgrading("the configuration of node "+name+" is being changed", Ref{Kind: "Node", Name: name})
	}
	if version := d.f.Upgrade.Progressing; version != "" {
		return upgrading("ClusterVersion "+version+" is progressing", Ref{Kind: "ClusterVersion", Name: version})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool { return n.Machine.There() && n.Machine.RollingOut }); i >= 0 {
		cluster := Ref{Kind: "Cluster", Namespace: nodes[i].Machine.Namespace, Name: nodes[i].Machine.Cluster}
		return upgrading(cluster.String()+" is rolling out", cluster)
	}
	return nil
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
	all := append(a.excluded(), a.deleting()...)
	all = append(all, a.machine()...)
	return append(all, a.leaseTaken()...)
}

// toRemediate is what is asked about the node in particular. Before the first request that is more: it is no reason to stop halfway.
func (a asking) toRemediate() []Blocker {
	all := a.any()
	if a.begun(a.i) {
		return all
	}
	return append(append(all, a.fresh()...), a.obstacles()...)
}

// toBegin is what is asked before the first request for the node, which adds one to those that are being remediated. Of the control plane's nodes one is
// disrupted at a time.
func (a asking) toBegin() []Blocker {
	all := append(a.unselected(), a.toRemediate()...)
	all = append(all, a.view.blockers...)
	if a.n.ControlPlane {
		all = append(all, a.members()...)
	}
	return all
}

// toStart is what is asked before a request of the step is made. What is paused is not escalated.
func (a asking) toStart() []Blocker {
	all := a.obstacles()
	for _, b := range a.view.blockers {
		if b.Reason == Paused || b.Reason == Upgrading || b.Reason == KubeletsAwaited {
			all = append(all, b)
		}
	}
	all = append(all, a.justDeleted()...)
	return append(all, a.templateless()...)
}

// unselected: it has left the selection, and its remediation is over.
func (a asking) unselected() []Blocker {
	if a.n.Selected {
		return nil
	}
	return []Blocker{{Reason: NotSelected, Message: "The check does not select the node any more"}}
}

func (a asking) excluded() []Blocker {
	if !a.n.Excluded {
		return nil
	}
	return []Blocker{{
		Reason: NodeExcluded, Message: a.n.skippedOn("node has Exclude from Remediation label"), Event: skipped,
		Fix:      "remove the label " + nhcv1.ExcludeLabel + " from the node",
		EndsWhen: "the label " + nhcv1.ExcludeLabel + " is removed from the node",
	}}
}

// stuckFor is how long a Node is being deleted before an event asks a person to see to it. Karpenter drains it and ends its instance meanwhile.
const stuckFor = time.Hour

// deleting: the Node is being deleted, and something holds it by a finalizer. A remediation would bring back what somebody else ends.
func (a asking) deleting() []Blocker {
	stuck := a.n.Deleting.Add(stuckFor)
	switch {
	case a.n.Deleting.IsZero():
		return nil
	case a.f.Now.Before(stuck):
		return []Blocker{{
			Reason: NodeDeleting, Message: a.n.skippedOn("it is being deleted"), EndsWhen: "the Node is gone", Event: skipped, Quiet: true, Again: stuck,
		}}
	}
	finalizers := strings.Join(a.n.Finalizers, ", ")
	return []Blocker{{
		Reason: NodeStuck, Message: a.n.skippedOn("it is being deleted for more than an hour, and kept by the finalizers " + finalizers),
		Fix: "find out why what put the finalizers " + finalizers + " on the Node does not end it", EndsWhen: "the Node is gone", Event: skipped,
	}}
}

// machine is what the Machine of the node says against it, what is reported first coming first.
func (a asking) machine() []Blocker {
	m := a.n.Machine
	if m == nil {
		return nil
	}
	cluster, unannotate := Ref{Kind: "Cluster", Namespace: m.Namespace, Name: m.Cluster}, "remove the annotation from Machine "+m.Key()
	paused := "its Machine is paused by the annotation " + clusterv1.PausedAnnotation
	skips := "its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation
	var blockers []Blocker
	for _, rule := range []struct {
		blocks bool
		Blocker
	}{
		{m.Unread, Blocker{Reason: MachineUnread, Message: a.n.skippedOn("its Machine could not be read")}},
		{m.ClusterPaused, Blocker{
			Reason: ClusterPaused, Message: a.n.skippedOn("its Cluster is paused"), Fix: "unpause Cluster " + cluster.Key(), Object: cluster,
		}},
		{m.Paused, Blocker{Reason: MachinePaused, Message: a.n.skippedOn(paused), Fix: unannotate, Object: m.Ref}},
		{m.Skipped, Blocker{Reason: MachineSkipped, Message: a.n.skippedOn(skips), Fix: unannotate, Object: m.Ref}},
		{m.Deleting, Blocker{Reason: MachineDeleting, Message: a.n.skippedOn("its Machine is being deleted"), Object: m.Ref}},
	} {
		if rule.blocks {
			rule.Event = skipped
			blockers = append(blockers, rule.Blocker)
		}
	}
	return blockers
}

func (a asking) leaseTaken() []Blocker {
	l, now := a.n.Lease, a.f.Now
	if !l.Held(now) {
		return nil
	}
	until := l.expiry()
	again := health.Earliest(now.Add(leaseTaken), until.Add(time.Millisecond))
	return []Blocker{{
		Reason: LeaseTaken, Message: a.n.skippedBecause("node lease is already taken by " + l.Holder), Event: skipped,
		EndsWhen: "the lease that " + l.Holder + " has on the node runs out", Until: until, Again: again,
	}}
}

// fresh is asked besides when there is no request yet.
func (a asking) fresh() []Blocker {
	m := a.n.Machine
	if m == nil {
		return nil
	}
	var blockers []Blocker
	if m.WatchedBy != "" {
		check := Ref{Kind: "MachineHealthCheck", Namespace: m.Namespace, Name: strings.TrimPrefix(m.WatchedBy, m.Namespace+"/")}
		blockers = append(blockers, Blocker{
			Reason: OverlappingCheck, Message: a.n.skippedBecause("MachineHealthCheck " + m.WatchedBy + " watches its Machine " + m.Name), Event: skipped,
			Fix: "let only one of the two checks watch it: take it out of the selector of MachineHealthCheck " + m.WatchedBy +
				", or pause that one",
			Object: check,
		})
	}
	if m.Updating {
		blockers = append(blockers, Blocker{
			Reason: MachineUpdating, Message: a.n.skippedBecause("its Machine " + m.Name + " is being updated in place"), Event: skipped,
			EndsWhen: "the update of its Machine is over", Object: m.Ref,
		})
	}
	return blockers
}

// obstacles are what makes the step itself impossible.
func (a asking) obstacles() []Blocker {
	step := a.passing(a.n, a.step)
	if step >= len(a.f.Templates) {
		return nil
	}
	t := &a.f.Templates[step]
	var blockers []Blocker
	if reason, why := t.Unsuitable(a.n); reason != "" {
		blockers = append(blockers, Blocker{
			Reason: reason, Message: a.n.skippedBecause(why), Fix: "have the check name a template that is about this node", Event: skipped, Object: t.Ref,
		})
	}
	again := a.f.Now.Add(time.Minute) // the end of a request that has the name, or lost its mark, enqueues no check
	if len(a.n.Orphaned) > 0 {
		request := a.n.Orphaned[0].Ref
		blockers = append(blockers, Blocker{
			Reason: OrphanedRequest, Event: skipped, EndsWhen: request.String() + " is gone", Object: request, Again: again,
			Message: a.n.skippedBecause(request.String() + ", orphaned by a deleted NodeHealthCheck of the same name, is not gone yet"),
		})
	}
	for _, other := range a.n.Others {
		if other.Type == t.Type && !a.n.orphaned(other.ID) {
			blockers = append(blockers, a.foreign(other.Ref, again))
		}
	}
	return append(blockers, a.nameTaken(step, again)...)
}

// foreign: another maker's request is for the node, or has the name that the check's would have.
func (a asking) foreign(request Ref, again time.Time) Blocker {
	return Blocker{
		Reason: ForeignRequest, Message: a.n.skippedBecause(request.String() + " exists and was not made by this NodeHealthCheck"), Event: skipped,
		Fix: "delete " + request.String() + " when it is not needed any more", EndsWhen: request.String() + " is gone", Object: request, Again: again,
	}
}

func (n *Node) orphaned(id string) bool {
	return slices.ContainsFunc(n.Orphaned, func(o Foreign) bool { return o.ID == id })
}

// nameTaken: there is a request of the name that the one of this step would have.
func (a asking) nameTaken(step int, again time.Time) []Blocker {
	t := &a.f.Templates[step]
	if !t.Usable || step >= len(a.n.Named) {
		return nil
	}
	same := a.n.Named[step]
	earlier := func(r Request) bool { return r.ID == same.ID && r.Step < a.step }
	switch {
	case !same.Exists, a.n.orphaned(same.ID):
		return nil
	case !same.Own:
		return []Blocker{a.foreign(same.Ref, again)}
	case same.Template != t.Name:
		return []Blocker{{
			Reason: OtherTemplate, Event: skipped, Fix: "have the steps of the check name templates of different kinds", Object: same.Ref,
			Message: a.n.skippedBecause(same.Ref.String() + " exists and was made from another template: " +
				"using multiple templates of same kind is not supported for this template"),
		}}
	case slices.ContainsFunc(a.n.Requests, earlier):
		return []Blocker{{
			Reason: SameTemplate, Event: skipped, Fix: "have the two steps of the check name two templates", Object: same.Ref,
			Message: a.n.skippedBecause("two steps of the check have the same template, " + t.Name + ", and " + same.Ref.String() +
				" of the first one exists"),
		}}
	}
	return nil
}

// quorumRetry is how soon a node of the control plane is looked at again that had to wait. (medik8s.)
const quorumRetry = time.Minute

// members is what the control plane says against it: another node is being remediated, or goes first, or without this one, which is alive, too few would
// be left. As long as something else blocks all nodes of the control plane it is not read.
func (a asking) members() []Blocker {
	c := a.f.ControlPlane
	if c == nil {
		if a.begun(a.i) || len(a.toRemediate()) > 0 {
			return nil
		}
		return []Blocker{membersNotSeen(a.n.Name)}
	}
	var all []Blocker
	switch {
	case c.Searching:
		all = append(all, Blocker{
			Reason: ControlPlaneSearched, Message: quorumLoss(a.n.Name, "the control plane could not be read: "+c.Unread), EndsWhen: spared,
			Event: skipped, Quiet: true,
		})
	case a.view.first >= 0:
		all = append(all, a.against(a.n.Name)...)
	}
	switch {
	case a.view.first >= 0 && a.view.first != a.i:
		all = append(all, ahead(a.n.Name, a.f.Nodes[a.view.first].Name))
	case a.view.first == a.i && a.view.etcd != nil:
		all = append(all, *a.view.etcd)
	}
	for i := range all {
		all[i].Again = a.f.Now.Add(quorumRetry)
	}
	return all
}

// remake is how long a request has to have been there before another one is made in its place, if somebody deleted it. A remediator that
// deletes what it is asked at once would be asked without end.
const remake = time.Minute

// justDeleted: somebody deleted the request a moment ago.
func (a asking) justDeleted() []Blocker {
	at := a.n.remade(func(gone *Listed) bool { return gone.Step == a.step })
	if !a.f.Now.Before(at) {
		return nil
	}
	return []Blocker{{
		Reason: JustDeleted, EndsWhen: "a minute has passed since it was made first", Until: at,
		Message: "The request for node " + a.n.Name + " was deleted a moment ago, it is made again a minute after it was made first",
	}}
}

// remade is the first moment at which a request that is gone may be made again; zero if there was none.
func (n *Node) remade(on func(*Listed) bool) time.Time {
	var at time.Time
	for i := range n.Gone {
		if gone := &n.Gone[i]; on(gone) && gone.GivenUp.IsZero() && gone.Started.Add(remake).After(at) {
			at = gone.Started.Add(remake)
		}
	}
	return at
}

// templateless: without its template nothing can be made. The check says why.
func (a asking) templateless() []Blocker {
	if !a.p.Disabled.Is() && a.f.Templates[a.step].Usable {
		return nil
	}
	return []Blocker{a.unusable()}
}

// Unsuitable is why no request from t can be about n, and the same as a clause; the reason is empty if one can. Requests of machines live with their
// Machine, which is Cluster API's, or, for those that OpenShift's own operator serves, OpenShift's. The second clause is medik8s'.
func (t *Template) Unsuitable(n *Node) (Reason, string) {
	if !t.OfMachines || t.OwnedByMachine(n) || t.OwnedByOpenShift(n) {
		return "", ""
	}
	namespace := n.OpenShift.Namespace
	switch {
	case n.Machine.There():
		namespace = n.Machine.Namespace
	case n.OpenShift.Name == "" || !t.Infrastructure:
		return TemplateOfMachines, t.RequestKind + " is about Machines of Cluster API, and the node belongs to none of this cluster"
	}
	return TemplateElsewhere, fmt.Sprintf(
		"%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s", t.Kind, namespace, t.Namespace)
}

// OwnedByMachine reports whether the Machine of Cluster API owns t's request about n, which is named after it. Remediators of others
// know machine.openshift.io alone, do not look at the group of an owner, and would look for a Machine there that has the name of this one.
// (medik8s' Self Node Remediation, internal/controller/owner_and_name.go; its Machine Deletion Remediation.)
func (t *Template) OwnedByMachine(n *Node) bool {
	return t.OfMachines && n.Machine.There() && n.Machine.Namespace == t.Namespace
}

// OwnedByOpenShift reports whether the Machine of OpenShift that n names owns t's request about it: an owner lives in the same namespace. Requests of
// kubemend.io are about Machines of Cluster API alone.
func (t *Template) OwnedByOpenShift(n *Node) bool {
	return n.OpenShift.Name != "" && n.OpenShift.Namespace == t.Namespace && t.ForOpenShift && !t.OwnedByMachine(n)
}

// distinct are the blockers, each once: some are asked for more than once.
func distinct(all []Blocker) []Blocker {
	kept := all[:0:0]
	for _, b := range all {
		if !slices.ContainsFunc(kept, b.equal) {
			kept = append(kept, b)
		}
	}
	return kept
}
