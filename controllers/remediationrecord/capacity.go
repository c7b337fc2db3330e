package remediationrecord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
)

// clocksOff is by how much the clock of the API server, which says when a machine was made, may be behind: one that were taken for older than the end of the
// machine that it replaces would be no replacement, and its owner scaled down.
const clocksOff = 10 * time.Second

// machineSetKind is the kind of owners that belong to a MachineDeployment.
const machineSetKind = "MachineSet"

// observeCapacity reads what the capacity of the Machine waits for, once its owner is asked or it is being deleted: before that nothing is missing for good.
func (r *Reconciler) observeCapacity(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	if !t.Machine || !t.Known || t.Exists && t.Deleting.IsZero() && t.Asked.IsZero() {
		return nil
	}
	subject, err := r.subject(ctx, o)
	if err != nil {
		return err
	}
	facts, err := (&capacity.Observer{Management: r.from(o), Mapper: r.Mapper}).Observe(ctx, subject, o.now)
	if errors.Is(err, capacity.ErrNotKept) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the capacity of Machine %s/%s waits for: %w", subject.Namespace, subject.Name, err)
	}
	story := facts.Story()
	o.story, o.facts.Capacity = &story, capacityOf(&story, subject.Namespace)
	return nil
}

// subject is the machine as it is asked for: itself or, if it is gone, what the record has kept of it.
func (r *Reconciler) subject(ctx context.Context, o *observed) (capacity.Subject, error) {
	began := o.facts.Decided
	if begun := o.facts.Status.Begun; begun != nil {
		began = begun.Time
	}
	target := &o.record.Spec.Target
	var s capacity.Subject
	if o.machine != nil {
		s = capacity.Of(o.machine, began)
	} else {
		s = capacity.Subject{Namespace: target.Machine.Namespace, Name: target.Machine.Name, Cluster: target.ClusterName, Began: began}
		s.Gone = r.goneAt(o.record).Add(-clocksOff)
		s.Created = time.Unix(1, 0) // another one of its name has another
		if owner := target.Owner; owner != nil {
			s.Owner = capacity.Owner{Group: schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group, Kind: owner.Kind, Name: owner.Name}
		}
		var err error
		if s.Deployment, err = r.deploymentOf(ctx, o); err != nil {
			return s, err
		}
		s.LabelKey, s.LabelValue = selecting(&s)
	}
	if target.Host != nil {
		s.Host = target.Host.Name
	}
	if by := o.record.Status.Replacement; by != nil {
		s.Found = by.Machine.Name
	}
	lost, err := r.lost(ctx, o)
	s.Lost = lost
	return s, err
}

// selecting is the label by which the machines of the owner of s are found. The record of a NodeHealthCheck names no Cluster.
func selecting(s *capacity.Subject) (key, value string) {
	switch {
	case s.Cluster != "":
		return clusterv1.ClusterNameLabel, format.MustFormatValue(s.Cluster)
	case s.Deployment != "":
		return clusterv1.MachineDeploymentNameLabel, s.Deployment
	case s.Owner.Kind == machineSetKind:
		return clusterv1.MachineSetNameLabel, format.MustFormatValue(s.Owner.Name)
	}
	return clusterv1.MachineControlPlaneNameLabel, format.MustFormatValue(s.Owner.Name)
}

// deploymentOf is the MachineDeployment of the machine, by the label that the record has taken from it, or by its MachineSet.
func (r *Reconciler) deploymentOf(ctx context.Context, o *observed) (string, error) {
	if name := o.record.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return name, nil
	}
	owner := o.record.Spec.Target.Owner
	if owner == nil || owner.Kind != machineSetKind {
		return "", nil
	}
	set := &clusterv1.MachineSet{}
	err := r.Recent.Get(ctx, client.ObjectKey{Namespace: o.record.Spec.Target.Machine.Namespace, Name: owner.Name}, set)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read MachineSet %s: %w", owner.Name, err)
	}
	return set.Labels[clusterv1.MachineDeploymentNameLabel], nil
}

// lost are the machines of the same owner that are gone and not replaced yet, by their open records.
func (r *Reconciler) lost(ctx context.Context, o *observed) ([]capacity.Loss, error) {
	list := &mendv1.RemediationRecordList{}
	if err := r.Client.List(ctx, list, client.InNamespace(o.record.Namespace), client.MatchingFields{clusterIndex: o.record.Spec.Target.ClusterName},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the open records of Cluster %s/%s: %w", o.record.Namespace, o.record.Spec.Target.ClusterName, err)
	}
	var losses []capacity.Loss
	for i := range list.Items {
		other := &list.Items[i]
		target := &other.Spec.Target
		another := target.Machine != nil && target.Machine.Name != o.record.Spec.Target.Machine.Name
		if !other.Open() || !another || !sameOwner(other, o.record) {
			continue
		}
		if !slices.ContainsFunc(other.Status.Steps, func(s mendv1.RecordStep) bool { return s.Reason == TargetGone }) {
			continue
		}
		loss := capacity.Loss{Name: target.Machine.Name, At: r.goneAt(other).Add(-clocksOff)}
		if by := other.Status.Replacement; by != nil {
			loss.Found = by.Machine.Name
		}
		if target.Host != nil {
			loss.Host = target.Host.Name
		}
		losses = append(losses, loss)
	}
	return losses, nil
}

func sameOwner(a, b *mendv1.RemediationRecord) bool {
	if of := a.Labels[clusterv1.MachineDeploymentNameLabel]; of != "" {
		return of == b.Labels[clusterv1.MachineDeploymentNameLabel]
	}
	x, y := a.Spec.Target.Owner, b.Spec.Target.Owner
	return x != nil && y != nil && x.Kind == y.Kind && x.Name == y.Name
}

// capacityOf is a story as far as a record has it.
func capacityOf(s *capacity.Story, namespace string) Capacity {
	c := Capacity{
		Known: s.Stage != capacity.Unread, Reason: s.Reason, Since: s.Since, Over: s.Stage == capacity.NotReplaced,
		Object: mendv1.RecordRef{Kind: s.WaitsFor.Kind, Namespace: s.WaitsFor.Namespace, Name: s.WaitsFor.Name},
		Back:   s.Stage == capacity.Back && s.Reason != capacity.Recovered,
	}
	if s.Reason == capacity.RolledOut || s.Reason == capacity.OwnerComplete {
		c.Others = s.Ready
	}
	if s.New == nil {
		return c
	}
	c.Healthy = s.Healthy
	c.Replacement = &mendv1.RecordReplacement{
		Machine: mendv1.RecordRef{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Namespace: namespace, Name: s.New.Name, UID: string(s.New.UID),
		},
		Guessed: s.Replacement.Guess(),
	}
	if s.New.Status.NodeRef.IsDefined() {
		c.Replacement.Node = NodeRef(s.New.Status.NodeRef.Name, "")
	}
	if s.Host != "" {
		c.Replacement.Host = &mendv1.RecordRef{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost", Namespace: namespace, Name: s.Host}
	}
	return c
}
