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
	o.facts.Story, o.facts.Replacement = &story, replacementIn(&story)
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

// replacementIn returns the machine that replaces the target according to a story; nil if there is none.
func replacementIn(s *capacity.Story) *mendv1.RecordReplacement {
	if s.New == nil {
		return nil
	}
	by := &mendv1.RecordReplacement{Machine: refTo(s.New, clusterv1.GroupVersion.WithKind(machineKind)), Guessed: s.Replacement.Guess()}
	if s.New.Status.NodeRef.IsDefined() {
		by.Node = NodeRef(s.New.Status.NodeRef.Name, "")
	}
	if s.Host != "" {
		by.Host = &mendv1.RecordRef{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: hostKind, Namespace: s.New.Namespace, Name: s.Host}
	}
	return by
}
