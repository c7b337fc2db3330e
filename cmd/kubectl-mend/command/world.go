package command

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// addWorldFlags adds the flags that say what a command looks at.
func (o *Options) addWorldFlags(cmd *cobra.Command) {
	o.addScope(cmd)
	cmd.Flags().StringVar(&o.from, "from", "",
		"Look at a `FILE` that the record command has written, instead of the cluster: at what was there when it was recorded, "+
			"in all namespaces unless -n names one.")
	_ = cmd.MarkFlagFilename("from") // the flag is there
}

// world is what a command looks at: the file of --from, or what is read live of the scope, in the namespace of the flags. Its clock says what
// time it is there.
func (o *Options) world(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
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
		return nil, fmt.Errorf("look at a recorded world: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	world, err := snapshot.Load(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return world, nil
}

// sayMissing tells what could not be read, one line each.
func (o *Options) sayMissing(world *snapshot.Snapshot) {
	missing := world.Missing()
	if len(missing) == 0 {
		return
	}
	_, _ = fmt.Fprintln(o.ErrOut, "Could not be read:")
	for _, m := range missing {
		_, _ = fmt.Fprintf(o.ErrOut, "  %s\n", text.Below(m.String()))
	}
}
