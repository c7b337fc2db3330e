// Package nodes tries every write, every crash and every order of events of the NodeHealthCheck controller in memory. Package
// test/inmemory/nodes uses this file too.
package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
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
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
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

// Options are a test's options for the controller.
type Options struct {
	// Leases is the namespace of the leases on nodes.
	Leases   string
	Recorder events.EventRecorder
	Logger   logr.Logger
	// Policies returns the policies that a manager finds at its start.
	Policies func() []*policy.Policy
}

// Server returns an API server in memory that serves these kinds and everything that the controller reads.
func Server(clock *clocktesting.FakePassiveClock, kinds ...inmemory.Kind) (*inmemory.Server, error) {
	scheme, err := schemeWith(kinds)
	if err != nil {
		return nil, err
	}
	all := append([]inmemory.Kind{
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
	}, kinds...)
	s := inmemory.New(scheme, clock, all...)
	s.Default = defaults
	return s, nil
}

// schemes caches the schemes, because filling one takes as long as a short remediation.
var schemes struct {
	sync.Mutex
	of map[string]*runtime.Scheme
}

// schemeWith returns the scheme of the server, with these kinds as unstructured objects.
func schemeWith(kinds []inmemory.Kind) (*runtime.Scheme, error) {
	schemes.Lock()
	defer schemes.Unlock()
	if known := schemes.of[fmt.Sprint(kinds)]; known != nil {
		return known, nil
	}
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
	inmemory.Register(scheme, kinds...)
	if schemes.of == nil {
		schemes.of = map[string]*runtime.Scheme{}
	}
	schemes.of[fmt.Sprint(kinds)] = scheme
	return scheme, nil
}

// Program returns a manager with the controller, in the setup of setup/healthchecks.go.
func Program(s *inmemory.Server, o Options) *inmemory.Program {
	p := &inmemory.Program{Server: s, Logger: o.Logger, Transform: slim}
	p.SetUp = func(i *inmemory.Instance, options controller.Options) error {
		writer := client.WithFieldOwner(i.Client, mendv1.FieldOwner)
		kinds := remediationrequest.NewKinds(i.Cache, i.Live, "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
		kinds.GoBy(s.Clock)
		written := &records.Records{
			Client: writer, Live: i.Live, Clock: s.Clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
		}
		r := &nodehealthcheck.Reconciler{
			Client: writer, Management: i.Client, Live: i.Live, Mapper: s.RESTMapper(), Kinds: kinds, Watches: kinds,
			Requests:  &remediationrequest.Requests{Client: writer, Live: i.Live},
			Records:   written,
			Discovery: apis{server: s},
			Gate:      &begin.Gate{Clock: s.Clock},
			Installed: (&crdgate.Reconciler{Client: i.Client}).Installed,
			Recorder:  o.Recorder, Clock: s.Clock, Log: o.Logger, LeaseNamespace: o.Leases,
			Ledger: &policy.Ledger{Clock: s.Clock}, Cached: i.Client,
		}
		r.Ledger.Set(nil)
		if o.Policies != nil {
			r.Ledger.Set(o.Policies())
		}
		return r.SetupWithManager(i, i.Cache, options)
	}
	return p
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
	schema, err := schemaOfChecks()
	if err != nil {
		return err
	}
	if u, is := obj.(*unstructured.Unstructured); is {
		defaulting.Default(u.Object, schema)
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("convert a NodeHealthCheck: %w", err)
	}
	defaulting.Default(content, schema)
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj)
}
