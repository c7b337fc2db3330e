package hostremediation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
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
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

// fixture is a machine with its host and node, and a reconciler that sees them through fakes that obey.
type fixture struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	hosts  *fakeHosts
	nodes  *fakeNodes
	r      *Reconciler
	key    client.ObjectKey

	// did are the acts so far. wants are the acts that are expected in the end, unless obeyed permits all. at is called before an act,
	// which fails with its error.
	did, wants []act
	obeyed     bool
	at         map[act]func() error

	host   *bmov1alpha1.BareMetalHost
	found  *host.Found // what is found instead of host, if anything
	unread error       // why it cannot be found which host is the machine's; nil if it can
	seen   fence.Seen
	// refused is why the node cannot be read; nil if it can.
	refused error
	looked  string // the name of the Node that was last read uncached
}

// silent are workload clusters that do not answer; if changed is set, another cluster answers.
type silent struct{ changed error }

func (s silent) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.View{Link: workload.Down, Changed: s.changed}, nil
}

const fixtureUID = types.UID("remediation-uid")

// fixtureOf returns a fixture whose remediation may be retried once, after these edits.
func fixtureOf(t *testing.T, edits ...func(*mendv1.HostRemediation)) *fixture {
	t.Helper()
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: fixtureUID, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "machine-uid"},
	}}}
	rem.Spec.Strategy = &mendv1.HostRemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600, BootTimeoutSeconds: 600,
	}
	for _, edit := range edits {
		edit(rem)
	}
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "machine-uid"}}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", Controller: ptr.To(true)}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c", "node"
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(
		bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), mendv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme),
		infrav1.AddToScheme(scheme),
	))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(rem, m).
		WithObjects(rem, m, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}})
	must.Do(t, records.AddIndex(t.Context(), indexing{builder}))
	c := builder.Build()
	k := &fixture{
		t: t, client: c, clock: clocktesting.NewFakePassiveClock(noon), key: client.ObjectKeyFromObject(rem), at: map[act]func() error{},
	}
	k.hosts, k.nodes = &fakeHosts{k}, &fakeNodes{k}
	t.Cleanup(k.verify)
	k.host = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", UID: "host-uid", Annotations: map[string]string{}}}
	k.host.Spec.Online, k.host.Status.PoweredOn, k.host.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	k.seen = fence.Seen{Presence: powercycle.NodePresent, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}}
	k.r = &Reconciler{
		Kind: remediation.Own, Installed: func() ([]remediation.Kind, error) { return []remediation.Kind{remediation.Own}, nil }, Client: c, Live: c, Hosts: k.hosts, Nodes: k.nodes, Clusters: silent{},
		Gate: &begin.Gate{Clock: k.clock}, Recorder: events.NewFakeRecorder(1000), Clock: k.clock,
	}
	var none controller.Controller
	k.r.controller.Store(&none)
	return k
}

func (k *fixture) machine(ctx context.Context) *clusterv1.Machine {
	k.t.Helper()
	m := &clusterv1.Machine{}
	must.Do(k.t, k.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "m"}, m))
	return m
}

func (k *fixture) remediation() *mendv1.HostRemediation {
	k.t.Helper()
	rem := &mendv1.HostRemediation{}
	must.Do(k.t, k.client.Get(k.t.Context(), k.key, rem))
	return rem
}

// edit changes the remediation as a user would.
func (k *fixture) edit(change func(*mendv1.HostRemediation)) {
	k.t.Helper()
	rem := k.remediation()
	change(rem)
	k.do(k.client.Update(k.t.Context(), rem))
}

// edits changes a Machine and its status.
func (k *fixture) edits(name string, change func(*clusterv1.Machine)) {
	k.t.Helper()
	m := &clusterv1.Machine{}
	k.do(k.client.Get(k.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, m))
	change(m)
	status := m.Status
	k.do(k.client.Update(k.t.Context(), m))
	m.Status = status
	k.do(k.client.Status().Update(k.t.Context(), m))
}

func (k *fixture) creates(objects ...client.Object) {
	k.t.Helper()
	for _, o := range objects {
		k.do(k.client.Create(k.t.Context(), o))
	}
}

func (k *fixture) deletes(o client.Object) {
	k.t.Helper()
	k.do(k.client.Delete(k.t.Context(), o))
}

// reconciles reconciles the remediation once.
func (k *fixture) reconciles() ctrl.Result {
	k.t.Helper()
	result, err := k.r.Reconcile(k.t.Context(), ctrl.Request{NamespacedName: k.key})
	k.do(err)
	return result
}

// do fails the test if the test's own preparation has failed.
func (k *fixture) do(err error) {
	k.t.Helper()
	must.Do(k.t, err)
}

// pass reconciles until nothing changes any more, and returns the status.
func (k *fixture) pass() mendv1.HostRemediationStatus {
	k.t.Helper()
	for range 50 {
		before := k.remediation()
		k.reconciles()
		if after := k.remediation(); after.ResourceVersion == before.ResourceVersion {
			return after.Status
		}
	}
	k.t.Fatal("it does not come to rest")
	return mendv1.HostRemediationStatus{}
}

// reaches reconciles until the remediation is in a state, and no further.
func (k *fixture) reaches(state powercycle.State) {
	k.t.Helper()
	k.pass()
	for _, next := range []struct {
		state powercycle.State
		do    func()
	}{
		{powercycle.PoweringOff, func() {}},
		{powercycle.MovingWorkload, func() { k.power(false) }},
		{powercycle.PoweringOn, func() { k.seen.Drained, k.seen.Left, k.seen.Count = true, nil, 0 }},
		{powercycle.Booting, func() { k.power(true) }},
	} {
		next.do()
		if got := powercycle.State(k.pass().Step); got != next.state {
			k.t.Fatalf("it came to be in %s instead of %s", got, next.state)
		}
		if next.state == state {
			return
		}
	}
}

// wait lets time pass, and then reconciles until nothing changes.
func (k *fixture) wait(d time.Duration) mendv1.HostRemediationStatus {
	k.t.Helper()
	k.clock.SetTime(k.clock.Now().Add(d))
	return k.pass()
}

func (k *fixture) power(on bool) { k.host.Status.PoweredOn = on }

const holdOff = infrav1.PowerOffAnnotationPrefix

func ofMachine(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: uid}}
}

// aRemediation returns a remediation with this record; without one if it is empty.
func aRemediation(uid types.UID, remembers string) remediation.Object {
	rem := remediation.Own.New()
	rem.SetUID(uid)
	rem.SetName(string(uid))
	if remembers != "" {
		rem.SetAnnotations(map[string]string{mendv1.PowerCycleAnnotation: remembers})
	}
	return rem
}

// awaitsBoot is the record of a remediation whose host was power-cycled and boots.
var awaitsBoot = remembers(`{"state":"Booting","since":"2026-01-01T12:00:00Z","attempt":1,"uid":"remediation-uid",
	"machine":"m","host":"h","node":"node","bootID":"before"}`)

// remembers gives a remediation this record.
func remembers(memory string) func(*mendv1.HostRemediation) {
	return func(rem *mendv1.HostRemediation) {
		metav1.SetMetaDataAnnotation(&rem.ObjectMeta, mendv1.PowerCycleAnnotation, memory)
	}
}
