package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// The values of --for that are no phase.
const (
	untilRemediated = "remediated"    // the object is healthy with no remediation in flight, or it is gone
	untilUnhealthy  = "unhealthy"     // the object is remediating or blocked
	untilBack       = "capacity-back" // the machine or its replacement has a Ready node, or none is due; of an owner: all have one
)

var awaitable = []string{"healthy", untilRemediated, untilBack, untilUnhealthy, "pending", "remediating", "blocked", "unknown"}

// aWeek is the timeout that replaces a negative one, as in kubectl wait.
const aWeek = 7 * 24 * time.Hour

type waiting struct {
	*Options

	cluster, until string
	timeout        time.Duration
}

func (o *Options) wait() *cobra.Command {
	w := &waiting{Options: o}
	c := &cobra.Command{
		Use:   "wait (KIND NAME... | KIND/NAME...) --for=PHASE",
		Short: "Wait until a machine, a node or a host is healthy, remediated or unhealthy",
		Long: "Wait until an object is in the phase that --for names, by the answer of explain. unhealthy is remediating or blocked; " +
			"remediated is healthy with no remediation in flight, or gone; capacity-back is that the machine in its place has a Ready " +
			"node too. Of a MachineDeployment, a KubeadmControlPlane or a Cluster, healthy is that all machines have a Ready node.",
		Example: fmt.Sprintf("  %[1]s wait machine/workers-x7k2p --for=healthy --timeout=10m\n  %[1]s wait host/rack3-11 "+
			"--for=remediated --timeout=30m\n  %[1]s wait md/workers --for=capacity-back --timeout=1h", o.Name),
		RunE: func(c *cobra.Command, args []string) error { return w.run(c.Context(), args) },
	}
	c.Flags().StringVar(&w.until, "for", "", "What to wait for: "+listed(awaitable, "or")+".")
	c.Flags().DurationVar(&w.timeout, "timeout", 30*time.Second,
		"How long to wait. Zero means check once and do not wait; a negative value means a week.")
	c.Flags().StringVar(&w.cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	o.addScope(c)
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(awaitable, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return c
}

func (w *waiting) run(ctx context.Context, args []string) error {
	w.until = strings.ToLower(w.until)
	if !slices.Contains(awaitable, w.until) {
		return Exit{Misused, fmt.Errorf("--for %q: expected %s", w.until, listed(awaitable, "or"))}
	}
	named, err := parseSome(args, explained...)
	if err != nil {
		return err
	}
	if w.timeout < 0 {
		w.timeout = aWeek
	}
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	for _, subject := range named {
		if err := w.await(ctx, limited, subject); err != nil {
			return err
		}
	}
	return nil
}

// await waits for one object until limited ends. A read that is under way then goes on with ctx, so that the error has the last state.
func (w *waiting) await(ctx, limited context.Context, named subject) error {
	state := ""
	err := wait.PollUntilContextCancel(limited, w.polls, true, func(context.Context) (bool, error) {
		e, err := w.explanation(ctx, named, w.cluster)
		gone, found := explain.Missing(""), "not known"
		switch {
		case ctx.Err() != nil: // an interrupted read gives no answer
			return false, ctx.Err()
		case err != nil && snapshot.Silent(err): // go on: an API server that restarts must not end a script that waits for hours
			_, _ = fmt.Fprintln(w.ErrOut, err)
		case err != nil && (!errors.As(err, &gone) || w.until != untilRemediated):
			return false, err
		case err != nil || met(w.until, e):
			_, err := fmt.Fprintf(w.Out, "%s/%s condition met\n", strings.ToLower(named.kind.gvk().GroupKind().String()), named.name)
			return true, err // as kubectl wait
		default:
			if found = string(e.Phase); e.Reason != "" {
				found += " (" + e.Reason + ")"
			}
		}
		if found != state {
			state = found
			_, _ = fmt.Fprintf(w.ErrOut, "%s is %s\n", named, state)
		}
		return false, nil
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting for %s on %s", w.until, named)
	case wait.Interrupted(err):
		return fmt.Errorf("timed out waiting for %s on %s: it is %s", w.until, named, state)
	}
	return err
}

func met(until string, e *page.Explanation) bool {
	phase := e.Answer.Phase()
	inFlight := slices.ContainsFunc(e.Checks, func(check explain.Check) bool {
		return slices.ContainsFunc(check.Targets, func(target explain.Target) bool { return target.InFlight })
	})
	switch {
	case until == untilUnhealthy:
		return phase == cliv1.Remediating || phase == cliv1.Blocked
	case until == untilBack && len(e.Owners) == 0 && len(e.Capacity) == 1:
		return e.Capacity[0].Ended()
	case until == untilRemediated && e.Gone:
		return true
	case until == untilRemediated, until == untilBack:
		return phase == cliv1.Healthy && !inFlight
	}
	return strings.EqualFold(string(phase), until)
}
