package inspect

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/workload"
)

// managersView are the workload clusters as the manager sees them: some it does not.
type managersView struct {
	*snapshot.Clusters
	unseen map[string]bool
}

// View implements machinehealthcheck.Clusters.
func (c managersView) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error) {
	if c.unseen[cluster.Name] {
		return workload.Seen(workload.Down, nil), nil
	}
	return c.Clusters.View(ctx, cluster, now, watches...)
}

// machinePlay is a play of MachineHealthChecks.
type machinePlay struct {
	*play
	scene      *machineScene
	reconciler *machinehealthcheck.Reconciler
}

func (s *machineScene) play(t reporter) *machinePlay {
	t.Helper()
	w := s.snapshot(t)
	p := &machinePlay{scene: s, play: played(t, w, managerlease.Announcement{Version: "v0.1.0", Unclaimed: string(s.unclaimed)})}
	p.reconciler, _ = p.asker.Acting(w.Writable(p.clock), p.clock)
	p.reconciler.Clusters, p.reconciler.Recorder, p.reconciler.Unclaimed = managersView{w.Clusters(), s.unseen}, p.recorder, s.unclaimed
	return p
}

// objects are those that reconciles of machines change.
type objects struct {
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	requests map[string]bool
}

func (p *machinePlay) objects(check string) objects {
	p.Helper()
	is := objects{check: &clusterv1.MachineHealthCheck{}, machines: map[string]*clusterv1.Machine{}, requests: map[string]bool{}}
	reader := p.snapshot.ReadOnly()
	if err := reader.Get(quiet(), client.ObjectKey{Namespace: "ns", Name: check}, is.check); err != nil {
		p.Fatalf("%v", err)
	}
	list := &clusterv1.MachineList{}
	if err := reader.List(quiet(), list); err != nil {
		p.Fatalf("%v", err)
	}
	for i := range list.Items {
		is.machines[list.Items[i].Name] = &list.Items[i]
	}
	for _, kind := range []string{"HostRemediation", "OddRemediation", "SecretRemediation"} {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(mendv1.GroupVersion.WithKind(kind + "List"))
		if err := reader.List(quiet(), found); err != nil {
			continue // it is not installed, or may not be read
		}
		for i := range found.Items {
			is.requests[kind+"/"+found.Items[i].Name] = true
		}
	}
	return is
}

// ask is what the command line says of a check.
func (p *machinePlay) ask(check string) *explain.Check {
	p.Helper()
	all, err := p.asker.MachineChecks(quiet(), func(c *clusterv1.MachineHealthCheck) bool { return c.Name == check })
	if err != nil {
		p.Fatalf("ask about %s: %v", check, err)
	}
	if len(all) != 1 {
		p.Fatalf("%d checks are called %s", len(all), check)
	}
	return &all[0]
}

// pass asks about a check, has the controller make its pass, and compares. It returns what was said.
func (p *machinePlay) pass(check string) *explain.Check {
	p.Helper()
	said, before := p.ask(check), p.objects(check)
	p.recorder.events = nil
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: check}}
	result, err := p.reconciler.Reconcile(quiet(), req)
	if err == nil && result.RequeueAfter == enqueue.MergeWindow { // nothing begins before the changes that come together have all come
		now := p.clock.Now()
		p.clock.SetTime(now.Add(enqueue.MergeWindow))
		result, err = p.reconciler.Reconcile(quiet(), req)
		p.clock.SetTime(now)
		if result.RequeueAfter > 0 {
			result.RequeueAfter += enqueue.MergeWindow
		}
	}
	if err != nil {
		p.Fatalf("pass over %s: %v", check, err)
	}
	after := p.objects(check)
	for i := range said.Targets {
		p.compareMachine(&said.Targets[i], said, before, after)
	}
	p.compareCheck(said, before, after)
	if said.Mode == explain.Acting || said.Mode == explain.Observing {
		p.compareMoments(said, result)
	}
	return said
}

func (p *machinePlay) compareMachine(t *explain.Target, said *explain.Check, before, after objects) {
	p.Helper()
	was, is := before.machines[t.Name], after.machines[t.Name]
	begun := p.begun(t, said, before, after)
	switch {
	case t.StartsNow != begun:
		p.Errorf("%s: said to begin %t, begun %t; blocked by %+v", t.Name, t.StartsNow, begun, t.Blockers)
	case begun && len(t.Blockers) > 0:
		p.Errorf("%s: was begun, and is said to be blocked by %+v", t.Name, t.Blockers)
	case t.Skipped == "" && said.Mode == explain.Acting && t.State == cliv1.StateUnhealthy && !t.InFlight && !begun && len(t.Blockers) == 0:
		p.Errorf("%s: it is unhealthy and nothing was begun, and it is not said why", t.Name)
	}
	switch older := p.scene.older(before.check, was); {
	case t.Skipped != "":
		return
	case said.Mode != explain.Acting,
		older, !was.DeletionTimestamp.IsZero(),
		t.State != cliv1.StateUnhealthy && t.State != cliv1.StateHealthy:
		pending := func(cond metav1.Condition) bool {
			return cond.Type == mendv1.Remediation && t.State != cliv1.StateUnknown
		}
		stood, stands := slices.Clone(was.Status.Conditions), slices.Clone(is.Status.Conditions)
		stood, stands = slices.DeleteFunc(stood, pending), slices.DeleteFunc(stands, pending)
		if diff := cmp.Diff(stood, stands, cmpopts.EquateEmpty()); diff != "" {
			p.Errorf("%s is said to be %s, and its conditions changed:\n%s", t.Name, t.State, diff)
		}
	default:
		p.compareVerdict(t, was, is)
	}
}

// compareVerdict compares a verdict with what the machine says after the pass.
func (p *machinePlay) compareVerdict(t *explain.Target, was, is *clusterv1.Machine) {
	p.Helper()
	c := conditions.Get(is, clusterv1.MachineHealthCheckSucceededCondition)
	said := conditions.Get(was, clusterv1.MachineHealthCheckSucceededCondition)
	asked := conditions.Get(was, clusterv1.MachineOwnerRemediatedCondition)
	if t.State == cliv1.StateUnhealthy && asked != nil && cmp.Equal(said, c) &&
		cmp.Equal(asked, conditions.Get(is, clusterv1.MachineOwnerRemediatedCondition)) && (said == nil || said.Status != metav1.ConditionFalse) {
		return // what others asked its owner stands until the manager knows whether it is its turn
	}
	if c == nil {
		p.Errorf("%s is said to be %s, and the pass says nothing of it", t.Name, t.State)
		return
	}
	if t.State == cliv1.StateHealthy {
		if c.Status != metav1.ConditionTrue {
			p.Errorf("%s is said to be healthy, and the pass says %+v", t.Name, c)
		}
		return
	}
	marked := slices.ContainsFunc(t.Findings, func(f explain.Finding) bool { return f.Reason == string(health.MarkedByHand) })
	for _, text := range texts(t.Findings) {
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, text) && !marked {
			p.Errorf("%s is said to be unhealthy: %s; and the pass says %+v", t.Name, text, c)
		}
	}
	newly := !conditions.IsFalse(was, clusterv1.MachineHealthCheckSucceededCondition)
	events := p.of("Machine", t.Name, mendv1.EventMachineMarkedUnhealthy)
	if newly && conditions.Get(was, clusterv1.MachineHealthCheckSucceededCondition) != nil && conditions.IsUnknown(was, clusterv1.MachineHealthCheckSucceededCondition) {
		return // it counted as marked unhealthy before
	}
	if newly != (len(events) == 1) || newly && !strings.HasSuffix(events[0], ": "+strings.Join(texts(t.Findings), "; ")) {
		p.Errorf("%s became unhealthy %t: %q, and has the events %q", t.Name, newly, texts(t.Findings), events)
	}
}

// begun reports whether a reconcile started the remediation of a machine: its owner was asked, or a request was made.
func (p *machinePlay) begun(t *explain.Target, said *explain.Check, before, after objects) bool {
	asked := func(o objects) bool { // owners act on both, of machines that are not being deleted anyway
		m := o.machines[t.Name]
		return m.DeletionTimestamp.IsZero() && conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) &&
			conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition)
	}
	if asked(after) && !asked(before) && !t.InFlight { // by a request that is under way it was asked before
		return true
	}
	for req := range after.requests {
		if _, name, _ := strings.Cut(req, "/"); name == t.Name && !before.requests[req] {
			return true
		}
	}
	// An owner that had been asked before the machine was healthy is asked again without a word: it stands in the event alone.
	for _, text := range p.of("MachineHealthCheck", said.Name, mendv1.EventRemediationStarted) {
		text, _, _ = strings.Cut(text, ". ") // and of which host it depended
		if names, of := strings.CutPrefix(text, "Asked the owner to remediate "); of && slices.Contains(strings.Split(names, ", "), t.Name) {
			return true
		}
	}
	return false
}

func (p *machinePlay) compareCheck(said *explain.Check, before, after objects) {
	p.Helper()
	check := after.check
	if said.Mode == explain.Observing || said.Mode == explain.Core {
		if before.check.ResourceVersion != check.ResourceVersion {
			p.Errorf("%s is written to, although %s", said, said.ModeMessage)
		}
		return
	}
	p.sameConditions(said.String(), said.Conditions, check.Status.Conditions)
	restricted := p.of("MachineHealthCheck", said.Name, mendv1.EventRemediationRestricted)
	if len(restricted) > 0 && restricted[0] != said.Message {
		p.Errorf("%s: said %q, and told %q", said, said.Message, restricted[0])
	}
	if said.Mode != explain.Acting {
		return
	}
	is := check.Status
	got := [3]int32{deref(is.ExpectedMachines), deref(is.CurrentHealthy), deref(is.RemediationsAllowed)}
	if want := [3]int32{int32(said.Counts.Total()), int32(said.Counts.Healthy), int32(said.Limits.Remaining)}; got != want {
		p.Errorf("%s: said to watch, find healthy and allow %v, and stored %v", said, want, got)
	}
	if c := conditions.Get(check, clusterv1.MachineHealthCheckRemediationAllowedCondition); c.Message != said.Message || c.Message != "" && c.Reason != said.Reason {
		p.Errorf("%s: said %s %q, and stored %s %q", said, said.Reason, said.Message, c.Reason, c.Message)
	}
}

func deref(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// compareMoments compares when time alone changes something with when the pass is made again.
func (p *machinePlay) compareMoments(said *explain.Check, result ctrl.Result) {
	p.Helper()
	now := p.clock.Now()
	var first, next time.Time // of all findings, and of those by which a machine becomes unhealthy whose remediation is not under way
	begins := false
	for i := range said.Targets {
		t := &said.Targets[i]
		begins = begins || t.StartsNow
		for _, f := range t.Findings {
			if f.Expired || f.Expires.IsZero() {
				continue
			}
			first = health.Earliest(first, f.Expires.Time)
			if t.State != cliv1.StateUnhealthy && !t.InFlight {
				next = health.Earliest(next, f.Expires.Time)
			}
		}
		for _, h := range t.Blockers {
			if t.State == cliv1.StateUnhealthy && h.Reason == explain.RemediationUnderWay { // no controller has acted on the power cycle
				first = health.Earliest(first, h.Until)
			}
		}
	}
	if !begins && !next.Equal(said.Next.At) {
		p.Errorf("%s: next is said to be %+v, and the first machine becomes unhealthy at %s", said, said.Next, next)
	}
	again := time.Time{}
	if result.RequeueAfter > 0 {
		again = now.Add(result.RequeueAfter)
	}
	if retried := now.Add(p.scene.retried(said)); retried.After(now) { // what is not there is looked for again meanwhile
		first = health.Earliest(first, retried)
	}
	refused := slices.ContainsFunc(said.Targets, func(t explain.Target) bool {
		return t.State == cliv1.StateUnhealthy && slices.ContainsFunc(t.Blockers, func(h explain.Blocker) bool {
			return h.Reason == clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason
		})
	})
	if refused && again.Before(first) || refused && first.IsZero() {
		return // it is tried again, ever more rarely
	}
	if !sameMoment(again, first) {
		p.Errorf("%s: the next reconcile is at %s, and by what is said something changes at %s", said, again, first)
	}
}

// story reconciles a check until a moment that was foretold has come: what was foretold happens then, and not before.
func (p *machinePlay) story(check string) {
	p.Helper()
	p.pass(check)
	p.pass(check) // what a reconcile changes enqueues the check again: a request that it has adopted is deleted by the next one
	before := p.ask(check)
	next := before.Next
	if before.Mode != explain.Acting || !next.At.After(p.clock.Now()) {
		return
	}
	name, text, _ := strings.Cut(next.Text, ": ")
	targetOf := func(c *explain.Check) *explain.Target {
		return &c.Targets[slices.IndexFunc(c.Targets, func(t explain.Target) bool { return t.Name == name })]
	}
	p.at(next.At.Add(-time.Second))
	if t := targetOf(p.pass(check)); t.State == cliv1.StateUnhealthy {
		p.Errorf("%s is unhealthy a second before %+v", name, next)
	}
	p.at(next.At)
	then := p.pass(check)
	if t := targetOf(then); t.State != cliv1.StateUnhealthy {
		p.Errorf("%s is still %s at %+v", name, t.State, next)
	}
	together := 0 // who becomes unhealthy in the same moment may take its place
	for i := range before.Targets {
		if before.Targets[i].Next.At.Equal(next.At) {
			together++
		}
	}
	if t := targetOf(then); together == 1 && t.StartsNow != (strings.Contains(text, "counts as unhealthy unless ") && strings.Contains(text, ", and kubemend ")) {
		p.Errorf("%s: it is said that %q; then it begins: %t, blocked by %+v", name, text, t.StartsNow, t.Blockers)
	}
}

func TestMachineHealthChecksAreSeenAsTheControllerActs(t *testing.T) {
	began := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := aRandomMachineScene(t)
		p := s.play(t)
		for _, check := range s.checks {
			p.story(check.Name)
		}
		for _, m := range p.objects(s.checks[0].Name).machines {
			began[conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition)]++
		}
	})
	// The fifth of the scenes that a short run draws may all end alike; `make test` draws all.
	if same := began[true] == 0 || began[false] == 0; same && !testing.Short() {
		t.Errorf("the scenes show nothing: %v", began)
	}
}
