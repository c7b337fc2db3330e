package remediationrecord

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	clocktesting "k8s.io/utils/clock/testing"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(d)) }

// management is a management cluster with Cluster c, whose Machine w1 of MachineSet pool is about to be remediated.
type management struct {
	t      *testing.T
	server client.WithWatch
	mapper meta.RESTMapper
	clock  *clocktesting.FakeClock
	*Reconciler
	// writes counts patches. If fails is set, the next patch fails with it.
	writes int
	fails  error
	// reported are the events that were sent.
	reported []sent
	// asked counts the reads from the API server, by kind.
	asked map[string]int
}

// sent is an event; uid is the UID of its object.
type sent struct {
	about, kind, reason, action, text string
	uid                               types.UID
}

// recording keeps the events that are sent.
type recording struct {
	events.EventRecorder

	to *management
}

// Eventf implements events.EventRecorder.
func (r recording) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	ref, err := reference.GetReference(r.to.server.Scheme(), regarding)
	if err != nil {
		r.to.t.Errorf("an event is about what has no reference: %v", err)
		return
	}
	r.to.reported = append(r.to.reported, sent{ref.Kind + " " + ref.Name, kind, reason, action, fmt.Sprintf(note, args...), ref.UID})
}

func schemeOfAll(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), controlplanev1.AddToScheme(scheme), mendv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme),
		bmov1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metal3Machines(scheme)
	return scheme
}

func newManagement(t *testing.T, objects ...client.Object) *management {
	t.Helper()
	scheme := schemeOfAll(t)
	m := &management{t: t, clock: clocktesting.NewFakeClock(noon), asked: map[string]int{}}
	m.server = indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields()).
		WithIndex(&clusterv1.Machine{}, notableIndex, notableOf).Build()
	m.mapper = testrestmapper.TestOnlyStaticRESTMapper(scheme)
	m.restart()
	return m
}

// indexed adds the index of the cache.
func indexed(builder *fake.ClientBuilder) *fake.ClientBuilder {
	return builder.WithIndex(&mendv1.RemediationRecord{}, recordIndex, keysOf)
}

func yesNow() bool { return true }

// restart starts the manager again.
func (m *management) restart() {
	c := interceptor.NewClient(m.server, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := m.fails; err != nil {
				m.fails = nil
				return err
			}
			m.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	})
	live := interceptor.NewClient(m.server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			m.count(o)
			if _, listed := o.(*clusterv1.MachineHealthCheck); listed { // the manager may only list and watch these
				return apierrors.NewForbidden(schema.GroupResource{Resource: "machinehealthchecks"}, key.Name, nil)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			m.count(list)
			return c.List(ctx, list, opts...)
		},
	})
	recent := NewRecent(live, m.clock)
	installed := func(context.Context, string) (bool, error) { return true, nil }
	m.Reconciler = &Reconciler{
		Records: &Records{Client: c, Live: live, Clock: m.clock, Installed: installed},
		Recent:  recent, Mapper: m.mapper, Nodes: true, ActsOnUnclaimed: true,
		Finds:    func(types.NamespacedName, types.UID) (healthy, known bool) { return false, false },
		StepLeft: func(string, string) bool { return true },
		Recorder: recording{to: m}, Retention: Options{PerCluster: 1000, Keep: 720 * time.Hour},
	}
}

func (m *management) count(o runtime.Object) {
	kind, err := apiutil.GVKForObject(o, m.server.Scheme())
	must.Do(m.t, err)
	m.asked[kind.Kind]++
}

// look reconciles a record three times, some time after noon, and returns it; nil if it does not exist.
func (m *management) look(at time.Duration, key client.ObjectKey) *mendv1.RemediationRecord {
	m.t.Helper()
	m.clock.SetTime(noon.Add(at))
	for range 3 {
		if _, err := m.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			m.t.Fatal(err)
		}
	}
	is := &mendv1.RemediationRecord{}
	err := m.server.Get(m.t.Context(), key, is)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		m.t.Fatal(err)
	}
	return is
}

// reconcile is look for the usual record.
func (m *management) reconcile(at time.Duration) *mendv1.RemediationRecord {
	m.t.Helper()
	m.look(at, recordKey)
	return m.record()
}

func (m *management) record() *mendv1.RemediationRecord {
	m.t.Helper()
	is := &mendv1.RemediationRecord{}
	must.Do(m.t, m.server.Get(m.t.Context(), recordKey, is))
	return is
}

func (m *management) edit(o client.Object, change func(client.Object)) {
	m.t.Helper()
	must.Do(m.t, m.server.Get(m.t.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	must.Do(m.t, m.server.Update(m.t.Context(), o))
}

func (m *management) change(name string, change func(*clusterv1.Machine)) {
	m.t.Helper()
	is := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name}}
	m.edit(is, func(client.Object) { change(is) })
}

// ask sets that the owner of w1 is asked to replace it.
func (m *management) ask(at time.Duration) {
	m.t.Helper()
	m.change("w1", func(w *clusterv1.Machine) {
		says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, at)
		carried(w)
	})
}

// carried makes a Machine carry the record that is named after it, as when its owner is asked.
func carried(m *clusterv1.Machine) {
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: recordKey.Namespace, Name: m.Name + "-record"}}
	says(m, mendv1.Remediation, metav1.ConditionTrue, 0)
	m.Status.Conditions[len(m.Status.Conditions)-1].Message = "Its owner was asked" + mendv1.RecordMention + Carried(record, m.Namespace)
}

// heal makes the check find w1 healthy, and removes all other conditions.
func (m *management) heal(at time.Duration) {
	m.t.Helper()
	m.change("w1", func(w *clusterv1.Machine) {
		w.Status.Conditions = nil
		says(w, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, at)
	})
}

// ready gives a machine a Ready node.
func (m *management) ready(name string, at time.Duration) {
	m.t.Helper()
	m.change(name, func(w *clusterv1.Machine) {
		w.Status.NodeRef.Name = "node-" + name
		says(w, clusterv1.MachineNodeReadyCondition, metav1.ConditionTrue, at)
	})
}

// refusing returns a client that fails to get objects of one type.
func refusing[T client.Object](from client.WithWatch, err error) client.WithWatch {
	return interceptor.NewClient(from, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(T); is {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

func (m *management) create(objects ...client.Object) {
	m.t.Helper()
	for _, o := range objects {
		must.Do(m.t, m.server.Create(m.t.Context(), o))
	}
}

// remove deletes an object. If it is a Machine, it also sends the event of the watch.
func (m *management) remove(o client.Object) {
	m.t.Helper()
	must.Do(m.t, m.server.Delete(m.t.Context(), o))
	if machine, is := o.(*clusterv1.Machine); is && apierrors.IsNotFound(m.server.Get(m.t.Context(), client.ObjectKeyFromObject(o), machine.DeepCopy())) {
		m.onMachines().Delete(m.t.Context(), event.DeleteEvent{Object: o}, delayed{in: map[string]time.Duration{}})
	}
}

var recordKey = client.ObjectKey{Namespace: "metal", Name: "w1-record"}

func recordOf(changes ...func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
	is := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "metal", Name: "w1-record", Labels: map[string]string{
				mendv1.RecordOpenLabel: "true", clusterv1.ClusterNameLabel: "c", clusterv1.MachineDeploymentNameLabel: "workers",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "c"}},
		},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Decided: after(0), Due: new(after(-time.Second)), Cause: "Ready=Unknown",
			Evidence:  []mendv1.RecordEvidence{{Type: "Ready", Status: "Unknown"}},
			Requester: mendv1.RecordRequester{Check: &mendv1.RecordRef{Kind: machineCheckKind, Namespace: "metal", Name: "workers"}},
			Target: mendv1.RecordTarget{
				ClusterName: "c", ClusterUID: "c", Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1", UID: "w1"},
				Owner: &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Namespace: "metal", Name: "pool", UID: "pool"},
				Host:  &mendv1.RecordRef{Kind: "BareMetalHost", Namespace: "metal", Name: "host-7"},
			},
		},
		Status: mendv1.RemediationRecordStatus{Attempted: new(after(0))},
	}
	for _, change := range changes {
		change(is)
	}
	return is
}

// begun sets that the remediation of a record has begun.
func begun(by string) func(*mendv1.RemediationRecord) {
	return func(r *mendv1.RemediationRecord) {
		r.Status.Begun = new(after(time.Second))
		r.Status.Steps = []mendv1.RecordStep{{Time: metav1.NewMicroTime(noon.Add(time.Second)), Reason: by, Message: "as it says"}}
	}
}

func machine(name string, created time.Duration) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: name, UID: types.UID(name), CreationTimestamp: after(created),
		Labels: map[string]string{
			clusterv1.ClusterNameLabel: "c", clusterv1.MachineSetNameLabel: "pool", clusterv1.MachineDeploymentNameLabel: "workers",
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "pool", UID: "pool", Controller: new(true),
		}},
	}}
	m.Spec.ClusterName = "c"
	return m
}

func says(m *clusterv1.Machine, kind string, status metav1.ConditionStatus, at time.Duration) {
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Type == kind {
			m.Status.Conditions = append(m.Status.Conditions[:i], m.Status.Conditions[i+1:]...)
			break
		}
	}
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: after(at)})
}

// mirrors gives a Machine the conditions that Cluster API mirrors from its node.
func mirrors(m *clusterv1.Machine, healthy metav1.ConditionStatus, reason string) {
	says(m, clusterv1.MachineNodeHealthyCondition, healthy, time.Minute)
	m.Status.Conditions[len(m.Status.Conditions)-1].Reason = reason
}

// unhealthy returns w1, which its check has marked as unhealthy.
func unhealthy() *clusterv1.Machine {
	m := machine("w1", -time.Hour)
	m.Status.NodeRef.Name = "n1"
	says(m, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, 0)
	return m
}

func theCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c", UID: "c"}}
}

func node(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: conditions}}
}

// cycled returns the request of a power cycle in a state, which carries the record.
func cycled(name, state string) *mendv1.HostRemediation {
	return &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: name, UID: "r", CreationTimestamp: after(time.Second),
		Annotations: map[string]string{mendv1.RecordAnnotation: recordKey.Name, mendv1.PowerCycleAnnotation: `{"state":"` + state + `"}`},
	}}
}

func fleet() []client.Object {
	cluster := theCluster()
	cluster.Status.Initialization.ControlPlaneInitialized = new(true)
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "workers", Annotations: map[string]string{clusterv1.RevisionAnnotation: "1"},
	}}
	deployment.Spec.Replicas = new(int32(1))
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "pool", Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"},
		Annotations: map[string]string{clusterv1.RevisionAnnotation: "1"},
	}}
	set.Spec.Replicas = new(int32(1))
	return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}, cluster, deployment, set}
}
