package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// apply puts what the manifest has into the snapshot, and returns notes about it. Whether an API server would let it in is not asked:
// kubectl apply --dry-run=server answers that.
func (m *Manifest) apply(w *snapshot.Snapshot, now time.Time) (notes []string, err error) {
	for i := range m.documents {
		d := &m.documents[i]
		for _, note := range append(d.apply(w, now), d.notes...) {
			notes = append(notes, d.ref().String()+": "+note)
		}
		if err := w.Add(d.obj); err != nil {
			return nil, fmt.Errorf("apply %s: %w", d.ref(), err)
		}
	}
	return notes, nil
}

// apply makes one object what it would be in the cluster, and makes its kind known.
func (d *document) apply(w *snapshot.Snapshot, now time.Time) (notes []string) {
	key := client.ObjectKeyFromObject(d.obj)
	switch check := d.obj.(type) {
	case *clusterv1.MachineHealthCheck:
		before := ptr.Deref(snapshot.One[clusterv1.MachineHealthCheck](w, key), clusterv1.MachineHealthCheck{})
		notes = replace(&before.ObjectMeta, &check.ObjectMeta, now)
		check.Status = before.Status
		return append(notes, claim(check)...)
	case *nhcv1.NodeHealthCheck:
		before := ptr.Deref(snapshot.One[nhcv1.NodeHealthCheck](w, key), nhcv1.NodeHealthCheck{})
		notes = replace(&before.ObjectMeta, &check.ObjectMeta, now)
		check.Status = before.Status
		setDefaults(&check.Spec)
		return notes
	}
	install(w, d.obj.GetObjectKind().GroupVersionKind())
	return nil
}

// replace makes the metadata of a check what they are once it is applied: if there is one of its name, it is as old as that, and keeps
// the labels and annotations that the manifest does not mention. (kubectl apply removes only what it has put there itself, which a
// snapshot does not know.)
func replace(before, check *metav1.ObjectMeta, now time.Time) (notes []string) {
	if before.UID == "" {
		*check = metav1.ObjectMeta{
			Namespace: check.Namespace, Name: check.Name, Labels: check.Labels, Annotations: check.Annotations,
			CreationTimestamp: metav1.NewTime(now), Generation: 1,
		}
		return []string{"It is new"}
	}
	notes = []string{"It replaces the one of its name"}
	merged := before.DeepCopy()
	merged.Labels, merged.Annotations = labels.Merge(before.Labels, check.Labels), labels.Merge(before.Annotations, check.Annotations)
	merged.ResourceVersion, merged.Generation = "", before.Generation+1
	var kept []string
	for name, value := range before.Annotations {
		if _, mentioned := check.Annotations[name]; !mentioned {
			kept = append(kept, name+": "+value)
		}
	}
	if *check = *merged; len(kept) > 0 {
		slices.Sort(kept)
		notes = append(notes, "It keeps annotations that the manifest does not mention: "+strings.Join(kept, ", "))
	}
	return notes
}

// claim has kubemend act on a check that does not say who is to.
func claim(check *clusterv1.MachineHealthCheck) []string {
	if _, annotated := check.Annotations[clusterv1.PausedAnnotation]; annotated {
		return nil
	}
	metav1.SetMetaDataAnnotation(&check.ObjectMeta, clusterv1.PausedAnnotation, mendv1.Claim)
	return []string{fmt.Sprintf("It is simulated as if it were claimed: without the annotation %s Cluster API core acts on it",
		clusterv1.PausedAnnotation+": "+mendv1.Claim)}
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
