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
			cycles, err := a.Remediations(ctx, request.Kind, client.ObjectKey{Namespace: request.Namespace, Name: request.Name})
			if err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
				c.ReadErrors = append(c.ReadErrors, fmt.Sprintf("explain %s: %s", request, err))
			}
			t.CycledBy(cycles)
		}
		if t.Cycle != nil && t.Next.At.IsZero() && !t.Next.Manual {
			t.Next = cmp.Or(t.Cycle.Next, t.Next)
		}
	}
	c.FollowTargets()
}
