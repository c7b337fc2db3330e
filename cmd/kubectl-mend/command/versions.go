package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func (o *Options) versions() *cobra.Command {
	var clientOnly bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and of each manager that has announced itself",
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version --client", o.Name),
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, _ = fmt.Fprintf(o.Out, "Client Version: %s\n", o.version)
			if clientOnly {
				return nil
			}
			reader, err := o.client()
			if err != nil {
				return err
			}
			now := o.timeAt(c.Context(), reader)
			managers, err := managerlease.Of(c.Context(), reader, now)
			if err != nil {
				return err
			}
			return page.PrintManagers(o.Out, managers, text.Layout{Now: now, Width: o.width(), Paint: o.painter(o.Out)})
		},
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this program only, and ask no cluster.")
	return c
}
