package remediationrecord

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"

	"github.com/kubemend/kubemend/test/must"
)

// The steps of a NodeHealthCheck may have their templates in several namespaces.
func TestRequestsOfAnEscalationAreFoundInTheNamespacesOfItsTemplates(t *testing.T) {
	check := nodeCheck("metal")
	check.Spec.RemediationTemplate = nil
	check.Spec.EscalatingRemediations = []nhcv1.EscalatingRemediation{
		{RemediationTemplate: reboot("metal", "reboot")}, {RemediationTemplate: reboot("elsewhere", "reboot")},
	}
	for names, want := range map[string]string{
		"metal/w1-record": "True RequestCreated",
		"w1-record":       "", // a record of that name in the request's namespace
	} {
		is, request := recordOf(byNodes), cycled("w1", "")
		request.Namespace, request.Annotations = "elsewhere", map[string]string{mendv1.RecordAnnotation: names}
		m := newManagement(t, append(fleet(), unhealthy(), check.DeepCopy(), is, request)...)
		got := m.reconcile(time.Minute)
		if begun := condition(got, mendv1.RecordBegun); begun != want && (want != "" || len(got.Status.Requests) > 0) {
			t.Errorf("a request that names %q: begun %q, want %q, by %v", names, begun, want, got.Status.Requests)
		}
	}
}

// A user who may write a request may write any state of a power cycle into it. An unknown state must neither keep the record from being
// written nor become a metric.
func TestAStateThatIsNoneIsNotWaitedFor(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(), cycled("w1", "no reason, but a sentence"))...)
	if got := condition(m.reconcile(time.Minute), mendv1.RecordCapacityBack); got != "False RemediationInProgress" {
		t.Errorf("it waits for %q", got)
	}
}

// nodeCheck returns a NodeHealthCheck with a template in a namespace.
func nodeCheck(namespace string) *nhcv1.NodeHealthCheck {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes", UID: "nhc-uid"}}
	check.Spec.RemediationTemplate = new(reboot(namespace, "reboot"))
	return check
}

// byNodes makes this NodeHealthCheck the requester of a record. ofNodes also makes it about a node without a Cluster.
func byNodes(r *mendv1.RemediationRecord) {
	r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: nodeCheckKind, Name: "nodes", UID: "nhc-uid"}
}

func ofNodes(r *mendv1.RemediationRecord) {
	byNodes(r)
	r.OwnerReferences = nil
	r.Spec.Target.ClusterName, r.Spec.Target.ClusterUID = "", ""
}

// A remediator may delete a node without a Machine. The node comes back with another UID.
func TestANodeThatItsRemediatorDeletesIsFollowed(t *testing.T) {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		ofNodes(r)
		r.Spec.Remediator = mendv1.RemediatedByRequest
		r.Spec.Target = mendv1.RecordTarget{Node: &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "here", UID: "before"}}
	})
	request := cycled("here", "")
	here := func(uid types.UID, ready corev1.ConditionStatus) *corev1.Node {
		is := node("here", corev1.NodeCondition{Type: corev1.NodeReady, Status: ready, LastTransitionTime: after(3 * time.Minute)})
		is.UID = uid
		return is
	}
	m := newManagement(t, append(fleet(), here("before", corev1.ConditionUnknown), nodeCheck("metal"), is, request)...)
	m.reconcile(time.Minute)
	m.remove(here("before", corev1.ConditionUnknown))
	if got := m.reconcile(2 * time.Minute); !got.Open() {
		t.Fatalf("while a remediator acts on it, it has ended as %s by %s", got.Status.Outcome, got.Status.EndedBy)
	}
	m.create(here("after", corev1.ConditionTrue))
	if got := m.reconcile(4 * time.Minute); !got.Open() {
		t.Fatalf("while its request is there, it has ended as %s by %s", got.Status.Outcome, got.Status.EndedBy)
	}
	m.remove(request)
	if got := m.reconcile(5 * time.Minute); got.Status.Outcome != mendv1.RecordHealed {
		t.Errorf("once the node is back it has ended as %q by %q", got.Status.Outcome, got.Status.EndedBy)
	}
}

// A missing right stays missing for long. A record that waits for it is reconciled as rarely as any other record of its age.
func TestARecordWhoseRequestsCannotBeReadIsLookedAtRarely(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(byNodes))...)
	m.Recent.Live = refusing[*nhcv1.NodeHealthCheck](m.server, apierrors.NewForbidden(schema.GroupResource{}, "nodes", nil))
	for _, at := range []time.Duration{time.Minute, Unbegun, Unbegun + 500*time.Millisecond, time.Hour} {
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

func reboot(namespace, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Namespace: namespace, Name: name}
}

// A storm, a limit, a pause or a lease may block the next escalation step for longer than Settle.
func TestARecordSaysWhetherItsCheckHasAStepLeft(t *testing.T) {
	nodes := nodeCheck("metal")
	nodes.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{{Name: "n1"}}
	machines := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "machines", UID: "mhc-uid"}}
	for name, tc := range map[string]struct {
		check     *nhcv1.NodeHealthCheck // nil for the MachineHealthCheck
		exhausted bool
		request   *mendv1.HostRemediation
		gone      bool // the check is deleted
		unclaimed bool
		want      string
	}{
		"one of a NodeHealthCheck, after a request failed":        {check: nodes, request: cycled("w1-first", "Failed"), want: AwaitingNextStep},
		"the one that it is on, as its request was deleted":       {check: nodes, want: AwaitingNextStep},
		"none after the last one failed":                          {check: nodes, exhausted: true, request: cycled("w1-second", "Failed"), want: RequestsEnded},
		"none for a node that it does not list":                   {check: nodeCheck("metal"), request: cycled("w1-first", "Failed"), want: RequestsEnded},
		"none of a check that is gone":                            {check: nodes, request: cycled("w1-first", "Failed"), gone: true, want: RequestsEnded},
		"a request anew, as that of a MachineHealthCheck is gone": {want: AwaitingNextStep},
		"none of a MachineHealthCheck that is gone":               {gone: true, want: Withdrawn},
		"none of one that kubemend does not act on":               {unclaimed: true, want: Withdrawn},
		"none of a MachineHealthCheck whose request failed":       {request: cycled("w1-only", "Failed"), want: RequestsEnded},
	} {
		t.Run(name, func(t *testing.T) {
			is := recordOf(func(r *mendv1.RemediationRecord) {
				r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
				r.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "machines"}
				if tc.check != nil {
					r.Spec.Requester.Check = &mendv1.RecordRef{Kind: "NodeHealthCheck", Name: "nodes"}
				}
			})
			m := newManagement(t, append(fleet(), unhealthy(), is)...)
			m.ActsOnUnclaimed = false
			m.StepLeft = func(check, node string) bool { return check == "nodes" && node == "n1" && !tc.exhausted }
			was := tc.request
			if was == nil {
				was = cycled("w1-first", "PoweringOff")
			}
			m.create(was)
			m.reconcile(2 * time.Second)
			if tc.request == nil {
				m.remove(was)
			}
			switch {
			case tc.gone:
			case tc.check != nil:
				m.create(tc.check.DeepCopy())
			default:
				check := machines.DeepCopy()
				if !tc.unclaimed {
					check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
				}
				m.create(check)
			}
			m.reconcile(3*time.Minute - Idles)
			got := m.reconcile(3 * time.Minute)
			if waits := condition(got, mendv1.RecordCapacityBack); waits != "False "+tc.want {
				t.Errorf("it waits for %q, want %q: %v", waits, tc.want, reasons(got))
			}
			got = m.reconcile(30 * time.Minute)
			if open := tc.want == AwaitingNextStep; got.Open() != open {
				t.Errorf("it has ended as %q", got.Status.Outcome)
			}
		})
	}
}

// shown are the HostRemediations in a cache, which have no managedFields; nil if the cache does not have the kind.
type shown []*mendv1.HostRemediation

func (s *shown) cached(_ context.Context, kind schema.GroupVersionKind, _ string) (all []client.Object, has bool, err error) {
	if *s == nil || kind != remediation.Own.GroupVersionKind {
		return nil, false, nil
	}
	for _, is := range *s {
		all = append(all, is)
	}
	return all, true, nil
}

// requested lists the request of w1 in a record.
func requested(r *mendv1.RemediationRecord) {
	r.Status.Requests = []mendv1.RecordRef{refTo(cycled("w1", ""), remediation.Own.GroupVersionKind)}
}

func TestAPowerCycleIsReadFromTheCacheAlone(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	cache := shown{}
	m.Cached = []RequestCache{func(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]client.Object, bool, error) {
		return cache.cached(ctx, kind, namespace)
	}}
	m.reconcile(time.Second)
	must.Do(t, m.server.Create(t.Context(), cycled("w1", "PoweringOff"), client.FieldOwner("somebody")))
	for i, state := range []string{"PoweringOff", "PoweringOn", "Booting"} {
		cache = shown{cycled("w1", state)}
		m.reconcile(time.Duration(2+5*i) * time.Second)
	}
	if m.asked["HostRemediation"]+m.asked["HostRemediationList"] > 0 || m.writes > 4 {
		t.Errorf("it was written %d times, and the API server asked for %v", m.writes, m.asked)
	}
}

// A cache may be stale: it may miss a request that exists, or show one as ended that has not.
func TestACacheThatIsBehindEndsNoRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		shows shown
		is    *mendv1.HostRemediation
		want  mendv1.RecordOutcome
		not   string
	}{
		"a request that it does not show yet": {shows: shown{}, is: cycled("w1", "PoweringOff"), not: "Withdrawn"},
		"a request that it shows still":       {shows: shown{cycled("w1", "Succeeded")}, is: cycled("w1", "PoweringOff")},
		"a request that is gone":              {shows: shown{}, want: mendv1.RecordHealed},
		"a kind that it does not have":        {is: cycled("w1", "PoweringOff"), not: "Withdrawn"},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			if tc.not == "" {
				says(w1, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, time.Minute)
			}
			m := newManagement(t, append(fleet(), w1, recordOf(begun("RequestCreated"), requested))...)
			m.Cached = []RequestCache{tc.shows.cached}
			if tc.is != nil {
				m.create(tc.is)
			}
			got := m.reconcile(2 * time.Minute)
			if got.Status.Outcome != tc.want || slices.Contains(reasons(got), tc.not) {
				t.Errorf("it has ended as %q by %q with %v", got.Status.Outcome, got.Status.EndedBy, reasons(got))
			}
		})
	}
}
