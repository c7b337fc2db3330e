// Package page lays out explanations for a terminal: columns, headings, colours and wrapping. Its sentences are those of package explain.
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

// Explanation is why something is remediated, or is not: the document, with what its first line and its pages need besides.
type Explanation struct {
	cliv1.Explanation
	// Gone reports that the subject does not exist any more.
	Gone bool
	// Answer is the first line of the page.
	Answer explain.Answer
	// Checks are those that select it, the one that acts first. Their targets are those that the explanation is about.
	Checks []explain.Check
	// Remediations are those of its host.
	Remediations []explain.Remediation
	// Owners are what makes the machines of a Cluster, or the subject, if it does.
	Owners []Owner
	// Capacity is what the capacity of the machine waits for or, of an owner or a Cluster, of its machines that have lost theirs.
	Capacity []Capacity

	asker *inspect.Asker
}

// explanation is one of subject with nothing in it.
func explanation(a *inspect.Asker, subject explain.Ref) *Explanation {
	return &Explanation{asker: a, Explanation: cliv1.Explanation{
		TypeMeta: cliv1.TypeOf("Explanation"), Subject: subject, Time: metav1.NewTime(a.Now),
	}}
}

// Document is e for programs.
func (e *Explanation) Document() *cliv1.Explanation {
	d := e.Explanation
	d.Notes = notes(e.asker) // now that all of it was read
	for i := range e.Checks {
		d.Checks = append(d.Checks, e.Checks[i].Document())
	}
	for i := range e.Owners {
		d.Owners = append(d.Owners, e.Owners[i].MachineOwner)
	}
	for i := range e.Capacity {
		if len(e.Owners) == 0 || e.Capacity[i].missing() != nil { // of owners, those that are to come back
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

// about returns c with those of its targets that the explanation is about. Its phase is that of all of them.
func about(c explain.Check, concerns func(explain.Target) bool) explain.Check {
	if c.Phase = c.Answer().Phase(); !c.CountedByStatus { // else the names of most are not known
		c.NotHealthy = notHealthy(c.Targets)
	}
	c.Targets = slices.DeleteFunc(slices.Clone(c.Targets), func(t explain.Target) bool { return !concerns(t) })
	return c
}

// notHealthy are the targets that the limits count, in the order in which their sum has them.
func notHealthy(targets []explain.Target) []cliv1.Group {
	var groups []cliv1.Group
	for _, class := range []budget.Class{budget.Unhealthy, budget.Pending, budget.Starting, budget.Recovering, budget.Deleting, budget.Unknown} {
		var names []string
		for _, t := range targets {
			if t.Class == class {
				names = append(names, t.Name)
			}
		}
		if len(names) > 0 {
			groups = append(groups, explain.Group(class, names))
		}
	}
	return groups
}

// tolerate adds a kind of checks to unread, if its checks could not be read for lack of rights; any other error is returned.
func tolerate(unread *[]string, kind string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	*unread = append(*unread, kind)
	return nil
}

// conclude puts the check that acts first, and sets the answer and the next step.
func (e *Explanation) conclude() {
	slices.SortStableFunc(e.Checks, func(a, b explain.Check) int { return cmp.Compare(rank(a), rank(b)) })
	if todo := e.capacityTodo(); todo.Reason == capacity.Unpause && e.target() != nil && e.target().InFlight {
		e.target().Next = todo // its owner does nothing before
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

// awaitsNode reports whether the node of the machine is there, and not Ready.
func (e *Explanation) awaitsNode() bool { return e.story() != nil && e.story().AwaitsNode() }

// answer sets the answer, for the page and for programs.
func (e *Explanation) answer(a explain.Answer) {
	e.Answer, e.Phase, e.Reason = a, a.Phase(), a.Reason
	e.Message = a.Text(func(at time.Time) string { return text.Clock(at, e.Time.Time) })
}

// todo is what a person has to do about a remediation of the host, if something else is next.
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

// rank orders checks: first the one that acts on the target, last those that skip it.
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

// target is the subject as the first check judges it; nil if none does.
func (e *Explanation) target() *explain.Target {
	if len(e.Checks) == 0 || len(e.Checks[0].Targets) == 0 {
		return nil
	}
	return &e.Checks[0].Targets[0]
}

// next is what the remediation of the host does next, if one is in progress, else what the check does.
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

// MachineHealthCheck explains a MachineHealthCheck, and those of its targets of which there is something to say.
func MachineHealthCheck(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool { return client.ObjectKeyFromObject(c) == key })
	e, err := explained(ctx, a, checks, err, explain.NoSuch("MachineHealthCheck", key.Namespace, key.Name))
	if err != nil {
		return nil, err
	}
	e.fact("claimed by", e.Checks[0].ClaimedBy)
	return e, nil
}

// NodeHealthCheck explains a NodeHealthCheck, and those of its targets of which there is something to say.
func NodeHealthCheck(ctx context.Context, a *inspect.Asker, name string) (*Explanation, error) {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool { return c.Name == name })
	return explained(ctx, a, checks, err, explain.NoSuch("NodeHealthCheck", "", name))
}

// explained is the explanation of the one check that was read.
func explained(ctx context.Context, a *inspect.Asker, checks []explain.Check, err, missing error) (*Explanation, error) {
	if err != nil {
		return nil, err
	}
	if len(checks) == 0 {
		return nil, missing
	}
	c := &checks[0]
	e := explanation(a, c.Reference)
	e.fact("cluster", c.Cluster)
	follow(ctx, a, c)
	e.Checks = []explain.Check{about(*c, remarkable(c))}
	e.answer(c.Answer())
	e.Next, e.Todo = cmp.Or(c.Next, explain.NothingNext), c.Todo()
	return e, nil
}

// remarkable are the targets of which there is more to print than that they are healthy, or that the nodes of all of c are unreachable.
func remarkable(c *explain.Check) func(explain.Target) bool {
	return func(t explain.Target) bool {
		if t.State == cliv1.StateUnknown && !t.InFlight && len(t.Blockers) > 0 && c.PartOf(&t.Blockers[0]) == explain.SameAsNodesUnknown {
			return false
		}
		return t.State != cliv1.StateHealthy || t.Skipped != "" || t.InFlight || len(t.Blockers) > 0
	}
}

// follow completes the next step of c with those of the remediations in flight: the requests of its targets have deadlines of their own,
// which a check does not know. It is the next step of a target that has none with a time or for a user. What the user may not read the
// notes report.
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
