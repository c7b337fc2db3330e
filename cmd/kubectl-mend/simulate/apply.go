package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// apply puts what the manifest has into the snapshot, as an API server would if it let everything in: templates first, since the checks are judged
// by them. It returns what there is to say of it, and why the API server would refuse it.
func (m *Manifest) apply(ctx context.Context, w *snapshot.Snapshot, now time.Time) (notes, refused []string, err error) {
	for _, templates := range []bool{true, false} {
		for i := range m.documents {
			d := &m.documents[i]
			if isCheck(d.obj) == templates {
				continue
			}
			said, against, err := d.apply(ctx, w, now)
			if err != nil {
				return nil, nil, fmt.Errorf("apply %s: %w", d.ref(), err)
			}
			for _, note := range append(said, d.notes...) {
				notes = append(notes, d.ref().String()+": "+note)
			}
			for _, why := range against {
				refused = append(refused, d.ref().String()+": "+why.Error())
			}
		}
	}
	return notes, refused, nil
}

func isCheck(obj client.Object) bool {
	switch obj.(type) {
	case *clusterv1.MachineHealthCheck, *nhcv1.NodeHealthCheck:
		return true
	}
	return false
}

// apply puts one object into the snapshot.
func (d *document) apply(ctx context.Context, w *snapshot.Snapshot, now time.Time) (notes []string, refused []error, err error) {
	switch is := d.obj.(type) {
	case *clusterv1.MachineHealthCheck:
		was := &clusterv1.MachineHealthCheck{}
		if notes, err = replaces(ctx, w, is, was, now,
			"It is new, and so the youngest: of two that select the same machine the older one acts on it"); err != nil {
			return nil, nil, err
		}
		is.Status, notes = was.Status, append(notes, claim(is)...)
		refused = machineCheckRefusals(is, was)
	case *nhcv1.NodeHealthCheck:
		was := &nhcv1.NodeHealthCheck{}
		if notes, err = replaces(ctx, w, is, was, now, "It is new"); err != nil {
			return nil, nil, err
		}
		is.Status = was.Status
		setDefaults(&is.Spec)
		var warnings []string
		refused, warnings = nodeCheckRefusals(ctx, w, is, was)
		if notes = append(notes, warnings...); len(is.Spec.PauseRequests) > 0 {
			notes = append(notes, "It has pauseRequests: no remediation would begin")
		}
	default:
		install(w, d.obj.GetObjectKind().GroupVersionKind())
	}
	return notes, refused, w.Add(d.obj)
}

// replaces makes a check the one of its name that there is, which is read into was: it is as old as that, remembers the same, and keeps the labels and
// annotations that the manifest does not mention. Else it is made now. The notes say which of both.
func replaces(ctx context.Context, w *snapshot.Snapshot, is, was client.Object, now time.Time, isNew string) (notes []string, err error) {
	is.SetResourceVersion("")
	switch err := w.ReadOnly().Get(ctx, client.ObjectKeyFromObject(is), was); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		is.SetCreationTimestamp(metav1.NewTime(now))
		is.SetDeletionTimestamp(nil)
		is.SetGeneration(1)
		is.SetUID("")
		return []string{isNew}, nil
	case err != nil:
		return nil, fmt.Errorf("find out whether it is there: %w", err)
	}
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetDeletionTimestamp(was.GetDeletionTimestamp())
	is.SetFinalizers(was.GetFinalizers())
	is.SetOwnerReferences(was.GetOwnerReferences())
	is.SetGeneration(was.GetGeneration() + 1)
	labels, _ := onTopOf(was.GetLabels(), is.GetLabels()) // these say nothing of what would be done
	annotations, kept := onTopOf(was.GetAnnotations(), is.GetAnnotations())
	is.SetLabels(labels)
	is.SetAnnotations(annotations)
	notes = []string{"It replaces the one of its name"}
	if len(kept) > 0 {
		notes = append(notes, "It keeps annotations that the manifest does not mention: "+strings.Join(kept, ", "))
	}
	return notes, nil
}

// onTopOf are the labels or annotations that there are once those of a manifest were applied on top of them, and the names of those that are there
// still and stand in no manifest. (kubectl apply takes away only what it has put there itself, of which a snapshot knows nothing.)
func onTopOf(was, is map[string]string) (all map[string]string, kept []string) {
	all = maps.Clone(was)
	if all == nil {
		return is, nil
	}
	maps.Copy(all, is)
	for name, value := range was {
		if _, mentioned := is[name]; !mentioned {
			kept = append(kept, name+": "+value)
		}
	}
	slices.Sort(kept)
	return all, kept
}

// claim has kubemend act on a check that does not say who is to.
func claim(check *clusterv1.MachineHealthCheck) []string {
	switch by, annotated := check.Annotations[clusterv1.PausedAnnotation]; {
	case !annotated:
		if check.Annotations == nil {
			check.Annotations = map[string]string{}
		}
		check.Annotations[clusterv1.PausedAnnotation] = mendv1.Claim
		return []string{fmt.Sprintf("It is simulated as if it were claimed: without the annotation %s Cluster API core acts on it",
			clusterv1.PausedAnnotation+": "+mendv1.Claim)}
	case by != mendv1.Claim:
		return []string{fmt.Sprintf("It is paused by its annotation %s: nothing would happen", clusterv1.PausedAnnotation)}
	}
	return nil
}

// setDefaults gives a check what its CustomResourceDefinition gives to one that does not say it.
func setDefaults(spec *nhcv1.NodeHealthCheckSpec) {
	if spec.UnhealthyConditions != nil {
		return
	}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		spec.UnhealthyConditions = append(spec.UnhealthyConditions, nhcv1.UnhealthyCondition{
			Type: corev1.NodeReady, Status: status, Duration: metav1.Duration{Duration: 5 * time.Minute},
		})
	}
}

// install makes the kind of a template known, and that of the requests made from it, in all versions that there are.
func install(w *snapshot.Snapshot, template schema.GroupVersionKind) {
	if remediationrequest.Refusal(template) != nil {
		return
	}
	versions := []string{template.Version}
	if template.Group == infrav1.GroupVersion.Group && w.Scheme().Recognizes(infrav1.GroupVersion.WithKind(template.Kind)) {
		versions = []string{infrav1.GroupVersion.Version, infrav1beta1.GroupVersion.Version}
	}
	for _, version := range versions {
		for _, kind := range []schema.GroupVersionKind{template, remediationrequest.KindOf(template)} {
			kind.Version = version
			plural, _ := meta.UnsafeGuessKindToResource(kind)
			w.Install(kind, plural.Resource, true)
		}
	}
}
