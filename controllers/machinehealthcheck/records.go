package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/records"
)

// checkKind is the kind of the checks, by which records that could not be written are counted.
const checkKind = "MachineHealthCheck"

// writeAhead makes sure that the remediation that s begins has a record, and returns its name; empty if it has none. Nothing that goes wrong holds up the
// remediation. since tells the remediations of a machine apart.
func (r *Reconciler) writeAhead(ctx context.Context, w *observed, s step, since string) string {
	if r.Records == nil {
		return ""
	}
	return r.Records.Ahead(ctx, checkKind, recordOf(w, s, records.HostOf(ctx, r.Metal, s.target.machine)), since)
}

// recordAdopted makes sure that the remediation that others have begun by the request of s has a record, now that it is this
// check's. It is empty if the request names one, or if the machine is healthy again, so that there is nothing to follow.
func (r *Reconciler) recordAdopted(ctx context.Context, w *observed, s step) types.NamespacedName {
	if s.Verdict.State != health.Unhealthy || records.NamedBy(s.target.request).Name != "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: w.check.Namespace, Name: r.writeAhead(ctx, w, s, healthSaid(s.target.machine))}
}

// healthSaid is what m says of its health and since when, as the API server keeps it: a restart does not change it, and the next remediation of the machine
// finds it otherwise.
func healthSaid(m *clusterv1.Machine) string {
	c := conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s since %d", c.Status, c.LastTransitionTime.Unix())
}

// recordOf is the record of the remediation of s, of a machine on that host, as it is decided. What is not known is left out.
func recordOf(w *observed, s step, on *bmov1alpha1.BareMetalHost) *mendv1.RemediationRecord {
	limits := s.facts.About.Spelled
	record := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.check.Namespace},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Target: recordTarget(s.target, on),
			Decided: metav1.NewTime(w.now),
			Counts:  records.CountsOf(s.population, s.facts.Limits, cmp.Or(limits.Range, limits.MaxUnhealthy)),
		},
	}
	records.OwnedBy(record, w.cluster)
	if shard, labelled := w.check.Labels[clusterv1.WatchLabel]; labelled {
		record.Labels[clusterv1.WatchLabel] = shard
	}
	if w.remediation.External {
		record.Spec.Remediator = mendv1.RemediatedByRequest
	}
	records.Judged(&record.Spec, s.Verdict, w.now)
	record.Spec.Requester = requester(w.check)
	if by, known := explain.AttributionOf(s.target.machine, mendv1.RequestedAnnotation); known && marks(s.Verdict.Due(w.now)) {
		record.Spec.Requester.User, record.Spec.Requester.Reason = by.By, by.Reason
		if due := record.Spec.Due; !by.At.IsZero() && !by.At.After(w.now) && (due == nil || by.At.Before(due.Time)) { // anything may be written there
			record.Spec.Due = new(metav1.NewTime(by.At))
		}
	}
	return record
}

func requester(check *clusterv1.MachineHealthCheck) mendv1.RecordRequester {
	return mendv1.RecordRequester{Check: &mendv1.RecordRef{
		APIVersion: clusterv1.GroupVersion.String(), Kind: checkKind, Namespace: check.Namespace, Name: check.Name, UID: string(check.UID),
	}}
}

// marks reports whether a person has marked the machine of the findings.
func marks(findings []health.Finding) bool {
	return slices.ContainsFunc(findings, func(f health.Finding) bool { return f.Reason == health.MarkedByHand })
}

func recordTarget(t *target, on *bmov1alpha1.BareMetalHost) mendv1.RecordTarget {
	is := records.MachineTarget(t.machine)
	records.OnNode(&is, t.node)
	records.OnHost(&is, on)
	return is
}
