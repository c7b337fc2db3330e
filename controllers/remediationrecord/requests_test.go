package remediationrecord

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
)

// The steps of a NodeHealthCheck may have their templates in several namespaces.
func TestRequestsOfAnEscalationAreFoundInTheNamespacesOfItsTemplates(t *testing.T) {
	step := func(namespace string) nhcv1.EscalatingRemediation {
		return nhcv1.EscalatingRemediation{RemediationTemplate: corev1.ObjectReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Namespace: namespace, Name: "reboot",
		}}
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes", UID: "nhc-uid"}}
	check.Spec.EscalatingRemediations = []nhcv1.EscalatingRemediation{step("metal"), step("elsewhere")}
	for names, want := range map[string]string{
		"metal/w1-record": "True RequestCreated",
		"w1-record":       "", // of that name in its own namespace
	} {
		is := recordOf(func(r *mendv1.RemediationRecord) {
			r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nodes", UID: "nhc-uid"}
		})
		request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
			Namespace: "elsewhere", Name: "w1", UID: "r", CreationTimestamp: after(time.Second), Annotations: map[string]string{mendv1.RecordAnnotation: names},
		}}
		m := newManagement(t, append(fleet(), unhealthy(), check.DeepCopy(), is, request)...)
		got := m.reconcile(time.Minute)
		if begun := condition(got, mendv1.RecordBegun); begun != want && (want != "" || len(got.Status.Requests) > 0) {
			t.Errorf("a request that names %q: begun %q, want %q, by %v", names, begun, want, got.Status.Requests)
		}
	}
}

// A NodeHealthCheck judges the nodes of this cluster, also those that have a Machine: their records belong to no Cluster.
func TestTheNodeOfAMachineOfThisClusterIsReadHere(t *testing.T) {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		r.Spec.Target.ClusterName, r.Spec.Target.ClusterUID = "", ""
		r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "here"}
	})
	m := newManagement(t, append(fleet(), unhealthy(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", UID: "node-uid"}}, is)...)
	o := &observed{record: is, machine: unhealthy()}
	if node, known, err := m.node(t.Context(), o); err != nil || !known || node == nil || node.UID != "node-uid" {
		t.Errorf("the node is %v, known %t: %v", node, known, err)
	}
}

// Who may write a request may write what a power cycle remembers. A word that is none of it must not keep the record from being written, nor become a metric.
func TestAStateThatIsNoneIsNotWaitedFor(t *testing.T) {
	request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "w1", UID: "r", CreationTimestamp: after(time.Second),
		Annotations: map[string]string{mendv1.RecordAnnotation: "w1-record", mendv1.PowerCycleAnnotation: `{"state":"no reason, but a sentence"}`},
	}}
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(nil), request)...)
	if got := condition(m.reconcile(time.Minute), mendv1.RecordCapacityBack); got != "False RemediationInProgress" {
		t.Errorf("it waits for %q", got)
	}
}

// nodeCheck is a NodeHealthCheck with a template in a namespace.
func nodeCheck(namespace string) *nhcv1.NodeHealthCheck {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes", UID: "nhc-uid"}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{
		APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Namespace: namespace, Name: "reboot",
	}
	return check
}

// ofNodes makes a record one of that check.
func ofNodes(r *mendv1.RemediationRecord) {
	r.OwnerReferences = nil
	r.Spec.Target.ClusterName, r.Spec.Target.ClusterUID = "", ""
	r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nodes", UID: "nhc-uid"}
}

// A remediator may delete a node without a Machine, which comes back with another UID.
func TestANodeThatItsRemediatorDeletesIsFollowed(t *testing.T) {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		ofNodes(r)
		r.Spec.Remediator = mendv1.RemediatedByRequest
		r.Spec.Target = mendv1.RecordTarget{Node: &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "here", UID: "before"}}
	})
	request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "here", UID: "r", CreationTimestamp: after(time.Second), Annotations: map[string]string{mendv1.RecordAnnotation: "w1-record"},
	}}
	node := func(uid string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", UID: types.UID(uid)}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: after(3 * time.Minute)}},
		}}
	}
	m := newManagement(t, append(fleet(), node("before", corev1.ConditionUnknown), nodeCheck("metal"), is, request)...)
	m.reconcile(time.Minute)
	m.remove(node("before", corev1.ConditionUnknown))
	if got := m.reconcile(2 * time.Minute); !got.Open() {
		t.Fatalf("while a remediator acts on it, it has ended as %s by %s", got.Status.Outcome, got.Status.EndedBy)
	}
	m.create(node("after", corev1.ConditionTrue))
	if got := m.reconcile(4 * time.Minute); !got.Open() {
		t.Fatalf("while its request is there, it has ended as %s by %s", got.Status.Outcome, got.Status.EndedBy)
	}
	m.remove(request)
	if got := m.reconcile(5 * time.Minute); got.Status.Outcome != mendv1.RecordHealed {
		t.Errorf("once the node is back it has ended as %q by %q", got.Status.Outcome, got.Status.EndedBy)
	}
}

// A right that is missing is missing for long: a record that waits for what it may not read is looked at as rarely as any other of its age.
func TestARecordWhoseRequestsCannotBeReadIsLookedAtRarely(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(func(r *mendv1.RemediationRecord) {
		r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nodes"}
	}))...)
	m.Live = interceptor.NewClient(m.server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*nhcv1.NodeHealthCheck); is {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodehealthchecks"}, key.Name, nil)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	for _, at := range []time.Duration{time.Minute, record.Unbegun, record.Unbegun + 500*time.Millisecond, time.Hour} {
		m.clock.SetTime(noon.Add(at))
		got, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: recordKey})
		if err != nil || got.RequeueAfter < soonest {
			t.Errorf("after %s it is looked at again in %s: %v", at, got.RequeueAfter, err)
		}
		if is := m.record(); !is.Open() {
			t.Fatalf("after %s it has ended as %q", at, is.Status.Outcome)
		}
	}
}

// A request is made after its record, and nothing tells of it: the record finds it within a second, and one that never comes is looked for ever rarer.
func TestARecordThatIsAboutToBeginIsLookedAtSoon(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(nil))...)
	again := func(at time.Duration) time.Duration {
		m.clock.SetTime(noon.Add(at))
		got, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: recordKey})
		if err != nil {
			t.Fatal(err)
		}
		return got.RequeueAfter
	}
	for _, is := range []struct{ at, want time.Duration }{
		{0, aboutToBegin}, {time.Second, aboutToBegin}, {4 * time.Second, 2 * time.Second}, {20 * time.Second, soonest}, {time.Minute, soonest},
	} {
		if got := again(is.at); got != is.want {
			t.Errorf("%s after it was written it is looked at again in %s, want %s", is.at, got, is.want)
		}
	}
	is := m.record()
	is.Status.Attempted = ptr.To(after(2 * time.Minute))
	if err := m.server.Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if got := again(2 * time.Minute); got != aboutToBegin {
		t.Errorf("when it is tried again it is looked at again in %s, want %s", got, aboutToBegin)
	}
	m.create(&mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "w1", UID: "r", CreationTimestamp: after(2 * time.Minute), Annotations: map[string]string{mendv1.RecordAnnotation: "w1-record"},
	}})
	if got := again(2*time.Minute + aboutToBegin); got < soonest || m.record().Status.Begun == nil {
		t.Errorf("once it has begun it is looked at again in %s; begun %v", got, m.record().Status.Begun)
	}
}
