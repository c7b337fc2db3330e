package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

func (o *Options) status() *cobra.Command {
	var full, all bool
	var cluster string
	var again watching
	list := listing{sort: string(page.ByName)}
	c := &cobra.Command{
		Use:   "status [CLUSTER]",
		Short: "List all checks: which controller acts, how many targets are healthy, how much of the limit is used, what is next",
		Long: "List all checks, one row each: which controller acts, how many targets are healthy, pending, unhealthy, unknown and being remediated, " +
			"how much of the limit is used, and what happens next. Above them: whether a manager runs, which kinds it serves, and which workload " +
			"clusters it cannot reach. The argument CLUSTER is the same as --cluster CLUSTER.",
		Example:           fmt.Sprintf("  %[1]s status -A\n  %[1]s status --cluster edge-3 --watch", o.Name),
		Args:              oneCluster(&cluster),
		ValidArgsFunction: o.completeCluster,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("not-ok") {
				list.notOK = o.allNamespaces && !all
			}
			return o.watch(c.Context(), again, func(ctx context.Context, out io.Writer) error {
				return o.printStatus(ctx, out, cluster, full, list)
			})
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "",
		"Name of the Cluster whose checks are listed, as the argument. If empty, those of all Clusters of the namespace.")
	c.Flags().BoolVar(&all, "all", false, "List also checks that are OK, which --all-namespaces leaves out otherwise.")
	c.Flags().BoolVar(&list.notOK, "not-ok", false, "List only checks that are not OK: with targets that are not healthy, or that no controller acts on. "+
		"Default with --all-namespaces.")
	c.Flags().StringVar(&list.sort, "sort-by", list.sort, "Order of the checks: "+listed(page.Orders, "or")+".")
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(page.Orders, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	again.addTo(c)
	c.Flags().BoolVar(&full, "full", false,
		"Read and judge the machines and nodes also of checks whose status says that all targets are healthy.")
	o.addOutput(c, wide, byName)
	o.addSourceFlags(c)
	excluding(c, "watch", "from")
	excluding(c, "all", "not-ok")
	return c
}

// listing is which checks are listed, and in which order.
type listing struct {
	notOK bool
	sort  string
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
			return Exit{Misused, fmt.Errorf("cluster/%s and --cluster %s: expected one of them", named.name, *cluster)}
		}
		*cluster = named.name
		return nil
	}
}

// printStatus prints the status to out, laid out for the output of the command.
func (o *Options) printStatus(ctx context.Context, out io.Writer, cluster string, full bool, list listing) error {
	if !slices.Contains(page.Orders, list.sort) {
		return Exit{Misused, fmt.Errorf("--sort-by %q: expected %s", list.sort, listed(page.Orders, "or"))}
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	a, err := o.asker(ctx, snapshot.Scope{Nodes: true, Cluster: cluster, Restless: true, AllMachines: full, OpenRecords: true})
	if err != nil {
		return err
	}
	if err := clusterIsThere(ctx, a.Reader(), namespace, cluster); err != nil {
		return err
	}
	s, err := settled(ctx, a, func() (*page.Status, error) { return page.Of(ctx, a, namespace, cluster) })
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
			NotOK: list.notOK, Sort: page.Order(list.sort),
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
