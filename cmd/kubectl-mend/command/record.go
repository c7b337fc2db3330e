package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// ownerOnly is the mode of a recorded file: it has no secrets in it, but names of everything.
const ownerOnly = 0o600

// record is the command that writes a world to a file.
func (o *Options) record() *cobra.Command {
	var cluster, file string
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write all that the other commands look at to a file",
		Long: `Write all that the other commands look at to a file, for somebody who has no access to the cluster, or for later.

The file is JSON, packed with gzip, and --from looks at it in place of a cluster. There is no Secret in it, no address or credentials of a BMC,
nothing of templates but their names, and no annotation that kubemend does not read. There are the names, labels and conditions of clusters,
machines, nodes and hosts in it, and the events about them.

What you may not read is left out, and said.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.writeRecord(cmd.Context(), snapshot.Scope{Cluster: cluster, Nodes: true, Events: true}, file)
		},
	}
	o.addScope(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", "", "Name of the cluster to record. If empty, all of the namespace.")
	cmd.Flags().StringVarP(&file, "output", "o", "-", "File to write. If -, the standard output, which must not be a terminal then.")
	_ = cmd.MarkFlagFilename("output") // the flag is there
	return cmd
}

func (o *Options) writeRecord(ctx context.Context, scope snapshot.Scope, name string) error {
	if name == "-" && isTerminal(o.Out) {
		return Exit{Misused, errors.New("a terminal cannot show what is packed with gzip: name a file with -o, or redirect the output")}
	}
	world, err := o.world(ctx, scope)
	if err != nil {
		return err
	}
	var content bytes.Buffer // a file is written whole, or not at all
	if err := world.Save(&content); err != nil {
		return err
	}
	if name == "-" {
		_, err = o.Out.Write(content.Bytes())
	} else {
		err = os.WriteFile(name, content.Bytes(), ownerOnly)
	}
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	o.sayMissing(world)
	return o.sayRecorded(ctx, world, name)
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// sayRecorded tells how much there is in a record. That somebody may not read machines is told already.
func (o *Options) sayRecorded(ctx context.Context, world *snapshot.World, name string) error {
	clusters, machines := &clusterv1.ClusterList{}, &clusterv1.MachineList{}
	_ = world.ReadOnly().List(ctx, clusters) // what is missing was told
	_ = world.ReadOnly().List(ctx, machines)
	nodes := 0
	for _, cluster := range world.Workloads() {
		nodes += len(world.Nodes(cluster))
	}
	to := name
	if to == "-" {
		to = "the standard output"
	}
	_, err := fmt.Fprintf(o.ErrOut, "Recorded clusters: %d, machines: %d, their nodes: %d. Written to %s.\n",
		len(clusters.Items), len(machines.Items), nodes, to)
	return err
}
