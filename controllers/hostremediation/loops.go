package hostremediation

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// observeLoop finds out from the records of the host whether its power cycles did not last, once they can be read after a start. A person
// does not wait for that.
func (r *Reconciler) observeLoop(ctx context.Context, obs *observed) {
	if obs.machine == nil || obs.found.Host == nil || obs.record.Attempt > 0 || obs.byPerson() {
		return
	}
	if obs.loopUntil = r.Records.Awaited(ctx); obs.now.Before(obs.loopUntil) {
		return
	}
	carried, _ := records.CarriedBy(obs.rem)
	own := func(record mendv1.RemediationRecord) bool { return record.Name == carried.Name }
	former := slices.DeleteFunc(r.Records.Repeated(ctx, r.Client, obs.rem.GetNamespace(), "BareMetalHost", obs.found.Host.Name), own)
	failed := obs.rem.GetCreationTimestamp()
	ready := conditions.Get(obs.machine, clusterv1.MachineNodeReadyCondition)
	if ready != nil && ready.Status != metav1.ConditionTrue && ready.LastTransitionTime.Before(&failed) {
		failed = ready.LastTransitionTime
	}
	obs.loop = repeats.Of(former, failed.Time)
	obs.loopUntil = obs.loop.Until(obs.rem.GetCreationTimestamp().Time, time.Hour)
}

// byPerson reports whether a person has asked for the remediation, and no check: by kubectl mend, by the annotation of the Machine, or by
// making a request that is from no template.
func (obs *observed) byPerson() bool {
	_, attributed := explain.AttributionOf(obs.rem, mendv1.RequestedAnnotation)
	_, marked := obs.machine.Annotations[clusterv1.RemediateMachineAnnotation]
	return attributed || marked || checkOf(obs) == nil && obs.rem.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] == ""
}
