package hosts

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory"
)

// server is the API server of a cluster, with the program's cache of it.
type server struct {
	*inmemory.Server
	cache *inmemory.Cache
	// enqueues is the number of changes that enqueue a reconcile, all is the number of all changes.
	enqueues, all int
	// after is called after every change.
	after func(at place)
}

// place is the kind and name of an object.
type place struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

var (
	hostKind    = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
	recordKind  = mendv1.GroupVersion.WithKind("RemediationRecord")

	kindsOfManagement = []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Cluster")}, {GroupVersionKind: machineKind}, {GroupVersionKind: hostKind},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck")},
		{GroupVersionKind: nhcv1.GroupVersion.WithKind("NodeHealthCheck"), Global: true},
		{GroupVersionKind: betweenKind}, {GroupVersionKind: recordKind, Whole: true},
		{GroupVersionKind: remediation.Metal3.GroupVersionKind}, {GroupVersionKind: remediation.Own.GroupVersionKind},
	}
	kindsOfWorkload = []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: nodeKind, Global: true}, {GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), Global: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolume"), Global: true},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease")},
	}
)

// newServer returns an API server with these objects and their status.
func newServer(clock *clocktesting.FakePassiveClock, kinds []inmemory.Kind, objects ...client.Object) *server {
	has := inmemory.New(scheme, clock, kinds...)
	s := &server{Server: has, cache: has.NewCache(slim), after: func(place) {}}
	s.After = func(change inmemory.Change) {
		s.all++
		if heard(change.Was, change.Is) {
			s.enqueues++
		}
		s.after(place{change.Kind, client.ObjectKeyFromObject(cmp.Or(change.Is, change.Was))})
	}
	for _, name := range []string{"ns", "apps", "kube-system"} {
		s.Put(builders.Namespace(name))
	}
	s.Put(objects...)
	return s
}

// lag(true) makes the caches stale, lag(false) makes them current.
func (e *environment) lag(is bool) {
	for _, s := range []*server{e.management, e.work} {
		if is {
			s.cache.Lag()
		} else {
			s.cache.CatchUp()
		}
	}
}

// slim reduces an object to what the manager's caches keep.
func slim(obj client.Object) error {
	var kept any = obj
	var err error
	switch obj.(type) {
	case *bmov1alpha1.BareMetalHost:
		kept, err = host.SlimHost(obj)
	case *corev1.Node:
		kept, err = workload.SlimNode(obj)
	case *clusterv1.Machine:
		kept, err = machinehealthcheck.SlimMachine(obj)
	}
	if kept != any(obj) {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(kept).Elem())
	}
	return err
}

// heard reports whether a change enqueues a reconcile. The controllers' own status writes do not, nor do pods and volumes: package fence
// has no watches here, so its requeues must be enough.
func heard(was, is client.Object) bool {
	if was == nil || is == nil {
		_, record := cmp.Or(was, is).(*mendv1.RemediationRecord)
		return !record
	}
	switch is := is.(type) {
	case *corev1.Pod, *storagev1.VolumeAttachment, *mendv1.RemediationRecord:
		return false
	case *bmov1alpha1.BareMetalHost:
		return !host.SameToUs(was.(*bmov1alpha1.BareMetalHost), is)
	case *infrav1.Metal3Remediation, *mendv1.HostRemediation:
		return !maps.Equal(others(was), others(is)) || !slices.Equal(was.GetFinalizers(), is.GetFinalizers()) ||
			was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
	}
	return true
}

// others returns the annotations of a remediation without those of kubemend, whose changes enqueue nothing.
func others(o client.Object) map[string]string {
	all := maps.Clone(o.GetAnnotations())
	delete(all, mendv1.PowerCycleAnnotation)
	delete(all, mendv1.RecordAnnotation)
	return all
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(coordinationv1.AddToScheme(s), corev1.AddToScheme(s), storagev1.AddToScheme(s), clusterv1.AddToScheme(s), bmov1alpha1.AddToScheme(s),
		infrav1.AddToScheme(s), nhcv1.AddToScheme(s), mendv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	s.AddKnownTypeWithName(betweenKind, &unstructured.Unstructured{})
	return s
}

// site is the workload cluster for the controllers.
type site struct {
	e    *environment
	live client.Client
}

// View returns what ClusterCache's informers have.
func (s site) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	if s.e.unreachable() {
		return workload.View{Link: workload.Down}, nil
	}
	list := &corev1.NodeList{}
	if err := s.e.work.cache.List(ctx, list); err != nil {
		return workload.View{}, err
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return workload.Seen(workload.Up, nodes), nil
}

// GetUncachedClient returns a client without a cache.
func (s site) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if s.e.unreachable() {
		return nil, clustercache.ErrClusterNotConnected
	}
	return leases{s.live, s.e}, nil
}

// leases is a client without a cache. It returns the current lease of the node's kubelet.
type leases struct {
	client.Client
	e *environment
}

// Get reads an object. The lease of a node is computed, not stored, because it changes every ten seconds.
func (l leases) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	lease, is := into.(*coordinationv1.Lease)
	if !is || key.Namespace != corev1.NamespaceNodeLease {
		return l.Client.Get(ctx, key, into, opts...)
	}
	l.e.work.Reads++
	at, has := l.e.renewed(key.Name)
	if !has {
		return apierrors.NewNotFound(coordinationv1.Resource("leases"), key.Name)
	}
	*lease = coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(key.Name), RenewTime: ptr.To(metav1.NewMicroTime(at))},
	}
	return nil
}

// renewed returns when the lease of a node was last renewed; false if it never was.
func (e *environment) renewed(node string) (time.Time, bool) {
	switch now := e.clock.Now(); {
	case e.plane != nil:
		return e.plane.renewed(node, now)
	case node == e.nodeName:
		return e.box.renewed(now)
	}
	return time.Time{}, false
}

// GetRESTConfig and Watch return errors: there are no watches. A controller that waits for pods has to read them again.
func (s site) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, clustercache.ErrClusterNotConnected
}

func (s site) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return clustercache.ErrClusterNotConnected
}

// unreachable reports whether kubemend cannot reach the workload cluster.
func (e *environment) unreachable() bool {
	if e.plane != nil {
		return !e.plane.answers()
	}
	return e.pods.unreachable || e.as.apiServer && !e.box.model.Powered()
}
