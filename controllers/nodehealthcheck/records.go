package nodehealthcheck

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// hostWithin is how long a record waits for the host that it names. With records.AheadWithin it is less than begin.Within, or a node of the
// control plane would not begin while neither its host nor its record answers.
const hostWithin = begin.Within / 5

// recorded makes sure that the remediation that req begins, or goes on with, has a record, makes req carry it and returns it. All requests
// of an escalation belong to one record, which is where the first of them is. Of a request without a namespace none is written.
func (r *Reconciler) recorded(ctx context.Context, state *observed, o *outcome, req *unstructured.Unstructured) *mendv1.RemediationRecord {
	at, uid := o.recorded()
	if at.Namespace = cmp.Or(at.Namespace, req.GetNamespace()); at.Namespace == "" {
		return nil
	}
	record := recordOf(state, o)
	if record.Spec.Target.Machine != nil {
		within, done := context.WithTimeout(ctx, hostWithin)
		records.OnHost(&record.Spec.Target, records.HostOf(within, r.Metal, o.n.Machine.Object))
		done()
	}
	record.Namespace, record.Name, record.UID = at.Namespace, at.Name, uid
	record = r.Records.Begin(ctx, "NodeHealthCheck", record, unhealthySince(&state.facts, o.n))
	records.Carry(req, record)
	return record
}

// recorded is the record that the former requests of the remediation carry; zero if they carry none.
func (o *outcome) recorded() (types.NamespacedName, types.UID) {
	for j := len(o.n.Requests) - 1; j >= 0; j-- {
		if carried, uid := records.CarriedBy(o.n.Requests[j].Object); carried.Name != "" && !o.Requests[j].Over {
			return carried, uid
		}
	}
	return types.NamespacedName{}, ""
}

// unhealthySince tells a remediation of a node from those before and after it, whichever process begins it: it is the check, and the
// first moment since which a condition of the node is as it is. What only the memory of a process knows is left out.
func unhealthySince(facts *nodes.Facts, n *nodes.Node) string {
	var first time.Time
	signals, reported := facts.Signals(n)
	if !reported && n.Object != nil {
		first = n.Object.CreationTimestamp.Time
	}
	for i := range signals {
		first = health.Earliest(first, signals[i].Since)
	}
	return string(facts.Check.UID) + " " + first.UTC().Format(time.RFC3339)
}

// recordOf is the record of the remediation that o begins: what is known of the node, and what was decided about it and by which numbers.
func recordOf(state *observed, o *outcome) *mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{}
	spec := &record.Spec
	spec.Remediator, spec.Decided = mendv1.RemediatedByRequest, metav1.NewTime(state.facts.Now)
	if o.n.Machine.There() {
		spec.Target = records.MachineTarget(o.n.Machine.Object)
		spec.Target.ClusterName = "" // the nodes are those of this cluster: no Cluster owns the record
	}
	spec.Target.Node, spec.Target.ControlPlane = records.NodeRef(o.n.Name, o.n.ID()), o.n.ControlPlane()
	records.OnNode(&spec.Target, o.n.Object)
	spec.Requester.Check = &mendv1.RecordRef{
		APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: state.check.Name, UID: string(state.check.UID),
	}
	records.Judged(spec, o.Verdict, state.facts.Now)
	minHealthy, maxUnhealthy := state.facts.Limits()
	spec.Counts = records.CountsOf(o.plan.Population, o.plan.Limits, cmp.Or(maxUnhealthy, minHealthy))
	return record
}
