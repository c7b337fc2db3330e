package remediationrecord

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// inScope reports whether the manager may find out with its own rights what has become of the target of the record: who may write records in a namespace could
// else name in one what others have, and read in it what the manager finds. A record is about Machines and hosts of its own namespace.
//
// One that belongs to no Cluster may be about a node of this cluster and its Machine in any namespace, if its NodeHealthCheck says so: that is in no namespace
// and has a template where the record is.
func (r *Reconciler) inScope(ctx context.Context, o *observed) (bool, error) {
	target, ref := &o.record.Spec.Target, TargetOf(o.record)
	switch here := ref.Namespace == o.record.Namespace; ref.Kind {
	case hostKind:
		return here, nil
	case machineKind:
		if here && (target.ClusterName != "" || target.Node == nil) {
			return true, nil
		}
	case nodeKind:
	default:
		return false, nil
	}
	return r.ofNodeCheck(ctx, o)
}

// The kinds that records are about.
const (
	machineKind = "Machine"
	nodeKind    = "Node"
	hostKind    = "BareMetalHost"
)

// ofNodeCheck reports whether a NodeHealthCheck of a record that belongs to no Cluster has a template where the record is.
func (r *Reconciler) ofNodeCheck(ctx context.Context, o *observed) (bool, error) {
	by := o.record.Spec.Requester.Check
	if o.record.Spec.Target.ClusterName != "" || by == nil || by.Kind != nodeCheckKind {
		return false, nil
	}
	templates, err := r.templates(ctx, o)
	return slices.ContainsFunc(templates, func(t corev1.ObjectReference) bool { return t.Namespace == o.record.Namespace }), err
}

// unfollowed reports whether nothing is known of what the record waits for.
func (o *observed) unfollowed() bool {
	t := &o.facts.Target
	leaving := t.Known && (!t.Exists || !t.Deleting.IsZero())
	return !t.Known || t.Machine && leaving && !o.facts.Capacity.Known
}
