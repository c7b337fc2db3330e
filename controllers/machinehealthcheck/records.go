package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

const checkKind = "MachineHealthCheck"

// writeAhead makes sure that the remediation that decision begins has a record, and returns that; nil if it has none. Nothing that goes
// wrong holds up the remediation. since tells the remediations of a machine apart.
func (r *Reconciler) writeAhead(
	ctx context.Context, state *observed, plan *Plan, decision *Decision, since string,
) *mendv1.RemediationRecord {
	if r.Records == nil {
		return nil
	}
	record := recordOf(state, plan, decision, r.Records.HostOf(ctx, decision.Target.Machine))
	return r.Records.Begin(ctx, checkKind, record, string(state.Check.UID)+" "+since)
}

// carrying makes a machine whose owner is asked to replace it carry the record, by the condition that says that it was asked.
func carrying(conds []metav1.Condition, record *mendv1.RemediationRecord) []metav1.Condition {
	conds = slices.Clone(conds)
	for i := range conds {
		if conds[i].Type == mendv1.Remediation {
			conds[i].Message += records.Mention(record)
		}
	}
	return conds
}

// recordAdopted makes sure that the remediation that others have begun by the request of decision has a record, now that it is this
// check's. It is empty if the request carries one, or if the machine is healthy again, so that there is nothing to follow.
func (r *Reconciler) recordAdopted(ctx context.Context, state *observed, plan *Plan, decision *Decision) string {
	if carried, _ := records.CarriedBy(decision.Target.Request); decision.Verdict.State != health.Unhealthy || carried.Name != "" {
		return ""
	}
	req := decision.Target.Request
	record := r.writeAhead(ctx, state, plan, decision, string(req.GetUID())) // what the machine says may change before it is adopted
	if record == nil {
		return ""
	}
	return records.Carried(record, req.Namespace)
}

// healthSaid is what machine says of its health and since when, as the API server keeps it: a restart does not change it, and the next
// remediation of the machine finds it otherwise.
func healthSaid(machine *clusterv1.Machine) string {
	cond := ConditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition)
	if cond == nil {
		return ""
	}
	return fmt.Sprintf("%s since %d", cond.Status, cond.LastTransitionTime.Unix())
}

// recordOf is the record of the remediation of decision, of a machine on that host, as it is decided. What is not known is left out.
func recordOf(state *observed, plan *Plan, decision *Decision, on *host.Host) *mendv1.RemediationRecord {
	check := state.Check
	record := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: check.Namespace},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Decided: metav1.NewTime(state.Now),
			Requester: mendv1.RecordRequester{Check: &mendv1.RecordRef{
				APIVersion: clusterv1.GroupVersion.String(), Kind: checkKind, Namespace: check.Namespace, Name: check.Name, UID: string(check.UID),
			}},
			Counts: records.CountsOf(plan.Population, state.Limits,
				cmp.Or(check.Spec.Remediation.TriggerIf.UnhealthyInRange, MostUnhealthy(check))),
		},
	}
	records.OnMachine(record, decision.Target.Machine)
	records.OnNode(&record.Spec.Target, decision.Target.Node)
	records.OnHost(&record.Spec.Target, on)
	records.OwnedBy(record, state.Cluster)
	if shard, labelled := check.Labels[clusterv1.WatchLabel]; labelled {
		record.Labels[clusterv1.WatchLabel] = shard
	}
	if state.Template.External {
		record.Spec.Remediator = mendv1.RemediatedByRequest
	}
	records.Judged(&record.Spec, decision.Verdict, state.Now)
	by, known := explain.AttributionOf(decision.Target.Machine, mendv1.RequestedAnnotation)
	marked := func(finding health.Finding) bool { return finding.Reason == health.MarkedByHand }
	if !known || !slices.ContainsFunc(decision.Verdict.Due(state.Now), marked) {
		return record
	}
	record.Spec.Requester.User, record.Spec.Requester.Reason = by.By, by.Reason
	possible := !by.At.IsZero() && !by.At.After(state.Now) // anything may be written there
	if due := record.Spec.Due; possible && (due == nil || by.At.Before(due.Time)) {
		record.Spec.Due = new(metav1.NewTime(by.At))
	}
	return record
}
