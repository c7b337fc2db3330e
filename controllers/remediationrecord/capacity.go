package remediationrecord

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
)

// clocksOff is by how much the clock of the API server, which says when a machine was made, may be behind: one that were taken for older
// than the end of the machine that it replaces would be no replacement, and its owner scaled down.
const clocksOff = 10 * time.Second

// observeCapacity reads what the capacity of the Machine waits for, once its owner is asked or it is being deleted: before that nothing is
// missing for good.
func (r *Reconciler) observeCapacity(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	if !t.Machine || !t.Known || t.Exists && t.Deleting.IsZero() && t.Asked.IsZero() {
		return nil
	}
	subject, err := r.subject(ctx, o)
	if err != nil {
		return err
	}
	facts, err := (&capacity.Observer{Management: o.from, Mapper: r.Mapper, Machines: o.from.machinesOf}).Observe(ctx, subject, o.now)
	if err != nil {
		return fmt.Errorf("read what the capacity of Machine %s/%s waits for: %w", subject.Namespace, subject.Name, err)
	}
	story := facts.Story()
	o.story, o.facts.Capacity = &story, capacityOf(&story, subject.Namespace)
	return nil
}

// SubjectOf is the machine of a record as what is kept of it.
func SubjectOf(record *mendv1.RemediationRecord) capacity.Subject {
	target := &record.Spec.Target
	owner, host := ptr.Deref(target.Owner, mendv1.RecordRef{}), ptr.Deref(target.Host, mendv1.RecordRef{})
	return capacity.Subject{
		Namespace: target.Machine.Namespace, Name: target.Machine.Name, Cluster: target.ClusterName, Host: host.Name,
		Owner:      capacity.Owner{Group: schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group, Kind: owner.Kind, Name: owner.Name},
		Deployment: record.Labels[clusterv1.MachineDeploymentNameLabel],
	}
}

// subject is the machine as it is asked for: itself or, if it is gone, what the record has kept of it.
func (r *Reconciler) subject(ctx context.Context, o *observed) (capacity.Subject, error) {
	began := ptr.Deref(o.facts.Status.Begun, o.record.Spec.Decided).Time
	s := SubjectOf(o.record)
	if o.machine != nil {
		host := s.Host
		s = capacity.Of(o.machine, began)
		s.Host = host
	} else {
		s.Began, s.Gone, s.Created = began, r.goneAt(o.record).Add(-clocksOff), time.Unix(1, 0) // another one of its name has another
	}
	s.Found = replacementOf(o.record)
	if o.machine == nil && makerOf(s) != "" {
		lost, err := r.lost(ctx, o)
		s.Lost = lost
		return s, err
	}
	return s, nil
}

// replacementOf is the name of the machine that was found in place of the target of a record; empty if none was.
func replacementOf(record *mendv1.RemediationRecord) string {
	return ptr.Deref(record.Status.Replacement, mendv1.RecordReplacement{}).Machine.Name
}

// lost are the machines of the same owner that are gone and not replaced yet, by their open records.
func (r *Reconciler) lost(ctx context.Context, o *observed) ([]capacity.Loss, error) {
	open, err := r.openOf(ctx, o.record.Namespace, makerIndex, makerOf(SubjectOf(o.record)))
	if err != nil {
		return nil, err
	}
	var losses []capacity.Loss
	for _, other := range open {
		target := &other.Spec.Target
		if target.Machine.Name == o.record.Spec.Target.Machine.Name || last(&other.Status, TargetGone) == nil {
			continue
		}
		losses = append(losses, capacity.Loss{
			Name: target.Machine.Name, At: r.goneAt(other).Add(-clocksOff), Found: replacementOf(other),
			Host: ptr.Deref(target.Host, mendv1.RecordRef{}).Name,
		})
	}
	return losses, nil
}

// makerOf is what makes a machine in place of s: its MachineDeployment or its owner; empty if it has neither.
func makerOf(s capacity.Subject) string {
	switch {
	case s.Deployment != "":
		return "MachineDeployment/" + s.Deployment
	case s.Owner.Kind != "":
		return s.Owner.Kind + "/" + s.Owner.Name
	}
	return ""
}

// capacityOf is a story as far as a record has it.
func capacityOf(s *capacity.Story, namespace string) Capacity {
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
		c.Replacement.Host = &mendv1.RecordRef{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: hostKind, Namespace: namespace, Name: s.Host}
	}
	return c
}
