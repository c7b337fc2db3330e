// Package simulate shows what checks would do: now, and later on a virtual clock, while nodes fail.
//
// It is a loop: the controllers decide and change a state in memory, models of everybody else (package partners) change it as well, and the clock
// jumps to the next moment at which anything is due. What is assumed of the others is part of the answer, and each assumption is a flag.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Question is what to simulate.
type Question struct {
	Environment

	// Manifest is applied before anything else; nil for none.
	Manifest *Manifest
	// Namespace is that of the machines that fail, and of the MachineHealthChecks that are simulated besides those of the manifest; all if it is empty.
	Namespace string
	// Cluster is that of the MachineHealthChecks that are simulated besides those of the manifest; all if it is empty. NodeHealthChecks are
	// of none.
	Cluster string
	// From is when the simulation begins, in whole seconds, and Horizon how long it is.
	From    time.Time
	Horizon time.Duration
}

// Answer is what happens.
type Answer struct {
	// At is when the simulation begins.
	At time.Time
	// Assumptions are those about everybody but the controllers.
	Assumptions []string
	// Manifest are notes about the manifest. Refused is why the API server would refuse it.
	Manifest []string
	Refused  []string
	// Now is how the checks of the manifest stand once it is applied, or all checks if there is none.
	Now []explain.Check
	// Timeline is what happens, in its order.
	Timeline     []Entry
	Remediations []Remediation
	Summary      Summary
}

// Entry is something that happens.
type Entry struct {
	// After is how long after the beginning, such as "5m0s".
	After  string
	At     time.Time
	Object explain.Ref
	// Reason is that of the event.
	Reason string
	Text   string
	// Warning says that the event is one.
	Warning bool
	// Assumed says that kubemend did not do it: it is assumed of others.
	Assumed bool
}

// Remediation is one that begins.
type Remediation struct {
	After string
	At    time.Time
	// Target is the machine or node.
	Target explain.Ref
	// Request is what was made for it; empty if its owner was asked.
	Request *explain.Ref
}

// Summary is the sum of what happens.
type Summary struct {
	// Begun counts the remediations, AtOnce is how many of them, and of those that were under way before, were so at most at the same time.
	Begun  int
	AtOnce int
	// Blocked are the times in which checks allowed no remediation.
	Blocked []Blocked
	// Unhealthy are those that are not healthy at the end.
	Unhealthy []Unhealthy
	// Horizon is how long the simulation is.
	Horizon string
}

// Blocked is a time in which a check allowed no remediation.
type Blocked struct {
	Check  explain.Ref
	Reason string
	// From is when it began, and Until when it was over; Until is empty if it was not.
	From  string
	Until string
}

// Unhealthy is a machine or node that is not healthy.
type Unhealthy struct {
	explain.Ref

	Verdict string
}

// Run answers q. It changes w, which is not to be used for anything else afterwards.
func Run(ctx context.Context, w *snapshot.Snapshot, q Question) (*Answer, error) {
	q.From = q.From.UTC().Truncate(time.Second)
	s, err := newEngine(ctx, w, q)
	if err != nil {
		return nil, err
	}
	a := &Answer{At: q.From}
	if q.Manifest != nil {
		if a.Manifest, a.Refused, err = q.Manifest.apply(ctx, w, q.From); err != nil {
			return nil, err
		}
	}
	p, err := s.simulation()
	if err != nil {
		return nil, err
	}
	a.Assumptions = p.environment.assumptions(ctx)
	if a.Now, err = s.explanations(ctx, q.concerns); err != nil {
		return nil, err
	}
	a.Now = slices.DeleteFunc(a.Now, func(c explain.Check) bool { return !q.simulatesOf(c.Cluster, c.Ref) })
	if err := p.run(ctx); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	a.Timeline, a.Remediations = s.eventLog.entries, p.counters.begun
	a.Summary, err = p.counters.summary(ctx, q.Horizon)
	return a, err
}

// simulates reports whether a check is simulated, if there is a manager for it: a record may have more in it than was asked for.
func (q Question) simulates(check *clusterv1.MachineHealthCheck) bool {
	ref := refOf("MachineHealthCheck", check)
	here := q.Namespace == "" || check.Namespace == q.Namespace || q.Manifest != nil && q.Manifest.has(ref)
	return here && q.simulatesOf(check.Spec.ClusterName, ref)
}

// simulatesOf reports whether a check of a Cluster is simulated, as far as its Cluster goes; that of a NodeHealthCheck is empty.
func (q Question) simulatesOf(cluster string, check explain.Ref) bool {
	return q.Cluster == "" || cluster == q.Cluster || q.Manifest != nil && q.Manifest.has(check)
}

// concerns reports whether the question is about a check.
func (q Question) concerns(check explain.Ref) bool {
	if q.Manifest != nil && q.Manifest.hasChecks() {
		return q.Manifest.has(check)
	}
	return q.Namespace == "" || check.Namespace == "" || check.Namespace == q.Namespace
}
