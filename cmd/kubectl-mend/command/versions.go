package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
			_, err = fmt.Fprint(o.Out, "\n"+versionTable(managers, now)+"\n")
			return err
		},
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this program only, and ask no cluster.")
	return c
}

func versionTable(managers []managerlease.Manager, now time.Time) string {
	if len(managers) == 0 {
		return "No manager of kubemend has announced itself."
	}
	rows := make([][]string, 0, 1+len(managers))
	rows = append(rows, []string{"NAMESPACE", "VERSION", "STATE"})
	for _, manager := range managers {
		state := "running"
		switch {
		case !manager.Alive:
			state = "not running since " + text.Moment(manager.Gone, now)
		case manager.Unverified != "":
			state = "running, not verified: " + manager.Unverified
		}
		rows = append(rows, []string{manager.Namespace, versionOf(manager), state})
	}
	return strings.Join(text.Table(rows), "\n")
}

func versionOf(manager managerlease.Manager) string {
	if manager.Announcement == nil || manager.Announcement.Version == "" {
		return "unknown"
	}
	return manager.Announcement.Version
}
