package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
)

// follow completes the next step of c with those of the remediations in flight: the requests of its targets have deadlines of their own, which a check
// does not know. An error that occurs while a request is read is added to those of c.
func follow(ctx context.Context, a *inspect.Asker, c *explain.Check) {
	for i := range c.Targets {
		if err := followTarget(ctx, a, &c.Targets[i]); err != nil {
			c.ReadErrors = append(c.ReadErrors, err.Error())
		}
	}
	if (c.Mode == explain.None || c.Mode == explain.Unknown) && c.Next != (explain.Step{}) {
		return // without a controller nothing else happens
	}
	if soonest := explain.Soonest(c.Targets); !soonest.At.IsZero() && (c.Next.At.IsZero() || soonest.At.Before(c.Next.At)) {
		c.Next = soonest
	}
	if c.Next == (explain.Step{}) {
		c.Next = cmp.Or(c.Useless(), waitedFor(c))
	}
}

// followTarget sets the power cycle that remediates t, if one is in progress, and makes its next step that of t, unless t has one with a time or for a user.
func followTarget(ctx context.Context, a *inspect.Asker, t *explain.Target) error {
	if !t.InFlight {
		return nil
	}
	for _, request := range t.Requests {
		cycles, err := a.Remediations(ctx, request.Kind, client.ObjectKey{Namespace: request.Namespace, Name: request.Name})
		if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
			continue // the notes report it
		} else if err != nil {
			return fmt.Errorf("explain %s: %w", request, err)
		}
		t.CycledBy(cycles)
	}
	if t.Cycle != nil && t.Next.At.IsZero() && !t.Next.Manual {
		t.Next = cmp.Or(t.Cycle.Next, t.Next)
	}
	return nil
}

// waitedFor is the next step of a target of c that does not depend on time: first one that a user has to take.
func waitedFor(c *explain.Check) explain.Step {
	var first explain.Step
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Skipped != "" || t.Next == (explain.Step{}) || first.Manual || first != (explain.Step{}) && !t.Next.Manual {
			continue
		}
		first = t.Next
		if !shared(c, t) {
			first.Text = t.Kind + " " + t.Name + ": " + first.Text
		}
	}
	return first
}

// shared reports whether the next step of t concerns all of c.
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
		return c.PartOf(&b) != explain.OfTarget && (b.Fix == "" || t.Next.Manual)
	})
}
