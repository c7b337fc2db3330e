package admission

import (
	"context"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// observed is an API server with objects, and with kinds that cannot be read.
type observed struct {
	objects []client.Object
	fails   map[string]error // errors of reads and lists, by the kind of the object
}

func with(objects ...client.Object) observed { return observed{objects: objects} }

func failing(kind string, err error, objects ...client.Object) observed {
	return observed{objects: objects, fails: map[string]error{kind: err}}
}

func (w observed) validation(t *testing.T) NodeHealthCheck {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, nhcv1.AddToScheme} {
		must.Do(t, add(scheme))
	}
	for _, o := range w.objects {
		if kind := o.GetObjectKind().GroupVersionKind(); kind.Group == testGroup {
			scheme.AddKnownTypeWithName(kind, &remediationrequest.Metadata{})
			scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
		}
	}
	reads := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := w.fails[o.GetObjectKind().GroupVersionKind().Kind]; err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind().Kind; kind != "" {
				if err := w.fails[kind[:len(kind)-len("List")]]; err != nil {
					return err
				}
			}
			return c.List(ctx, list, options...)
		},
	}
	return NodeHealthCheck{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.objects...).WithInterceptorFuncs(reads).Build()}
}

// testGroup is the API group of templates and requests.
const testGroup = "test.io"

// object returns an object of testGroup. Only its metadata is ever read.
func object(kind, namespace, name string, uid types.UID, annotations ...string) *remediationrequest.Metadata {
	o := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Annotations: map[string]string{}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: testGroup, Version: "v1", Kind: kind})
	for _, a := range annotations {
		o.Annotations[a] = ""
	}
	return o
}

func template(name string, annotations ...string) *remediationrequest.Metadata {
	return object("RebootTemplate", "default", name, "", annotations...)
}

func topologyOf(topology string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"controlPlaneTopology": topology}}}
	o.SetGroupVersionKind(openshift)
	o.SetName("cluster")
	return o
}

// check returns a check for workers, with a template and the default conditions.
func check(edits ...func(*nhcv1.NodeHealthCheck)) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	c.Spec.Selector.MatchLabels = map[string]string{"role": "worker"}
	c.Spec.RemediationTemplate = ref("RebootTemplate", "a")
	c.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 5 * time.Minute}},
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func ref(kind, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "test.io/v1", Kind: kind, Namespace: "default", Name: name}
}

func step(order int, kind, name string) nhcv1.EscalatingRemediation {
	return nhcv1.EscalatingRemediation{RemediationTemplate: *ref(kind, name), Order: order, Timeout: metav1.Duration{Duration: time.Minute}}
}

func steps(all ...nhcv1.EscalatingRemediation) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate, c.Spec.EscalatingRemediations = nil, all }
}

func selecting(role string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.Selector.MatchLabels = map[string]string{"role": role} }
}

func badSelector(c *nhcv1.NodeHealthCheck) {
	c.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "role", Operator: "Resembles", Values: []string{"worker"}}}
}

// remediating adds a request to the check's status.
func remediating(uid types.UID) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		c.Status.UnhealthyNodes = append(c.Status.UnhealthyNodes, nhcv1.UnhealthyNode{
			Name: "node-1", Remediations: []nhcv1.Remediation{{Resource: corev1.ObjectReference{
				APIVersion: "test.io/v1", Kind: "Reboot", Namespace: "default", Name: "node-1", UID: uid,
			}}},
		})
	}
}

// unhealthy adds a node without requests to the check's status.
func unhealthy(c *nhcv1.NodeHealthCheck) {
	c.Status.UnhealthyNodes = append(c.Status.UnhealthyNodes, nhcv1.UnhealthyNode{Name: "node-1"})
}

// uninstalled returns the error of a read of a kind that is not installed.
func uninstalled(kind string) error {
	return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: testGroup, Kind: kind}, SearchedVersions: []string{"v1"}}
}
