package simulate

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	reports "github.com/kubemend/kubemend/cmd/kubectl-mend/report"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/record"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/records"
)

// shadowChecks are a check that limits nothing, and one that never allows a remediation, which others begin all the same.
const shadowChecks = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: workers
  namespace: default
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks:
    unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeoutSeconds: 300}
  remediation:
    triggerIf: {unhealthyLessThanOrEqualTo: 100%}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: limited
  namespace: default
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-1}}
  checks:
    unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeoutSeconds: 300}
  remediation:
    triggerIf: {unhealthyLessThanOrEqualTo: 0}
`

// timeoutOfChecks is the timeout of both.
const timeoutOfChecks = 300

// failure is one whose course is known from the start. Moments are seconds after noon; one that never comes is 0.
type failure struct {
	machine, check string
	// begins is when the node fails, heals when it recovers by itself if nothing is done to it, and others when others begin to remediate the machine, which
	// is replaced some minutes later.
	begins, heals, others, replaced int
}

// randomFailures are n failures of different machines. A third of the machines is of the check that never allows a remediation.
func randomFailures(rnd *rand.Rand, n int) []failure {
	all := make([]failure, n)
	for i := range all {
		f := failure{machine: fmt.Sprintf("w%d", i+1), check: "workers", begins: 60 + rnd.IntN(10*3600)}
		if i%3 == 2 {
			f.check = "limited"
		}
		// Moments around the timeout are what it is about: a second before it, and a second after.
		around := []int{1, 30, 299, 301, 330, 900, 3600}
		if rnd.IntN(2) == 0 {
			f.heals = f.begins + around[rnd.IntN(len(around))]
		}
		if rnd.IntN(3) > 0 {
			f.others = f.begins + around[rnd.IntN(len(around))] + 1
		}
		if f.heals > 0 && f.others > f.heals { // there is nothing to remediate then
			f.others = 0
		}
		if f.others > 0 {
			f.heals, f.replaced = 0, f.others+60+rnd.IntN(1200)
		}
		all[i] = f
	}
	return all
}

// outcome is what a shadow report says of a failure.
type outcome struct {
	Is      cliv1.Comparison
	Seconds int
	Blocked string
}

// truth is what happened, and what kubemend would have done: by arithmetic alone. It is false if neither did anything.
func (f failure) truth() (outcome, bool) {
	due := f.begins + timeoutOfChecks
	allowed := f.check == "workers"
	healed, first := f.heals > 0 && f.heals < due, f.others > 0 && f.others < due
	switch would := allowed && !healed && !first; {
	case would && f.others > 0:
		return outcome{Is: cliv1.BothBegin, Seconds: f.others - due}, true
	case first:
		return outcome{Is: cliv1.OnlyOthersBegin, Blocked: "Pending"}, true
	case f.others > 0:
		return outcome{Is: cliv1.OnlyOthersBegin, Blocked: "TooManyUnhealthy"}, true
	case would && f.heals > 0:
		return outcome{Is: cliv1.HealedAfterKubemend}, true
	case would:
		return outcome{Is: cliv1.OnlyKubemendBegins}, true
	}
	return outcome{}, false
}

// shadowed is a manager that observes: the controller for MachineHealthChecks writes records into the state of a simulation.
type shadowed struct {
	*simulation

	t          *testing.T
	controller *machinehealthcheck.Reconciler
	states     map[string]*record.State
}

// The controller judges 200 random failures and writes the records, which the function of the manager follows; the report is compared with what is known of
// each failure from the start.
func TestAShadowReportSaysOfEveryFailureWhatIsTrue(t *testing.T) {
	for seed := range uint64(3) {
		failures := randomFailures(rand.New(rand.NewPCG(seed, 14)), 200)
		want, counts := map[string]outcome{}, map[cliv1.Comparison]int{}
		for _, f := range failures {
			if is, done := f.truth(); done {
				want[f.machine] = is
				counts[is.Is]++
			}
		}
		s := playShadow(t, failures)
		var all []reports.Remediation
		for _, r := range snapshot.All[mendv1.RemediationRecord](s.snapshot, "") {
			all = append(all, reports.RemediationOf(r))
		}
		shadow := reports.ShadowOf(all, reports.Question{Now: noon.Add(24 * time.Hour), Since: noon})
		got := map[string]outcome{}
		for i := range shadow.Shadows {
			r := &shadow.Shadows[i]
			is := outcome{Is: r.Comparison, Blocked: r.BlockedBy}
			if d, both := r.Difference(); both {
				is.Seconds = int(d.Round(time.Second) / time.Second) // the controller takes a tenth of a second
			}
			got[r.Target.Name] = is
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-truth +report):\n%s", seed, diff)
		}
		if diff := cmp.Diff(counts, shadow.Count); diff != "" {
			t.Fatalf("seed %d (-truth +report):\n%s", seed, diff)
		}
		for _, c := range []cliv1.Comparison{cliv1.BothBegin, cliv1.OnlyKubemendBegins, cliv1.OnlyOthersBegin, cliv1.HealedAfterKubemend} {
			if counts[c] < 5 {
				t.Errorf("seed %d: %d failures are %s: too few to tell anything", seed, counts[c], c)
			}
		}
		t.Logf("seed %d: of %d failures %v, and in %d nothing would have been done", seed, len(failures), counts, len(failures)-len(want))
	}
}

func playShadow(t *testing.T, failures []failure) *shadowed {
	t.Helper()
	fixture := newFixture(t)
	for _, f := range failures {
		fixture.machine(f.machine, "MachineSet", map[string]string{"workers": "md-0", "limited": "md-1"}[f.check])
	}
	w := fixture.existing(shadowChecks).snapshot()
	w.Install(mendv1.GroupVersion.WithKind("RemediationRecord"), "remediationrecords", true)
	e, err := newEngine(t.Context(), w, question(nil))
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.simulation()
	if err != nil {
		t.Fatal(err)
	}
	s := &shadowed{simulation: p, t: t, controller: p.managed[0].machines, states: map[string]*record.State{}}
	s.controller.Records = &records.Records{
		Client: s.client, Live: s.client, Clock: s.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	moments := map[int][]*failure{}
	for i := range failures {
		f := &failures[i]
		for _, at := range []int{f.begins, f.begins + timeoutOfChecks, f.heals, f.others, f.replaced} {
			if at > 0 && !slices.Contains(moments[at], f) {
				moments[at] = append(moments[at], f)
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(moments)) {
		s.clock.SetTime(noon.Add(time.Duration(at) * time.Second))
		for _, f := range moments[at] {
			s.happen(f, at)
		}
	}
	if s.environment.err != nil {
		t.Fatal(s.environment.err)
	}
	return s
}

// happen is what happens to a machine at a moment, and what the manager makes of it.
func (s *shadowed) happen(f *failure, at int) {
	node := nodeKey{inC1, "node-" + f.machine}
	switch at {
	case f.begins:
		s.environment.turn(node, NodeSilent)
	case f.heals, f.replaced:
		s.environment.ready(node, "")
		s.ask(f, false)
	case f.others:
		s.ask(f, true)
	}
	key := client.ObjectKey{Namespace: "default", Name: f.check}
	for range 5 { // a controller waits for a tenth of a second, in which more may fail
		result, err := s.controller.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil {
			s.t.Fatal(err)
		}
		if result.RequeueAfter == 0 || result.RequeueAfter > time.Second/2 {
			break
		}
		s.clock.SetTime(s.clock.Now().Add(result.RequeueAfter))
	}
	for _, r := range snapshot.All[mendv1.RemediationRecord](s.snapshot, "") {
		if r.Spec.Target.Machine.Name == f.machine && r.Open() {
			s.follow(f, r.DeepCopy(), at)
		}
	}
}

// ask is that others ask the owner of a machine to replace it, or that this is over.
func (s *shadowed) ask(f *failure, ask bool) {
	m := snapshot.One[clusterv1.Machine](s.snapshot, client.ObjectKey{Namespace: "default", Name: f.machine}).DeepCopy()
	asked := []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} // owners heed both together
	m.Status.Conditions = slices.DeleteFunc(m.Status.Conditions, func(c metav1.Condition) bool { return slices.Contains(asked, c.Type) })
	for _, kind := range asked {
		if ask {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionFalse, Reason: "ByOthers", LastTransitionTime: metav1.NewTime(s.clock.Now()),
			})
		}
	}
	s.environment.put(m)
}

// follow has the manager's function say how the record goes on.
func (s *shadowed) follow(f *failure, r *mendv1.RemediationRecord, at int) {
	now := s.clock.Now()
	if s.states[r.Name] == nil {
		s.states[r.Name] = &record.State{Attempted: now}
	}
	facts := record.Facts{
		Now: now, Observed: true, Decided: r.Spec.Decided.Time, State: *s.states[r.Name],
		Target: record.Target{
			Ref: record.Ref{Kind: "Machine", Namespace: "default", Name: f.machine}, Known: true, Exists: f.replaced == 0 || at < f.replaced, Machine: true,
			Evidence: record.Yes, NodeReady: record.No,
		},
		Capacity: record.Capacity{Known: true, Reason: "Provisioning"},
	}
	if f.heals > 0 && at >= f.heals {
		facts.Target.Evidence, facts.Target.NodeReady, facts.Target.NodeReadySince = record.No, record.Yes, now
	}
	if f.others > 0 && at >= f.others {
		facts.Target.Asked, facts.Target.AskedBy = noon.Add(time.Duration(f.others)*time.Second), "manager"
	}
	if !facts.Target.Exists {
		facts.Capacity = record.Capacity{
			Known: true, Back: true, Healthy: true, Since: now, Replacement: record.Replacement{Machine: record.Ref{Kind: "Machine", Name: f.machine + "-new"}},
		}
	}
	*s.states[r.Name] = record.Decide(facts).State
	is, status := s.states[r.Name], &r.Status
	for to, from := range map[**metav1.Time]time.Time{&status.Begun: is.Begun, &status.CapacityBack: is.Back, &status.Ended: is.Ended} {
		if !from.IsZero() {
			*to = new(metav1.NewTime(from))
		}
	}
	status.BegunBy, status.Outcome = is.BegunBy, mendv1.RecordOutcome(is.Outcome)
	if !r.Open() {
		delete(r.Labels, mendv1.RecordOpenLabel)
	}
	s.environment.put(r)
}
