package hostremediation

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/policy"
)

// placeOf is the remediation called key as the ledger of RemediationPolicies knows it.
func (r *Reconciler) placeOf(key client.ObjectKey) policy.Check {
	return policy.Check{Kind: r.Kind.Kind, NamespacedName: key}
}

// byPerson reports whether a user asked for the remediation: with kubectl mend, or with an object that neither a check nor a template made.
func (obs *observed) byPerson() bool {
	_, attributed := explain.AttributionOf(obs.rem, mendv1.RequestedAnnotation)
	return attributed || checkOf(obs) == nil && obs.rem.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] == ""
}

// reportPlace reports the machine of a remediation, as stored, to the ledger, unless a check of kubemend reports it. A remediation that a
// user asked for counts, but is not bound by the policies.
func (r *Reconciler) reportPlace(ctx context.Context, key client.ObjectKey, obs *observed, unread error) {
	if unread != nil || !r.Ledger.Active(ctx) {
		return
	}
	if obs == nil || obs.machine == nil || obs.record.State.Final() || checkOf(obs) != nil {
		r.Ledger.Forget(r.placeOf(key))
		return
	}
	stored, _ := remediation.RecordOf(obs.stored)
	seen, bound := place.OfMachine(obs.machine), !obs.byPerson()
	seen.Kind, seen.Unknown, seen.Unavailable, seen.InFlight = r.Kind.Kind, !bound, bound, stored.Attempt > 0
	_, seen.ByHand = obs.machine.Annotations[clusterv1.RemediateMachineAnnotation]
	seen.Due = obs.rem.GetCreationTimestamp().Time
	if check := r.judging(ctx, obs); check != nil {
		seen.Check, seen.CheckLabels = check.Name, check.Labels
	}
	if obs.cluster != nil {
		seen.ClusterLabels = obs.cluster.Labels
	}
	host, labels := "", map[string]string(nil)
	if obs.found.Host != nil {
		host, labels = obs.found.Host.Name, obs.found.Host.Labels
	}
	seen.On(obs.lastNode, obs.cluster, host, labels)
	r.Ledger.Report(r.placeOf(key), []*place.Target{seen})
}

// placeless returns why RemediationPolicies do not let obs begin. It asks the ledger only when nothing else keeps obs from beginning. A
// remediation that a check of kubemend made already has a place, and waits only while the policies stop even what has begun.
func (r *Reconciler) placeless(ctx context.Context, obs *observed) []powercycle.Ahead {
	if !obs.confirms || obs.byPerson() {
		return nil
	}
	check, id := r.placeOf(client.ObjectKeyFromObject(obs.rem)), obs.machine.UID
	var blockers []rule.Blocker
	switch made := checkOf(obs); {
	case !r.Ledger.Active(ctx):
		blockers = place.WithoutLedger(obs.lastNode, obs.now)
	case made != nil:
		check = policy.Check{Kind: made.Kind, NamespacedName: types.NamespacedName{Namespace: made.Namespace, Name: made.Name}}
		if made.Kind == policy.NodeHealthCheck {
			id = place.NodeID(obs.nodeName())
		}
		blockers = r.Ledger.Holds(check, id, place.SignalsOf(obs.lastNode, obs.cluster))
	default:
		blockers = r.Ledger.Ask(check, []types.UID{id})[id]
	}
	ahead := make([]powercycle.Ahead, len(blockers))
	for i, b := range blockers {
		ahead[i] = powercycle.Ahead{Text: b.Text, Until: b.Until, Policy: true}
	}
	return ahead
}

// settlePlace gives up the place of the remediation called key if the remediation did not begin.
func (r *Reconciler) settlePlace(key client.ObjectKey, obs *observed, err error) {
	begun, lost := map[types.UID]bool{}, map[types.UID]bool{}
	if obs != nil && obs.machine != nil {
		begun[obs.machine.UID], lost[obs.machine.UID] = obs.record.Attempt > 0, begin.Lost(err)
	}
	r.Ledger.Settle(r.placeOf(key), begun, lost)
}
