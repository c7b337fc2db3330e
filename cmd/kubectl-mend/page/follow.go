package page

import (
	"cmp"
	"context"
	"fmt"

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
	c.FollowTargets()
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
