package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/decide/budget"
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
	e.Verdict, e.Next = verdictOn(&c), cmp.Or(c.Next, nothing)
	return e
}

// remarkable are targets of which there is more to say than that they are well, or than what is said of the whole of c: that it is out of sight.
func remarkable(c *explain.Check) func(explain.Target) bool {
	return func(t explain.Target) bool {
		if t.State == health.Unknown && !t.InFlight && len(t.Blockers) > 0 && t.Blockers[0].Text == c.Unseen {
			return false
		}
		return t.State != health.Healthy || t.Left != "" || t.InFlight || len(t.Blockers) > 0
	}
}

// verdictOn is what is to be said of a check in one sentence.
func verdictOn(c *explain.Check) string {
	p := c.Population
	switch {
	case c.Because != "":
		return c.Because
	case blind(c):
		return "How it stands cannot be seen with your rights"
	case c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && p.NotHealthy() > 0: // of both kinds of checks
		return "Nothing is remediated: " + notWell(p) + ", and " + allows(c)
	case c.Text != "" && reasonOf(c) != string(budget.AtWork):
		return c.Text
	case p.Total() == 0:
		return "It selects nothing"
	case p.NotHealthy() == 0:
		return "All that it selects is healthy"
	}
	return notWell(p) + ", and " + progress(c)
}

// reasonOf is the reason for which not all is remediated that is to be. The condition has none for that some wait: remediation is allowed.
func reasonOf(c *explain.Check) string {
	if c.Reason == clusterv1.MachineHealthCheckRemediationAllowedReason && c.Text != "" {
		return string(budget.AtWork)
	}
	return c.Reason
}

// allows is what the limit says.
func allows(c *explain.Check) string {
	if c.Limits.AtLeast > 0 {
		return fmt.Sprintf("%s asks for %d to %d", c.Limit, c.Limits.AtLeast, c.Limits.AtMost)
	}
	return fmt.Sprintf("%s allows %d", c.Limit, max(c.Limits.AtMost, 0))
}

// progress is how many remediations are under way, begin and wait.
func progress(c *explain.Check) string {
	underway, begins := 0, 0
	for i := range c.Targets {
		if t := &c.Targets[i]; t.InFlight {
			underway++
		} else if t.Begins {
			begins++
		}
	}
	var parts []string
	if underway > 0 || begins == 0 {
		parts = append(parts, fmt.Sprintf("%d %s being remediated", underway, explain.Are(underway)))
	}
	if begins > 0 {
		parts = append(parts, fmt.Sprintf("the remediation of %d begins now", begins))
	}
	return strings.Join(parts, ", and ")
}

// unlimited reports whether the limit of c cannot be read, so that it allows nothing.
func unlimited(c *explain.Check) bool {
	return c.Reason == mendv1.InvalidLimitReason || slices.ContainsFunc(c.Conditions, func(is metav1.Condition) bool {
		return is.Type == nhcv1.DisabledCondition && is.Status == metav1.ConditionTrue && is.Reason == nhcv1.InvalidLimitReason
	})
}
