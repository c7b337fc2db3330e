package remediationrecord

import (
	"context"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// observed is what one reconcile decides on. Objects from caches are shared: read only.
type observed struct {
	now    time.Time
	from   reader
	memory *memory
	record *mendv1.RemediationRecord
	// cluster and machine are nil if they do not exist. node is nil if it is in another cluster, or was not read.
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	node    *corev1.Node
	facts   Facts
	// check is the check that asked for the remediation; nil if there is none, or if the controller may not read it. templates are those of
	// the check. For a MachineHealthCheck, whose templates are in its own namespace, they have the kind only.
	check       client.Object
	templates   []corev1.ObjectReference
	checkUnread bool
	// story is what the capacity waits for; nil if it was not read.
	story *capacity.Story
}

// observe reads an open record and what it is about. It returns nil if the record is not open, or not this manager's. The record always
// comes from the cache: if the cache is stale, the API server refuses the write.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey, now time.Time, live bool) (*observed, error) {
	o := &observed{now: now, from: reader{r, live, r.Recent}, record: &mendv1.RemediationRecord{}, memory: r.memoryOf(key)}
	if live {
		o.from.recent = NewRecent(r.Recent.Live, r.Clock)
	}
	err := r.Client.Get(ctx, key, o.record)
	if apierrors.IsNotFound(err) || err == nil && (!o.record.Open() || !o.record.DeletionTimestamp.IsZero()) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read RemediationRecord %s: %w", key, err)
	}
	if covered, err := r.covers(ctx, o); err != nil || !covered {
		return nil, err
	}
	o.facts = Facts{
		Now: o.now.Truncate(time.Millisecond), Decided: o.record.Spec.Decided.Time, Moved: Moved(o.record), Status: o.record.Status,
		Paused: o.cluster != nil && annotations.IsPaused(o.cluster, o.cluster),
	}
	o.facts.Target.RecordRef, o.facts.Target.Machine = TargetOf(o.record), o.record.Spec.Target.Machine != nil
	if o.facts.Paused {
		return o, nil
	}
	for _, read := range []func(context.Context, *observed) error{
		r.observeCheck, r.observeTarget, r.observeHealth, r.observeRequests, r.observeCapacity,
	} {
		if err := read(ctx, o); err != nil {
			return nil, err
		}
	}
	if listed := o.listed(); listed != nil && listed.ConditionsHealthyTimestamp == nil {
		o.facts.Target.Checked = No // perhaps for another reason than at the beginning
	}
	o.facts.Next, o.facts.IdleSince = r.next(o), o.memory.idle
	return o, nil
}

// covers reads the Cluster of the record, and reports whether this manager follows the record.
func (r *Reconciler) covers(ctx context.Context, o *observed) (bool, error) {
	if o.record.Spec.Target.ClusterName == "" {
		return r.Nodes, nil
	}
	cluster, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: o.record.Namespace, Name: o.record.Spec.Target.ClusterName}
	err := o.from.Get(ctx, key, cluster)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	if err == nil {
		o.cluster = cluster
	}
	return capi.Covers(r.WatchFilterValue, o.record, o.cluster), nil
}

// observeCheck reads the check that asked for the remediation, and its templates. A MachineHealthCheck always comes from the cache: the
// manager has no right to get one, only to list and watch them.
func (r *Reconciler) observeCheck(ctx context.Context, o *observed) error {
	ref := o.record.Spec.Requester.Check
	if ref == nil {
		return nil
	}
	nodes, machines := &nhcv1.NodeHealthCheck{}, &clusterv1.MachineHealthCheck{}
	check, key := client.Object(nodes), client.ObjectKey{Name: ref.Name}
	if ref.Kind == machineCheckKind {
		check, key.Namespace = machines, ref.Namespace
	}
	switch err := o.from.Get(ctx, key, check); {
	case remediationrequest.Missing(err):
		o.facts.Target.CheckGone = ref.Kind == machineCheckKind
		return nil
	case apierrors.IsForbidden(err):
		o.checkUnread = true
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	o.check, o.templates = check, TemplatesOf(&nodes.Spec)
	if template := machines.Spec.Remediation.TemplateRef; template.IsDefined() {
		o.templates = []corev1.ObjectReference{{APIVersion: template.APIVersion, Kind: template.Kind}}
	}
	return nil
}

// inScope reports whether the manager may read, with its own rights, the target that the record names. Otherwise a user who may write
// records in one namespace could learn from them about objects in other namespaces. So a record may be about Machines of its own namespace.
// A record without a Cluster may also be about a node of this cluster, and about the node's Machine in any namespace, if its
// NodeHealthCheck has a template in the namespace of the record.
func (o *observed) inScope() bool {
	target, ref := &o.record.Spec.Target, TargetOf(o.record)
	if ref.Kind == machineKind && ref.Namespace == o.record.Namespace && (target.ClusterName != "" || target.Node == nil) {
		return true
	}
	_, ofNodes := o.check.(*nhcv1.NodeHealthCheck)
	return ofNodes && target.ClusterName == "" && (ref.Kind == machineKind || ref.Kind == nodeKind) &&
		slices.ContainsFunc(o.templates, func(t corev1.ObjectReference) bool { return t.Namespace == o.record.Namespace })
}

// observeTarget reads the target, if the manager may. It finds a node by name: a node that was deleted may come back with another UID.
func (r *Reconciler) observeTarget(ctx context.Context, o *observed) error {
	if !o.inScope() {
		return nil
	}
	t := &o.facts.Target
	obj := client.Object(&clusterv1.Machine{})
	if !t.Machine {
		obj = &corev1.Node{}
	}
	err := o.from.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, obj)
	if apierrors.IsForbidden(err) {
		return nil
	}
	found := err == nil
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s/%s: %w", t.Kind, t.Namespace, t.Name, err)
	}
	t.Known = true
	if another := t.Machine && !o.facts.Moved && t.UID != "" && string(obj.GetUID()) != t.UID; !found || another {
		t.GoneAt = r.goneAt(o.record)
		t.Went = o.memory.went.Load() != nil
		return nil
	}
	t.Exists = true
	if at := obj.GetDeletionTimestamp(); at != nil {
		t.Deleting = at.Time
	}
	switch obj := obj.(type) {
	case *corev1.Node:
		o.node = obj
	case *clusterv1.Machine:
		o.machine = obj
		o.observeChecked(r.Finds)
		o.observeAsked()
		_, t.ByHand = obj.Annotations[clusterv1.RemediateMachineAnnotation]
	}
	return nil
}

// observeAsked notes since when the owner of the Machine is asked to replace it, if it is asked because of this record.
func (o *observed) observeAsked() {
	t, asked := &o.facts.Target, conditions.Get(o.machine, clusterv1.MachineOwnerRemediatedCondition)
	other, _ := carriedByMachine(o.machine)
	t.Superseded = other.Name != "" && !carries(o.machine, o.record) && o.record.Spec.Remediator == mendv1.RemediatedByOwner
	follows := !t.Superseded && (!o.facts.Status.Begun.IsZero() || carries(o.machine, o.record))
	if follows && asked != nil && asked.Status == metav1.ConditionFalse {
		t.Asked = asked.LastTransitionTime.Time
	}
}

// goneAt returns when the Machine of a record was deleted: by its step, else by the watch, else the time of its last step. A later time
// would miss a replacement that came at once. An earlier time, after a restart, would take a machine for the replacement that was created
// while the target still existed.
func (r *Reconciler) goneAt(record *mendv1.RemediationRecord) time.Time {
	at, said := WentAt(record)
	if went := r.memoryOf(client.ObjectKeyFromObject(record)).went.Load(); went != nil && !said {
		return *went
	}
	return at
}

// observeChecked reads the verdict of the MachineHealthCheck that asked for the remediation. HealthCheckSucceeded has it only if no other
// check selects the Machine, since any check can set it to False. If a NodeHealthCheck or a user asked, a True does not count: the
// MachineHealthCheck may not judge what they found, or not yet.
func (o *observed) observeChecked(finds func(check types.NamespacedName, machine types.UID) (healthy, known bool)) {
	t, check := &o.facts.Target, o.record.Spec.Requester.Check
	asked := check != nil && check.Kind == machineCheckKind
	cond := conditions.Get(o.machine, clusterv1.MachineHealthCheckSucceededCondition)
	if cond != nil && (cond.Status == No || asked && cond.Status == Yes) {
		t.Checked, t.CheckedSince = cond.Status, cond.LastTransitionTime.Time
	}
	if t.Checked != No || !asked {
		return
	}
	if healthy, known := finds(types.NamespacedName{Namespace: check.Namespace, Name: check.Name}, o.machine.UID); known && healthy {
		t.Checked, t.CheckedSince = Yes, time.Time{}
	}
}

// observeHealth reads whether the node is Ready, and whether the evidence still holds. It does so only if no check has judged the Machine.
func (r *Reconciler) observeHealth(ctx context.Context, o *observed) error {
	t, target := &o.facts.Target, &o.record.Spec.Target
	if !t.Exists || t.Machine && t.Checked != Unknown {
		return nil
	}
	if o.node == nil && target.ClusterName == "" && target.Node != nil { // the node of a Machine of this cluster
		node := &corev1.Node{}
		err := o.from.Get(ctx, client.ObjectKey{Name: target.Node.Name}, node)
		switch {
		case apierrors.IsForbidden(err):
			return nil
		case err == nil:
			o.node = node
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("read Node %s: %w", target.Node.Name, err)
		}
	}
	if o.nothingSaid() {
		return nil
	}
	t.NodeHealthy = No
	ready := o.saysOfNode(string(corev1.NodeReady))
	holds := func(found mendv1.RecordEvidence) bool {
		return found.Status != "" && string(o.saysOfNode(found.Type).Status) == found.Status
	}
	if ready.Status == Yes && !slices.ContainsFunc(o.record.Spec.Evidence, holds) {
		t.NodeHealthy, t.NodeReadySince = Yes, ready.LastTransitionTime.Time
	}
	return nil
}

// nothingSaid reports whether nothing is known about the node. For a node of another cluster, Cluster API reports nothing while it cannot
// reach that cluster. A Machine without a node counts as known.
func (o *observed) nothingSaid() bool {
	if o.node != nil || o.machine == nil || o.machine.Status.NodeRef.Name == "" {
		return false
	}
	said := ptr.Deref(conditions.Get(o.machine, clusterv1.MachineNodeHealthyCondition), metav1.Condition{})
	return said.Status != Yes && said.Status != No && said.Reason != clusterv1.MachineNodeHealthUnknownReason
}

// saysOfNode returns a condition of the node of the target. The node of another cluster is not read: for Ready it returns the Machine's
// condition NodeHealthy, which covers Ready and the pressures, and for other types the Machine's condition of that type, which a check may
// judge.
func (o *observed) saysOfNode(kind string) metav1.Condition {
	if cond := conditionOf(o.node, kind); cond != nil {
		return metav1.Condition{Status: Truth(cond.Status), LastTransitionTime: cond.LastTransitionTime}
	}
	switch {
	case o.machine == nil:
		return metav1.Condition{}
	case o.node == nil && kind == string(corev1.NodeReady):
		kind = clusterv1.MachineNodeHealthyCondition
	}
	return ptr.Deref(conditions.Get(o.machine, kind), metav1.Condition{})
}

func conditionOf(node *corev1.Node, kind string) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if cond := &node.Status.Conditions[i]; string(cond.Type) == kind {
			return cond
		}
	}
	return nil
}

// clocksOff is how far the clock of the API server, which sets creationTimestamps, may be behind the manager's. Without it a replacement
// could seem older than the end of the lost machine, and the record would say that the owner was scaled down.
const clocksOff = 10 * time.Second

// observeCapacity reads what the capacity waits for, once the owner is asked or the Machine is being deleted. Before, it may still recover.
func (r *Reconciler) observeCapacity(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	if !t.Machine || !t.Known || t.Exists && t.Deleting.IsZero() && t.Asked.IsZero() {
		return nil
	}
	subject := SubjectOf(o.record)
	if o.machine != nil {
		subject = capacity.Of(o.machine)
	} else if err := r.observeLosses(ctx, &subject, o.record); err != nil {
		return err
	}
	facts, err := (&capacity.Observer{Management: o.from, Mapper: r.Mapper, Machines: o.from.machinesOf}).Observe(ctx, subject, o.now)
	if err != nil {
		return fmt.Errorf("read what the capacity of Machine %s/%s waits for: %w", subject.Namespace, subject.Name, err)
	}
	story := facts.Story()
	o.story, o.facts.Capacity = &story, capacityOf(&story)
	return nil
}

// observeLosses sets when the Machine of a record was deleted, and adds the other lost Machines of the same owner, from their open records.
func (r *Reconciler) observeLosses(ctx context.Context, s *capacity.Subject, record *mendv1.RemediationRecord) error {
	s.Gone = r.goneAt(record).Add(-clocksOff)
	if makerOf(*s) == "" {
		return nil
	}
	open, err := r.openOf(ctx, record.Namespace, makerKey(makerOf(*s)))
	if err != nil {
		return err
	}
	for _, other := range open {
		loss := SubjectOf(other)
		if loss.Name != s.Name && last(&other.Status, TargetGone) != nil {
			loss.Gone = r.goneAt(other).Add(-clocksOff)
			s.Lost = append(s.Lost, loss)
		}
	}
	return nil
}

// SubjectOf returns the Machine of a record as a Subject.
func SubjectOf(record *mendv1.RemediationRecord) capacity.Subject {
	target := &record.Spec.Target
	owner, host := ptr.Deref(target.Owner, mendv1.RecordRef{}), ptr.Deref(target.Host, mendv1.RecordRef{})
	group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group
	return capacity.Subject{
		Namespace: target.Machine.Namespace, Name: target.Machine.Name, Cluster: target.ClusterName, Host: host.Name,
		Owner:      capacity.Owner{Group: group, Kind: owner.Kind, Name: owner.Name},
		Deployment: record.Labels[clusterv1.MachineDeploymentNameLabel], Found: replacementOf(record),
	}
}

// replacementOf returns the name of the machine that replaces the target of a record; empty if none was found.
func replacementOf(record *mendv1.RemediationRecord) string {
	return ptr.Deref(record.Status.Replacement, mendv1.RecordReplacement{}).Machine.Name
}

// makerOf returns what creates the replacement of s: its MachineDeployment or its owner; empty if it has neither.
func makerOf(s capacity.Subject) string {
	switch {
	case s.Deployment != "":
		return "MachineDeployment/" + s.Deployment
	case s.Owner.Kind != "":
		return s.Owner.Kind + "/" + s.Owner.Name
	}
	return ""
}

// capacityOf returns what a record needs of a story.
func capacityOf(s *capacity.Story) Capacity {
	c := Capacity{
		Known: s.Stage != capacity.Unread, Reason: s.Reason, Since: s.Since, Over: s.Stage == capacity.NotReplaced,
		Object: mendv1.RecordRef{Kind: s.WaitsFor.Kind, Namespace: s.WaitsFor.Namespace, Name: s.WaitsFor.Name},
		Back:   s.Stage == capacity.Back && s.Reason != capacity.Recovered, Healthy: s.Healthy, Others: s.Ready,
	}
	if s.New == nil {
		return c
	}
	c.Replacement = &mendv1.RecordReplacement{
		Machine: refTo(s.New, clusterv1.GroupVersion.WithKind(machineKind)), Guessed: s.Replacement.Guess(),
	}
	if s.New.Status.NodeRef.IsDefined() {
		c.Replacement.Node = NodeRef(s.New.Status.NodeRef.Name, "")
	}
	if s.Host != "" {
		version := bmov1alpha1.GroupVersion.String()
		c.Replacement.Host = &mendv1.RecordRef{APIVersion: version, Kind: hostKind, Namespace: s.New.Namespace, Name: s.Host}
	}
	return c
}
