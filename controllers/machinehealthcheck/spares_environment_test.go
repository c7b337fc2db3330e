package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var betweenKind = infrav1.GroupVersion.WithKind("Metal3Machine")

// pool is a namespace with hosts, and with checks of two clusters that wait for spare hosts.
type pool struct {
	*Reconciler
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	api   client.WithWatch
	hosts *hostWatch
	told  *events.FakeRecorder
	// then is called once, when a Metal3Machine is read next: after the hosts, and before anything is decided on them.
	then func()
}

// hostWatch is the watch on hosts, which may be in disorder.
type hostWatch struct {
	err   error
	asked int
}

func (h *hostWatch) Ready(context.Context, schema.GroupVersionKind) (bool, error) {
	h.asked++
	return h.err == nil, h.err
}

func (*hostWatch) Notify(remediationrequest.Watcher, handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request]) {
}

func newPool(t *testing.T) *pool {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	scheme.AddKnownTypeWithName(betweenKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(betweenKind.GroupVersion().WithKind("Metal3MachineList"), &unstructured.UnstructuredList{})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{betweenKind.GroupVersion()})
	mapper.Add(betweenKind, meta.RESTScopeNamespace)
	b := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithStatusSubresource(&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{})
	if err := AddIndexes(t.Context(), indexed{b}); err != nil {
		t.Fatal(err)
	}
	r := &pool{t: t, clock: clocktesting.NewFakePassiveClock(noon), api: b.Build(), hosts: &hostWatch{}}
	for _, cluster := range []string{"c1", "c2"} {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: cluster, UID: types.UID("uid-of-" + cluster)}}
		for _, kind := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
			c.Status.Conditions = append(c.Status.Conditions, saidAt(kind, "True", "Test", time.Hour))
		}
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: cluster, UID: types.UID("check-of-" + cluster), Generation: 1,
			Annotations: map[string]string{mendv1.WaitForSpareAnnotation: "true", mendv1.WaitForSpareTimeoutAnnotation: "10m"},
		}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = cluster, map[string]string{"cluster": cluster}
		r.has(c, check)
	}
	r.start()
	return r
}

// start starts a process that knows nothing.
func (r *pool) start() {
	r.told = events.NewFakeRecorder(1000)
	c := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if then := r.then; then != nil && obj.GetObjectKind().GroupVersionKind() == betweenKind {
				r.then = nil
				then()
			}
			return c.Get(ctx, key, obj, o...)
		},
	})
	r.Reconciler = &Reconciler{
		Client: c, Live: c, Clusters: &upCluster{}, Kinds: &brokenKinds{}, Hosts: r.hosts, Requests: cyclesOfHosts(), Recorder: r.told,
		Clock: r.clock, Unclaimed: Act,
	}
}

func (r *pool) has(objects ...client.Object) {
	r.t.Helper()
	for _, obj := range objects {
		if err := r.api.Create(r.t.Context(), obj); err != nil {
			r.t.Fatal(err)
		}
	}
}

// machine makes a machine of a cluster, of one MachineSet, whose Metal3Machine wants a host of a pool; any if that is empty. It is on a host of its name, if
// that is so.
func (r *pool) machine(cluster, name, pool string, on bool, marked ...string) *clusterv1.Machine {
	r.t.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(r.clock.Now()),
		Labels: map[string]string{"cluster": cluster}, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: cluster, UID: types.UID("set-of-" + cluster), Controller: ptr.To(true),
		}},
	}}
	for _, annotation := range marked {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation, "")
	}
	m.Spec.ClusterName = cluster
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name}
	between := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "ns", "name": name}}}
	between.SetGroupVersionKind(betweenKind)
	if pool != "" {
		between.Object["spec"] = map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"pool": pool}}}
	}
	r.has(m, between)
	if on {
		r.host(name, "", name)
	}
	return m
}

func (r *pool) bad(cluster, name string) {
	r.machine(cluster, name, "", true, clusterv1.RemediateMachineAnnotation)
}

// host makes a host of a pool, that a machine has; none if that is empty.
func (r *pool) host(name, pool, has string) {
	r.t.Helper()
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-" + name, UID: types.UID("host-" + name)}}
	h.Labels = map[string]string{"pool": pool}
	h.Status.Provisioning.State = bmov1alpha1.StateAvailable
	if has != "" {
		h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "ns", Name: has}
	}
	r.has(h)
}

// pass reconciles a check at that time after noon, and returns in how long it is to be reconciled again.
func (r *pool) pass(at time.Duration, check string) time.Duration {
	r.t.Helper()
	r.clock.SetTime(noon.Add(at))
	result, err := r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: check}})
	if err != nil {
		r.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (r *pool) get(name string) *clusterv1.Machine {
	r.t.Helper()
	m := &clusterv1.Machine{}
	if err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, m); err != nil {
		r.t.Fatal(err)
	}
	return m
}

// asked are the machines whose owners are asked to remediate them.
func (r *pool) asked() string {
	r.t.Helper()
	list := &clusterv1.MachineList{}
	if err := r.api.List(r.t.Context(), list); err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if OwnerOf(&list.Items[i]) != NotAsked {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (r *pool) says(obj interface{ GetConditions() []metav1.Condition }) string {
	for _, c := range obj.GetConditions() {
		if c.Type == mendv1.SpareHostAvailable {
			return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func (r *pool) check(name string) *clusterv1.MachineHealthCheck {
	r.t.Helper()
	c := &clusterv1.MachineHealthCheck{}
	if err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// replaced makes the owner of a machine delete it, which takes its time.
func (r *pool) replaced(_, name string) {
	r.t.Helper()
	m := r.get(name)
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	if err := errors.Join(r.api.Update(r.t.Context(), m), r.api.Delete(r.t.Context(), m)); err != nil {
		r.t.Fatal(err)
	}
	r.clock.SetTime(r.clock.Now().Add(time.Second))
}

func (r *pool) gone(name string) {
	r.t.Helper()
	if err := r.api.Delete(r.t.Context(), r.get(name)); err != nil {
		r.t.Fatal(err)
	}
}

// behind makes the caches of the process show a machine as it is now.
func (r *pool) behind(name string, do func()) {
	r.t.Helper()
	was := r.get(name)
	c := r.Client
	list := func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		err := c.List(ctx, list, o...)
		if all, is := list.(*clusterv1.MachineList); is {
			for i := range all.Items {
				if all.Items[i].Name == name {
					all.Items[i] = *was.DeepCopy()
				}
			}
		}
		return err
	}
	r.Client = interceptor.NewClient(r.api, interceptor.Funcs{List: list})
	do()
	r.Client = c
}

func (r *pool) noBetween(name string) {
	r.t.Helper()
	between := &unstructured.Unstructured{}
	between.SetGroupVersionKind(betweenKind)
	between.SetNamespace("ns")
	between.SetName(name)
	if err := r.api.Delete(r.t.Context(), between); err != nil {
		r.t.Fatal(err)
	}
}
