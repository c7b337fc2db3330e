package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/inmemory"
)

// theScheme has all kinds, so that clients which share it never change it: filling one takes as long as a short remediation.
var theScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, nhcv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("fill the scheme: %w", err)
		}
	}
	scheme.AddKnownTypes(mendv1.GroupVersion, &mendv1.RemediationRecord{}, &mendv1.RemediationRecordList{})
	metav1.AddToGroupVersion(scheme, mendv1.GroupVersion)
	inmemory.Register(scheme, servedKinds()...)
	return scheme, nil
})

// servedKinds are the kinds of remediators, and all that the controller reads.
func servedKinds() []inmemory.Kind {
	kinds := []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), Global: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
		{GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease")},
		{GroupVersionKind: nhcv1.GroupVersion.WithKind("NodeHealthCheck"), Global: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Cluster")},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Machine")},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck")},
		{GroupVersionKind: apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), Global: true},
		{GroupVersionKind: mendv1.GroupVersion.WithKind("RemediationRecord"), Whole: true},
		{GroupVersionKind: clusterVersion, Global: true, Later: true},
		{GroupVersionKind: theirCheck, Later: true}, {GroupVersionKind: theirMachine, Later: true},
	}
	for _, r := range remediators {
		for _, kind := range []schema.GroupVersionKind{r.kind, r.templates()} {
			kinds = append(kinds, inmemory.Kind{GroupVersionKind: kind, Global: r.global, Later: r == late})
		}
	}
	return kinds
}

// newServer returns an API server in memory.
func newServer() (*inmemory.Server, error) {
	scheme, err := theScheme()
	if err != nil {
		return nil, err
	}
	s := inmemory.New(scheme, clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), servedKinds()...)
	s.Default = defaults
	return s, nil
}

// setUp sets the controller up in an instance of the manager, as setup/healthchecks.go does.
func (e *environment) setUp(i *inmemory.Instance, options controller.Options) error {
	s, writer := e.server, client.WithFieldOwner(i.Client, mendv1.FieldOwner)
	kinds := remediationrequest.NewKinds(i.Cache, i.Live, "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	kinds.GoBy(s.Clock)
	r := &nodehealthcheck.Reconciler{
		Client: writer, Management: i.Client, Live: i.Live, Mapper: s.RESTMapper(), Kinds: kinds, Watches: kinds,
		Requests: &remediationrequest.Requests{Client: writer, Live: i.Live},
		Records: &records.Records{
			Client: writer, Live: i.Live, Clock: s.Clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
		},
		Discovery: apis{server: s},
		Gate:      &begin.Gate{Clock: s.Clock},
		Installed: (&crdgate.Reconciler{Client: i.Client}).Installed,
		Recorder:  e.notes, Clock: s.Clock, Log: e.program.Logger, LeaseNamespace: e.leasesIn,
		Ledger: &policy.Ledger{Clock: s.Clock}, Cached: i.Client,
	}
	r.Ledger.Set(e.policies)
	return r.SetupWithManager(i, i.Cache, options)
}

// slim reduces an object to what the controller's caches keep.
func slim(obj client.Object) error {
	switch obj := obj.(type) {
	case *corev1.Node:
		kept, err := nodehealthcheck.SlimNode(obj)
		if node, is := kept.(*corev1.Node); is && err == nil {
			*obj = *node
		}
		return err
	case *unstructured.Unstructured:
		kept, err := nodehealthcheck.Slim(obj)
		if u, is := kept.(*unstructured.Unstructured); is && err == nil {
			obj.Object = u.Object
		}
		return err
	}
	return nil
}

// apis is the discovery client of the server.
type apis struct {
	discovery.ServerResourcesInterface
	server *inmemory.Server
}

// ServerPreferredResources returns all served kinds.
func (a apis) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return a.server.APIs(), nil
}

// schemaOfChecks returns the schema of NodeHealthChecks, for its defaults.
var schemaOfChecks = sync.OnceValues(func() (*structural.Structural, error) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "remediation.medik8s.io_nodehealthchecks.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the definition of NodeHealthChecks: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		return nil, fmt.Errorf("decode the definition of NodeHealthChecks: %w", err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of NodeHealthChecks: %w", err)
	}
	return structural.NewStructural(&internal)
})

// defaults sets the defaults of the schema in a NodeHealthCheck.
func defaults(obj client.Object) error {
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "NodeHealthCheck" {
		if _, is := obj.(*nhcv1.NodeHealthCheck); !is {
			return nil
		}
	}
	fields, err := schemaOfChecks()
	if err != nil {
		return err
	}
	if u, is := obj.(*unstructured.Unstructured); is {
		defaulting.Default(u.Object, fields)
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("convert a NodeHealthCheck: %w", err)
	}
	defaulting.Default(content, fields)
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj)
}
