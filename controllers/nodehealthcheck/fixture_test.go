package nodehealthcheck

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/inmemory"
)

// fixture is the controller with an in-memory client and a clock. The test plays the nodes and the remediators.
type fixture struct {
	t         tester
	server    *inmemory.Server
	client    client.Client
	informers *informertest.FakeInformers
	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	r         *Reconciler
	fails     func(verb string, obj client.Object) error // called before each write; its error is the API server's answer
	watch     func(*unstructured.Unstructured)           // called for each request that is created
	made      []string                                   // requests in the order in which they were created
	denied    string                                     // a kind that may not be read
	apis      apis
	writes    int // number of writes, including those of the test
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	remediatorGroup = "remediator.example.org"
	namespace       = "remediators"
)

// kindsOfRequests are the kinds of requests in these tests. Each has a kind of templates.
var kindsOfRequests = []string{"Reboot", "Replace", "Pray"}

// servedKinds are the kinds of the in-memory API server.
var servedKinds = sync.OnceValue(func() []inmemory.Kind {
	kinds := []inmemory.Kind{{GroupVersionKind: nhcv1.GroupVersion.WithKind("NodeHealthCheck"), Global: true}}
	whole := func(global bool, all ...schema.GroupVersionKind) {
		for _, kind := range all {
			kinds = append(kinds, inmemory.Kind{GroupVersionKind: kind, Global: global, Whole: true})
		}
	}
	whole(true, corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"), ClusterVersions)
	whole(false, corev1.SchemeGroupVersion.WithKind("Pod"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"), mendv1.GroupVersion.WithKind("RemediationRecord"),
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("Machine"),
		clusterv1.GroupVersion.WithKind("MachineHealthCheck"), MachineHealthChecks, OpenShiftMachines)
	templates := []corev1.ObjectReference{aboutMachine("Metal3Remediation", ""), aboutMachine("HostRemediation", "")}
	for _, kind := range kindsOfRequests {
		templates = append(templates, refTo(kind, ""))
	}
	for i := range templates {
		kind := templates[i].GroupVersionKind()
		whole(false, kind, remediationrequest.KindOf(kind))
	}
	return kinds
})

var knownKinds = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme, clusterv1.AddToScheme, nhcv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	scheme.AddKnownTypes(mendv1.GroupVersion, &mendv1.RemediationRecord{}, &mendv1.RemediationRecordList{})
	inmemory.Register(scheme, servedKinds()...)
	return scheme
})

func newFixture(t tester, objects ...client.Object) *fixture {
	t.Helper()
	log.SetLogger(logr.Discard())
	k := &fixture{t: t, clock: clocktesting.NewFakePassiveClock(epoch), recorder: events.NewFakeRecorder(4096)}
	k.server = inmemory.New(knownKinds(), k.clock, servedKinds()...)
	for _, name := range []string{namespace, nhcv1.DefaultLeaseNamespace, "default", "elsewhere", "capi", "openshift-machine-api"} {
		k.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	k.server.Put(objects...)
	k.client = interceptor.NewClient(k.server, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); k.denied != "" && kind.Kind == k.denied+"List" {
				return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: k.denied}, "", nil)
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			err := k.write("create", obj, func() error { return c.Create(ctx, obj, opts...) })
			if u, is := obj.(*unstructured.Unstructured); is && err == nil && !isTemplate(u.GetKind()) {
				k.made = append(k.made, u.GetKind()+"/"+u.GetName())
				if k.watch != nil {
					k.watch(u)
				}
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return k.write("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return k.write("update", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return k.write("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return k.write("patch status", obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
	synced := true
	k.informers = &informertest.FakeInformers{Scheme: knownKinds(), Synced: &synced}
	kinds := k.kinds()
	k.r = &Reconciler{
		Client: k.client, Management: k.client, Live: k.client, Mapper: k.server.RESTMapper(),
		Kinds: kinds, Watches: kinds,
		Requests:  &remediationrequest.Requests{Client: k.client, Live: k.client},
		Discovery: &k.apis,
		Gate:      &begin.Gate{Clock: k.clock},
		Installed: func(context.Context, string) (bool, error) { return false, nil },
		Recorder:  k.recorder, Clock: k.clock, LeaseNamespace: nhcv1.DefaultLeaseNamespace,
	}
	k.search()
	return k
}

func (k *fixture) write(verb string, obj client.Object, write func() error) error {
	k.writes++
	if k.fails != nil {
		if err := k.fails(verb, obj); err != nil {
			return err
		}
	}
	return write()
}

// refuses makes the API server refuse writes of a kind: of the object called name or, if that is empty, of all.
func (k *fixture) refuses(verb, name string, err error) {
	k.fails = func(asked string, obj client.Object) error {
		if asked == verb && (name == "" || obj.GetName() == name) {
			return err
		}
		return nil
	}
}

func (k *fixture) kinds() *remediationrequest.Kinds[*unstructured.Unstructured] {
	kinds := remediationrequest.NewKinds(k.informers, k.client, "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	return kinds
}

// deny forbids to read a kind, unless it was read before.
func (k *fixture) deny(kind string) { k.denied = kind }

func (k *fixture) after(d time.Duration) { k.clock.SetTime(k.clock.Now().Add(d)) }

// settle reconciles until a reconcile writes nothing and all kinds are read.
func (k *fixture) settle(check string) {
	k.t.Helper()
	for range 20 {
		writes := k.writes
		result := k.reconcile(check)
		if k.writes == writes && result.RequeueAfter != enqueue.MergeWindow {
			return
		}
	}
	k.t.Fatalf("NodeHealthCheck %s does not come to rest", check)
}

// read reads the kinds that a check names, as kubectl mend does.
func (k *fixture) read(check string) {
	k.t.Helper()
	for range 2 {
		is, err := k.r.read(k.t.Context(), check)
		must.Do(k.t, err)
		if is == nil {
			return
		}
		w, err := k.r.observe(k.t.Context(), is, k.clock.Now())
		if err != nil {
			return // the test checks for this
		}
		must.Do(k.t, k.r.watch(k.t.Context(), w.facts.Awaited))
	}
}

func (k *fixture) reconcile(check string) ctrl.Result {
	k.t.Helper()
	result, err := k.r.Reconcile(k.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: check}})
	must.Do(k.t, err)
	return result
}

// reconciles reconciles a few times, and ignores errors.
func (k *fixture) reconciles(check string) {
	k.t.Helper()
	for range 5 {
		k.reconcile(check)
	}
}

func (k *fixture) check(name string) *nhcv1.NodeHealthCheck {
	k.t.Helper()
	c := &nhcv1.NodeHealthCheck{}
	must.Do(k.t, k.client.Get(k.t.Context(), client.ObjectKey{Name: name}, c))
	return c
}

// requests returns the existing requests as kind/name, sorted.
func (k *fixture) requests() []string {
	k.t.Helper()
	var names []string
	for _, obj := range k.objects() {
		names = append(names, obj.GetKind()+"/"+obj.GetName())
	}
	slices.Sort(names)
	return names
}

func (k *fixture) objects() []*unstructured.Unstructured {
	k.t.Helper()
	denied := k.denied
	k.denied = ""
	defer func() { k.denied = denied }()
	var all []*unstructured.Unstructured
	for _, kind := range kindsOfRequests {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: kind + "List"})
		must.Do(k.t, k.client.List(k.t.Context(), list))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

func (k *fixture) leases() []string {
	k.t.Helper()
	var names []string
	for _, l := range k.heldLeases() {
		names = append(names, l.Name)
	}
	return names
}

func (k *fixture) heldLeases() []coordinationv1.Lease {
	k.t.Helper()
	list := &coordinationv1.LeaseList{}
	must.Do(k.t, k.client.List(k.t.Context(), list))
	return list.Items
}

// events returns the events since the last call, without their prefix.
func (k *fixture) events() []string {
	var told []string
	for {
		select {
		case e := <-k.recorder.Events:
			told = append(told, strings.Replace(e, nhcv1.EventPrefix, "", 1))
		default:
			return told
		}
	}
}
