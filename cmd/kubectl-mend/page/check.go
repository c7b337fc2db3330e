package page

import (
	"cmp"
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
)

// MachineHealthCheck explains a MachineHealthCheck, and those of its targets of which there is something to say.
func MachineHealthCheck(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	var check clusterv1.MachineHealthCheck
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		named := client.ObjectKeyFromObject(c) == key
		if named {
			check = *c
		}
		return named
	})
	e, err := explained(ctx, a, checks, err, fmt.Errorf("there is no MachineHealthCheck %s in namespace %s", key.Name, key.Namespace))
	if err != nil {
		return nil, err
	}
	e.fact("claimed by", e.Checks[0].ClaimedBy)
	for _, applier := range explain.AppliersOf(&check) {
		e.fact("applied by", applier)
	}
	return e, nil
}

// NodeHealthCheck explains a NodeHealthCheck, and those of its targets of which there is something to say.
func NodeHealthCheck(ctx context.Context, a *inspect.Asker, name string) (*Explanation, error) {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool { return c.Name == name })
	return explained(ctx, a, checks, err, fmt.Errorf("there is no NodeHealthCheck %s", name))
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
			if cycle, _ := a.Remediation(ctx, request.Kind, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}); cycle != nil {
				t.CycledBy([]explain.Remediation{*cycle})
			}
		}
		if t.Cycle != nil && t.Next.At.IsZero() && !t.Next.Manual {
			t.Next = cmp.Or(t.Cycle.Next, t.Next)
		}
	}
	c.FollowTargets()
}
