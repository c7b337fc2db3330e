package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

func (o *Options) status() *cobra.Command {
	var watch, full bool
	var cluster string
	var every time.Duration
	c := &cobra.Command{
		Use:   "status [CLUSTER]",
		Short: "List all checks: who acts, how many targets are healthy, how much of the limit is used, what is next",
		Long: "Say, in a row for each check of every kind, who acts on it, how many of its targets are healthy, pending, unhealthy, unknown and being " +
			"remediated, how much of its limit is used, and what happens next; and whether a manager runs, which kinds it serves, and which workload " +
			"clusters it cannot see.",
		Example:           fmt.Sprintf("  %[1]s status -A\n  %[1]s status --cluster edge-3 --watch", o.Name),
		Args:              oneCluster(&cluster),
		ValidArgsFunction: o.completeCluster,
		RunE: func(c *cobra.Command, _ []string) error {
			if !watch {
				return o.printStatus(c.Context(), o.Out, cluster, full)
			}
			return o.watchStatus(c.Context(), cluster, full, every)
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster whose checks are listed. If empty, those of all Clusters of the namespace.")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Go on, and draw the table anew, until interrupted.")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "With --watch: how often to look.")
	c.Flags().BoolVar(&full, "full", false,
		"Read and judge the machines and nodes also of checks whose status says that all targets are healthy.")
	o.addOutput(c, wide, byName)
	o.addSourceFlags(c)
	excluding(c, "watch", "from")
	return c
}

// oneCluster are the arguments of a command about a Cluster that --cluster names, or the only argument: edge-3 or cluster/edge-3.
func oneCluster(cluster *string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			args = []string{clusterKind.alias(), args[0]}
		}
		named, err := parseOne(args, clusterKind)
		switch {
		case err != nil:
			return Exit{Misused, fmt.Errorf("%q: expected the name of one Cluster, NAME or %s", args, spelled([]kind{clusterKind}))}
		case *cluster != "" && *cluster != named.name:
			return Exit{Misused, fmt.Errorf("Cluster %s and --cluster %s: expected one of them", named.name, *cluster)}
		}
		*cluster = named.name
		return nil
	}
}

// printStatus prints the status to out, laid out for the output of the command.
func (o *Options) printStatus(ctx context.Context, out io.Writer, cluster string, full bool) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	a, err := o.asker(ctx, snapshot.Scope{Nodes: true, Cluster: cluster, Restless: true, AllMachines: full})
	if err != nil {
		return err
	}
	if err := clusterIsThere(ctx, a.Reader(), namespace, cluster); err != nil {
		return err
	}
	s, err := page.Of(ctx, a, namespace, cluster)
	if err != nil {
		return err
	}
	named := make([]explain.Ref, 0, len(s.Checks))
	for i := range s.Checks {
		named = append(named, s.Checks[i].Ref)
	}
	return o.print(out, s.Document(), named, func() error {
		return s.Print(out, page.Layout{
			Width: text.Width(o.Out), Paint: o.painter(o.Out), Wide: o.isWide(), Namespaces: namespace == "",
		})
	})
}

// clusterIsThere is an error if there is certainly no Cluster of that name in the namespace, or in any if that is empty: a name that was mistyped
// must not look like a cluster where all machines are healthy.
func clusterIsThere(ctx context.Context, reader client.Reader, namespace, name string) error {
	if name == "" {
		return nil
	}
	list := &clusterv1.ClusterList{}
	unread := reader.List(ctx, list, client.InNamespace(namespace)) // it may be there then, and that it was not read is said beside the answer
	called := func(c clusterv1.Cluster) bool { return c.Name == name }
	where := "any namespace"
	if namespace != "" {
		where = "namespace " + namespace
	}
	if unread == nil && !slices.ContainsFunc(list.Items, called) {
		return fmt.Errorf("there is no Cluster %s in %s", name, where)
	}
	return nil
}

// clearScreen takes the cursor to the upper left corner of a terminal, and what stood on it away.
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus prints the status again and again. On a terminal each takes the place of the one before.
func (o *Options) watchStatus(ctx context.Context, cluster string, full bool, every time.Duration) error {
	if every <= 0 {
		return Exit{Misused, errors.New("--every: expected a duration above 0")}
	}
	for looks := 0; ; looks++ {
		var screenful bytes.Buffer // the old one stands until the new one is whole
		screen := text.OnScreen(&screenful)
		if err := o.printStatus(ctx, screen, cluster, full); err != nil {
			if looks == 0 {
				return err
			}
			_, _ = fmt.Fprintln(screen, "error:", text.Below(err.Error())) // it was there, so it may be there again in a moment
		}
		select {
		case <-ctx.Done(): // what was read halfway is not shown
			return nil
		default:
		}
		terminal := text.Raw(o.Out)
		if text.IsTerminal(terminal) {
			_, _ = fmt.Fprint(terminal, clearScreen)
		}
		if _, err := terminal.Write(screenful.Bytes()); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}
