// Package simulate plays what checks would do: at this moment, and later on a virtual clock, while something fails.
//
// What decides is the controllers themselves, which act on a world in memory. The package plays the others: nodes that fail, owners that replace
// machines, hosts that obey. What it assumes of them it says, and each assumption is a flag.
package simulate

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Question is what is to be played.
type Question struct {
	Environment

	// Manifest is applied before anything else; nil for none.
	Manifest *Manifest
	// Namespace is that of the machines that fail, and of the MachineHealthChecks that are played besides those of the manifest; all if it is empty.
	Namespace string
	// From is when the play begins, in whole seconds, and Horizon how long it is.
	From    time.Time
	Horizon time.Duration
}

// Answer is what comes of it.
type Answer struct {
	// At is when the play begins.
	At time.Time `json:"at"`
	// Assumptions are what the play takes for granted of everybody but the controllers.
	Assumptions []string `json:"assumptions"`
	// Manifest is what there is to say of the manifest. Refused is why the API server would not take it.
	Manifest []string `json:"manifest,omitempty"`
	Refused  []string `json:"refused,omitempty"`
	// Now is how the checks of the manifest stand once it is applied, or all checks if there is none.
	Now []explain.Check `json:"now"`
	// Timeline is what happens, in its order.
	Timeline     []Entry       `json:"timeline"`
	Remediations []Remediation `json:"remediations"`
	Summary      Summary       `json:"summary"`
}

// Entry is something that happens.
type Entry struct {
	// After is how long after the beginning, such as "5m0s".
	After  string      `json:"after"`
	At     time.Time   `json:"at"`
	Object explain.Ref `json:"object"`
	// Reason is that of the event that tells of it.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Warning says that the event is one.
	Warning bool `json:"warning,omitempty"`
	// Assumed says that it is no controller of kubemend that did it: it is what is assumed of others.
	Assumed bool `json:"assumed,omitempty"`
}

// Remediation is one that begins.
type Remediation struct {
	After string    `json:"after"`
	At    time.Time `json:"at"`
	// Target is the machine or node.
	Target explain.Ref `json:"target"`
	// Request is what was made for it; empty if its owner was asked.
	Request *explain.Ref `json:"request,omitempty"`
}

// Summary is what it all comes to.
type Summary struct {
	// Begun counts the remediations, AtOnce is how many of them, and of those that were under way before, were so at most at the same time.
	Begun  int `json:"begun"`
	AtOnce int `json:"atOnce"`
	// Held are the times in which checks did not allow remediation.
	Held []Held `json:"held,omitempty"`
	// Unhealthy are those that are not healthy at the end.
	Unhealthy []Unwell `json:"unhealthy,omitempty"`
	// Horizon is how long was played.
	Horizon string `json:"horizon"`
}

// Held is a time in which a check did not allow remediation.
type Held struct {
	Check  explain.Ref `json:"check"`
	Reason string      `json:"reason"`
	// From is when it began, and Until when it was over; Until is empty if it was not.
	From  string `json:"from"`
	Until string `json:"until,omitempty"`
}

// Unwell is a machine or node that is not healthy.
type Unwell struct {
	explain.Ref

	Verdict string `json:"verdict"`
}

// Run plays what is asked for. The world is changed by that: it is not to be used for anything else afterwards.
func Run(ctx context.Context, w *snapshot.World, q Question) (*Answer, error) {
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
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	o, err := newEnvironment(ctx, s, q)
	if err != nil {
		return nil, err
	}
	if a.Assumptions, err = s.assumptions(ctx); err != nil {
		return nil, err
	}
	a.Assumptions = append(a.Assumptions, o.assumptions()...)
	if a.Now, err = s.looks(ctx, q.wanted); err != nil {
		return nil, err
	}
	t := newCounters(s, o.kinds)
	if err := t.before(ctx); err != nil {
		return nil, err
	}
	p := &play{engine: s, environment: o, counters: t, end: q.From.Add(q.Horizon)}
	if err := p.run(ctx); err != nil {
		return nil, fmt.Errorf("play what happens: %w", err)
	}
	a.Timeline, a.Remediations = s.eventLog.entries, t.begun
	a.Summary, err = t.summary(ctx, q.Horizon)
	return a, err
}

// plays reports whether a check is played, if there is a manager for it: a world may have more in it than was asked for.
func (q Question) plays(check *clusterv1.MachineHealthCheck) bool {
	return q.Namespace == "" || check.Namespace == q.Namespace ||
		q.Manifest != nil && q.Manifest.has(explain.Ref{Kind: "MachineHealthCheck", Namespace: check.Namespace, Name: check.Name})
}

// wanted reports whether a check is one of those that are asked about.
func (q Question) wanted(check explain.Ref) bool {
	if q.Manifest != nil && q.Manifest.hasChecks() {
		return q.Manifest.has(check)
	}
	return q.Namespace == "" || check.Namespace == "" || check.Namespace == q.Namespace
}
