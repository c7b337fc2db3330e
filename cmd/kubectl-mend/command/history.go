package command

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// chronicle is what is printed.
type chronicle struct {
	Entries []history.Entry
	// ReadErrors are what could not be read; the history does without.
	ReadErrors []string
}

func (o *Options) history() *cobra.Command {
	var s history.Scope
	var since time.Duration
	c := &cobra.Command{
		Use:   "history [KIND/NAME | --machine NAME | --host NAME | --cluster NAME]",
		Short: "List what has happened to machines, their nodes, hosts and checks",
		Long: "List what has happened, oldest first: from events, which the API server keeps for an hour by default, and from the objects themselves. " +
			"A condition only has its last change.",
		Example:           fmt.Sprintf("  %[1]s history machine/workers-x7k2p\n  %[1]s history -A --since 1h -o wide", o.Name),
		Args:              func(_ *cobra.Command, args []string) error { return aboutOne(&s, args) },
		ValidArgsFunction: o.completeNames(machineKind, hostKind, clusterKind),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.checkHistory(s, since); err != nil {
				return err
			}
			var err error
			if s.Namespace, err = o.namespace(); err != nil {
				return err
			}
			reader, now, err := o.chronicles()
			if err != nil {
				return err
			}
			if since > 0 {
				s.Since = now.Add(-since)
			}
			objects, readErrors, err := observeHistory(c.Context(), reader, s.Namespace)
			if err != nil {
				return err
			}
			return o.printHistory(chronicle{Entries: history.Of(objects, s), ReadErrors: readErrors}, now, s.Namespace == "")
		},
	}
	c.Flags().StringVar(&s.Machine, "machine", "", "What concerns one Machine, also one that is gone.")
	c.Flags().StringVar(&s.Host, "host", "", "What concerns one BareMetalHost, and the Machine on it.")
	c.Flags().StringVar(&s.Cluster, "cluster", "", "What concerns the Machines of one Cluster.")
	c.Flags().DurationVar(&since, "since", 24*time.Hour, "How far back. 0 is as far as is remembered.")
	o.addOutput(c, wide)
	excluding(c, "machine", "host", "cluster")
	o.addSourceFlags(c)
	return c
}

// aboutOne takes what the arguments name for what the flags of that name do.
func aboutOne(s *history.Scope, args []string) error {
	if len(args) == 0 {
		return nil
	}
	named, err := parseOne(args, machineKind, hostKind, clusterKind)
	if err != nil {
		return err
	}
	if s.Machine+s.Host+s.Cluster != "" {
		return Exit{Misused, fmt.Errorf("%s excludes --machine, --host and --cluster", named)}
	}
	switch named.kind {
	case machineKind:
		s.Machine = named.name
	case hostKind:
		s.Host = named.name
	default:
		s.Cluster = named.name
	}
	return nil
}

// checkHistory refuses what cannot be meant.
func (o *Options) checkHistory(s history.Scope, since time.Duration) error {
	if since < 0 {
		return Exit{Misused, errors.New("--since: the future has not happened yet")}
	}
	if o.allNamespaces && (s.Machine != "" || s.Host != "") {
		return Exit{Misused, errors.New("a name of a machine or host is one in a namespace: leave --all-namespaces out")}
	}
	return nil
}

func (o *Options) printHistory(c chronicle, now time.Time, namespaces bool) error {
	return o.print(o.Out, history.Document(c.Entries, c.ReadErrors), nil, func() error {
		for _, t := range c.ReadErrors {
			_, _ = fmt.Fprintln(o.ErrOut, text.Wrap("could not be read, and was done without: "+t, 4, text.Width(o.ErrOut)))
		}
		if len(c.Entries) == 0 {
			_, _ = fmt.Fprintln(o.ErrOut, "nothing is remembered")
			return nil
		}
		layout := history.Layout{
			Now: now, Width: text.Width(o.Out), Wide: o.isWide(), Namespaces: namespaces, Paint: o.painter(o.Out),
		}
		return history.Print(o.Out, c.Entries, layout)
	})
}

// chronicles is where events and objects are read, and what time it is there.
func (o *Options) chronicles() (client.Reader, time.Time, error) {
	if o.from == "" {
		reader, err := o.client()
		return reader, o.Clock.Now(), err
	}
	w, err := load(o.from)
	if err != nil {
		return nil, time.Time{}, err
	}
	return w.ReadOnly(), w.Clock.Now(), nil
}
