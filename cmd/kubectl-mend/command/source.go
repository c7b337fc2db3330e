package command

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

func (o *Options) addSourceFlags(cmd *cobra.Command) {
	o.addScope(cmd)
	cmd.Flags().StringVar(&o.from, "from", "",
		"Read a file that the record command has written, instead of the cluster: what was there when it was recorded, "+
			"in all namespaces unless -n names one.")
	_ = cmd.MarkFlagFilename("from") // the flag is there
}

// snapshot is what a command is about: the file of --from, or the scope as it is read from the cluster, in the namespace of the
// flags. Its clock says what time it is there.
func (o *Options) snapshot(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
	if o.from != "" {
		return load(o.from)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	scope.Namespace = namespace
	if o.read != nil {
		return o.read(ctx, scope)
	}
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	w, err := snapshot.Read(ctx, snapshot.Source{Config: config, Clock: o.Clock}, scope)
	o.sayClock()
	return w, err
}

func load(name string) (*snapshot.Snapshot, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	w, err := snapshot.Load(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

func (o *Options) sayMissing(w *snapshot.Snapshot) {
	missing := w.Missing()
	if len(missing) == 0 {
		return
	}
	_, _ = fmt.Fprintln(o.ErrOut, "Could not be read:")
	for _, m := range missing {
		_, _ = fmt.Fprintf(o.ErrOut, "  %s\n", text.Below(m.String()))
	}
}
