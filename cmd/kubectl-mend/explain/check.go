package explain

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/ask"
	"github.com/kubemend/kubemend/controllers/health"
	"github.com/kubemend/kubemend/controllers/look"
)

// MachineHealthCheck explains a MachineHealthCheck, and those of its targets of which there is something to say.
func MachineHealthCheck(ctx context.Context, a *ask.Asker, key client.ObjectKey) (*Explanation, error) {
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool { return client.ObjectKeyFromObject(c) == key })
	if err != nil {
		return nil, err
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("there is no MachineHealthCheck %s in namespace %s", key.Name, key.Namespace)
	}
	return explained(a, checks[0]), nil
}

// NodeHealthCheck explains a NodeHealthCheck, and those of its targets of which there is something to say.
func NodeHealthCheck(ctx context.Context, a *ask.Asker, name string) (*Explanation, error) {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool { return c.Name == name })
	if err != nil {
		return nil, err
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("there is no NodeHealthCheck %s", name)
	}
	return explained(a, checks[0]), nil
}

// explained is the explanation of a check itself.
func explained(a *ask.Asker, c look.Check) *Explanation {
	e := &Explanation{Subject: c.Ref, At: a.Now, Notes: notes(a)}
	if c.Cluster != "" {
		e.Is = append(e.Is, Fact{"cluster", c.Cluster})
	}
	e.Checks = []Check{About(c, remarkable)}
	e.Verdict, e.Next = verdictOn(&e.Checks[0]), c.Next
	for i := range c.Targets { // where time changes nothing, somebody may have to
		if t := &c.Targets[i]; e.Next == (look.Step{}) && t.Next.Person && t.Left == "" {
			e.Next = t.Next
		}
	}
	if e.Next == (look.Step{}) {
		e.Next = look.Step{Text: "Nothing, until something changes"}
	}
	return e
}

// remarkable are targets of which there is more to say than that they are well.
func remarkable(t look.Target) bool {
	return t.State != health.Healthy || t.Left != "" || t.InFlight || len(t.Holds) > 0
}

// verdictOn is what is to be said of a check in one sentence.
func verdictOn(c *Check) string {
	switch {
	case c.Because != "":
		return c.Because
	case c.Text != "":
		return c.Text
	case c.Population.Total() == 0:
		return "It selects nothing"
	case c.Population.NotHealthy() == 0:
		return "All that it selects is healthy"
	}
	begins, underway := 0, 0
	for _, t := range c.Targets {
		if t.Begins {
			begins++
		}
		if t.InFlight {
			underway++
		}
	}
	return fmt.Sprintf("Remediation is allowed; %d are under way, and %d begin now", underway, begins)
}
