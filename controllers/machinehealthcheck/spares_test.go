package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/policy"
)

const (
	waitsOfMachine = "False/NoSpareHost: No spare host fits its replacement: no host is free. " +
		"Its remediation waits until 2026-01-01T12:10:00Z at most (waitForSpare of a RemediationPolicy)"
	waitsOfCheck = "False/NoSpareHost: Wait for a spare host, at most: a until 2026-01-01T12:10:00Z. Free hosts: 0"
)

func TestAMachineWaitsForASpareHostAndSaysSo(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	if next := r.pass(0, "c1"); next != 10*time.Minute || r.asked() != "" {
		t.Errorf("asked: %q, it is looked at again in %s, want it at its deadline", r.asked(), next)
	}
	must.Is(t, waitsOfMachine, r.says(r.get("a")), "the machine says")
	must.Is(t, waitsOfCheck, r.says(r.check("c1")), "the check says")
	was := r.get("a").ResourceVersion
	r.pass(time.Minute, "c1")
	must.Is(t, was, r.get("a").ResourceVersion, "the machine is written although nothing has changed: %s, then", was)
	spare := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	if got := r.checksOfHost(t.Context(), spare); len(got) != 1 || got[0].Name != "c1" {
		t.Errorf("a host that becomes free enqueues %v", got)
	}
	r.host("spare", "", "")
	r.pass(2*time.Minute, "c1")
	if r.asked() != "a" || r.says(r.get("a")) != "" || r.says(r.check("c1")) != "" {
		t.Errorf("with a host: asked %q; says %q, %q", r.asked(), r.says(r.get("a")), r.says(r.check("c1")))
	}
	if got := r.checksOfHost(t.Context(), spare); len(got) > 0 {
		t.Errorf("when none waits, a host enqueues %v", got)
	}
}

// The metric counts each machine under its first blocker, and has no series of a blocker that is over.
func TestBlockedMachinesAreCountedByTheirBlocker(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.bad("c1", "b")
	for _, step := range []struct {
		name string
		do   func()
		want map[string]float64
	}{
		{"both wait", func() {}, map[string]float64{"NoSpareHost": 2}},
		{"one has a host", func() { r.host("spare", "", "") }, map[string]float64{"NoSpareHost": 1}},
		{"hosts cannot be read", func() { r.hosts.err = errors.New("you may not") }, map[string]float64{"SpareHostsUnread": 1}},
		{"both have one", func() { r.hosts.err = nil; r.host("another", "", "") }, map[string]float64{}},
	} {
		step.do()
		r.pass(time.Minute, "c1")
		must.Equal(t, step.want, seriesOf(t, blockedMachines, r.check("c1"), "reason"), "%s", step.name)
	}
}

func TestAfterItsDeadlineARemediationBeginsWithoutAHostAndSaysSo(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.pass(0, "c1")
	for _, at := range []time.Duration{5 * time.Minute, 10*time.Minute - time.Second} {
		r.pass(at, "c1")
		if r.asked() != "" {
			t.Fatalf("after %s the owner is asked", at)
		}
	}
	r.pass(10*time.Minute, "c1")
	const want = "Asked the owner to remediate a. No spare host fits its replacement, and the wait for one ended at 2026-01-01T12:10:00Z"
	var all []string
	for len(r.told.Events) > 0 {
		all = append(all, <-r.told.Events)
	}
	if r.asked() != "a" || !strings.Contains(strings.Join(all, "\n"), want) {
		t.Errorf("asked: %q; events %q, want %q", r.asked(), all, want)
	}
}

func TestOneHostIsNotCountedOnByTwoChecks(t *testing.T) {
	for name, second := range map[string]func(*pool){
		"one after the other": func(r *pool) { r.pass(0, "c1"); r.pass(0, "c2") },
		"at the same moment":  func(r *pool) { r.then = func() { r.pass(0, "c2") }; r.pass(0, "c1") },
		"at the same moment, as the other has seen since": func(r *pool) {
			r.then = func() { r.pass(0, "c2"); r.pass(0, "c2") }
			r.pass(0, "c1")
		},
		"after a restart in between": func(r *pool) { r.pass(0, "c1"); r.start(); r.pass(0, "c2") },
		"before a cache shows it": func(r *pool) {
			r.behind("a", func() {
				r.pass(0, "c1")
				must.Is(r.t, begunAgain, r.pass(time.Second, "c2"))
			})
		},
		"while a replacement is made": func(r *pool) { r.pass(0, "c1"); r.replaced("c1", "a"); r.pass(time.Minute, "c2") },
		"while it waits for its host": func(r *pool) {
			r.pass(0, "c1")
			r.replaced("c1", "a")
			r.machine("c1", "a2", "", false)
			r.pass(time.Minute, "c2")
		},
		"after a restart while it waits": func(r *pool) {
			r.pass(0, "c1")
			r.replaced("c1", "a")
			r.machine("c1", "a2", "", false)
			r.start()
			r.pass(time.Minute, "c2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPool(t)
			r.bad("c1", "a")
			r.bad("c2", "b")
			r.host("spare", "", "")
			second(r)
			if got, first := r.asked(), !strings.HasPrefix(name, "at the same moment"); got == "a b" || first == (OwnerOf(r.get("b")) != NotAsked) {
				t.Errorf("asked: %q, want one of them: the one that was first", got)
			}
			if waits := r.says(r.get("b")); waits == "" && OwnerOf(r.get("b")) == NotAsked {
				t.Error("the one that waits does not say so")
			}
			r.host("another", "", "")
			r.start()
			r.pass(2*time.Minute, "c2")
			if got := r.asked(); !strings.Contains(got, "b") {
				t.Errorf("with a second host: asked %q, want b among them", got)
			}
		})
	}
}

func TestAHostOfAnotherPoolIsNoSpare(t *testing.T) {
	r := newPool(t)
	r.machine("c1", "a", "workers", true, clusterv1.RemediateMachineAnnotation)
	r.host("spare", "storage", "")
	r.pass(0, "c1")
	if r.asked() != "" || !strings.Contains(r.says(r.get("a")), "of 1 free none has the labels") {
		t.Errorf("asked: %q; says %q", r.asked(), r.says(r.get("a")))
	}
	r.host("spare-2", "workers", "")
	r.pass(time.Minute, "c1")
	if r.asked() != "a" {
		t.Error("with a host of the pool the owner is not asked")
	}
}

// If the hosts are not known, none is free, but the wait is no longer.
func TestHostsThatCannotBeReadAreNotCountedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pool)
		says   string
	}{
		"without rights":          {func(r *pool) { r.hosts.err = errors.New("you may not") }, "Whether a spare host fits its replacement is not known: you may not"},
		"without a Metal3Machine": {func(r *pool) { r.noBetween("a") }, "not known: read Metal3Machine ns/a: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPool(t)
			r.bad("c1", "a")
			r.host("spare", "", "")
			tc.change(r)
			if next := r.pass(0, "c1"); next != unreadAgain || r.asked() != "" {
				t.Errorf("asked: %q, tried again in %s", r.asked(), next)
			}
			if got := r.says(r.get("a")); !strings.HasPrefix(got, "False/SpareHostsUnread") || !strings.Contains(got, tc.says) {
				t.Errorf("the machine says %q", got)
			}
			r.pass(10*time.Minute, "c1")
			if r.asked() != "a" {
				t.Error("after the deadline the owner is not asked")
			}
		})
	}
}

// After a host was taken, a check reads the hosts again before it decides. If they cannot be read any more, it decides without them.
func TestADeadlineEndsAlsoIfHostsCannotBeReadAfterOneWasTaken(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.host("spare", "", "")
	r.pass(0, "c1")
	r.bad("c2", "b")
	r.hosts.err = errors.New("you may not any more")
	r.pass(0, "c2")
	if r.asked() != "a" {
		t.Fatalf("before the deadline: asked %q", r.asked())
	}
	r.pass(10*time.Minute, "c2")
	must.Is(t, "a b", r.asked(), "after the deadline: asked")
}

// When a machine of another check does not need a host any more, the waiting check is enqueued.
func TestAMachineOfAnotherCheckEnqueuesTheOneThatWaits(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	other := r.machine("c2", "b", "", false)
	if got := r.checksOfMachineOrSpare(t.Context(), other); len(got) != 1 {
		t.Errorf("before one waits, a machine enqueues %v", got)
	}
	r.pass(0, "c1")
	if got := r.checksOfMachineOrSpare(t.Context(), other); len(got) != 2 {
		t.Errorf("a machine of another cluster enqueues %v", got)
	}
	if got := r.checksOfMachineOrSpare(t.Context(), r.get("a")); len(got) != 1 {
		t.Errorf("one of its own enqueues %v, want each once", got)
	}
	virtual := r.get("b")
	virtual.Spec.InfrastructureRef.Kind = "DockerMachine"
	if got := r.checksOfMachineOrSpare(t.Context(), virtual); len(got) != 1 {
		t.Errorf("one that is on no host enqueues %v", got)
	}
}

var betweenKind = infrav1.GroupVersion.WithKind("Metal3Machine")

// pool is a namespace with hosts, and with checks of two clusters that wait for spare hosts.
type pool struct {
	*reconciled
	hosts *hostWatch
	told  *events.FakeRecorder
	// then is called once, at the next read of a Metal3Machine: after the hosts were read, before the decision.
	then func()
}

// hostWatch is a watch of hosts, which may fail, or whose first list is under way.
type hostWatch struct {
	syncing bool
	err     error
}

func (h *hostWatch) Ready(context.Context, schema.GroupVersionKind) (bool, error) {
	return !h.syncing && h.err == nil, h.err
}

func (*hostWatch) Source(handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request]) source.Source {
	return nil
}

func newPool(t *testing.T) *pool {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{betweenKind.GroupVersion()})
	mapper.Add(betweenKind, meta.RESTScopeNamespace)
	r := &pool{hosts: &hostWatch{}, reconciled: &reconciled{
		t: t, clock: clocktesting.NewFakePassiveClock(noon), api: server(t).WithRESTMapper(mapper).Build(), there: &upCluster{},
	}}
	for _, cluster := range []string{"c1", "c2"} {
		c := aCheck().Cluster
		c.Name, c.UID = cluster, types.UID("uid-of-"+cluster)
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: cluster, UID: types.UID("check-of-" + cluster), Generation: 1,
		}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = cluster, map[string]string{"cluster": cluster}
		r.has(c, check)
	}
	r.start()
	return r
}

// start starts a new process, with an empty memory.
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
		Client: c, Live: c, Clusters: r.there, Kinds: &brokenKinds{}, Hosts: r.hosts, Metal: metal{found: host.Found{Is: powercycle.HostGone}}, Requests: cyclesOfHosts(), Recorder: r.told,
		Clock: r.clock, Unclaimed: Act, Ledger: &policy.Ledger{Clock: r.clock},
	}
	waits := mendv1.RemediationPolicy{Spec: mendv1.RemediationPolicySpec{WaitForSpare: &mendv1.PolicyWaitForSpare{TimeoutSeconds: 600}}}
	r.Ledger.Set([]*policy.Policy{policy.Read(&waits, "")})
}

func (r *pool) has(objects ...client.Object) {
	r.t.Helper()
	for _, obj := range objects {
		must.Do(r.t, r.api.Create(r.t.Context(), obj))
	}
}

// machine creates a machine of the cluster's MachineSet. Its Metal3Machine wants a host of that pool, or any if pool is empty. If on is
// true, the machine is on a host of its name.
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

// host creates a host of a pool. has is the machine on it; empty for none.
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

func (r *pool) pass(at time.Duration, check string) time.Duration { return r.passOf(at, check) }

// asked returns the machines whose owners were asked to remediate them.
func (r *pool) asked() string {
	r.t.Helper()
	list := &clusterv1.MachineList{}
	must.Do(r.t, r.api.List(r.t.Context(), list))
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
	must.Do(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, c))
	return c
}

// replaced has the owner of a machine delete it; the deletion takes some time.
func (r *pool) replaced(_, name string) {
	r.t.Helper()
	m := r.get(name)
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	must.Do(r.t, errors.Join(r.api.Update(r.t.Context(), m), r.api.Delete(r.t.Context(), m)))
	r.clock.SetTime(r.clock.Now().Add(time.Second))
}

// behind calls do while the caches keep showing a machine as it is now.
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
	must.Do(r.t, r.api.Delete(r.t.Context(), between))
}
