package page

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
)

// follow makes the next step of c that of whatever is under way: the requests of its targets have deadlines of their own, which a check knows
// nothing of, and where no time passes somebody or something is waited for. What cannot be read of a request is among the troubles of c.
func follow(ctx context.Context, a *inspect.Asker, c *explain.Check) {
	for i := range c.Targets {
		if err := followTarget(ctx, a, &c.Targets[i]); err != nil {
			c.Trouble = append(c.Trouble, err.Error())
		}
	}
	if c.Mode == explain.Nobody && c.Next != (explain.Step{}) {
		return // whoever is to act has to be there first
	}
	if soonest := explain.Soonest(c.Targets); !soonest.At.IsZero() && (c.Next.At.IsZero() || soonest.At.Before(c.Next.At)) {
		c.Next = soonest
	}
	if c.Next == (explain.Step{}) {
		c.Next = waitedFor(c)
	}
}

// followTarget makes the next step of t that of the remediation of its host, if that is under way. What was handed over is its owner's.
func followTarget(ctx context.Context, a *inspect.Asker, t *explain.Target) error {
	if !t.InFlight || !t.Next.At.IsZero() || t.Next.Person {
		return nil
	}
	for _, request := range t.Underway {
		is, err := a.Remediations(ctx, request.Kind, client.ObjectKey{Namespace: request.Namespace, Name: request.Name})
		if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
			continue // the world lacks it, and says so
		} else if err != nil {
			return fmt.Errorf("look at %s: %w", request, err)
		}
		for j := range is {
			if handedOver := is[j].State == string(powercycle.OwnerRequested); is[j].Next != (explain.Step{}) && !handedOver {
				t.Next = is[j].Next
				return nil
			}
		}
	}
	return nil
}

// waitedFor is what the targets of c wait for that is not time: a person goes first.
func waitedFor(c *explain.Check) explain.Step {
	var first explain.Step
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Left != "" || t.Next == (explain.Step{}) || first.Person || first != (explain.Step{}) && !t.Next.Person {
			continue
		}
		first = t.Next
		if !shared(c, t) {
			first.Text = t.Kind + " " + t.Name + ": " + first.Text
		}
	}
	return first
}

// shared reports whether what comes next for t is about all of c.
func shared(c *explain.Check, t *explain.Target) bool {
	if c.ActsElsewhere() {
		return true
	}
	for i := range c.Targets {
		if other := &c.Targets[i]; other.Name != t.Name && other.Next == t.Next {
			return true
		}
	}
	return slices.ContainsFunc(t.Blockers, func(b explain.Blocker) bool {
		return c.PartOf(&b) != explain.OfTarget && (b.Person == "" || t.Next.Person)
	})
}
