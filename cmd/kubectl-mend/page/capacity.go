package page

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Capacity is what the capacity of a machine waits for.
type Capacity struct {
	capacity.Story
	// Deletion is what the deletion of the machine waits for; nil if it is not being deleted, or if Story is about the deletion.
	Deletion *capacity.Story
	// Made is the clause that the machine replaces another; empty if that is not known.
	Made string
}

// capacityOf returns what the capacity of m waits for.
func capacityOf(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) *Capacity {
	facts := a.Capacity(ctx, capacity.Of(m))
	if m.DeletionTimestamp.IsZero() && !conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) {
		story, predecessor := facts.Follow()
		return &Capacity{Story: story, Made: capacity.Replacement{Name: m.Name, By: predecessor.By}.Of(predecessor.Name)}
	}
	c := &Capacity{Story: facts.Story()}
	if !m.DeletionTimestamp.IsZero() && (c.Stage != capacity.Deleting || c.Machine != m.Name) {
		c.Deletion = new(facts.Deletion())
	}
	return c
}

// waits returns the story of the deletion, if there is one, or else the story of the capacity.
func (c *Capacity) waits() *capacity.Story {
	if c.Deletion != nil {
		return c.Deletion
	}
	return &c.Story
}

// story returns what the capacity of the machine waits for; nil if the subject is no single machine, or waits for nothing.
func (e *Explanation) story() *capacity.Story {
	if len(e.Capacity) != 1 {
		return nil
	}
	return e.Capacity[0].waits()
}

// capacityNext returns the next step of the machine's capacity; empty if the step of the check comes first or says the same.
func (e *Explanation) capacityNext() explain.Step {
	s, t := e.story(), e.target()
	switch {
	case s == nil, s.Ended(), s.Stage == capacity.OwnerActs, s.Stage == capacity.Unread: // the check has the step of the owner
		return explain.Step{}
	case s.Stage != capacity.Deleting && t != nil && t.Next != (explain.Step{}): // the check's timeout or blocker comes first
		return explain.Step{}
	}
	return s.Next
}

func (e *Explanation) capacityTodo() explain.Step {
	s, t := e.story(), e.target()
	switch {
	case s == nil, s.Stage == capacity.OwnerActs && t != nil && t.Next.Manual: // the check's step says the same
		return explain.Step{}
	case t == nil:
		return cmp.Or(s.Todo, nodeTodo(s))
	}
	return s.Todo
}

// nodeTodo returns what a user has to do about a node that no check remediates; empty if the story does not wait for the node.
func nodeTodo(s *capacity.Story) explain.Step {
	if s != nil && (s.AwaitsNode() || s.Reason == capacity.StillUnhealthy) {
		return s.Hint
	}
	return explain.Step{}
}

// deletionAnswer adds to the answer about a machine that is being deleted what the deletion waits for.
func (e *Explanation) deletionAnswer() {
	if s := e.story(); s != nil && s.Stage == capacity.Deleting && s.Reason != capacity.DeletionBegins { // it waits for nothing yet
		if e.Answer.Action == "" {
			e.Answer.Action = explain.IsBeingDeleted
		}
		e.answer(waiting(e.Answer, s))
	}
}

// missing returns the state of an answer about capacity that is not back: blocked, if s waits for a user.
func missing(s *capacity.Story) explain.AnswerState {
	if s.Todo.Text != "" {
		return explain.CapacityBlocked
	}
	return explain.CapacityMissing
}

// waiting returns a with what the story waits for.
func waiting(a explain.Answer, s *capacity.Story) explain.Answer {
	a.Implied, a.Since, a.Until, a.Reason, a.Detail = false, s.Since, s.Next.At, s.Reason, ""
	if object := s.WaitsFor; object.Name != "" && object.Kind != "Node" && (object.Kind != "Machine" || object.Name != s.Machine) {
		if object.Kind != "PodDisruptionBudget" {
			object.Namespace = ""
		}
		a.Detail = object.String()
	}
	return a
}

// capacity prints what the capacity of the machine waits for. If the owner acts, the check says that.
func (p *page) capacity(c *Capacity) {
	if c.Stage == capacity.OwnerActs {
		return
	}
	p.Heading("Capacity: " + p.Paint.Waits(capacity.StageTexts[c.Stage]))
	p.told("  ", c)
}

// told prints what c waits for, what its deletion waits for, and which machine replaces which.
func (p *page) told(indent string, c *Capacity) {
	p.story(indent, &c.Story)
	if c.Deletion != nil {
		p.story(indent, c.Deletion)
	}
	if by := cmp.Or(c.Made, c.Replacement.Of(c.Old)); by != "" {
		p.line(indent, by+".")
	}
}

func (p *page) story(indent string, s *capacity.Story) {
	p.line(indent, text.Capital(s.Message)+".")
	var when []string
	if !s.Since.IsZero() {
		when = append(when, "since "+p.moment(s.Since))
	}
	switch counts := "a health check counts Machine " + s.Machine + " as unhealthy "; {
	case s.Deadline.IsZero():
	case s.Stage == capacity.Deleting && s.Overdue:
		when = append(when, "timeout "+explain.Brief(s.Timeout), "expired "+p.moment(s.Deadline))
	case s.Stage == capacity.Deleting:
		when = append(when, "timeout "+explain.Brief(s.Timeout), "expires "+p.moment(s.Deadline))
	case s.Overdue:
		when = append(when, "at "+p.moment(s.Deadline)+" "+counts+"since then")
	default:
		when = append(when, "at "+p.moment(s.Deadline)+" "+counts+"without a node")
	}
	if len(when) > 0 {
		p.line(indent+"  ", strings.Join(when, ", "))
	}
	if len(s.Hosts) <= capacity.FewHosts { // s.Message has them
		return
	}
	for _, refusal := range s.Hosts[:min(len(s.Hosts), mostNames)] {
		p.line(indent+"- ", refusal.Name+" "+refusal.Message)
	}
	if more := len(s.Hosts) - mostNames; more > 0 {
		p.line(indent+"- ", fmt.Sprintf("%d more", more))
	}
}

// missing returns the story of c, or nil if its capacity is back or is not to come back.
func (c *Capacity) missing() *capacity.Story {
	if c == nil || c.Ended() {
		return nil
	}
	return c.waits()
}

// before reports whether c is shown before other: capacity that is still to come back comes first, above all if it waits for a user.
func (c *Capacity) before(other *Capacity) bool {
	if ended := c.Ended(); ended != other.Ended() {
		return !ended
	}
	return other.waits().Todo.Text == "" && c.waits().Todo.Text != ""
}
