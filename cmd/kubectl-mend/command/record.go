package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

func (o *Options) record() *cobra.Command {
	var cluster, file string
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write all that the other commands read to a file",
		Long: `Write all that the other commands read to a file, for a colleague without access to the cluster, or for later. They read it
with --from.

The file is a List in JSON. It has no Secret, no address or credentials of a BMC, no content of other projects' templates, and no annotation
that kubemend does not read. What you may not read is left out and reported.`,
		Example: fmt.Sprintf("  %[1]s record -A -o fleet.json\n  %[1]s record --cluster edge-3 -n metal > edge-3.json", o.Name),
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.writeRecord(cmd.Context(), snapshot.Scope{Cluster: cluster, Everything: true}, file)
		},
	}
	o.addScope(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", "", "Name of the cluster to record. If empty, all of the namespace.")
	cmd.Flags().StringVarP(&file, "output", "o", "-", "File to write. If -, the standard output.")
	_ = cmd.MarkFlagFilename("output") // fails only for an unknown flag
	return cmd
}

func (o *Options) writeRecord(ctx context.Context, scope snapshot.Scope, name string) error {
	taken, err := o.snapshot(ctx, scope)
	if err != nil {
		return err
	}
	a := inspect.New(ctx, taken, taken.Clock.Now()) // running the controllers adds what they read to the snapshot
	a.Judges = true
	_, _ = a.MachineChecks(ctx, func(*clusterv1.MachineHealthCheck) bool { return true })
	_, _ = a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { return true })
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read what the controllers do: %w", err)
	}
	if name == "-" {
		name, err = "the standard output", taken.Save(text.Raw(o.Out))
	} else {
		err = save(taken, name)
	}
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	o.sayMissing(taken)
	_, err = fmt.Fprintf(o.ErrOut, "Recorded clusters: %d, machines: %d. Written to %s.\n",
		len(snapshot.All[clusterv1.Cluster](taken, "")), len(snapshot.All[clusterv1.Machine](taken, "")), text.Below(name))
	return err
}

// save writes a snapshot to a file that only its owner may read, because the file has the names of all objects. It replaces an existing
// file only when all is written.
func save(taken *snapshot.Snapshot, name string) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".kubectl-mend-record-*") // with mode 0600
	if err != nil {
		return err
	}
	if err := errors.Join(taken.Save(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), name)
}
