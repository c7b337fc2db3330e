package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// RemediationOf is what reports need of a record.
func RemediationOf(record *mendv1.RemediationRecord) Remediation {
	spec, status, target := &record.Spec, &record.Status, &record.Spec.Target
	r := Remediation{
		Record: explain.Ref{Kind: "RemediationRecord", Namespace: record.Namespace, Name: record.Name}, Mode: spec.Mode,
		Cause: spec.Cause, HostModel: target.HostModel, FailureDomain: target.FailureDomain,
		ByHand: spec.Requester.User != "", Evident: len(spec.Evidence) > 0,
		UnhealthySince: moment(spec.UnhealthySince), Due: moment(spec.Due), Decided: spec.Decided.Time,
		Begun: moment(status.Begun), CapacityBack: moment(status.CapacityBack), Ended: moment(status.Ended),
		Outcome: status.Outcome, BegunBy: status.BegunBy, BlockedBy: spec.BlockedBy,
		Check: refOf(spec.Requester.Check), Host: refOf(target.Host),
	}
	for _, ref := range []*mendv1.RecordRef{target.Machine, target.Node, target.Host} {
		if ref != nil {
			r.Target = refOf(ref)
			break
		}
	}
	if target.ClusterName != "" {
		r.Cluster = explain.Ref{Kind: "Cluster", Namespace: record.Namespace, Name: target.ClusterName}
	}
	return r
}

func moment(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func refOf(r *mendv1.RecordRef) explain.Ref {
	if r == nil {
		return explain.Ref{}
	}
	return explain.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}
