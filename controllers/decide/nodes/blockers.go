package nodes

import (
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// everybody is all that keeps anything new from starting.
func (d *decider) everybody(upgrade *Blocker, settled time.Time) []Blocker {
	f, p := d.f, d.p
	var all []Blocker
	if p.Disabled.Is() || slices.ContainsFunc(f.Templates, func(t Template) bool { return !t.Usable }) {
		all = append(all, d.unusable())
	}
	if len(f.PauseRequests) > 0 {
		all = append(all, Blocker{Reason: Paused, Args: f.PauseRequests})
	}
	if upgrade != nil {
		all = append(all, *upgrade)
	}
	if !settled.IsZero() && d.awaitsKubelets() {
		all = append(all, Blocker{Reason: KubeletsAwaited, Until: settled})
	}
	if p.Grant.ShortCircuited() {
		all = append(all, Blocker{Reason: TooManyUnhealthy})
	}
	if p.Storm.Blocks {
		all = append(all, Blocker{Reason: StormNotOver, Until: p.Storm.Recheck})
	}
	return all
}

// unusable is why nothing can be made: the check is disabled, or a template of it is not known.
func (d *decider) unusable() Blocker {
	if d.p.Disabled.Is() {
		return Blocker{Reason: CheckDisabled, Args: []string{d.p.Disabled.Reason, d.p.Disabled.Message}}
	}
	if i := slices.IndexFunc(d.f.Templates, func(t Template) bool { return t.Unread }); i >= 0 {
		return Blocker{Reason: TemplateNotSeen, Args: []string{d.f.Templates[i].RequestKind}}
	}
	return Blocker{Reason: TemplateUnread}
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

// What is being upgraded, as the first argument of Upgrading; the second is its name.
const (
	UpgradeUnread  = "unread"
	NodeChanges    = "node"
	VersionChanges = "ClusterVersion"
	ClusterRolls   = "Cluster"
)

// upgrade is by what the cluster of the nodes in those states is being changed; nil if by nothing. What could not be found out is not "no". (medik8s
// goes on then.)
func (d *decider) upgrade(of ...health.State) *Blocker {
	var nodes []*Node
	for i := range d.f.Nodes {
		if n := &d.f.Nodes[i]; n.Exists && slices.Contains(of, d.p.Decisions[i].Verdict.State) {
			nodes = append(nodes, n)
		}
	}
	upgrading := func(what, name string, by Ref) *Blocker {
		return &Blocker{Reason: Upgrading, Args: []string{what, name}, Object: by}
	}
	if len(nodes) == 0 {
		return nil
	}
	if d.f.Upgrade.Unread {
		return upgrading(UpgradeUnread, "", Ref{})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool { return n.Reconfiguring }); i >= 0 {
		return upgrading(NodeChanges, nodes[i].Name, Ref{Kind: "Node", Name: nodes[i].Name})
	}
	if d.f.Upgrade.Progressing != "" {
		return upgrading(VersionChanges, d.f.Upgrade.Progressing, Ref{Kind: "ClusterVersion", Name: d.f.Upgrade.Progressing})
	}
	if i := slices.IndexFunc(nodes, func(n *Node) bool { return n.Machine.There() && n.Machine.RollingOut }); i >= 0 {
		cluster := Ref{Kind: "Cluster", Namespace: nodes[i].Machine.Namespace, Name: nodes[i].Machine.Cluster}
		return upgrading(ClusterRolls, cluster.Key(), cluster)
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
	return []Blocker{{Reason: NotSelected}}
}

func (a asking) excluded() []Blocker {
	if !a.n.Excluded {
		return nil
	}
	return []Blocker{{Reason: NodeExcluded}}
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
		return []Blocker{{Reason: NodeDeleting, Again: stuck}}
	}
	return []Blocker{{Reason: NodeStuck, Args: []string{strings.Join(a.n.Finalizers, ", ")}}}
}

// machine is what the Machine of the node says against it, what is reported first coming first.
func (a asking) machine() []Blocker {
	m := a.n.Machine
	if m == nil {
		return nil
	}
	var all []Blocker
	add := func(is bool, reason Reason, object Ref) {
		if is {
			all = append(all, Blocker{Reason: reason, Args: []string{object.Key()}, Object: object})
		}
	}
	if m.Unread {
		all = append(all, Blocker{Reason: MachineUnread})
	}
	add(m.ClusterPaused, ClusterPaused, Ref{Kind: "Cluster", Namespace: m.Namespace, Name: m.Cluster})
	add(m.Paused, MachinePaused, m.Ref)
	add(m.Skipped, MachineSkipped, m.Ref)
	add(m.Deleting, MachineDeleting, m.Ref)
	return all
}

func (a asking) leaseTaken() []Blocker {
	l, now := a.n.Lease, a.f.Now
	if !l.Held(now) {
		return nil
	}
	until := l.expiry()
	again := health.Earliest(now.Add(leaseTaken), until.Add(time.Millisecond))
	return []Blocker{{Reason: LeaseTaken, Args: []string{l.Holder}, Until: until, Again: again}}
}

// fresh is asked besides when there is no request yet.
func (a asking) fresh() []Blocker {
	m := a.n.Machine
	if m == nil {
		return nil
	}
	var all []Blocker
	if m.WatchedBy != "" {
		check := Ref{Kind: "MachineHealthCheck", Namespace: m.Namespace, Name: strings.TrimPrefix(m.WatchedBy, m.Namespace+"/")}
		all = append(all, Blocker{Reason: OverlappingCheck, Args: []string{m.WatchedBy, m.Name}, Object: check})
	}
	if m.Updating {
		all = append(all, Blocker{Reason: MachineUpdating, Args: []string{m.Name}, Object: m.Ref})
	}
	return all
}

// obstacles are what makes the step itself impossible.
func (a asking) obstacles() []Blocker {
	step := a.passing(a.n, a.step)
	if step >= len(a.f.Templates) {
		return nil
	}
	t := &a.f.Templates[step]
	var all []Blocker
	if b := t.unsuitable(a.n); b != nil {
		all = append(all, *b)
	}
	again := a.f.Now.Add(time.Minute) // the end of a request that has the name, or lost its mark, enqueues no check
	if len(a.n.Orphaned) > 0 {
		all = append(all, requested(OrphanedRequest, a.n.Orphaned[0].Ref, again))
	}
	for _, other := range a.n.Others {
		if other.Type == t.Type && !a.n.orphaned(other.ID) {
			all = append(all, requested(ForeignRequest, other.Ref, again))
		}
	}
	return append(all, a.nameTaken(step, again)...)
}

// requested is a blocker that is a request.
func requested(reason Reason, request Ref, again time.Time) Blocker {
	return Blocker{Reason: reason, Args: []string{request.String()}, Object: request, Again: again}
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
		return []Blocker{requested(ForeignRequest, same.Ref, again)}
	case same.Template != t.Name:
		return []Blocker{requested(OtherTemplate, same.Ref, time.Time{})}
	case slices.ContainsFunc(a.n.Requests, earlier):
		return []Blocker{{Reason: SameTemplate, Args: []string{t.Name, same.Ref.String()}, Object: same.Ref}}
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
		return []Blocker{{Reason: MembersNotSeen}}
	}
	var all []Blocker
	switch {
	case c.Searching:
		all = append(all, Blocker{Reason: ControlPlaneSearched, Args: []string{c.Unread}})
	case a.view.first >= 0:
		all = append(all, a.against(a.n.Name)...)
	}
	switch {
	case a.view.first >= 0 && a.view.first != a.i:
		all = append(all, ahead(a.f.Nodes[a.view.first].Name))
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
	return []Blocker{{Reason: JustDeleted, Until: at}}
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

// unsuitable is why no request from t can be about n; nil if one can: requests of machines live with their Machine, which is Cluster API's, or, for
// those that OpenShift's own operator serves, OpenShift's.
func (t *Template) unsuitable(n *Node) *Blocker {
	if !t.OfMachines || t.OwnedByMachine(n) || t.OwnedByOpenShift(n) {
		return nil
	}
	namespace := n.OpenShift.Namespace
	switch {
	case n.Machine.There():
		namespace = n.Machine.Namespace
	case n.OpenShift.Name == "" || !t.Infrastructure:
		return &Blocker{Reason: TemplateOfMachines, Args: []string{t.RequestKind}, Object: t.Ref}
	}
	return &Blocker{Reason: TemplateElsewhere, Args: []string{t.Kind, namespace, t.Namespace}, Object: t.Ref} // in medik8s' words
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
