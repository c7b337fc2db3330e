package machinehealthcheck

import (
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// powerCycled gives the target a power cycle that a person asked for, under a name of its own.
func powerCycled(t *Target) {
	t.Cycle = &remediationrequest.Metadata{TypeMeta: metav1.TypeMeta{Kind: "HostRemediation"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "by-hand"}}
}

// otherCheckWith gives the observed state another check that selects everything and names a template.
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

// The node may be deleted while its host is power-cycled. A check without template must not have the machine replaced meanwhile, and says
// why it waits.
func TestAPowerCycleByHandIsFoundAndSaid(t *testing.T) {
	m, other := a("m", health.Unhealthy, onMetal), a("n", health.Unhealthy, onMetal)
	byHand := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "by-hand", OwnerReferences: ownedByMachine(&m), Finalizers: []string{mendv1.HostRemediationFinalizer},
	}}
	byHand.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
	r := &Reconciler{Kinds: &brokenKinds{}, Requests: cyclesOfHosts(byHand)}
	w := aCheck(m, other).oneAtOnce()
	r.observeRemediation(t.Context(), w)
	r.observeCycles(t.Context(), w)
	if len(w.Trouble) > 0 || !w.CyclesUnread.IsZero() {
		t.Fatalf("the power cycles are not known: %v", w.Trouble)
	}
	s := decide(w)
	for _, step := range stepsOf(s) {
		if step.Starts() {
			t.Errorf("a remediation of %s begins beside the power cycle, which has the only place", step.Target.Name)
		}
	}
	if c := s.Allowed; !strings.Contains(c.Message, "m to HostRemediation by-hand") {
		t.Errorf("the check says %q", c.Message)
	}
	is := seen(w, s, w.Targets[0])
	if len(is.Blockers) == 0 || is.Blockers[0].Reason != explain.RemediationUnderWay || is.StartsNow {
		t.Errorf("explain says %+v", is.Blockers)
	}
	if want := "blocked. Resumes when HostRemediation by-hand is over"; is.Next.Text != want {
		t.Errorf("next is %q, want %q", is.Next.Text, want)
	}
	if seen(w, s, w.Targets[1]).Blockers[0].Reason == explain.RemediationUnderWay {
		t.Error("the other machine is left to it as well")
	}
}

// What the check reports of it would change with every reconcile otherwise.
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

// metal has one host for all machines, which it cannot find for the machine m.
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
		blocked Reason // empty if it starts
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
