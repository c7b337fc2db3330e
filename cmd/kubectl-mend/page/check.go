package page

import (
	"cmp"
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// MachineHealthCheck explains a MachineHealthCheck, and those of its targets of which there is something to say.
func MachineHealthCheck(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool { return client.ObjectKeyFromObject(c) == key })
	if err != nil {
		return nil, err
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("there is no MachineHealthCheck %s in namespace %s", key.Name, key.Namespace)
	}
	return explained(ctx, a, checks[0]), nil
}

// NodeHealthCheck explains a NodeHealthCheck, and those of its targets of which there is something to say.
func NodeHealthCheck(ctx context.Context, a *inspect.Asker, name string) (*Explanation, error) {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool { return c.Name == name })
	if err != nil {
		return nil, err
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("there is no NodeHealthCheck %s", name)
	}
	return explained(ctx, a, checks[0]), nil
}

// explained is the explanation of a check itself.
func explained(ctx context.Context, a *inspect.Asker, c explain.Check) *Explanation {
	e := &Explanation{Subject: c.Ref, At: a.Now, Notes: notes(a)}
	if c.Cluster != "" {
		e.Is = append(e.Is, Fact{"cluster", c.Cluster})
	}
	follow(ctx, a, &c)
	e.Checks = []Check{About(c, remarkable(&c))}
	e.Verdict, e.Next = c.Verdict(), cmp.Or(c.Next, nothing)
	return e
}

// remarkable are targets of which there is more to say than that they are well, or than what is said of the whole of c: that it is out of sight.
func remarkable(c *explain.Check) func(explain.Target) bool {
	return func(t explain.Target) bool {
		if t.State == health.Unknown && !t.InFlight && len(t.Blockers) > 0 && c.PartOf(&t.Blockers[0]) == explain.OfNodes {
			return false
		}
		return t.State != health.Healthy || t.Left != "" || t.InFlight || len(t.Blockers) > 0
	}
}
