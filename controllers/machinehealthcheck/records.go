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
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/records"
)

// checkKind is the kind of the checks, by which records that could not be written are counted.
const checkKind = "MachineHealthCheck"

// writeAhead makes sure that the remediation that s begins has a record, and returns its name; empty if it has none. Nothing that goes wrong holds up the
// remediation. since tells the remediations of a machine apart.
func (r *Reconciler) writeAhead(ctx context.Context, state *observed, s step, since string) string {
	if r.Records == nil {
		return ""
	}
	return r.Records.Ahead(ctx, checkKind, recordOf(state, s, records.HostOf(ctx, r.Metal, s.Target.Machine)), since)
}

// recordAdopted makes sure that the remediation that others have begun by the request of s has a record, now that it is this
// check's. It is empty if the request names one, or if the machine is healthy again, so that there is nothing to follow.
func (r *Reconciler) recordAdopted(ctx context.Context, state *observed, s step) types.NamespacedName {
	if s.Verdict.State != health.Unhealthy || records.NamedBy(s.Target.Request).Name != "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: state.Check.Namespace, Name: r.writeAhead(ctx, state, s, healthSaid(s.Target.Machine))}
}

// healthSaid is what m says of its health and since when, as the API server keeps it: a restart does not change it, and the next remediation of the machine
// finds it otherwise.
func healthSaid(m *clusterv1.Machine) string {
	c := machines.ConditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s since %d", c.Status, c.LastTransitionTime.Unix())
}

// recordOf is the record of the remediation of s, of a machine on that host, as it is decided. What is not known is left out.
func recordOf(state *observed, s step, on *bmov1alpha1.BareMetalHost) *mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: state.Check.Namespace},
		Spec: mendv1.RemediationRecordSpec{
			Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Target: recordTarget(s.Target, on),
			Decided: metav1.NewTime(state.Now),
			Counts: records.CountsOf(s.population, state.Limits,
				cmp.Or(state.Check.Spec.Remediation.TriggerIf.UnhealthyInRange, machines.MostUnhealthy(state.Check))),
		},
	}
	records.OwnedBy(record, state.Cluster)
	if shard, labelled := state.Check.Labels[clusterv1.WatchLabel]; labelled {
		record.Labels[clusterv1.WatchLabel] = shard
	}
	if state.Template.External {
		record.Spec.Remediator = mendv1.RemediatedByRequest
	}
	records.Judged(&record.Spec, s.Verdict, state.Now)
	record.Spec.Requester = requester(state.Check)
	if by, known := explain.AttributionOf(s.Target.Machine, mendv1.RequestedAnnotation); known && marks(s.Verdict.Due(state.Now)) {
		record.Spec.Requester.User, record.Spec.Requester.Reason = by.By, by.Reason
		if due := record.Spec.Due; !by.At.IsZero() && !by.At.After(state.Now) && (due == nil || by.At.Before(due.Time)) { // anything may be written there
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

func recordTarget(t *machines.Target, on *bmov1alpha1.BareMetalHost) mendv1.RecordTarget {
	is := records.MachineTarget(t.Machine)
	records.OnNode(&is, t.Node)
	records.OnHost(&is, on)
	return is
}
