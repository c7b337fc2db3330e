// Package page lays out explanations for a terminal: columns, headings, colours and wrapping. The sentences come from package explain.
package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explanation says why the subject is or is not being remediated: the document for programs, and what its page needs in addition.
type Explanation struct {
	cliv1.Explanation
	// Gone is true if the subject does not exist any more.
	Gone bool
	// Answer is the first line of the page.
	Answer explain.Answer
	// Checks are the checks that select the subject; the acting check comes first. They have only the targets to be explained.
	Checks []explain.Check
	// Remediations are the remediations of the machine or its host.
	Remediations []explain.Remediation
	// Owners are the owners of the machines of a Cluster, or the subject if that is an owner.
	Owners []Owner
	// Capacity is what the capacity of the machine waits for or, of an owner or a Cluster, of its machines.
	Capacity []Capacity

	asker *inspect.Asker
}

// explanation returns an empty Explanation of subject.
func explanation(a *inspect.Asker, subject explain.Ref) *Explanation {
	return &Explanation{asker: a, Explanation: cliv1.Explanation{
		TypeMeta: cliv1.TypeOf("Explanation"), Subject: subject, Time: metav1.NewTime(a.Now),
	}}
}

// Document returns e for programs.
func (e *Explanation) Document() *cliv1.Explanation {
	d := e.Explanation
	d.Notes = e.notes() // complete only now, after all reads
	for i := range e.Checks {
		d.Checks = append(d.Checks, e.Checks[i].Document())
	}
	for i := range e.Owners {
		d.Owners = append(d.Owners, e.Owners[i].MachineOwner)
	}
	for i := range e.Capacity {
		if len(e.Owners) == 0 || e.Capacity[i].missing() != nil { // of owners, only machines whose capacity is to come back
			d.Capacity = append(d.Capacity, e.Capacity[i].Document())
		}
	}
	for i := range e.Remediations {
		rem := e.Remediations[i].HostRemediation
		rem.Phase = e.Remediations[i].Answer().Phase()
		d.Remediations = append(d.Remediations, rem)
	}
	return &d
}

// about returns c with only the targets to be explained. Its phase is still that of all targets.
func about(c explain.Check, concerns func(explain.Target) bool) explain.Check {
	if c.Phase = c.Answer().Phase(); !c.CountedByStatus { // else most targets were not read
		c.NotHealthy = notHealthy(c.Targets)
	}
	c.Targets = slices.DeleteFunc(slices.Clone(c.Targets), func(t explain.Target) bool { return !concerns(t) })
	return c
}

// notHealthy groups the targets that count against the limits, in the order of explain.Sum.
func notHealthy(targets []explain.Target) []cliv1.Group {
	var groups []cliv1.Group
	for _, class := range []budget.Class{budget.Unhealthy, budget.Pending, budget.Starting, budget.Recovering, budget.Deleting,
		budget.Unknown} {
		var names []string
		for _, t := range targets {
			if t.Class == class {
				names = append(names, t.Name)
			}
		}
		if len(names) > 0 {
			field := strings.Replace(string(class), string(budget.Deleting), "deleting", 1)
			groups = append(groups, cliv1.Group{Class: field, Names: names})
		}
	}
	return groups
}

// tolerate adds kind to unread if err is Forbidden, and returns any other error.
func tolerate(unread *[]string, kind string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	*unread = append(*unread, kind)
	return nil
}

// conclude sorts the checks, the acting one first, and sets the answer and the next steps.
func (e *Explanation) conclude() {
	slices.SortStableFunc(e.Checks, func(a, b explain.Check) int { return cmp.Compare(rank(a), rank(b)) })
	if todo := e.capacityTodo(); todo.Reason == capacity.Unpause && e.target() != nil && e.target().InFlight {
		e.target().Next = todo // the owner does nothing while it is paused
	}
	e.Next = e.next()
	e.Todo = e.todo()
	for i := range e.Checks {
		for j := range e.Checks[i].Targets {
			e.Checks[i].Targets[j].CycledBy(e.Remediations)
		}
	}
	switch {
	case e.target() != nil:
		a := e.Checks[0].AnswerOn(e.target())
		if a.State == explain.IsHealthy && a.Action == "" && e.awaitsNode() {
			a = explain.NoRuleMatches
		}
		e.answer(a.UnderWay(e.Remediations))
	case len(e.Checks) > 0:
		e.answer(e.Checks[0].NotJudged())
	case len(e.Unread) > 0:
		e.answer(explain.Answer{State: explain.IsUnknown, Reason: explain.MissingPermission, Detail: strings.Join(e.Unread, ", ")})
	default:
		a := explain.NoCheckSelects
		if e.awaitsNode() {
			a.Rest = "its node is not Ready"
		}
		e.answer(a.UnderWay(e.Remediations))
	}
}

// awaitsNode reports whether the machine's capacity waits only for its node to become Ready.
func (e *Explanation) awaitsNode() bool { return e.story() != nil && e.story().AwaitsNode() }

// answer sets the answer of the page and of the document.
func (e *Explanation) answer(a explain.Answer) {
	e.Answer, e.Phase, e.Reason = a, a.Phase(), a.Reason
	e.Message = a.Text(func(at time.Time) string { return text.Clock(at, e.Time.Time) })
}

// todo returns what a user has to do about the capacity or a remediation, unless that is the next step already.
func (e *Explanation) todo() explain.Step {
	if todo := e.capacityTodo(); todo != (explain.Step{}) && todo.Text != e.Next.Text {
		return todo
	}
	for i := range e.Remediations {
		if next := e.Remediations[i].Next; next.Manual && next != e.Next {
			return next
		}
	}
	return explain.Step{}
}

// rank orders checks: first the check that acts on the target, last checks that skip it or do not select it.
func rank(c explain.Check) int {
	switch {
	case len(c.Targets) == 0:
		return 4
	case c.Targets[0].Skipped != "":
		return 3
	case c.Targets[0].BlockedBy(mendv1.OverlapReason):
		return 2
	case c.Mode != cliv1.ModeActing, c.Targets[0].BlockedBy(explain.OtherCheckRemediates):
		return 1
	}
	return 0
}

// target returns the subject as the first check judges it, or nil.
func (e *Explanation) target() *explain.Target {
	if len(e.Checks) == 0 || len(e.Checks[0].Targets) == 0 {
		return nil
	}
	return &e.Checks[0].Targets[0]
}

// next returns the next step: of the capacity, else of a power cycle in progress, else of the check.
func (e *Explanation) next() explain.Step {
	if next := e.capacityNext(); next != (explain.Step{}) {
		return next
	}
	t := e.target()
	if next := explain.CyclesNext(e.Remediations, t != nil && t.InFlight && t.Next != (explain.Step{})); next != (explain.Step{}) {
		return next
	}
	switch {
	case t != nil && t.Next == (explain.Step{}) && e.Checks[0].Next.Reason == explain.NoManager:
		return e.Checks[0].Next
	case t != nil:
		return cmp.Or(t.Next, nodeTodo(e.story()), explain.NothingNext)
	case len(e.Checks) > 0:
		return cmp.Or(e.Checks[0].Next, explain.NothingNext)
	case len(e.Unread) > 0:
		return explain.ChecksUnreadNext
	}
	return explain.NoCheckNext
}

// MachineHealthCheck explains a MachineHealthCheck and its targets that are not healthy.
func MachineHealthCheck(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool { return client.ObjectKeyFromObject(c) == key })
	e, err := explained(ctx, a, checks, err, explain.NoSuch("MachineHealthCheck", key.Namespace, key.Name))
	if err != nil {
		return nil, err
	}
	e.fact("claimed by", e.Checks[0].ClaimedBy)
	return e, nil
}

// NodeHealthCheck explains a NodeHealthCheck and its targets that are not healthy.
func NodeHealthCheck(ctx context.Context, a *inspect.Asker, name string) (*Explanation, error) {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool { return c.Name == name })
	return explained(ctx, a, checks, err, explain.NoSuch("NodeHealthCheck", "", name))
}

// explained returns the explanation of the only check that was read, or the error missing if there is none.
func explained(ctx context.Context, a *inspect.Asker, checks []explain.Check, err, missing error) (*Explanation, error) {
	if err != nil || len(checks) == 0 {
		return nil, cmp.Or(err, missing)
	}
	c := &checks[0]
	e := explanation(a, c.Reference)
	e.fact("cluster", c.Cluster)
	follow(ctx, a, c)
	e.Checks = []explain.Check{about(*c, func(t explain.Target) bool {
		if t.State == cliv1.StateUnknown && !t.InFlight && len(t.Blockers) > 0 && c.PartOf(&t.Blockers[0]) == explain.SameAsNodesUnknown {
			return false // the page says once that the nodes of c could not be read
		}
		return t.State != cliv1.StateHealthy || t.Skipped != "" || t.InFlight || len(t.Blockers) > 0
	})}
	e.answer(c.Answer())
	e.Next, e.Todo = cmp.Or(c.Next, explain.NothingNext), c.Todo()
	return e, nil
}

// follow completes the next steps of the targets of c, and of c, with those of power cycles in flight: their requests have deadlines that a
// check does not know. It keeps a step that has a time or needs a user. The notes report requests that could not be read.
func follow(ctx context.Context, a *inspect.Asker, c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		if !t.InFlight {
			continue
		}
		for _, request := range t.Requests {
			key := client.ObjectKey{Namespace: request.Namespace, Name: request.Name}
			if cycle, _ := a.Remediation(ctx, request.Kind, key); cycle != nil {
				t.CycledBy([]explain.Remediation{*cycle})
			}
		}
		if t.Cycle != nil && t.Next.At.IsZero() && !t.Next.Manual {
			t.Next = cmp.Or(t.Cycle.Next, t.Next)
		}
	}
	c.FollowTargets()
}
