package hostremediation

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/policy"
)

// byCore makes rem one that Cluster API core has just made.
func byCore(rem *mendv1.HostRemediation) {
	rem.CreationTimestamp = metav1.NewTime(noon)
	rem.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "template"}
}

// bound adds a RemediationPolicy.
func (k *fixture) bound(edit func(*mendv1.RemediationPolicySpec)) *fixture {
	object := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	edit(&object.Spec)
	k.r.Ledger = &policy.Ledger{Clock: k.clock}
	k.r.Ledger.Set([]*policy.Policy{policy.Read(object, "ns")})
	return k
}

func atMostOne(spec *mendv1.RemediationPolicySpec) {
	spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}}
}

// theOther reports the machine of another check, in flight or not. It returns whether that machine may begin.
func (k *fixture) theOther(flies bool) (begins bool) {
	other := policy.Check{Kind: policy.MachineHealthCheck, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "other"}}
	k.r.Ledger.Report(other, []*place.Target{{
		UID: "other", Namespace: "ns", Kind: other.Kind, Check: "other", InFlight: flies, Unavailable: true,
	}})
	blocked := k.r.Ledger.Ask(other, []types.UID{"other"})
	k.r.Ledger.Settle(other, nil, nil)
	return len(blocked) == 0
}

func TestWhatCoreAskedForWaitsForALimitBeforeItsHostIsTouched(t *testing.T) {
	k := fixtureOf(t, byCore).bound(atMostOne)
	observed := policy.Check{Kind: policy.MachineHealthCheck, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "core's"}}
	k.r.Ledger.Report(observed, []*place.Target{{
		UID: "machine-uid", Namespace: "ns", Kind: observed.Kind, Check: observed.Name, InFlight: true, Observed: true, // it sees the request
	}})
	k.theOther(true)
	status := k.pass()
	const says = "The remediation may not begin now (The limit all of RemediationPolicy ns/p is reached: 1 of at most 1 are under way"
	if status.Step != "Pending" || !strings.HasPrefix(status.Message, says) || status.Deadline != nil {
		t.Errorf("it is %+v", status)
	}
	must.Equal(t, "WaitingForPolicy", k.remediation().Annotations[mendv1.WaitsForAnnotation])
	if next := k.explained().Next; next.Manual || next.Text != "kubemend begins the power cycle when that is over" {
		t.Errorf("a page says that next is %+v", next)
	}
	woken := 0
	k.r.Ledger.SetUp("HostRemediation", func() []reconcile.Request { return nil }, func(reconcile.Request, time.Duration) { woken++ })
	k.clock.SetTime(noon.Add(time.Hour)) // longer than a queue may take
	must.Equal(t, "Pending", k.pass().Step)
	k.theOther(false)
	must.Is(t, 1, woken)
	k.expects(powersOff)
	must.Equal(t, "PoweringOff", k.pass().Step)
	if k.theOther(false) {
		t.Error("another one has its place")
	}
}

func TestWhatAPersonAskedForIsNotBoundAndCounts(t *testing.T) {
	k := fixtureOf(t).bound(atMostOne)
	k.theOther(true)
	k.expects(powersOff)
	must.Equal(t, "PoweringOff", k.pass().Step)
	k.pass()
	if k.theOther(false) {
		t.Error("it has no place")
	}
	k.deletes(k.remediation())
	k.obeyed = true
	k.reconciles()
	if !k.theOther(false) {
		t.Error("it keeps its place after its end")
	}
}

// Conditions that others set on the node keep its host on, with or without policies, until they are over. (KEP-5683)
func TestWhatCoreAskedForWaitsUntilTheMaintenanceOfItsNodeIsOver(t *testing.T) {
	for name, bind := range map[string]func(*fixture){
		"without policies": func(*fixture) {}, "with one that allows it": func(k *fixture) { k.bound(atMostOne) },
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, byCore)
			bind(k)
			k.r.Clusters = answering{nodes: []*corev1.Node{k.seen.Node}}
			k.seen.Node.Status.Conditions = []corev1.NodeCondition{{Type: "MaintenanceInProgress", Status: "True"}}
			status := k.pass()
			must.Equal(t, "The remediation may not begin now (Its node is in maintenance: condition MaintenanceInProgress)", status.Message)
			k.seen.Node.Status.Conditions = nil
			k.expects(powersOff)
			must.Equal(t, "PoweringOff", k.wait(queueRecheck).Step)
		})
	}
}

// A check asks for a place only once, so a remediation that is held before its first attempt keeps its place.
func TestWhatACheckAskedForKeepsItsPlaceWhileItIsHeld(t *testing.T) {
	k := fixtureOf(t, byCheck)
	k.seen.Node.Status.Conditions = []corev1.NodeCondition{{Type: "MaintenanceInProgress", Status: "True"}}
	k.r.Clusters = answering{nodes: []*corev1.Node{k.seen.Node}}
	must.Equal(t, "The remediation may not begin now (Its node is in maintenance: condition MaintenanceInProgress)", k.pass().Message)
	must.Equal(t, "", k.remediation().Annotations[mendv1.WaitsForAnnotation])
}

func TestAPlaceIsGivenBackIfTheRemediationCannotBeReadAgain(t *testing.T) {
	k := fixtureOf(t, byCore).bound(atMostOne)
	own := k.r.placeOf(k.key)
	k.r.Ledger.Report(own, []*place.Target{{UID: "machine-uid", Namespace: "ns", Kind: own.Kind, Unavailable: true}})
	must.Is(t, 0, len(k.r.Ledger.Ask(own, []types.UID{"machine-uid"})))
	k.r.settlePlace(k.key, nil, nil)
	must.Is(t, true, k.theOther(false), "another one may begin:")
}

// A further attempt waits for the window of a policy, and keeps its place.
func TestTheNextAttemptWaitsForAWindow(t *testing.T) {
	for name, made := range map[string]func(*mendv1.HostRemediation){"of core": byCore, "of a check": byCheck} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, made, func(rem *mendv1.HostRemediation) {
				remembers(`{"state":"Preparing","since":"2026-01-01T12:00:00Z","attempt":2,"uid":"remediation-uid","machine":"m","host":"h","touched":true}`)(rem)
			}).bound(func(spec *mendv1.RemediationPolicySpec) {
				spec.Windows = []mendv1.PolicyWindow{{Action: mendv1.WindowDeny, Schedule: "0 12 * * *", DurationSeconds: 3600}}
			})
			check := policy.Check{Kind: policy.MachineHealthCheck, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "workers"}}
			k.r.Ledger.Report(check, []*place.Target{{UID: "machine-uid", Namespace: "ns", Kind: check.Kind, Check: "workers", InFlight: true}})
			status := k.pass()
			if status.Step != string(powercycle.Preparing) || !status.BlockedUntil.Time.Equal(noon.Add(time.Hour)) {
				t.Errorf("it is %+v", status)
			}
			must.Equal(t, "", k.remediation().Annotations[mendv1.WaitsForAnnotation])
			k.expects(powersOff)
			must.Equal(t, "PoweringOff", k.wait(time.Hour).Step)
		})
	}
}
