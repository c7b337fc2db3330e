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
	if r.Host != (explain.Ref{}) { // a record that names another namespace's says nothing of it
		r.Host.Namespace = record.Namespace
	}
	switch {
	case target.Machine != nil:
		r.Target = refOf(target.Machine)
	case target.Node != nil:
		r.Target = refOf(target.Node)
	default:
		r.Target = r.Host
	}
	if target.ClusterName != "" {
		if target.Machine != nil {
			r.Target.Namespace = record.Namespace
		}
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
