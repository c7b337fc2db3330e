package hostremediation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
)

// Design, "What must hold, always", 4: two members decide by caches that show neither of them beginning yet. Only one may begin.
func TestOneOfTwoMembersBeginsWhileTheCachesShowNeither(t *testing.T) {
	p := planeOf(t, "b", "c")
	p.creates(remembering("another", "another-uid", ofMachine("b", "b-uid"), ""))
	cached, begun := &mendv1.HostRemediationList{}, &mendv1.HostRemediationList{}
	p.do(p.client.List(t.Context(), cached))
	p.r.Client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			for i := range cached.Items {
				if rem, is := into.(*mendv1.HostRemediation); is && cached.Items[i].Name == key.Name {
					cached.Items[i].DeepCopyInto(rem)
					return nil
				}
			}
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			if list, is := into.(*mendv1.HostRemediationList); is {
				cached.DeepCopyInto(list)
				return nil
			}
			return c.List(ctx, into, opts...)
		},
	})
	for range 3 {
		for _, rem := range cached.Items {
			p.key = client.ObjectKeyFromObject(&rem)
			p.reconciles()
		}
	}
	p.do(p.client.List(t.Context(), begun))
	underWay := 0
	for i := range begun.Items {
		if remediation.Remembered(&begun.Items[i]).UnderWay() {
			underWay++
		}
	}
	if underWay != 1 {
		t.Errorf("%d have begun, want 1", underWay)
	}
}

func TestNothingBeginsWhileAnotherOneOfTheMachineMayHaveBegun(t *testing.T) {
	k := fixtureOf(t)
	k.obeys()
	lost := errors.New("EOF")
	err := k.r.Gate.Begin(t.Context(), "other-uid", []string{"machine machine-uid"}, func(context.Context) error { return lost })
	if !errors.Is(err, lost) {
		t.Fatal(err)
	}
	result, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k.key})
	if err != nil || result.RequeueAfter != retry || len(k.did) > 0 || remediation.Remembered(remediation.Wrap(k.remediation())).UnderWay() {
		t.Errorf("%+v, %v: it has begun, or is not tried again: %v", result, err, k.did)
	}
	const busy = "Waiting in its queue (another remediation is about to begin)"
	if s := k.remediation().Status; s.Message != busy || s.Step != string(powercycle.Pending) {
		t.Errorf("in %s: %q", s.Step, s.Message)
	}
	k.wait(begin.Settles)
	if !remediation.Remembered(remediation.Wrap(k.remediation())).UnderWay() {
		t.Error("it does not begin when the other one cannot begin any more")
	}
}

// Only its Node shows that the machine is a member, and the Node may become unreadable between decision and confirmation: the API may run
// on the host that another manager has just powered off.
func TestAMemberStaysOneWhileItsBeginningIsConfirmed(t *testing.T) {
	p := planeOf(t, "b")
	for name, node := range p.nodes {
		node.Labels = map[string]string{"node-role.kubernetes.io/etcd": "true"}
		if name != "node" {
			p.edits(name, func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineControlPlaneLabel) })
		}
	}
	p.edits("m", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineControlPlaneLabel) })
	p.answers()
	reads := 0
	p.r.Client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if _, is := into.(*mendv1.HostRemediation); is {
				if reads++; reads == 2 {
					p.r.Clusters = silent{}
					p.other("b", `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z","controlPlane":true}`) //nolint:contextcheck // the fixture has its own
				}
			}
			return c.Get(ctx, key, into, opts...)
		},
	})
	if s := p.pass(); p.held() || !strings.Contains(s.Message, "b is being remediated") {
		t.Errorf("held off: %t, %q", p.held(), s.Message)
	}
}

// The control planes of some distributions are Machines without the label; only their Nodes show that they are members.
func TestAMachineThatMayBeAMemberWaitsWhileTheAPIDoesNotAnswer(t *testing.T) {
	for label, waits := range map[string]bool{"": true, clusterv1.MachineControlPlaneLabel: false} {
		p := planeOf(t, "b", "c")
		for _, name := range []string{"m", "b", "c"} {
			p.edits(name, func(m *clusterv1.Machine) {
				if name != "c" || label == "" {
					delete(m.Labels, clusterv1.MachineControlPlaneLabel)
				}
			})
		}
		p.r.Clusters = silent{}
		p.other("b", `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z","mayControl":true}`)
		if s := p.pass(); p.held() == waits || strings.Contains(s.Message, "b is being remediated") != waits {
			t.Errorf("a labelled one is there: %t; held off: %t, %q", !waits, p.held(), s.Message)
		}
		if rec := remediation.Remembered(p.remediation()); rec.MayControl != waits {
			t.Errorf("it shows others that it may be one: %t", rec.MayControl)
		}
	}
}

func TestWhatCannotBeReadForABeginningHoldsUpNobodyElse(t *testing.T) {
	k := fixtureOf(t)
	reads := 0
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if _, is := into.(*mendv1.HostRemediation); is {
				if reads++; reads == 2 {
					return errors.New("EOF")
				}
			}
			return c.Get(ctx, key, into, opts...)
		},
	})
	if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k.key}); err == nil {
		t.Error("it is not said that the remediation could not be read")
	}
	err := k.r.Gate.Begin(t.Context(), "other-uid", []string{"machine machine-uid"}, func(context.Context) error { return nil })
	if err != nil {
		t.Error(err)
	}
}

func TestAMemberWaitsForOneWhoseReplacementTheCacheDoesNotShowYet(t *testing.T) {
	p := planeOf(t, "b", "c")
	cached := &clusterv1.MachineList{}
	p.do(p.client.List(t.Context(), cached))
	p.deletes(p.member("b"))
	p.r.Client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			if list, is := into.(*clusterv1.MachineList); is {
				cached.DeepCopyInto(list)
				return nil
			}
			return c.List(ctx, into, opts...)
		},
	})
	if s := p.pass(); p.held() || !strings.Contains(s.Message, "b is being remediated (Machine b)") {
		t.Errorf("held off: %t, %q", p.held(), s.Message)
	}
}

// ownStrategy is the default strategy.
var ownStrategy = &mendv1.HostRemediationStrategy{
	Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600,
}

// remembering returns a HostRemediation with this record.
func remembering(name string, uid types.UID, owners []metav1.OwnerReference, memory string) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, OwnerReferences: owners, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
	}}
	rem.Spec.Strategy = ownStrategy
	if memory != "" {
		rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: memory}
	}
	return rem
}

func TestNoRemediationGoesFirstByAForgedBeginning(t *testing.T) {
	honest := remembering("honest", "b", ofMachine("victim", "machine-uid"), "")
	honest.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	w := &observed{rem: remediation.Wrap(honest), record: remediation.Record{Memory: powercycle.Memory{State: powercycle.Preparing, Attempt: 1, Began: noon.Add(-time.Hour)}}}
	early := remembering("early", "a", ofMachine("victim", "machine-uid"), `{"state":"Booting","attempt":1,"began":"1970-01-01T00:00:00Z"}`)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "victim", UID: "machine-uid"}}
	q := powercycle.Queue{Self: w.queued(), SameMachine: queuedOf(remediation.Existing{All: []remediation.OfKind{{Object: early, Kind: remediation.Own}}}, m, honest)}
	if len(q.SameMachine) != 1 || len(q.Ahead(noon)) > 0 {
		t.Errorf("a remediation that was created later has begun earlier: %+v", q)
	}
}

// A clock that never expires would keep other remediations waiting.
func TestAMomentThatHasNotComeIsNotRemembered(t *testing.T) {
	const never = `{"state":"Booting","since":"2999-01-01T00:00:00Z","attempt":1,"began":"2999-01-01T00:00:00Z","uid":"remediation-uid"}`
	k := fixtureOf(t, remembers(never))
	k.obeys()
	k.pass()
	if rec := remediation.Remembered(k.remediation()); rec.Since.After(noon) || rec.Began.After(noon) {
		t.Errorf("since %s, began %s; want nothing after %s", rec.Since, rec.Began, noon)
	}
}

// H-A3: a remediation whose finalizer was removed by hand has left a taint with its UID.
func TestTheFenceOfARemediationThatIsGoneGoesWithTheNext(t *testing.T) {
	for uid, want := range map[types.UID][]act{"gone": {powersOff, fences, releases, unfences}, "lives": {powersOff, releases}} {
		k := fixtureOf(t)
		k.creates(remembering("predecessor", "lives", ofMachine("m", "machine-uid"), ""))
		k.seen.Mark, k.seen.Fenced = uid, true
		k.seen.Node.Spec.Taints = []corev1.Taint{{
			Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
		}}
		k.expects(want...)
		k.reaches(powercycle.Booting)
	}
}
