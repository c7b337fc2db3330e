package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/capacity"
	decide "github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Capacity is what the capacity of a machine waits for.
type Capacity struct {
	Story decide.Story
	// Deletion is what its deletion waits for while the story is about something else; nil if it is not being deleted, or the story says that.
	Deletion *decide.Story
	// Made is for which machine a new one was made; empty if that is not known.
	Made   string
	Unread []string
}

// capacityOf is what the capacity of m waits for, also if m has lost none.
func capacityOf(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) (*Capacity, error) {
	subject := capacity.Of(m, begun(m))
	f, err := a.Capacity(ctx, subject)
	if err != nil {
		return nil, err
	}
	found := &Capacity{Unread: slices.DeleteFunc(f.Unread, func(kinds string) bool { return kinds == "Pods" })} // what Cluster API says of these is quoted
	if m.DeletionTimestamp.IsZero() && !conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) {
		found.Story = decide.Follow(f)
		if by := decide.Predecessor(f); by.Name != "" {
			found.Story.Old, found.Made = by.Name, explain.Replacement(by.Name, decide.Replacement{Name: m.Name, By: by.By})
		}
		return found, nil
	}
	found.Story = decide.Decide(f)
	if !m.DeletionTimestamp.IsZero() && (found.Story.Stage != decide.Deleting || found.Story.Machine != m.Name) {
		deletion := decide.DeletionOf(f)
		found.Deletion = &deletion
	}
	return found, nil
}

// madeFor adds to the facts for which machine m was made, where the story of its capacity does not say it.
func (e *Explanation) madeFor(a *inspect.Asker, m *clusterv1.Machine) {
	if len(e.Capacity) == 1 && e.Capacity[0].Made != "" {
		return
	}
	if value := explain.Predecessor(a.Predecessor(m)); value != "" {
		e.Facts = append(e.Facts, explain.Fact{Name: "replaces", Value: value})
	}
}

// begun is when the owner of m was asked to replace it, or its deletion began.
func begun(m *clusterv1.Machine) time.Time {
	if asked := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition); asked != nil {
		return asked.LastTransitionTime.Time
	}
	if m.DeletionTimestamp != nil {
		return m.DeletionTimestamp.Time
	}
	return m.CreationTimestamp.Time
}

// waits is the story that says what is waited for: that of the deletion, as long as there is one.
func (c *Capacity) waits() *decide.Story {
	if c.Deletion != nil {
		return c.Deletion
	}
	return &c.Story
}

// story is what the capacity of the machine waits for; nil where nothing is awaited.
func (e *Explanation) story() *decide.Story {
	if len(e.Capacity) != 1 {
		return nil
	}
	return e.Capacity[0].waits()
}

// capacityNext is the next step on the way to the capacity of the machine, where that is more than what its check does next.
func (e *Explanation) capacityNext() explain.Step {
	s, t := e.story(), e.target()
	switch {
	case s == nil, s.Stage.Ended(), s.Stage == decide.OwnerActs, s.Stage == decide.Unread: // the check says what the owner does
		return explain.Step{}
	case s.Stage != decide.Deleting && t != nil && t.Next != (explain.Step{}): // its timeout, or what blocks its check, comes first
		return explain.Step{}
	}
	return explain.CapacityNext(s)
}

// capacityTodo is what a person can do for the capacity of the machine.
func (e *Explanation) capacityTodo() explain.Step {
	s, t := e.story(), e.target()
	switch {
	case s == nil, s.Stage == decide.OwnerActs && t != nil && t.Next.Manual: // which says it
		return explain.Step{}
	case t == nil:
		return cmp.Or(explain.CapacityTodo(s), explain.NodeTodo(s))
	}
	return explain.CapacityTodo(s)
}

// nodeNotReady reports whether the node of the machine is there, and not Ready.
func (e *Explanation) nodeNotReady() bool {
	s := e.story()
	return s != nil && s.Next == decide.NodeGetsReady
}

// nodeTodo is what a person has to do about the node of the machine, where no check remediates it; zero if there is nothing.
func (e *Explanation) nodeTodo() explain.Step {
	if s := e.story(); s != nil {
		return explain.NodeTodo(s)
	}
	return explain.Step{}
}

// deletionAnswer adds to the answer about a machine that is being deleted what that waits for.
func (e *Explanation) deletionAnswer() {
	if s := e.story(); s != nil && s.Stage == decide.Deleting && s.Reason != decide.DeletionBegins { // of that there is nothing to add
		e.answer(e.Answer.Deleting(s))
	}
}

// capacity prints what the capacity of the machine waits for, unless the check says all of it.
func (p *page) capacity(c *Capacity, notes []string) {
	if c.Story.Stage == decide.OwnerActs {
		return
	}
	p.heading("Capacity: " + p.paint.Waits(explain.CapacityStage(&c.Story)))
	p.told("  ", c, notes)
}

// told is the story of c, what its deletion waits for besides, and which machine replaces which.
func (p *page) told(indent string, c *Capacity, notes []string) {
	p.story(indent, &c.Story)
	if c.Deletion != nil {
		p.story(indent, c.Deletion)
	}
	if c.Made != "" {
		p.line(indent, c.Made+".")
	}
	if by := explain.Replacement(c.Story.Old, c.Story.Replacement); by != "" && c.Made == "" {
		p.line(indent, by+".")
	}
	for _, what := range c.Unread {
		if !slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, what) }) {
			p.line(indent, explain.CouldNotBeRead(what)+".")
		}
	}
}

// story is what is waited for, since when and until when.
func (p *page) story(indent string, s *decide.Story) {
	p.line(indent, text.Capital(explain.Capacity(s))+".")
	var when []string
	if !s.Since.IsZero() {
		when = append(when, "since "+p.moment(s.Since))
	}
	if deadline := explain.CapacityDeadline(s); deadline != "" {
		when = append(when, "at "+p.moment(s.Deadline)+" "+deadline)
	} else if !s.Deadline.IsZero() {
		expires := "expires "
		if s.Overdue {
			expires = "expired "
		}
		when = append(when, "timeout "+explain.Brief(s.Args.Timeout), expires+p.moment(s.Deadline))
	}
	if len(when) > 0 {
		p.line(indent+"  ", strings.Join(when, ", "))
	}
	hosts := explain.HostAnswers(s)
	for _, line := range hosts[:min(len(hosts), mostNames)] {
		p.line(indent+"- ", line)
	}
	if more := len(hosts) - mostNames; more > 0 {
		p.line(indent+"- ", fmt.Sprintf("%d more", more))
	}
}
