package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/capacity"
	decide "github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// The kinds of owners.
const (
	deploymentKind = "MachineDeployment"
	setKind        = "MachineSet"
	kubeadmKind    = "KubeadmControlPlane"
)

// mostStories is how many machines of an owner are followed; of the others it is only said how many there are.
const mostStories = 10

// Owner is what makes machines, and what the capacity of those waits for that have no Ready node.
type Owner struct {
	explain.Ref
	Replicas, Machines, Ready int
	RollingOut                bool
	Capacity                  []Capacity
	// More is how many machines without a Ready node are not in Capacity.
	More int

	cluster string
	counted bool // how many machines it wants is not known but by those that are there
	members []*clusterv1.Machine
}

// MachineDeployment explains what the machines of a MachineDeployment wait for.
func MachineDeployment(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	md := &clusterv1.MachineDeployment{}
	if err := read(ctx, a, key, md, deploymentKind); err != nil {
		return nil, err
	}
	return ofOwner(ctx, a, deploymentOwner(md), md)
}

// KubeadmControlPlane explains what the machines of a KubeadmControlPlane wait for.
func KubeadmControlPlane(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := read(ctx, a, key, kcp, kubeadmKind); err != nil {
		return nil, err
	}
	return ofOwner(ctx, a, planeOwner(kcp), kcp)
}

// OfCluster explains what the machines of a Cluster wait for, those of its control plane first.
func OfCluster(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	cluster := &clusterv1.Cluster{}
	if err := read(ctx, a, key, cluster, "Cluster"); err != nil {
		return nil, err
	}
	e := &Explanation{Subject: explain.Ref{Kind: "Cluster", Namespace: key.Namespace, Name: key.Name}, At: a.Now, Notes: notes(a)}
	e.Facts = explain.OwnerFacts(cluster, cluster.Status.Phase, ptr.Deref(cluster.Spec.Paused, false))
	owners, err := ownersIn(ctx, a, key)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if err := e.addOwner(ctx, a, o); err != nil {
			return nil, err
		}
	}
	if err := e.concludeOwners(ctx, a, key); err != nil {
		return nil, err
	}
	return e, nil
}

// judged adds the checks of the Cluster, and what they do about the machine that the answer is about, if its node is not Ready.
func (e *Explanation) judged(ctx context.Context, a *inspect.Asker, cluster client.ObjectKey) error {
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		return c.Namespace == cluster.Namespace && c.Spec.ClusterName == cluster.Name
	})
	if err := tolerate(&e.Unread, "MachineHealthChecks", err); err != nil {
		return err
	}
	for i := range checks {
		c := &checks[i]
		follow(ctx, a, c)
		e.Checks = append(e.Checks, about(*c, func(explain.Target) bool { return false }))
		at := slices.IndexFunc(c.Targets, func(t explain.Target) bool { return t.Name == e.Answer.Target })
		silent := func(is Capacity) bool {
			return is.waits().Machine == e.Answer.Target && is.waits().Next == decide.NodeGetsReady
		}
		if at < 0 || c.Targets[at].State == cliv1.StateHealthy || !slices.ContainsFunc(e.Capacity, silent) {
			continue
		}
		t := &c.Targets[at]
		said := c.AnswerOn(t)
		if e.Answer.State = explain.CapacityBlocked; said.Phase() != cliv1.Blocked {
			e.Answer.State, e.Todo = explain.CapacityMissing, explain.Step{}
		}
		said.State, said.Action, said.Target, said.Rest = e.Answer.State, "", e.Answer.Target, e.Answer.Rest
		e.answer(said)
		e.Next = cmp.Or(t.Next, e.Next)
	}
	return nil
}

// outOfReach replaces the answer where the workload cluster cannot be reached: what Cluster API says of its nodes is as old as that.
func (e *Explanation) outOfReach(a *inspect.Asker, cluster client.ObjectKey) {
	why, since, unseen := a.Snapshot.Unseen(cluster)
	reason := explain.MissingPermission
	if why == explain.NoAnswer {
		reason = explain.ClusterSilent
	}
	for i := range e.Checks {
		switch c := &e.Checks[i]; {
		case c.NodesUnknown != nil && !c.NodesNotReadable():
			reason, since, unseen = c.NodesUnknown.Reason, c.NodesUnknown.Since.Time, true
		case c.NodesUnknown == nil && c.Mode == explain.Acting && c.Counts.Total() > 0:
			return // the manager sees the nodes, and says how they are
		}
	}
	if !unseen || why == explain.ControlPlaneNotInitialized || e.Answer.State != explain.CapacityComplete {
		return
	}
	e.answer(explain.Answer{State: explain.IsUnknown, Reason: reason, Since: since, Rest: e.Answer.Rest + ", as Cluster API said before"})
	e.Next = explain.Step{Reason: reason, Manual: true, Text: "see to the API server, load balancer and network of Cluster " + cluster.Name}
	if reason == explain.MissingPermission {
		e.Next.Text = "ask as a user who may read the kubeconfig of Cluster " + cluster.Name
	}
}

// read reads the object that a page is about.
func read(ctx context.Context, a *inspect.Asker, key client.ObjectKey, obj client.Object, kind string) error {
	if err := a.Reader().Get(ctx, key, obj); apierrors.IsNotFound(err) {
		return explain.NoSuch(kind, key.Namespace, key.Name)
	} else if err != nil {
		return fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	return nil
}

func deploymentOwner(md *clusterv1.MachineDeployment) *Owner {
	return &Owner{
		Ref: explain.Ref{Kind: deploymentKind, Namespace: md.Namespace, Name: md.Name}, cluster: md.Spec.ClusterName,
		Replicas: int(ptr.Deref(md.Spec.Replicas, 0)), RollingOut: conditions.IsTrue(md, clusterv1.MachineDeploymentRollingOutCondition),
	}
}

func planeOwner(kcp *controlplanev1.KubeadmControlPlane) *Owner {
	return &Owner{
		Ref: explain.Ref{Kind: kubeadmKind, Namespace: kcp.Namespace, Name: kcp.Name}, cluster: kcp.Labels[clusterv1.ClusterNameLabel],
		Replicas: int(ptr.Deref(kcp.Spec.Replicas, 0)), RollingOut: conditions.IsTrue(kcp, controlplanev1.KubeadmControlPlaneRollingOutCondition),
	}
}

// ownersIn are what makes the machines of a Cluster: control planes, MachineDeployments, MachineSets without one, and others.
func ownersIn(ctx context.Context, a *inspect.Asker, cluster client.ObjectKey) ([]*Owner, error) {
	var owners []*Owner
	planes, deployments, sets := &controlplanev1.KubeadmControlPlaneList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}
	machines := &clusterv1.MachineList{}
	for _, list := range []client.ObjectList{planes, deployments, sets, machines} {
		if err := a.Reader().List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil && !unreadable(err) {
			return nil, fmt.Errorf("list the owners of machines in %s: %w", cluster.Namespace, err)
		}
	}
	for i := range planes.Items {
		owners = append(owners, planeOwner(&planes.Items[i]))
	}
	for i := range deployments.Items {
		owners = append(owners, deploymentOwner(&deployments.Items[i]))
	}
	for i := range sets.Items {
		if ms := &sets.Items[i]; metav1.GetControllerOf(ms) == nil {
			owners = append(owners, &Owner{
				Ref: explain.Ref{Kind: setKind, Namespace: ms.Namespace, Name: ms.Name}, cluster: ms.Spec.ClusterName,
				Replicas: int(ptr.Deref(ms.Spec.Replicas, 0)),
			})
		}
	}
	owners = slices.DeleteFunc(owners, func(o *Owner) bool { return o.cluster != cluster.Name })
	return withOthers(owners, cluster, machines.Items), nil
}

// withOthers are owners, and what makes the machines of a Cluster that none of them makes: control planes of other providers, and persons.
func withOthers(owners []*Owner, cluster client.ObjectKey, machines []clusterv1.Machine) []*Owner {
	for i := range machines {
		m := &machines[i]
		if m.Spec.ClusterName != cluster.Name || slices.ContainsFunc(owners, func(o *Owner) bool { return o.owns(m) && !o.counted }) {
			continue
		}
		o := &Owner{Ref: explain.Ref{Namespace: cluster.Namespace}, cluster: cluster.Name, counted: true}
		if by := metav1.GetControllerOf(m); by != nil {
			o.Kind, o.Name = by.Kind, by.Name
		}
		if at := slices.IndexFunc(owners, func(other *Owner) bool { return other.Ref == o.Ref }); at >= 0 {
			o = owners[at]
		} else {
			owners = append(owners, o)
		}
		o.Replicas++
	}
	return owners
}

// ofOwner explains one owner.
func ofOwner(ctx context.Context, a *inspect.Asker, o *Owner, obj client.Object) (*Explanation, error) {
	e := &Explanation{Subject: o.Ref, At: a.Now, Notes: notes(a)}
	_, paused := obj.GetAnnotations()[clusterv1.PausedAnnotation]
	e.Facts = explain.OwnerFacts(obj, "", paused)
	if err := e.addOwner(ctx, a, o); err != nil {
		return nil, err
	}
	e.Facts = append(e.Facts, explain.Fact{Name: "machines", Value: explain.OwnerCounts(o.Ready, o.Machines, o.Replicas, o.RollingOut)})
	if err := e.concludeOwners(ctx, a, client.ObjectKey{Namespace: o.Namespace, Name: o.cluster}); err != nil {
		return nil, err
	}
	return e, nil
}

// addOwner adds o with the stories of its machines.
func (e *Explanation) addOwner(ctx context.Context, a *inspect.Asker, o *Owner) error {
	list := &clusterv1.MachineList{}
	if err := a.Reader().List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
		return fmt.Errorf("list the Machines in %s: %w", o.Namespace, err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; o.owns(m) {
			o.members = append(o.members, m)
		}
	}
	slices.SortFunc(o.members, func(a, b *clusterv1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	o.Machines = len(o.members)
	for _, m := range o.members {
		if err := o.follow(ctx, a, m); err != nil {
			return err
		}
	}
	if err := o.lacking(ctx, a); err != nil {
		return err
	}
	e.Owners = append(e.Owners, *o)
	e.Capacity = append(e.Capacity, o.Capacity...)
	return nil
}

// owns reports whether m is a machine of o.
func (o *Owner) owns(m *clusterv1.Machine) bool {
	if m.Spec.ClusterName != o.cluster {
		return false
	}
	if o.Kind == deploymentKind {
		return m.Labels[clusterv1.MachineDeploymentNameLabel] == o.Name
	}
	owner := metav1.GetControllerOf(m)
	if o.Kind == "" {
		return owner == nil
	}
	return owner != nil && owner.Kind == o.Kind && owner.Name == o.Name
}

// follow adds the story of m, unless its node is Ready and will be.
func (o *Owner) follow(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) error {
	if a.NodeReady(m) && m.DeletionTimestamp.IsZero() {
		o.Ready++
		if !conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) {
			return nil
		}
	}
	if len(o.Capacity) == mostStories {
		o.More++
		return nil
	}
	is, err := capacityOf(ctx, a, m)
	if err != nil {
		return err
	}
	if !is.Story.Stage.Ended() || is.Deletion != nil { // a deletion may hang also where no machine is made
		o.Capacity = append(o.Capacity, *is)
	}
	return nil
}

// lacking adds the story of a machine that does not exist, where o has fewer than it is to have.
func (o *Owner) lacking(ctx context.Context, a *inspect.Asker) error {
	if o.Machines >= o.Replicas {
		return nil
	}
	f, err := a.Capacity(ctx, capacity.Lacking(o.Namespace, o.cluster, capacity.Owner{Group: groups[o.Kind], Kind: o.Kind, Name: o.Name}))
	if err != nil {
		return err
	}
	if s := decide.Decide(f); !s.Stage.Ended() {
		o.Capacity = append(o.Capacity, Capacity{Story: s, Unread: f.Unread})
	}
	return nil
}

// groups are those of owners.
var groups = map[string]string{
	deploymentKind: clusterv1.GroupVersion.Group, setKind: clusterv1.GroupVersion.Group, kubeadmKind: controlplanev1.GroupVersion.Group,
}

// missing is the story of c if it is of a machine that is to come back.
func (c *Capacity) missing() *decide.Story {
	if c == nil || c.Story.Stage.Ended() {
		return nil
	}
	return c.waits()
}

// before reports whether c is to be shown before other: of a machine that is to come back first, and of these one that needs a person.
func (c *Capacity) before(other *Capacity) bool {
	if ended := c.Story.Stage.Ended(); ended != other.Story.Stage.Ended() {
		return !ended
	}
	return other.waits().Todo == "" && c.waits().Todo != ""
}

// concludeOwners sets the answer and the next step: of the first story that needs a person, or else of the first one.
func (e *Explanation) concludeOwners(ctx context.Context, a *inspect.Asker, cluster client.ObjectKey) error {
	ready, replicas := 0, 0
	for i := range e.Owners {
		ready, replicas = ready+e.Owners[i].Ready, replicas+e.Owners[i].Replicas
	}
	var first *Capacity
	for i := range e.Capacity {
		if c := &e.Capacity[i]; first == nil || c.before(first) {
			first = c
		}
	}
	told := first.missing()
	if first != nil && ready < replicas {
		told = first.waits()
	}
	e.answer(explain.OwnerAnswer(ready, replicas, told))
	e.Next = explain.NothingNext
	if first != nil {
		e.Next = cmp.Or(explain.CapacityNext(first.waits()), explain.NodeTodo(first.waits()), explain.NothingNext)
		e.Todo = explain.CapacityTodo(first.waits())
	}
	if err := e.judged(ctx, a, cluster); err != nil {
		return err
	}
	e.outOfReach(a, cluster)
	if e.Next == e.Todo {
		e.Todo = explain.Step{}
	}
	return nil
}

// owner prints o with the stories of its machines; of the subject the facts have the numbers.
func (p *page) owner(o *Owner, notes []string) {
	if o.Ref == p.subject {
		if len(o.Capacity) > 0 {
			p.heading("Machines without a Ready node")
		}
	} else {
		name := cmp.Or(strings.TrimSpace(o.Kind+" "+o.Name), "Machines without an owner")
		p.heading(name + ": " + explain.OwnerCounts(o.Ready, o.Machines, o.Replicas, o.RollingOut))
	}
	for i := range o.Capacity {
		c := &o.Capacity[i]
		p.line("  ", p.paint.Strong(explain.StoryOf(c.waits()))+": "+p.paint.Waits(explain.CapacityStage(c.waits())))
		p.told("    ", c, notes)
	}
	if o.More > 0 {
		p.line("  ", fmt.Sprintf("%d more without a Ready node", o.More)+".")
	}
}

// unreadable reports whether the caller may not read a kind, or there is none.
func unreadable(err error) bool {
	return apierrors.IsForbidden(err) || meta.IsNoMatchError(err) || errors.Is(err, explain.ErrUnread)
}
