package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:depguard,staticcheck // manifests of this version are converted, as its webhook does
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Manifest is what is to be applied: checks, and the templates that they name.
type Manifest struct{ documents []document }

// document is one object of a file.
type document struct {
	obj client.Object
	// notes are what there is to say of it.
	notes []string
}

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
		d, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, number, err)
		}
		if _, everywhere := d.obj.(*nhcv1.NodeHealthCheck); everywhere {
			d.obj.SetNamespace("")
		} else if d.obj.GetNamespace() == "" {
			d.obj.SetNamespace(namespace)
		}
		m.documents = append(m.documents, d)
	}
	if len(m.documents) == 0 {
		return nil, fmt.Errorf("%s: there is nothing in it", name)
	}
	return m, nil
}

var manifestScheme = func() *runtime.Scheme {
	scheme := snapshot.New().Scheme()
	if err := clusterv1beta1.AddToScheme(scheme); err != nil {
		panic(err) // two packages register the same kind, whatever the input
	}
	return scheme
}()

// checkKinds are those of checks. What else may be in a manifest are templates.
var checkKinds = []schema.GroupKind{
	{Group: clusterv1.GroupVersion.Group, Kind: "MachineHealthCheck"}, {Group: nhcv1.GroupVersion.Group, Kind: "NodeHealthCheck"},
}

// decode reads one document, and takes no field that its kind does not have. A check has to be of a version that is known; a template may
// be of any kind.
func decode(data []byte) (document, error) {
	typeMeta := metav1.TypeMeta{}
	if err := yaml.Unmarshal(data, &typeMeta); err != nil {
		return document{}, fmt.Errorf("it is no YAML: %w", err)
	}
	kind := typeMeta.GroupVersionKind()
	if err := refuseKind(kind); err != nil {
		return document{}, err
	}
	tree := &unstructured.Unstructured{}
	var obj client.Object = tree
	var err error
	if manifestScheme.Recognizes(kind) {
		obj, err = decodeStrictly(data)
	} else {
		err = yaml.UnmarshalStrict(data, &tree.Object)
	}
	if err != nil {
		return document{}, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	if obj.GetName() == "" {
		return document{}, errors.New("metadata.name is missing")
	}
	d := document{obj: obj}
	if old, is := obj.(*clusterv1beta1.MachineHealthCheck); is {
		if d, err = converted(old); err != nil {
			return d, err
		}
	}
	if check, is := d.obj.(*clusterv1.MachineHealthCheck); is {
		err = selectsNothing(&check.Spec)
	}
	return d, err
}

// refuseKind is why an object of that kind cannot be in a manifest; nil if it can.
func refuseKind(kind schema.GroupVersionKind) error {
	name, template := strings.CutSuffix(kind.Kind, remediationrequest.TemplateSuffix)
	check := slices.Contains(checkKinds, kind.GroupKind())
	switch {
	case kind.Kind == "" || kind.Version == "":
		return errors.New("it has no apiVersion or no kind")
	case !check && !(template && name != "" && kind.Group != ""):
		return fmt.Errorf("it is a %s of %s: expected a MachineHealthCheck, a NodeHealthCheck, or a remediation template",
			kind.Kind, kind.GroupVersion())
	case check && !manifestScheme.Recognizes(kind):
		return fmt.Errorf("version %s of %s is not known here", kind.Version, kind.Kind)
	}
	return nil
}

// decodeStrictly decodes an object of a kind that is known.
func decodeStrictly(data []byte) (client.Object, error) {
	strictly := json.SerializerOptions{Yaml: true, Strict: true}
	decoded, _, err := json.NewSerializerWithOptions(json.DefaultMetaFactory, manifestScheme, manifestScheme, strictly).Decode(data, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return nil, errors.Join(strict.Errors()...)
	}
	obj, _ := decoded.(client.Object) // as all kinds are that may be in a manifest
	return obj, err
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

// converted is a check of an old version in that which the controllers know.
func converted(old *clusterv1beta1.MachineHealthCheck) (document, error) {
	check := &clusterv1.MachineHealthCheck{}
	if err := clusterv1beta1.Convert_v1beta1_MachineHealthCheck_To_v1beta2_MachineHealthCheck(old, check, nil); err != nil {
		return document{}, fmt.Errorf("convert it to %s: %w", clusterv1.GroupVersion, err)
	}
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	note := fmt.Sprintf("It is of %s, and was converted to %s", clusterv1beta1.GroupVersion.String(), clusterv1.GroupVersion.String())
	return document{obj: check, notes: []string{note}}, nil
}

func (d document) ref() explain.Ref {
	return refOf(d.obj.GetObjectKind().GroupVersionKind().Kind, d.obj)
}

// has reports whether the manifest has an object; nil has none.
func (m *Manifest) has(ref explain.Ref) bool {
	return m != nil && slices.ContainsFunc(m.documents, func(d document) bool { return d.ref() == ref })
}

// hasChecks reports whether there is more in it than templates; in nil there is nothing.
func (m *Manifest) hasChecks() bool {
	return m != nil && slices.ContainsFunc(m.documents, func(d document) bool {
		return slices.Contains(checkKinds, d.obj.GetObjectKind().GroupVersionKind().GroupKind())
	})
}

// JudgesNodes reports whether there is a NodeHealthCheck in it.
func (m *Manifest) JudgesNodes() bool {
	return slices.ContainsFunc(m.documents, func(d document) bool { _, is := d.obj.(*nhcv1.NodeHealthCheck); return is })
}

// Elsewhere is the namespace of the first MachineHealthCheck that is in another one than the given; empty if there is none.
func (m *Manifest) Elsewhere(namespace string) string {
	for _, d := range m.documents {
		if check, ok := d.obj.(*clusterv1.MachineHealthCheck); ok && check.Namespace != namespace {
			return check.Namespace
		}
	}
	return ""
}
