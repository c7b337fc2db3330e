package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

func (o *Options) status() *cobra.Command {
	var all bool
	scope := snapshot.Scope{Restless: true}
	c := &cobra.Command{
		Use:   "status",
		Short: "List all checks: which controller acts, how many targets are healthy, how much of the limit is used, what is next",
		Long: "List all checks, one row each. Below them: machines that no check covers, hosts that are out of service, " +
			"whether a manager runs, and which kinds it does not serve.",
		Example: fmt.Sprintf("  %[1]s status -A\n  %[1]s status --cluster edge-3", o.Name),
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.printStatus(c.Context(), scope, o.allNamespaces && !all)
		},
	}
	c.Flags().StringVar(&scope.Cluster, "cluster", "",
		"Name of the Cluster whose checks are listed. If empty, those of all Clusters of the namespace.")
	c.Flags().BoolVar(&all, "all", false, "List also checks that are OK, which --all-namespaces leaves out otherwise: "+
		"those that a controller acts on, with all targets healthy.")
	c.Flags().BoolVar(&scope.Judge, "full", false,
		"Read and judge the machines and nodes also where a manager acts, in place of printing what it has written.")
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

func (o *Options) printStatus(ctx context.Context, scope snapshot.Scope, notOK bool) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	a, err := o.asker(ctx, scope)
	if err != nil {
		return err
	}
	if err := clusterIsThere(ctx, a.Snapshot, namespace, scope.Cluster); err != nil {
		return err
	}
	s, err := page.Of(ctx, a, namespace, scope.Cluster)
	if err := cmp.Or(err, ctx.Err()); err != nil { // do not print a page of an interrupted read
		return err
	}
	return o.print(s.Document(), func() error {
		layout := o.layout()
		layout.NotOK, layout.Namespaces = notOK, namespace == ""
		return s.Print(o.Out, layout)
	})
}

// clusterIsThere returns an error if no Cluster has the name in the namespace, or in any namespace if that is empty. Without the error a
// mistyped name would look like a cluster whose machines are all healthy.
func clusterIsThere(ctx context.Context, reader client.Reader, namespace, name string) error {
	if name == "" {
		return nil
	}
	list := &clusterv1.ClusterList{}
	unread := reader.List(ctx, list, client.InNamespace(namespace)) // if this fails, the Cluster may exist, and the answer has the error
	called := func(c clusterv1.Cluster) bool { return c.Name == name }
	if unread == nil && !slices.ContainsFunc(list.Items, called) {
		return explain.NoSuch("Cluster", namespace, name)
	}
	return nil
}
