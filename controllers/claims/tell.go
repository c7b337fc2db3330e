package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// tell reports what became of the plan for a check, in the log and in an event on it.
func (r *Reconciler) tell(ctx context.Context, seen *observed, check *clusterv1.MachineHealthCheck, plan claims.Plan, done result) {
	check = check.DeepCopy() // the cache's carries no kind
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	e := recorder.Event{About: check, Kind: corev1.EventTypeNormal, Action: "Claim"}
	object := labelledObject(plan.By, seen.key.Namespace, seen.key.Name)
	switch {
	case done == claimed:
		e.Reason = mendv1.EventCheckClaimed
		e.Text = fmt.Sprintf("Claimed, since %s has the label %s: kubemend acts on this MachineHealthCheck in place of Cluster API core",
			object, claimLabel)
	case done == released:
		e.Reason, e.Action = mendv1.EventCheckReleased, "Release"
		e.Text = fmt.Sprintf("Released, since neither Cluster %s nor Namespace %s has the label %s: "+
			"Cluster API core acts on this MachineHealthCheck from now on", seen.key.Name, seen.key.Namespace, claimLabel)
	case plan.Reason == claims.PausedByHand:
		e.Kind, e.Reason = corev1.EventTypeWarning, mendv1.EventCheckNotClaimed
		e.Text = notClaimedByLabel(object, check.Annotations[clusterv1.PausedAnnotation])
	default:
		return
	}
	if done != unchanged {
		log.FromContext(ctx).Info("Carried out a claim's plan", "action", plan.Action, "MachineHealthCheck", check.Name, "reason", plan.Reason, "by", plan.By)
	}
	recorder.Send(r.Recorder, e)
}

// tellOfLabels reports a label whose value is not defined, in an event on the Cluster: one on a Namespace would be where few users of clusters look, and
// where a manager of one namespace may not write.
func (r *Reconciler) tellOfLabels(seen *observed) {
	if seen.cluster == nil {
		return
	}
	about := seen.cluster.DeepCopy()
	about.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	for by, all := range map[claims.Source]map[string]string{claims.Cluster: seen.cluster.Labels, claims.Namespace: seen.namespace} {
		if labelOf(all) == claims.Invalid {
			recorder.Send(r.Recorder, recorder.Event{
				About: about, Kind: corev1.EventTypeWarning, Reason: mendv1.EventInvalidClaimLabel, Action: "Claim",
				Text: InvalidLabel(labelledObject(by, seen.key.Namespace, seen.key.Name), all[mendv1.ClaimLabel]),
			})
		}
	}
}
