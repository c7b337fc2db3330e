package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// The kinds of checks.
const (
	machineCheckKind = "MachineHealthCheck"
	nodeCheckKind    = "NodeHealthCheck"
)

// Manifest is what is to be applied: checks, and the templates that they name.
type Manifest struct{ objects []client.Object }

// Read reads documents of YAML or JSON. What has no namespace goes into the given one. Errors say which document of the file called name,
// and which field, is wrong.
func Read(from io.Reader, name, namespace string) (*Manifest, error) {
	m := &Manifest{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(from))
	for number := 1; ; number++ {
		data, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if content, err := utilyaml.ToJSON(data); err == nil && string(content) == "null" {
			continue // there are only comments in it
		}
		obj, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, number, err)
		}
		if _, everywhere := obj.(*nhcv1.NodeHealthCheck); everywhere {
			obj.SetNamespace("")
		} else if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		m.objects = append(m.objects, obj)
	}
	if len(m.objects) == 0 {
		return nil, fmt.Errorf("%s: there is nothing in it", name)
	}
	return m, nil
}

// known has the kinds of checks, and of templates of which more is known than that they are some.
var known = snapshot.New().Scheme()

// decode reads one document, and takes no field that its kind does not have. A template may be of any kind.
func decode(data []byte) (client.Object, error) {
	typeMeta := metav1.TypeMeta{}
	if err := yaml.Unmarshal(data, &typeMeta); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	kind := typeMeta.GroupVersionKind()
	if err := refuseKind(kind); err != nil {
		return nil, err
	}
	var obj client.Object
	var err error
	if known.Recognizes(kind) {
		var decoded runtime.Object
		decoded, _, err = serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
		obj, _ = decoded.(client.Object) // as all kinds are that may be in a manifest
	} else {
		tree := &unstructured.Unstructured{}
		obj, err = tree, yaml.UnmarshalStrict(data, &tree.Object)
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		err = errors.Join(strict.Errors()...)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", kind.Kind, err)
	case obj.GetName() == "":
		return nil, errors.New("metadata.name is missing")
	}
	if check, ok := obj.(*clusterv1.MachineHealthCheck); ok {
		return obj, selectsNothing(&check.Spec)
	}
	return obj, nil
}

// refuseKind is why an object of that kind cannot be in a manifest; nil if it can.
func refuseKind(kind schema.GroupVersionKind) error {
	name, template := strings.CutSuffix(kind.Kind, remediationrequest.TemplateSuffix)
	check := kind.GroupKind() == clusterv1.GroupVersion.WithKind(machineCheckKind).GroupKind() ||
		kind.GroupKind() == nhcv1.GroupVersion.WithKind(nodeCheckKind).GroupKind()
	switch {
	case kind.Kind == "" || kind.Version == "":
		return errors.New("it has no apiVersion or no kind")
	case !check && !(template && name != "" && kind.Group != ""):
		return fmt.Errorf("it is a %s of %s: expected a MachineHealthCheck, a NodeHealthCheck, or a remediation template",
			kind.Kind, kind.GroupVersion())
	case check && !known.Recognizes(kind):
		return fmt.Errorf("version %s of %s is not known here", kind.Version, kind.Kind)
	}
	return nil
}

// selectsNothing is why a check would select nothing, for which the API server refuses it.
func selectsNothing(spec *clusterv1.MachineHealthCheckSpec) error {
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	switch cluster, selects := spec.Selector.MatchLabels[clusterv1.ClusterNameLabel]; {
	case spec.ClusterName == "":
		return errors.New("spec.clusterName is missing")
	case err != nil:
		return fmt.Errorf("spec.selector: %w", err)
	case selector.Empty():
		return errors.New("spec.selector must not be empty")
	case selects && cluster != spec.ClusterName:
		return fmt.Errorf("spec.selector selects another cluster, %s, than spec.clusterName", cluster)
	}
	return nil
}

// has reports whether the manifest has an object that is wanted; nil has none.
func (m *Manifest) has(wanted func(client.Object) bool) bool {
	return m != nil && slices.ContainsFunc(m.objects, wanted)
}

// JudgesNodes reports whether there is a NodeHealthCheck in it.
func (m *Manifest) JudgesNodes() bool {
	return m.has(func(obj client.Object) bool { return kindOf(obj) == nodeCheckKind })
}

// Elsewhere is the namespace of the first MachineHealthCheck that is in another one than the given; empty if there is none.
func (m *Manifest) Elsewhere(namespace string) string {
	for _, obj := range m.objects {
		if kindOf(obj) == machineCheckKind && obj.GetNamespace() != namespace {
			return obj.GetNamespace()
		}
	}
	return ""
}

func kindOf(obj client.Object) string { return obj.GetObjectKind().GroupVersionKind().Kind }

// refOf names an object of a kind.
func refOf(kind string, obj client.Object) explain.Ref {
	return explain.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// apply puts what the manifest has into the snapshot, and returns notes about it. Whether an API server would let it in is not asked:
// kubectl apply --dry-run=server answers that.
func (m *Manifest) apply(s *snapshot.Snapshot, now time.Time) (notes []string, err error) {
	for _, obj := range m.objects {
		ref := refOf(kindOf(obj), obj)
		for _, note := range apply(s, obj, now) {
			notes = append(notes, ref.String()+": "+note)
		}
		if err := s.Add(obj); err != nil {
			return nil, fmt.Errorf("apply %s: %w", ref, err)
		}
	}
	return notes, nil
}

// apply makes an object what it would be in the cluster, and makes the kind of a template known with that of the requests made from it.
func apply(s *snapshot.Snapshot, obj client.Object, now time.Time) (notes []string) {
	var before *metav1.ObjectMeta
	switch check := obj.(type) {
	case *clusterv1.MachineHealthCheck:
		if there := snapshot.One[clusterv1.MachineHealthCheck](s, client.ObjectKeyFromObject(obj)); there != nil {
			before, check.Status = &there.ObjectMeta, there.Status
		}
		notes = replace(before, &check.ObjectMeta, now)
		if _, annotated := check.Annotations[clusterv1.PausedAnnotation]; !annotated { // kubemend is to act on it
			metav1.SetMetaDataAnnotation(&check.ObjectMeta, clusterv1.PausedAnnotation, mendv1.Claim)
			notes = append(notes, fmt.Sprintf("It is simulated as if it were claimed: without the annotation %s: %s Cluster API core acts on it",
				clusterv1.PausedAnnotation, mendv1.Claim))
		}
	case *nhcv1.NodeHealthCheck:
		if there := snapshot.One[nhcv1.NodeHealthCheck](s, client.ObjectKeyFromObject(obj)); there != nil {
			before, check.Status = &there.ObjectMeta, there.Status
		}
		notes = replace(before, &check.ObjectMeta, now)
		setDefaults(&check.Spec)
	default:
		install(s, obj.GetObjectKind().GroupVersionKind())
	}
	return notes
}

// replace makes the metadata of a check what they are once it is applied: if there is one of its name, it is as old as that, and keeps
// the labels and annotations that the manifest does not mention. (kubectl apply removes only what it has put there itself, which a
// snapshot does not know.)
func replace(before, check *metav1.ObjectMeta, now time.Time) []string {
	if before == nil {
		*check = metav1.ObjectMeta{
			Namespace: check.Namespace, Name: check.Name, Labels: check.Labels, Annotations: check.Annotations,
			CreationTimestamp: metav1.NewTime(now), Generation: 1,
		}
		return []string{"It is new"}
	}
	notes := []string{"It replaces the one of its name"}
	var kept []string
	for name, value := range before.Annotations {
		if _, mentioned := check.Annotations[name]; !mentioned {
			kept = append(kept, name+": "+value)
		}
	}
	slices.Sort(kept)
	if len(kept) > 0 {
		notes = append(notes, "It keeps annotations that the manifest does not mention: "+strings.Join(kept, ", "))
	}
	merged := before.DeepCopy()
	merged.Labels, merged.Annotations = labels.Merge(before.Labels, check.Labels), labels.Merge(before.Annotations, check.Annotations)
	merged.ResourceVersion, merged.Generation = "", before.Generation+1
	*check = *merged
	return notes
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

// install makes the kind of a template known, and that of the requests made from it.
func install(s *snapshot.Snapshot, template schema.GroupVersionKind) {
	if remediationrequest.Refusal(template) != nil {
		return
	}
	for _, kind := range []schema.GroupVersionKind{template, remediationrequest.KindOf(template)} {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		s.Install(kind, plural.Resource, true)
	}
}
