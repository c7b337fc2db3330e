package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

const (
	unversioned = "dev"     // the version of a program that was built without one
	unannounced = "unknown" // that of a manager that announces none
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
		return unannounced
	}
	return manager.Announcement.Version
}

// sayVersions warns, once, that managers which run are of another version than this program, whose answers are those of its own version.
func (o *Options) sayVersions(managers []managerlease.Manager) {
	if o.version == unversioned || o.saidVersions {
		return
	}
	var others []string
	for _, manager := range managers {
		version := versionOf(manager)
		if manager.Alive && !slices.Contains([]string{o.version, unversioned, unannounced}, version) {
			others = append(others, fmt.Sprintf("version %s in namespace %s", version, manager.Namespace))
		}
	}
	if len(others) > 0 {
		o.saidVersions = true
		_, _ = fmt.Fprintf(o.ErrOut, "warning: this is version %s of %s, and answers as a manager of that version would; there is %s\n",
			o.version, o.Name, text.Below(strings.Join(others, ", and ")))
	}
}
