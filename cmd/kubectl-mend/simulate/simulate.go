// Package simulate shows which remediations checks would start while nodes fail.
//
// The controllers observe, decide and act on a copy of the cluster in memory, and the clock jumps to the next moment at which anything is
// due. What others do about a remediation is not played: it is over after a while, and its machine healthy again.
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Question is what to simulate.
type Question struct {
	// Manifest is applied before anything else; nil for none.
	Manifest *Manifest
	// Set are limits that the checks of the question get, as NAME=VALUE.
	Set []string
	// Namespace and Cluster are those of the MachineHealthChecks that are simulated besides those of the manifest; all if they are empty.
	// NodeHealthChecks are of none.
	Namespace string
	Cluster   string
	// Fail says which nodes fail at once: how many, a label selector, or names; nothing fails if it is empty. Condition is what they turn,
	// and For how long they do, if no remediation ends it before. If For is zero they do not recover by themselves.
	Fail      string
	Condition string
	For       time.Duration
	// Takes is after how long a remediation is over, and its machine healthy again.
	Takes time.Duration
	// From is when the simulation begins, and Horizon how long it is.
	From    time.Time
	Horizon time.Duration
}

// simulates reports whether a MachineHealthCheck is simulated: a record may have more in it than was asked for.
func (q *Question) simulates(check *clusterv1.MachineHealthCheck) bool {
	here := (q.Namespace == "" || check.Namespace == q.Namespace) && (q.Cluster == "" || check.Spec.ClusterName == q.Cluster)
	return here || q.Manifest.has(refOf("MachineHealthCheck", check))
}

// simulatesNodes is the same of a NodeHealthCheck.
func (q *Question) simulatesNodes(check *nhcv1.NodeHealthCheck) bool {
	return q.Cluster == "" || q.Manifest.has(refOf("NodeHealthCheck", check))
}

// concerns reports whether the answer is about a check: about those of the manifest, or about all if it has none.
func (q *Question) concerns(check explain.Ref) bool {
	return !q.Manifest.hasChecks() || q.Manifest.has(check)
}

// simulation is a question on its way to the answer.
type simulation struct {
	Question

	snapshot *snapshot.Snapshot
	state    *snapshot.Client
	clock    *clocktesting.FakePassiveClock
	asker    *inspect.Asker
	machines reconcile.Reconciler
	nodes    reconcile.Reconciler
	answer   *cliv1.Simulation

	// due is when each check is to be reconciled again.
	due map[explain.Ref]time.Time
	// targets are those of the checks that the answer is about.
	targets map[explain.Ref]bool
	// failed are the nodes that have failed and are not healthy again, unnoticed those that no check has counted as unhealthy.
	failed, unnoticed map[nodeKey]bool
	// starting are what the checks are about to start, underway the remediations that go on.
	starting map[explain.Ref]cliv1.SimulatedStart
	underway map[explain.Ref]remediation
	// waiting are the unhealthy targets that are not remediated, with the last reason.
	waiting map[explain.Ref]cliv1.SimulatedTarget
	// limits is what the limits of each check have answered last.
	limits map[explain.Ref]string
}

// remediation is one that goes on: on which node, and when it is over.
type remediation struct {
	node nodeKey
	ends time.Time
}

// Run answers q. It changes w, which is not to be used for anything else afterwards.
func Run(ctx context.Context, w *snapshot.Snapshot, q Question) (*cliv1.Simulation, error) {
	begin := q.From.Truncate(time.Second)
	q.From = begin.UTC()
	ctx = log.IntoContext(ctx, logr.Discard())
	s := &simulation{
		Question: q, snapshot: w, clock: clocktesting.NewFakePassiveClock(q.From), due: map[explain.Ref]time.Time{},
		targets: map[explain.Ref]bool{}, failed: map[nodeKey]bool{}, unnoticed: map[nodeKey]bool{}, limits: map[explain.Ref]string{},
		starting: map[explain.Ref]cliv1.SimulatedStart{}, underway: map[explain.Ref]remediation{},
		waiting: map[explain.Ref]cliv1.SimulatedTarget{},
	}
	s.answer = &cliv1.Simulation{
		TypeMeta: cliv1.TypeOf("Simulation"), Time: metav1.NewTime(begin), Horizon: metav1.Duration{Duration: q.Horizon},
		Starts: []cliv1.SimulatedStart{}, Limits: []cliv1.SimulatedLimit{}, Assumptions: []string{},
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

// setUp applies the manifest and the limits that are set, and makes the controllers that act on the result.
func (s *simulation) setUp(ctx context.Context) (err error) {
	if s.Manifest != nil {
		if s.answer.Manifest, err = s.Manifest.apply(s.snapshot, s.From); err != nil {
			return err
		}
	}
	if err := s.setLimits(); err != nil {
		return err
	}
	if s.asker, err = inspect.New(ctx, s.snapshot, s.From); err != nil {
		return err
	}
	s.assumeManagers(ctx)
	s.state = s.snapshot.Writable(s.clock)
	s.machines, s.nodes = s.asker.Acting(s.state, s.clock)
	s.assume(fmt.Sprintf("A remediation is over, and its machine healthy again, %s after it has started (--takes)", explain.Brief(s.Takes)))
	return nil
}

const (
	// mostRounds is how often the checks may change anything at one moment.
	mostRounds = 100
	// mostMoments is how many moments a simulation may have. A reconcile that fails is repeated once a minute; few waits are shorter.
	mostMoments = 50_000
)

// play goes from one moment to the next at which anything is due, until the end, and never waits.
func (s *simulation) play(ctx context.Context) error {
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

// next is the next moment at which anything is due; zero if nothing is.
func (s *simulation) next() time.Time {
	var next time.Time
	for _, due := range s.due {
		next = health.Earliest(next, due)
	}
	for _, r := range s.underway {
		next = health.Earliest(next, r.ends)
	}
	if s.For > 0 && len(s.failed) > 0 {
		next = health.Earliest(next, s.From.Add(s.For))
	}
	return next
}

// happen ends the failures and the remediations whose time is over.
func (s *simulation) happen() {
	now := s.clock.Now()
	for node := range s.failed {
		if s.For > 0 && !now.Before(s.From.Add(s.For)) {
			s.ready(node)
		}
	}
	for target, r := range s.underway {
		if !now.Before(r.ends) {
			s.heal(target, r.node)
			delete(s.underway, target)
		}
	}
}

// settle has the checks observe, decide and act until nothing changes.
func (s *simulation) settle(ctx context.Context) error {
	for range mostRounds {
		checks, err := s.explain(ctx)
		if err != nil {
			return err
		}
		s.note(checks)
		before := s.state.Changes()
		for i := range checks {
			s.reconcile(ctx, &checks[i])
		}
		if s.state.Changes() == before {
			clear(s.starting) // what has changed nothing has not started
			return nil
		}
	}
	return fmt.Errorf("at %s the checks change things without end", s.clock.Now().Format(time.DateTime))
}

// explain is how the checks that are simulated decide now.
func (s *simulation) explain(ctx context.Context) ([]explain.Check, error) {
	s.asker.Now = s.clock.Now()
	checks, err := s.asker.MachineChecks(ctx, s.simulates)
	if err != nil {
		return nil, err
	}
	ofNodes, err := s.asker.NodeChecks(ctx, s.simulatesNodes)
	return append(checks, ofNodes...), err
}

// reconcile carries out what a check has decided, and notes when it is due again.
func (s *simulation) reconcile(ctx context.Context, check *explain.Check) {
	delete(s.due, check.Reference)
	if check.Mode != explain.Acting {
		return
	}
	controller := s.machines
	if check.Kind == "NodeHealthCheck" {
		controller = s.nodes
	}
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Name}
	result, err := controller.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil {
		s.assume(fmt.Sprintf("What %s does is not simulated whole: %v", check.Reference, err))
		result.RequeueAfter = time.Minute
	}
	if result.RequeueAfter > 0 {
		s.due[check.Reference] = s.clock.Now().Add(result.RequeueAfter)
	}
}

// assume adds a sentence to what is assumed, once.
func (s *simulation) assume(sentence string) {
	if !slices.Contains(s.answer.Assumptions, sentence) {
		s.answer.Assumptions = append(s.answer.Assumptions, sentence)
	}
}

// conclude adds what is known at the end alone.
func (s *simulation) conclude() {
	remediated := map[cliv1.Reference]bool{}
	for _, start := range s.answer.Starts {
		remediated[start.Target] = true
	}
	s.answer.Targets, s.answer.Remediated = len(s.targets), len(remediated)
	for _, target := range s.waiting {
		if !remediated[target.Reference] {
			s.answer.NotStarted = append(s.answer.NotStarted, target)
		}
	}
	for node := range s.unnoticed {
		s.answer.NotStarted = append(s.answer.NotStarted, cliv1.SimulatedTarget{
			Reference: cliv1.Reference{Kind: "Node", Name: node.name},
			Reason:    "NotUnhealthy", Message: "No check counts it as unhealthy in this time",
		})
	}
	slices.SortFunc(s.answer.NotStarted, func(a, b cliv1.SimulatedTarget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// refOf names an object of a kind.
func refOf(kind string, obj client.Object) explain.Ref {
	return explain.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
