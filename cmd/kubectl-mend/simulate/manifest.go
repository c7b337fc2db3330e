package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
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

// Read reads documents of YAML or JSON. What has no namespace goes into the given one. name is that of the file, for errors, which say which
// document and field it is.
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
	scheme := runtime.NewScheme()
	err := errors.Join(clusterv1.AddToScheme(scheme), clusterv1beta1.AddToScheme(scheme), nhcv1.AddToScheme(scheme), mendv1.AddToScheme(scheme),
		infrav1.AddToScheme(scheme), infrav1beta1.AddToScheme(scheme))
	if err != nil {
		panic(err) // two packages register the same kind, whatever the input
	}
	return scheme
}()

// errKind is the error of a document of another kind.
func errKind(kind schema.GroupVersionKind) error {
	return fmt.Errorf("it is a %s of %s: expected a MachineHealthCheck, a NodeHealthCheck, or a remediation template", kind.Kind, kind.GroupVersion())
}

// decode reads one document, and takes no field that its kind does not have.
func decode(data []byte) (document, error) {
	is := metav1.TypeMeta{}
	if err := yaml.Unmarshal(data, &is); err != nil {
		return document{}, fmt.Errorf("it is no YAML: %w", err)
	}
	kind := is.GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" {
		return document{}, errors.New("it has no apiVersion or no kind")
	}
	template := strings.HasSuffix(kind.Kind, remediationrequest.TemplateSuffix) && kind.Kind != remediationrequest.TemplateSuffix && kind.Group != ""
	check := kind.Kind == "MachineHealthCheck" && kind.Group == clusterv1.GroupVersion.Group || kind.GroupKind() == nodeCheckKind.GroupKind()
	if !check && !template {
		return document{}, errKind(kind)
	}
	obj, err := decodeStrictly(data, kind)
	if err != nil {
		return document{}, err
	}
	if obj.GetName() == "" {
		return document{}, errors.New("metadata.name is missing")
	}
	return converted(obj)
}

var nodeCheckKind = nhcv1.GroupVersion.WithKind("NodeHealthCheck")

func decodeStrictly(data []byte, kind schema.GroupVersionKind) (client.Object, error) {
	if !manifestScheme.Recognizes(kind) {
		if kind.Group == clusterv1.GroupVersion.Group || kind.Group == nhcv1.GroupVersion.Group {
			return nil, fmt.Errorf("version %s of %s is not known here", kind.Version, kind.Kind)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(data, &u.Object); err != nil {
			return nil, fmt.Errorf("it is no YAML: %w", err)
		}
		return u, nil
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, manifestScheme, manifestScheme, json.SerializerOptions{Yaml: true, Strict: true})
	decoded, _, err := serializer.Decode(data, nil, nil)
	if strict, is := runtime.AsStrictDecodingError(err); is {
		return nil, fmt.Errorf("%s: %w", kind.Kind, errors.Join(strict.Errors()...))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	obj, ok := decoded.(client.Object)
	if !ok {
		return nil, errKind(kind)
	}
	return obj, nil
}

// converted makes an object one of the version that the controllers know.
func converted(obj client.Object) (document, error) {
	old, is := obj.(*clusterv1beta1.MachineHealthCheck)
	if !is {
		return document{obj: obj}, nil
	}
	check := &clusterv1.MachineHealthCheck{}
	if err := clusterv1beta1.Convert_v1beta1_MachineHealthCheck_To_v1beta2_MachineHealthCheck(old, check, nil); err != nil {
		return document{}, fmt.Errorf("convert it to %s: %w", clusterv1.GroupVersion, err)
	}
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	return document{obj: check, notes: []string{fmt.Sprintf("It is of %s, and was converted to %s", clusterv1beta1.GroupVersion.String(),
		clusterv1.GroupVersion.String())}}, nil
}

func (d document) ref() explain.Ref {
	return refOf(d.obj.GetObjectKind().GroupVersionKind().Kind, d.obj)
}

// has reports whether the manifest has an object.
func (m *Manifest) has(ref explain.Ref) bool {
	return slices.ContainsFunc(m.documents, func(d document) bool { return d.ref() == ref })
}

// hasChecks reports whether there is more in it than templates.
func (m *Manifest) hasChecks() bool {
	return slices.ContainsFunc(m.documents, func(d document) bool { return !strings.HasSuffix(d.ref().Kind, remediationrequest.TemplateSuffix) })
}

// NodeChecks reports whether there is a NodeHealthCheck in it.
func (m *Manifest) NodeChecks() bool {
	return slices.ContainsFunc(m.documents, func(d document) bool { return d.ref().Kind == nodeCheckKind.Kind })
}

// Spares reports whether a MachineHealthCheck in it waits for spare hosts.
func (m *Manifest) Spares() bool {
	return slices.ContainsFunc(m.documents, func(d document) bool {
		check, is := d.obj.(*clusterv1.MachineHealthCheck)
		if !is {
			return false
		}
		wait, _ := machinehealthcheck.SpareWaitOf(check)
		return wait != nil
	})
}

// Templates are those that its checks name.
func (m *Manifest) Templates() []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	for _, d := range m.documents {
		switch check := d.obj.(type) {
		case *clusterv1.MachineHealthCheck:
			if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
				refs = append(refs, corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: check.Namespace, Name: ref.Name})
			}
		case *nhcv1.NodeHealthCheck:
			refs = append(refs, snapshot.TemplatesOf(&check.Spec)...)
		}
	}
	return refs
}

// Namespaces are those of its MachineHealthChecks, each once.
func (m *Manifest) Namespaces() []string {
	var all []string
	for _, d := range m.documents {
		if _, is := d.obj.(*clusterv1.MachineHealthCheck); is && !slices.Contains(all, d.obj.GetNamespace()) {
			all = append(all, d.obj.GetNamespace())
		}
	}
	return all
}
