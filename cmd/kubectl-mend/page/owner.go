package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/capacity"

	"github.com/kubemend/kubemend/controllers/explain"
)

const (
	deploymentKind = "MachineDeployment"
	setKind        = "MachineSet"
	kubeadmKind    = "KubeadmControlPlane"
)

// mostStories limits the machines of an owner that are explained. The page only counts the others.
const mostStories = 10

// Owner is an owner of machines.
type Owner struct {
	cliv1.MachineOwner
	// Capacity is what its machines without a Ready node wait for.
	Capacity []Capacity
	// More is how many machines without a Ready node are not in Capacity.
	More int

	cluster string
	group   string // the API group of its kind
	members []*clusterv1.Machine
	unread  bool // the owner could not be read, so its replicas are not known
}

// OfOwner explains what the machines of a MachineDeployment or a KubeadmControlPlane wait for. obj is empty and has the type of the owner.
func OfOwner(ctx context.Context, a *inspect.Asker, key client.ObjectKey, obj client.Object) (*Explanation, error) {
	kind := ownerOf(obj).Kind
	if err := Read(ctx, a.Snapshot, key, obj, kind); err != nil {
		return nil, err
	}
	o := ownerOf(obj)
	e := explanation(a, o.Reference)
	e.ownerFacts(obj, annotations.HasPaused(obj))
	members, err := machinesIn(ctx, a, client.ObjectKey{Namespace: o.Namespace, Name: o.cluster})
	if err != nil {
		return nil, err
	}
	o.members = slices.DeleteFunc(members, func(m *clusterv1.Machine) bool { return !o.owns(m) })
	err = e.explainOwners(ctx, a, []*Owner{o})
	e.fact("machines", o.counts())
	return e, err
}

// OfCluster explains what the machines of a Cluster wait for, control-plane machines first.
func OfCluster(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	cluster := &clusterv1.Cluster{}
	if err := Read(ctx, a.Snapshot, key, cluster, "Cluster"); err != nil {
		return nil, err
	}
	e := explanation(a, explain.Ref{Kind: "Cluster", Namespace: key.Namespace, Name: key.Name})
	e.fact("phase", cluster.Status.Phase)
	e.ownerFacts(cluster, ptr.Deref(cluster.Spec.Paused, false))
	members, err := machinesIn(ctx, a, key)
	if err != nil {
		return nil, err
	}
	owners, unread := ownersIn(ctx, a, key)
	if err := e.explainOwners(ctx, a, withOthers(owners, cluster, members, len(unread) > 0)); err != nil {
		return nil, err
	}
	if len(unread) > 0 && e.Answer.State == explain.CapacityComplete { // an unread owner may want more machines
		what := strings.Join(unread, ", ")
		e.answer(explain.Answer{State: explain.IsUnknown, Reason: explain.NotRead, Detail: what, Rest: e.Answer.Rest})
		e.Next = explain.Step{Reason: explain.NotRead, Manual: true, Text: "ask as a user who may read " + what}
	}
	return e, nil
}

func (e *Explanation) ownerFacts(obj client.Object, paused bool) {
	e.fact("cluster", obj.GetLabels()[clusterv1.ClusterNameLabel])
	if paused {
		e.fact("paused", "yes")
	}
	e.since("being deleted", obj.GetDeletionTimestamp())
}

// judged adds the checks of the Cluster. If the machine of the answer waits for its node, and a check judges the machine not healthy, the
// answer and the next step become those of the check.
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
		silent := func(story Capacity) bool {
			return story.waits().Machine == e.Answer.Target && story.waits().AwaitsNode()
		}
		if at < 0 || c.Targets[at].State == cliv1.StateHealthy || !slices.ContainsFunc(e.Capacity, silent) {
			continue
		}
		t := &c.Targets[at]
		if t.BlockedBy(mendv1.OverlapReason) || t.BlockedBy(explain.OtherCheckRemediates) { // another check acts on the machine
			continue
		}
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

// outOfReach replaces the answer if the workload cluster cannot be reached, because the conditions of its Machines are then out of date.
func (e *Explanation) outOfReach(a *inspect.Asker, cluster client.ObjectKey) {
	why, since, unseen := a.Snapshot.Unseen(cluster)
	reason := explain.MissingPermission
	if explain.Silent(why) {
		reason = explain.ClusterSilent
	}
	for i := range e.Checks {
		switch c := &e.Checks[i]; {
		case c.NodesUnknown != nil && !c.NodesNotReadable():
			reason, since, unseen = c.NodesUnknown.Reason, c.NodesUnknown.Since.Time, true
		case c.NodesUnknown == nil && c.Mode == cliv1.ModeActing && c.Counts.Total() > 0:
			return // the manager reads the nodes
		}
	}
	if !unseen || why == explain.ControlPlaneNotInitialized || e.Answer.State != explain.CapacityComplete {
		return
	}
	e.answer(explain.Answer{State: explain.IsUnknown, Reason: reason, Since: since, Rest: e.Answer.Rest + ", as Cluster API said before"})
	todo := "check the API server, load balancer and network of Cluster "
	if reason == explain.MissingPermission {
		todo = "ask as a user who may read the kubeconfig of Cluster "
	}
	e.Next = explain.Step{Reason: reason, Manual: true, Text: todo + cluster.Name}
}

// Read reads an object that a user has named, and returns an error that a user understands if the object or its kind does not exist.
func Read(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object, kind string) error {
	switch err := reader.Get(ctx, key, obj); {
	case apierrors.IsNotFound(err):
		return explain.NoSuch(kind, key.Namespace, key.Name)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the kind %s is not installed in the management cluster", kind)
	case err != nil:
		return fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	return nil
}

// ownerOf returns a KubeadmControlPlane, MachineDeployment or MachineSet as an Owner.
func ownerOf(obj client.Object) *Owner {
	o := &Owner{group: clusterv1.GroupVersion.Group}
	o.Namespace, o.Name = obj.GetNamespace(), obj.GetName()
	var replicas *int32
	switch obj := obj.(type) {
	case *controlplanev1.KubeadmControlPlane:
		o.group, o.Kind = controlplanev1.GroupVersion.Group, kubeadmKind
		o.cluster, replicas = obj.Labels[clusterv1.ClusterNameLabel], obj.Spec.Replicas
		o.RollingOut = conditions.IsTrue(obj, controlplanev1.KubeadmControlPlaneRollingOutCondition)
	case *clusterv1.MachineDeployment:
		o.Kind, o.cluster, replicas = deploymentKind, obj.Spec.ClusterName, obj.Spec.Replicas
		o.RollingOut = conditions.IsTrue(obj, clusterv1.MachineDeploymentRollingOutCondition)
	case *clusterv1.MachineSet:
		o.Kind, o.cluster, replicas = setKind, obj.Spec.ClusterName, obj.Spec.Replicas
	}
	o.Replicas = int(ptr.Deref(replicas, 0))
	return o
}

// ownersIn returns the KubeadmControlPlanes, MachineDeployments and standalone MachineSets of a Cluster. unread are kinds with read errors.
func ownersIn(ctx context.Context, a *inspect.Asker, cluster client.ObjectKey) (owners []*Owner, unread []string) {
	for _, owning := range []struct {
		kind string
		list client.ObjectList
	}{
		{kubeadmKind, &controlplanev1.KubeadmControlPlaneList{}}, {deploymentKind, &clusterv1.MachineDeploymentList{}},
		{setKind, &clusterv1.MachineSetList{}},
	} {
		if err := a.Snapshot.List(ctx, owning.list, client.InNamespace(cluster.Namespace)); err != nil && !meta.IsNoMatchError(err) {
			unread = append(unread, owning.kind+"s")
		}
		_ = meta.EachListItem(owning.list, func(item runtime.Object) error {
			obj := item.(client.Object) // true for all items of these lists
			o := ownerOf(obj)
			if o.cluster == cluster.Name && (o.Kind != setKind || metav1.GetControllerOf(obj) == nil) {
				owners = append(owners, o)
			}
			return nil
		})
	}
	return owners, unread
}

// withOthers adds each machine of a Cluster to its owner. It adds a control plane of another provider, whose replicas it takes from the
// Cluster's status. For machines whose owner is not among these, or that have no owner, it adds an Owner that wants as many machines as
// exist.
func withOthers(owners []*Owner, cluster *clusterv1.Cluster, members []*clusterv1.Machine, unread bool) []*Owner {
	plane := cluster.Spec.ControlPlaneRef
	wanted := ptr.Deref(cluster.Status.ControlPlane, clusterv1.ClusterControlPlaneStatus{}).DesiredReplicas
	if plane.IsDefined() && plane.Kind != kubeadmKind && wanted != nil {
		of := explain.Ref{Kind: plane.Kind, Namespace: cluster.Namespace, Name: plane.Name}
		owners = append([]*Owner{{
			MachineOwner: cliv1.MachineOwner{Reference: of, Replicas: int(*wanted)}, cluster: cluster.Name, group: plane.APIGroup,
		}}, owners...)
	}
	known := len(owners)
	for _, m := range members {
		at := slices.IndexFunc(owners, func(o *Owner) bool { return o.owns(m) })
		if at < 0 {
			o := &Owner{MachineOwner: cliv1.MachineOwner{Reference: explain.Ref{Namespace: cluster.Namespace}}, cluster: cluster.Name}
			if by := metav1.GetControllerOf(m); by != nil {
				o.Kind, o.Name, o.unread = by.Kind, by.Name, unread
			}
			at, owners = len(owners), append(owners, o)
		}
		owners[at].members = append(owners[at].members, m)
		if at >= known {
			owners[at].Replicas++
		}
	}
	return owners
}

// machinesIn returns the machines of a Cluster.
func machinesIn(ctx context.Context, a *inspect.Asker, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := a.Snapshot.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("list the Machines in %s: %w", cluster.Namespace, err)
	}
	members := make([]*clusterv1.Machine, 0, len(list.Items))
	for i := range list.Items {
		if m := &list.Items[i]; m.Spec.ClusterName == cluster.Name {
			members = append(members, m)
		}
	}
	return members, nil
}

// owns reports whether m is a machine of o.
func (o *Owner) owns(m *clusterv1.Machine) bool {
	if o.Kind == deploymentKind {
		return m.Labels[clusterv1.MachineDeploymentNameLabel] == o.Name
	}
	owner := metav1.GetControllerOf(m)
	if o.Kind == "" {
		return owner == nil
	}
	return owner != nil && owner.Kind == o.Kind && owner.Name == o.Name
}

// follow counts m as ready, or adds what m waits for. If the node of m is Ready but its owner was asked to replace m, follow does both.
func (o *Owner) follow(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) {
	if ready, _ := a.NodeReady(m); ready && m.DeletionTimestamp.IsZero() {
		o.Ready++
		if !conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) {
			return
		}
	}
	if len(o.Capacity) == mostStories {
		o.More++
	} else if story := capacityOf(ctx, a, m); !story.Ended() || story.Deletion != nil { // a deletion may hang even without a replacement
		o.Capacity = append(o.Capacity, *story)
	}
}

// addStories adds what the machines of o wait for and, if o has fewer machines than replicas, what a missing machine waits for.
func (o *Owner) addStories(ctx context.Context, a *inspect.Asker) {
	o.Machines = len(o.members)
	for _, m := range o.members {
		o.follow(ctx, a, m)
	}
	if o.Machines >= o.Replicas {
		return
	}
	lacking := capacity.Lacking(o.Namespace, o.cluster, capacity.Owner{Group: o.group, Kind: o.Kind, Name: o.Name})
	if s := a.Capacity(ctx, lacking).Story(); !s.Ended() {
		o.Capacity = append(o.Capacity, Capacity{Story: s})
	}
}

// explainOwners adds owners with what their machines wait for. The answer and the next step are those of the first machine that waits for a
// user, or else of the first machine.
func (e *Explanation) explainOwners(ctx context.Context, a *inspect.Asker, owners []*Owner) error {
	ready, replicas, cluster := 0, 0, client.ObjectKey{Namespace: e.Subject.Namespace, Name: e.Subject.Name}
	for _, o := range owners {
		o.addStories(ctx, a)
		e.Owners, e.Capacity = append(e.Owners, *o), append(e.Capacity, o.Capacity...)
		ready, replicas, cluster.Name = ready+o.Ready, replicas+o.Replicas, o.cluster
	}
	var first *Capacity
	for i := range e.Capacity {
		if c := &e.Capacity[i]; first == nil || c.before(first) {
			first = c
		}
	}
	answer := explain.Answer{State: explain.CapacityMissing, Rest: fmt.Sprintf("%d of %d machines have a Ready node", ready, replicas)}
	if ready >= replicas && first.missing() == nil {
		answer.State = explain.CapacityComplete
	}
	e.Next = explain.NothingNext
	if first != nil {
		story := first.waits()
		if answer.State != explain.CapacityComplete {
			answer.State, answer.Target = missing(story), cmp.Or(story.Old, story.Machine)
			answer = waiting(answer, story)
		}
		e.Next, e.Todo = cmp.Or(story.Next, nodeTodo(story), explain.NothingNext), story.Todo
	}
	e.answer(answer)
	if err := e.judged(ctx, a, cluster); err != nil {
		return err
	}
	e.outOfReach(a, cluster)
	if e.Next == e.Todo {
		e.Todo = explain.Step{}
	}
	return nil
}

// owner prints o and what its machines wait for. If o is the subject, the facts have its numbers.
func (p *page) owner(o *Owner) {
	if o.Reference == p.subject {
		if len(o.Capacity) > 0 {
			p.Heading("Machines without a Ready node")
		}
	} else {
		name := cmp.Or(strings.TrimSpace(o.Kind+" "+o.Name), "Machines without an owner")
		p.Heading(name + ": " + o.counts())
	}
	for i := range o.Capacity {
		c := &o.Capacity[i]
		about := "Machine " + c.waits().Machine
		if c.waits().Machine == "" {
			about = "A machine that is missing"
		}
		p.line("  ", p.Paint.Strong(about)+": "+p.Paint.Waits(capacity.StageTexts[c.waits().Stage]))
		p.told("    ", c)
	}
	if o.More > 0 {
		p.line("  ", fmt.Sprintf("%d more without a Ready node", o.More)+".")
	}
}

func (o *Owner) counts() string {
	counts := fmt.Sprintf("%d wanted, %d exist, %d with a Ready node", o.Replicas, o.Machines, o.Ready)
	if o.unread {
		counts = fmt.Sprintf("%d exist, %d with a Ready node; how many are wanted could not be read", o.Machines, o.Ready)
	}
	if o.RollingOut {
		counts += "; rolling out"
	}
	return counts
}
