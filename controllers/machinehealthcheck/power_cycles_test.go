package machinehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/must"
)

// powerCycled gives the target a power cycle that a person requested, with a name of its own.
func powerCycled(t *Target) {
	t.Cycle = &remediationrequest.Metadata{TypeMeta: metav1.TypeMeta{Kind: "HostRemediation"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "by-hand"}}
}

// otherCheckWith adds another check that selects all machines and names a template.
func otherCheckWith(template string) func(*observed) {
	return func(w *observed) {
		w.Overlaps = append(w.Overlaps, Overlap{Name: "otherCheck", selector: labels.Everything(), template: template})
	}
}

func TestWhichPowerCyclesAreUnderWay(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(*remediationrequest.Metadata)
		want  bool
	}{
		"one whose finalizer is there": {func(r *remediationrequest.Metadata) { r.Finalizers = []string{mendv1.HostRemediationFinalizer} }, true},
		"one that is being deleted with it": {func(r *remediationrequest.Metadata) {
			onItsWayOut(r)
			r.Finalizers = []string{mendv1.HostRemediationFinalizer}
		}, true},
		"one that clings to its finalizer": {func(r *remediationrequest.Metadata) {
			r.DeletionTimestamp = &metav1.Time{Time: ago(time.Hour)}
			r.Finalizers = []string{mendv1.HostRemediationFinalizer}
		}, false},
		"one that no controller has taken on yet": {func(r *remediationrequest.Metadata) { r.CreationTimestamp = metav1.NewTime(ago(time.Minute)) }, true},
		"one that no controller ever took on":     {func(r *remediationrequest.Metadata) { r.CreationTimestamp = metav1.NewTime(ago(time.Hour)) }, false},
		"one that is over": {func(r *remediationrequest.Metadata) {
			r.Annotations = map[string]string{mendv1.PowerCycleAnnotation: "{}"}
		}, false},
		"one that is over and just was made": {func(r *remediationrequest.Metadata) { r.CreationTimestamp = metav1.NewTime(noon); onItsWayOut(r) }, false},
	} {
		r := &remediationrequest.Metadata{}
		tc.given(r)
		if CycleUnderWay(r, noon) != tc.want {
			t.Errorf("%s: under way is %t", name, !tc.want)
		}
	}
}

// The node may be deleted while its host is power-cycled. A check without a template must not have the machine replaced meanwhile, and
// reports why it waits.
func TestAPowerCycleByHandIsFoundAndSaid(t *testing.T) {
	m, other := a("m", health.Unhealthy, onMetal), a("n", health.Unhealthy, onMetal)
	byHand := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "by-hand", OwnerReferences: ownedByMachine(&m), Finalizers: []string{mendv1.HostRemediationFinalizer},
	}}
	byHand.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
	r := &Reconciler{Kinds: &brokenKinds{}, Requests: cyclesOfHosts(byHand)}
	w := aCheck(m, other)
	r.observeRemediation(t.Context(), w)
	r.observeCycles(t.Context(), w)
	if len(w.Trouble) > 0 || !w.CyclesUnread.IsZero() {
		t.Fatalf("the power cycles are not known: %v", w.Trouble)
	}
	s := decide(w)
	if s.Decisions[0].Starts() || !s.Decisions[1].Starts() || s.Population.InFlight != 1 {
		t.Errorf("beside the power cycle %d begin, and it takes %d places", starts(s), s.Population.InFlight)
	}
	is := seen(w, s, w.Targets[0])
	if len(is.Blockers) == 0 || is.Blockers[0].Reason != explain.RemediationUnderWay || is.StartsNow {
		t.Errorf("explain says %+v", is.Blockers)
	}
	must.Is(t, "blocked. Resumes when HostRemediation by-hand is over", is.Next.Text, "next is")
}

// Otherwise the report of the check would change with every reconcile.
func TestOfTwoPowerCyclesOfAMachineItIsAlwaysTheSameThatCounts(t *testing.T) {
	m := a("m", health.Unhealthy, onMetal)
	var both []*remediationrequest.Metadata
	for _, name := range []string{"one", "two"} {
		req := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, OwnerReferences: ownedByMachine(&m), Finalizers: []string{mendv1.HostRemediationFinalizer},
		}}
		req.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
		both = append(both, req)
	}
	r := &Reconciler{Kinds: &brokenKinds{}, Requests: cyclesOfHosts(both...)}
	for range 50 {
		w := aCheck(m)
		r.observeCycles(t.Context(), w)
		if is := w.Targets[0].Cycle; is == nil || is.Name != "one" {
			t.Fatalf("the machine is left to %v, want the first by name", is)
		}
	}
}

func TestAPowerCycleThatIsBeingDeletedHoldsItsMachineUntilADeadlineThatIsSaid(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy, powerCycled))
	onItsWayOut(w.Targets[0].Cycle)
	w.Targets[0].Cycle.Finalizers = []string{mendv1.HostRemediationFinalizer}
	deadline := ago(time.Second).Add(time.Hour)
	if h := seen(w, decide(w), w.Targets[0]).Blockers[0]; !h.Until.Equal(deadline) || !strings.Contains(h.Fix, "finalizer") {
		t.Errorf("explain says %+v, want until %s and what a person can do", h, deadline)
	}
	if next := decide(w).VerdictsUntil; !next.Equal(deadline) {
		t.Errorf("the next reconcile is at %s, want %s", next, deadline)
	}
}

// metal finds the same host for all machines. With err, it fails for machine m and finds no host for the others.
type metal struct {
	found host.Found
	err   error
}

func (m metal) Of(_ context.Context, machine *clusterv1.Machine) (host.Found, error) {
	if m.err != nil && machine.Name != "m" {
		return host.Found{Is: powercycle.HostGone}, nil
	}
	return m.found, m.err
}

func TestAnOwnerIsAskedOnlyAfterALookAtTheHost(t *testing.T) {
	external := &host.Host{ObjectMeta: metav1.ObjectMeta{Name: "h"}, Power: powercycle.Power{External: true}}
	for name, tc := range map[string]struct {
		metal   metal
		blocked Reason // empty if the remediation starts
	}{
		"an ordinary host":                      {metal{found: host.Found{Is: powercycle.HostOurs, Host: &host.Host{}}}, ""},
		"one that is externally provisioned":    {metal{found: host.Found{Is: powercycle.HostOurs, Host: external}}, HostExternal},
		"one that is another machine's":         {metal{found: host.Found{Is: powercycle.HostForeign, Host: external}}, ""},
		"a paused Metal3Machine":                {metal{found: host.Found{Is: powercycle.HostGone, Paused: true}}, HostPaused},
		"a host that may not be read, as ever":  {metal{err: apierrors.NewForbidden(schema.GroupResource{}, "h", nil)}, ""},
		"a kind that is not installed, as ever": {metal{err: fmt.Errorf("read it: %w", &meta.NoKindMatchError{})}, ""},
		"a host that cannot be read now":        {metal{err: errors.New("no answer")}, PowerCyclesUnread},
	} {
		onHost := func(target *Target) {
			target.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", APIGroup: "infrastructure.cluster.x-k8s.io"}
		}
		w := aCheck(a("m", health.Unhealthy, onHost), a("n", health.Unhealthy, onHost))
		w.Read.Cycles, w.unread = true, map[schema.GroupKind]time.Time{}
		plan, r := decide(w), &Reconciler{Metal: tc.metal}
		if !plan.Needs.Hosts {
			t.Fatalf("%s: the host is not read", name)
		}
		r.observeHosts(t.Context(), w, plan)
		decision, other := decide(w).Decisions[0], decide(w).Decisions[1]
		if tc.metal.err != nil && !other.Starts() {
			t.Errorf("%s: it blocks another machine by %v", name, other.Blockers)
		}
		if decision.Starts() != (tc.blocked == "") || tc.blocked != "" && !decision.Blocked(tc.blocked) {
			t.Errorf("%s: it starts %t, blocked by %v", name, decision.Starts(), decision.Blockers)
		}
		w.before.unread, w.Now = w.unread, w.Now.Add(CyclesUnreadFor)
		w.Targets[0].Host = nil
		r.observeHosts(t.Context(), w, plan)
		if tc.blocked == PowerCyclesUnread && !decide(w).Decisions[0].Starts() {
			t.Errorf("%s: it does not start after ten minutes", name)
		}
	}
}

// onMetal makes a Metal3Machine the infrastructure of the target's machine.
func onMetal(t *Target) {
	t.Machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: t.Machine.Name}
}

// brokenKinds can all be read except one kind, in one version or all. It notes which kinds it is asked for.
type brokenKinds struct {
	kind, version string
	err           error // by default that its conversion webhook does not answer
	asked         []schema.GroupVersionKind
}

func (b *brokenKinds) Ready(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	b.asked = append(b.asked, kind)
	if kind.Kind == b.kind && (b.version == "" || b.version == kind.Version) {
		return false, cmp.Or(b.err, errors.New("conversion webhook for Metal3Remediation failed"))
	}
	return true, nil
}

func (*brokenKinds) InUse() []schema.GroupVersionKind { return nil }
func (*brokenKinds) Source(handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request]) source.Source {
	return nil
}

// cyclesOfHosts returns requests of an API server that has these objects and serves both kinds of power cycles.
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

// readCycles reads the power cycles and returns the machines whose remediation begins.
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
	// For an hour all machines were healthy and power cycles were not read: the deadline begins anew.
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
