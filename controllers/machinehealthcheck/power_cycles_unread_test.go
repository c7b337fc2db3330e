package machinehealthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// onMetal makes the target's machine one of a bare-metal host.
func onMetal(t *Target) {
	t.Machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: t.Machine.Name}
}

// brokenKinds can all be read but for those of that name, in all versions or in one: a conversion webhook does not answer.
type brokenKinds struct {
	kind, version string
	asked         int
}

func (b *brokenKinds) Ready(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	b.asked++
	if kind.Kind == b.kind && (b.version == "" || b.version == kind.Version) {
		return false, errors.New("conversion webhook for Metal3Remediation failed")
	}
	return true, nil
}

func (*brokenKinds) InUse() []schema.GroupVersionKind { return nil }
func (*brokenKinds) Notify(remediationrequest.Watcher, handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request]) {
}

// cyclesOfHosts are the objects of both kinds of power cycles that an API server has.
func cyclesOfHosts(objects ...*remediationrequest.Metadata) *remediationrequest.Requests {
	scheme := runtime.NewScheme()
	for _, kind := range []schema.GroupVersionKind{cycleKinds[0][0], cycleKinds[1][0], cycleKinds[1][1]} {
		scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, obj := range objects {
		b = b.WithObjects(obj)
	}
	c := b.Build()
	return &remediationrequest.Requests{Client: c, Live: c}
}

// readCycles finds the power cycles of the observed state and returns the machines whose remediation begins.
func (r *Reconciler) readCycles(t *testing.T, w *observed) map[string]bool {
	t.Helper()
	w.Template, w.CyclesUnread, w.Trouble, w.requests = Template{Known: true}, time.Time{}, nil, nil
	r.memory.recall(w)
	if w.unread, w.Read.Cycles = nil, false; decide(w).Needs.Cycles {
		r.observeCycles(t.Context(), w)
	}
	begins := map[string]bool{}
	p := decide(w)
	for _, s := range stepsOf(p) {
		begins[s.Target.Machine.Name] = s.Starts()
	}
	r.memory.leave(w, p)
	return begins
}

func TestAKindThatIsNotInstalledIsNotAskedFor(t *testing.T) {
	kinds := &brokenKinds{kind: "Metal3Remediation"}
	r := &Reconciler{Kinds: kinds, Requests: cyclesOfHosts(), Installed: func(_ context.Context, crd string) (bool, error) {
		return crd == "hostremediations.kubemend.io", nil
	}}
	w := aCheck(a("metal", health.Unhealthy, onMetal))
	if begins := r.readCycles(t, w); !begins["metal"] || len(w.Trouble) > 0 {
		t.Errorf("remediations begin of %v, in trouble: %v; want the machine remediated, since there are no Metal3Remediations", begins, w.Trouble)
	}
	r.Installed = func(_ context.Context, crd string) (bool, error) {
		return crd == "metal3remediations.infrastructure.cluster.x-k8s.io", nil
	}
	if begins := r.readCycles(t, w); begins["metal"] || len(w.Trouble) == 0 {
		t.Errorf("remediations begin of %v, in trouble: %v; want Metal3Remediations asked for that are installed", begins, w.Trouble)
	}
	r.Installed = func(context.Context, string) (bool, error) { return false, errors.New("no answer") }
	if begins := r.readCycles(t, w); begins["metal"] || len(w.Trouble) == 0 {
		t.Errorf("remediations begin of %v, in trouble: %v; want nothing begun while it is not known", begins, w.Trouble)
	}
}

func TestAKindThatCannotBeReadHoldsUpTheMachinesItMayConcernAndNoOther(t *testing.T) {
	r := &Reconciler{Kinds: &brokenKinds{kind: "Metal3Remediation"}, Requests: cyclesOfHosts()}
	w := aCheck(a("metal", health.Unhealthy, onMetal), a("virtual", health.Unhealthy))
	if begins := r.readCycles(t, w); begins["metal"] || !begins["virtual"] {
		t.Errorf("remediations begin of %v, want that of the virtual machine alone", begins)
	}
	if len(w.Trouble) == 0 {
		t.Error("it is not said what could not be read")
	}
	is := seen(w, decide(w), w.Targets[0])
	if len(is.Blockers) == 0 || is.Blockers[0].Reason != NotRead || !is.Blockers[0].Until.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("explain says %+v, want it to say until when nothing begins", is.Blockers)
	}
	virtual := aCheck(a("virtual", health.Unhealthy))
	r.readCycles(t, virtual)
	if len(virtual.Trouble) > 0 {
		t.Errorf("a check without bare metal is in trouble: %v", virtual.Trouble)
	}
}

func TestWhatCannotBeReadForTenMinutesHoldsUpNothingAnyMore(t *testing.T) {
	kinds := &brokenKinds{kind: "Metal3Remediation"}
	r := &Reconciler{Kinds: kinds, Requests: cyclesOfHosts()}
	w := aCheck(a("metal", health.Unhealthy, onMetal))
	at := func(minutes int) map[string]bool {
		w.Now = noon.Add(time.Duration(minutes) * time.Minute)
		w.recheck = time.Time{}
		return r.readCycles(t, w)
	}
	for minute := range 10 {
		if at(minute)["metal"] {
			t.Fatalf("its remediation begins after %d minutes", minute)
		}
		if !w.recheck.Equal(noon.Add(10 * time.Minute)) {
			t.Fatalf("after %d minutes the next reconcile is at %s", minute, w.recheck)
		}
	}
	if !at(10)["metal"] || len(w.Trouble) == 0 {
		t.Errorf("after the deadline nothing begins, or nothing is said: %v", w.Trouble)
	}
	// They were not read for an hour, as all machines were healthy. The deadline begins anew.
	healthy := aCheck(a("metal", health.Healthy, onMetal))
	healthy.Now = noon.Add(11 * time.Minute)
	r.readCycles(t, healthy)
	if at(70)["metal"] {
		t.Error("its remediation begins because of what could not be read an hour ago")
	}
	kinds.kind = ""
	if !at(71)["metal"] || len(w.Trouble) > 0 {
		t.Errorf("when it can be read again its remediation does not begin: %v", w.Trouble)
	}
}

func TestAKindOfWhichOneVersionCannotBeReadIsReadInTheOther(t *testing.T) {
	m := a("metal", health.Unhealthy, onMetal)
	cycle := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "by-hand", OwnerReferences: ownedByMachine(&m), Finalizers: []string{mendv1.HostRemediationFinalizer},
	}}
	cycle.SetGroupVersionKind(infrav1beta1.GroupVersion.WithKind("Metal3Remediation"))
	r := &Reconciler{Kinds: &brokenKinds{kind: "Metal3Remediation", version: infrav1.GroupVersion.Version}, Requests: cyclesOfHosts(cycle)}
	w := aCheck(a("another", health.Unhealthy, onMetal), m)
	if begins := r.readCycles(t, w); begins["metal"] || !begins["another"] || len(w.Trouble) > 0 {
		t.Errorf("remediations begin of %v, want that of the other machine alone: %v", begins, w.Trouble)
	}
}
