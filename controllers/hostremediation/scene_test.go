package hostremediation

import (
	"context"
	"errors"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
)

const holdOff = infrav1.PowerOffAnnotationPrefix

// scene is a management cluster and a workload cluster in memory, with the adapters that the manager has.
type scene struct {
	t           *testing.T
	here, there client.Client
	clock       *clocktesting.FakePassiveClock
	r           *Reconciler
	// events are what was said.
	events *events.FakeRecorder
}

// plainCluster is a workload cluster that always answers.
type plainCluster struct{ client client.Client }

func (p plainCluster) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return p.client, nil
}

func (p plainCluster) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, clustercache.ErrClusterNotConnected
}

func (p plainCluster) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return nil
}

// View shows the nodes as a cache does that never lags.
func (p plainCluster) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	nodes := &corev1.NodeList{}
	if err := p.client.List(ctx, nodes); err != nil {
		return workload.View{}, err
	}
	store := toolscache.NewStore(func(obj any) (string, error) { return obj.(*corev1.Node).Name, nil })
	for i := range nodes.Items {
		slim, err := workload.SlimNode(&nodes.Items[i])
		if err != nil {
			return workload.View{}, err
		}
		if err := store.Add(slim); err != nil {
			return workload.View{}, err
		}
	}
	return workload.Seen(workload.Up, store), nil
}

// Of the machine "victim" on host "h", whose node is "victim-node", everything says the same. All are in the namespace "ns" and the cluster "c".
func sceneOf(t *testing.T, kind remediation.Kind, h *bmov1alpha1.BareMetalHost, node *corev1.Node, remediations ...client.Object) *scene {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), mendv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme), infrav1.AddToScheme(scheme),
		coordinationv1.AddToScheme(scheme), corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	between := infrav1.GroupVersion.WithKind("Metal3Machine")
	scheme.AddKnownTypeWithName(between, &unstructured.Unstructured{})
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	m3m := &unstructured.Unstructured{}
	m3m.SetGroupVersionKind(between)
	m3m.SetNamespace("ns")
	m3m.SetName("victim")
	m3m.SetAnnotations(map[string]string{infrav1.HostAnnotation: "ns/h"})
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "victim", UID: "machine-uid"}}
	m.Spec.ClusterName, m.Spec.ProviderID, m.Status.NodeRef.Name = "c", "metal3://victim", "victim-node"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: between.Group, Kind: between.Kind, Name: "victim"}
	h.Namespace, h.Name, h.UID, h.Spec.Online = "ns", "h", "host-uid", true
	h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: between.Kind, Name: "victim", Namespace: "ns", APIVersion: between.GroupVersion().String()}
	node.Name = "victim-node"
	s := &scene{
		t: t, clock: clocktesting.NewFakePassiveClock(noon), events: events.NewFakeRecorder(1000),
		here: fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithStatusSubresource(&mendv1.HostRemediation{}, &infrav1.Metal3Remediation{}, m).
			WithObjects(append(remediations, m, m3m, h, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}})...).Build(),
		there: fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build(),
	}
	nodes := fence.NewNodes(plainCluster{s.there}, func(fence.Place) {})
	s.r = &Reconciler{
		Kind: kind, Installed: func() ([]remediation.Kind, error) {
			return []remediation.Kind{remediation.Metal3, remediation.Own}, nil
		}, Client: s.here, Live: s.here,
		Hosts: &host.Hosts{Client: s.here, Live: s.here}, Nodes: nodes, Fencer: nodes,
		Clusters: plainCluster{s.there}, Claims: &Claims{}, UnderWay: NewUnderWay(s.clock), Recorder: s.events, Clock: s.clock,
		Fencing: fence.Taint, Unwatched: true,
	}
	var none controller.Controller
	s.r.controller.Store(&none)
	return s
}

// reconcile makes that many reconciles over the remediation of that name. After each, at is called.
func (s *scene) reconcile(name string, reconciles int, at func()) {
	s.t.Helper()
	for range reconciles {
		if _, err := s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}); err != nil {
			s.t.Log(err)
		}
		if at != nil {
			at()
		}
	}
}

func (s *scene) host() *bmov1alpha1.BareMetalHost {
	s.t.Helper()
	h := &bmov1alpha1.BareMetalHost{}
	if err := s.here.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "h"}, h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *scene) node() *corev1.Node {
	s.t.Helper()
	n := &corev1.Node{}
	if err := s.there.Get(s.t.Context(), client.ObjectKey{Name: "victim-node"}, n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// power is what the Bare Metal Operator says of the host.
func (s *scene) power(on bool) {
	s.t.Helper()
	h := s.host()
	h.Status.PoweredOn = on
	if err := s.here.Update(s.t.Context(), h); err != nil {
		s.t.Fatal(err)
	}
}

// receipt lets the Bare Metal Operator read the hardware: it removes the bare annotation then. It must have been asked for.
func (s *scene) receipt() {
	s.t.Helper()
	h := s.host()
	if _, asked := h.Annotations[infrav1.RebootAnnotation]; !asked {
		s.t.Fatalf("no receipt is asked for: %v", h.Annotations)
	}
	delete(h.Annotations, infrav1.RebootAnnotation)
	if err := s.here.Update(s.t.Context(), h); err != nil {
		s.t.Fatal(err)
	}
}

// ofMachine is the reference to the machine of that name.
func ofMachine(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: uid}}
}

func outOfServiceNode(mark types.UID) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}}
	n.Spec.ProviderID = "metal3://victim"
	n.Spec.Taints = []corev1.Taint{{Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect}}
	if mark != "" {
		n.Annotations = map[string]string{fence.FencedByAnnotation: string(mark)}
	}
	return n
}

// aRemediation remembers this; nothing if it has not begun.
func aRemediation(uid types.UID, remembers string) remediation.Object {
	rem := remediation.Own.New()
	rem.SetUID(uid)
	rem.SetName(string(uid))
	if remembers != "" {
		rem.SetAnnotations(map[string]string{mendv1.PowerCycleAnnotation: remembers})
	}
	return rem
}
