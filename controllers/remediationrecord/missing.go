package remediationrecord

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// Missing is what an open record says of capacity that is not back.
type Missing struct {
	// Target is what is remediated, Check what asked for that; without a name nothing did that is known.
	Target, Check mendv1.RecordRef
	// Namespace is that of the record, Cluster the one that the target belongs to; empty for nodes of this cluster.
	Namespace, Cluster string
	// Reason is what is waited for, Message that as a sentence, and Since since when; zero if that is not known.
	Reason, Message string
	Since           time.Time
	// Due is since when the target counts as unhealthy.
	Due time.Time
}

// notExpected are the reasons for which no other machine is to come: that a target is about to be gone then is no loss.
var notExpected = []string{
	string(capacity.ScaledDown), string(capacity.OwnerDeleted), string(capacity.ClusterDeleted), string(capacity.NamespaceDeleted),
}

// MissingBy is the capacity that is missing by a record; nil if it is closed, if nothing was begun yet, or if no other machine is expected.
func MissingBy(is *mendv1.RemediationRecord) *Missing {
	back := meta.FindStatusCondition(is.Status.Conditions, mendv1.RecordCapacityBack)
	if !is.Open() || is.Status.Begun == nil && back == nil || back != nil && slices.Contains(notExpected, back.Reason) {
		return nil
	}
	m := &Missing{
		Target: TargetOf(is), Namespace: is.Namespace, Cluster: is.Spec.Target.ClusterName, Reason: Unread, Due: is.Spec.Decided.Time,
	}
	if is.Spec.Due != nil {
		m.Due = is.Spec.Due.Time
	}
	if is.Spec.Requester.Check != nil {
		m.Check = *is.Spec.Requester.Check
	}
	if back != nil {
		m.Reason, m.Message = back.Reason, back.Message
	}
	if step := waitingFor(&is.Status); step != nil && step.Reason == m.Reason {
		m.Since = step.Time.Time
	}
	return m
}

// OldestFirst sorts what is missing: what was due first comes first.
func OldestFirst(all []Missing) {
	slices.SortFunc(all, func(a, b Missing) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Target.Namespace, b.Target.Namespace), cmp.Compare(a.Target.Name, b.Target.Name))
	})
}
