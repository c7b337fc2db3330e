// Package simulate shows which remediations checks would start while nodes fail.
//
// The controllers act on a copy of the cluster in memory, and the clock jumps to the next moment at which anything is due. Other
// controllers are not simulated: a remediation ends after a fixed time, and its machine is healthy again.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/policy"
)

// Question is what to simulate.
type Question struct {
	// Manifest is applied first; it may be nil.
	Manifest Manifest
	// Set are limits for the checks that the answer is about, as NAME=VALUE.
	Set []string
	// Namespace and Cluster select MachineHealthChecks to simulate besides those of the manifest; empty means all. With a Cluster, no
	// NodeHealthChecks are simulated but those of the manifest.
	Namespace string
	Cluster   string
	// Fail selects the nodes that fail. Each entry is a number of nodes, a label selector, or names.
	Fail []string
	// For is how long nodes fail unless their remediation ends earlier. If it is zero, they do not recover by themselves.
	For time.Duration
	// Takes is how long a remediation takes. Then its machine is healthy.
	Takes time.Duration
	// From is when the simulation begins, Horizon how long it lasts.
	From    time.Time
	Horizon time.Duration
}

// simulates reports whether a check is simulated. A snapshot may have other checks as well.
func (q *Question) simulates(check client.Object) bool {
	here := q.Cluster == ""
	if check, ofMachines := check.(*clusterv1.MachineHealthCheck); ofMachines {
		here = (q.Namespace == "" || check.Namespace == q.Namespace) && (here || check.Spec.ClusterName == q.Cluster)
	}
	return here || q.inManifest(refOf(check))
}

// concerns reports whether the answer is about a check. If the manifest has checks, the answer is only about these.
func (q *Question) concerns(check explain.Ref) bool {
	hasChecks := q.Manifest.JudgesNodes() || q.Manifest.Elsewhere("") != ""
	return !hasChecks || q.inManifest(check)
}

func (q *Question) inManifest(ref explain.Ref) bool {
	return slices.ContainsFunc(q.Manifest, func(obj client.Object) bool { return refOf(obj) == ref })
}

// simulation is the state of a simulation.
type simulation struct {
	Question

	snapshot *snapshot.Snapshot
	state    *cluster
	clock    *clocktesting.FakePassiveClock
	asker    *inspect.Asker
	// controllers has the controller of each kind of check.
	controllers map[string]reconcile.Reconciler
	machines    *machinehealthcheck.Reconciler
	policies    *policy.Reconciler
	acting      map[string][]reconcile.Request // the checks of each kind that kubemend acts on
	answer      *cliv1.Simulation

	// due is when each check is reconciled next.
	due map[explain.Ref]time.Time
	// limits is the last state of each check that noteLimit has noted.
	limits map[explain.Ref]string
	// failed are the nodes that are failing, unnoticed the nodes that have failed and that no check has found unhealthy.
	failed, unnoticed map[nodeKey]bool
	targets           map[explain.Ref]*target
}

// target is the state of a target of a check.
type target struct {
	counts     bool // a check that the answer is about selects the target
	remediated bool // a remediation of the target has started
	// starting is the remediation that its check is about to start, or nil.
	starting *cliv1.SimulatedStart
	// ends is when the remediation ends and node becomes healthy; zero if none is under way.
	ends time.Time
	node nodeKey
	// waiting is why the target is unhealthy and not remediated, or nil.
	waiting *cliv1.SimulatedTarget
}

// Run answers q. It changes w, which callers must not use afterwards.
func Run(ctx context.Context, w *snapshot.Snapshot, q Question) (*cliv1.Simulation, error) {
	begin := q.From.Truncate(time.Second)
	q.From = begin.UTC()
	ctx = log.IntoContext(ctx, logr.Discard())
	s := &simulation{
		Question: q, snapshot: w, clock: clocktesting.NewFakePassiveClock(q.From),
		due: map[explain.Ref]time.Time{}, limits: map[explain.Ref]string{}, targets: map[explain.Ref]*target{},
		failed: map[nodeKey]bool{}, unnoticed: map[nodeKey]bool{},
		answer: &cliv1.Simulation{
			TypeMeta: cliv1.TypeOf("Simulation"), Time: metav1.NewTime(begin), Horizon: metav1.Duration{Duration: q.Horizon},
			Starts: []cliv1.SimulatedStart{}, Limits: []cliv1.SimulatedLimit{}, Assumptions: []string{},
		},
	}
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	s.conclude()
	return s.answer, nil
}

// setUp applies the manifest and the limits, and creates the controllers.
func (s *simulation) setUp(ctx context.Context) error {
	if err := s.apply(); err != nil {
		return err
	}
	if err := s.setLimits(); err != nil {
		return err
	}
	s.asker = inspect.New(ctx, s.snapshot, s.From)
	s.asker.Judges = true
	s.assumeManagers(ctx)
	s.state = &cluster{Snapshot: s.snapshot, clock: s.clock}
	if err := s.setUpPolicies(ctx); err != nil {
		return err
	}
	machines, nodes := s.asker.Acting(s.state, s.policies.Ledger)
	s.controllers, s.machines = map[string]reconcile.Reconciler{machineCheckKind: machines, nodeCheckKind: nodes}, machines
	s.assume(fmt.Sprintf("A remediation is over, and its machine healthy again, %s after it has started (--takes)", explain.Brief(s.Takes)))
	return nil
}

// assumeManagers keeps the running managers that are not in teardown. If there is none, it assumes a manager with default flags, which does
// not serve NodeHealthChecks if the CRD belongs to another operator.
func (s *simulation) assumeManagers(ctx context.Context) {
	managers := &s.asker.Managers
	managers.All = slices.DeleteFunc(managers.All, func(m managerlease.Manager) bool {
		return !m.Alive || m.Announcement != nil && m.Announcement.Teardown
	})
	if len(managers.All) > 0 {
		return
	}
	settings := &managerlease.Announcement{}
	service := crdgate.NodeHealthChecks(crdgate.Auto)
	definitions := &crdgate.Reconciler{Client: s.snapshot}
	if why, because, err := definitions.Why(ctx, service); err == nil && why == crdgate.ForeignReason {
		settings.Kinds = append(settings.Kinds, managerlease.Kind{CRD: service.CRD, Reason: why, Because: because})
	}
	managers.All = []managerlease.Manager{{Alive: true, Announcement: settings}}
	if managers.Unknown != "" {
		s.assume("It is not known which manager runs, so one with default settings is assumed: " + managers.Unknown)
		return
	}
	s.assume("No manager of kubemend runs, or only one in teardown: one with default settings is assumed")
}

// assume adds a sentence to the assumptions, once.
func (s *simulation) assume(sentence string) {
	if !slices.Contains(s.answer.Assumptions, sentence) {
		s.answer.Assumptions = append(s.answer.Assumptions, sentence)
	}
}

const (
	// mostRounds limits the rounds of reconciles at one moment.
	mostRounds = 100
	// mostMoments limits the moments of a simulation. A failed reconcile is repeated once a minute, and few waits are shorter.
	mostMoments = 50_000
)

// play runs the simulation from one moment at which anything is due to the next, without waiting.
func (s *simulation) play(ctx context.Context) error {
	s.machines.ReadHosts(ctx) // the snapshot remembers errors
	checks, err := s.explain(ctx)
	if err != nil {
		return err
	}
	if err := s.fail(checks); err != nil {
		return err
	}
	end := s.From.Add(s.Horizon)
	for range mostMoments {
		if err := s.settle(ctx); err != nil {
			return err
		}
		next := s.next()
		if err := ctx.Err(); err != nil || next.IsZero() || next.After(end) {
			return err
		}
		if next.After(s.clock.Now()) {
			s.clock.SetTime(next)
		}
		s.happen()
	}
	return fmt.Errorf("after %d moments, at %s, the end is not reached: choose a shorter --horizon",
		mostMoments, s.clock.Now().Format(time.DateTime))
}

// next returns the next moment at which anything is due; zero if nothing is.
func (s *simulation) next() time.Time {
	var next time.Time
	for _, due := range s.due {
		next = health.Earliest(next, due)
	}
	for _, t := range s.targets {
		next = health.Earliest(next, t.ends)
	}
	ends := func(end time.Time) {
		if s.clock.Now().Before(end) {
			next = health.Earliest(next, end)
		}
	}
	ends(s.From.Add(s.For))   // the end of failures
	ends(s.From.Add(s.Takes)) // the end of remediations that were under way at the beginning
	for _, o := range snapshot.All[mendv1.RemediationOverride](s.snapshot, "") {
		ends(o.Spec.Until.Time)
	}
	return next
}

// happen ends failures and remediations whose time is over.
func (s *simulation) happen() {
	now := s.clock.Now()
	for node := range s.failed {
		if s.For > 0 && !now.Before(s.From.Add(s.For)) {
			s.ready(node)
		}
	}
	for ref, t := range s.targets {
		if !t.ends.IsZero() && !now.Before(t.ends) {
			s.heal(ref, t.node)
			t.ends = time.Time{}
		}
	}
}

// settle reconciles the checks until nothing changes.
func (s *simulation) settle(ctx context.Context) error {
	s.readPolicies(ctx)
	for range mostRounds {
		checks, err := s.explain(ctx)
		if err != nil {
			return err
		}
		s.note(checks)
		before := s.state.changes
		for i := range checks {
			s.reconcile(ctx, &checks[i])
		}
		if s.state.changes == before {
			for _, t := range s.targets {
				t.starting = nil // the controllers changed nothing, so nothing has started
			}
			return nil
		}
	}
	return fmt.Errorf("at %s the checks do not stop changing objects", s.clock.Now().Format(time.DateTime))
}

func (s *simulation) explain(ctx context.Context) ([]explain.Check, error) {
	s.asker.Now = s.clock.Now()
	checks, err := s.asker.MachineChecks(ctx, func(check *clusterv1.MachineHealthCheck) bool { return s.simulates(check) })
	if err != nil {
		return nil, err
	}
	ofNodes, err := s.asker.NodeChecks(ctx, func(check *nhcv1.NodeHealthCheck) bool { return s.simulates(check) })
	return append(checks, ofNodes...), err
}

// reconcile reconciles a check, and notes when it is due again.
func (s *simulation) reconcile(ctx context.Context, check *explain.Check) {
	delete(s.due, check.Reference)
	if check.Mode != cliv1.ModeActing {
		return
	}
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Name}
	result, err := s.controllers[check.Kind].Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil {
		s.assume(fmt.Sprintf("Not all that %s does is simulated: %v", check.Reference, err))
		result.RequeueAfter = time.Minute
	}
	if result.RequeueAfter > 0 {
		s.due[check.Reference] = health.Earliest(s.due[check.Reference], s.clock.Now().Add(result.RequeueAfter))
	}
}

// Limits are the names of limits for --set.
var Limits = []string{"maxUnhealthy", "minHealthy", "unhealthyInRange"}

// CheckLimit returns an error if a value of --set is not NAME=VALUE, or if its value is invalid.
func CheckLimit(text string) error {
	name, value, _ := strings.Cut(text, "=")
	var err error
	switch name {
	case "unhealthyInRange":
		_, err = budget.ParseRange(value)
	case "maxUnhealthy", "minHealthy":
		_, err = budget.ParseAmount(value)
	default:
		return fmt.Errorf("--set %s: expected NAME=VALUE, where NAME is one of %s", text, strings.Join(Limits, ", "))
	}
	if err != nil {
		return fmt.Errorf("--set %s: %w", text, err)
	}
	return nil
}

// setLimits sets the limits of --set on the checks that the answer is about. It returns an error if no check can have one of them.
func (s *simulation) setLimits() error {
	var checks []client.Object
	for _, gvk := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind(machineCheckKind), nhcv1.GroupVersion.WithKind(nodeCheckKind),
	} {
		for _, check := range s.snapshot.Objects(gvk, "") {
			if s.simulates(check) && s.concerns(refOf(check)) {
				checks = append(checks, check.DeepCopyObject().(client.Object))
			}
		}
	}
	for _, text := range s.Set {
		name, value, _ := strings.Cut(text, "=")
		set := false
		for _, check := range checks {
			set = limit(check, name, value) || set
		}
		if !set {
			return fmt.Errorf("--set %s: none of the checks that are simulated can have that limit", text)
		}
	}
	return s.snapshot.Add(checks...)
}

// limit sets a limit of a check and clears the limit that excludes it. It returns false if the check's kind has no such limit.
func limit(check client.Object, name, value string) bool {
	amount := intstr.Parse(value)
	switch check := check.(type) {
	case *clusterv1.MachineHealthCheck:
		switch trigger := &check.Spec.Remediation.TriggerIf; name {
		case "maxUnhealthy":
			trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = &amount, ""
			return true
		case "unhealthyInRange":
			trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = nil, value
			return true
		}
	case *nhcv1.NodeHealthCheck:
		switch name {
		case "maxUnhealthy":
			check.Spec.MaxUnhealthy, check.Spec.MinHealthy = &amount, nil
			return true
		case "minHealthy":
			check.Spec.MaxUnhealthy, check.Spec.MinHealthy = nil, &amount
			return true
		}
	}
	return false
}
