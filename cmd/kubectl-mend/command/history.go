package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// chronicle is what is printed.
type chronicle struct {
	Entries []history.Entry
	// ReadErrors are what could not be read; the history does without.
	ReadErrors []string
}

func (o *Options) history() *cobra.Command {
	var s history.Scope
	since := span(24 * time.Hour)
	c := &cobra.Command{
		Use:   "history [KIND/NAME | --machine NAME | --host NAME | --cluster NAME | --node NAME]",
		Short: "List what has happened to machines, their nodes, hosts and checks",
		Long: "List what has happened, oldest first: from RemediationRecords, which outlive their machines, from events, which the API server " +
			"keeps for an hour by default, and from the objects themselves. A condition only has its last change.",
		Example:           fmt.Sprintf("  %[1]s history machine/workers-x7k2p\n  %[1]s history -A --since 1h -o wide", o.Name),
		Args:              func(_ *cobra.Command, args []string) error { return aboutOne(&s, args) },
		ValidArgsFunction: o.completeNames(machineKind, hostKind, clusterKind, nodeKind),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.checkHistory(s, time.Duration(since)); err != nil {
				return err
			}
			return o.tellHistory(c.Context(), s, time.Duration(since))
		},
	}
	c.Flags().StringVar(&s.Machine, "machine", "", "What concerns one Machine, also one that is gone.")
	c.Flags().StringVar(&s.Host, "host", "", "What concerns one BareMetalHost, and the Machine on it.")
	c.Flags().StringVar(&s.Cluster, "cluster", "", "What concerns the Machines of one Cluster.")
	c.Flags().StringVar(&s.Node, "node", "", "What concerns one Node, and the Machines that it is, or was, of.")
	c.Flags().Var(&since, "since", "How far back, such as 36h or 14d. 0 is as far as is remembered.")
	o.addOutput(c, wide)
	excluding(c, "machine", "host", "cluster", "node")
	o.addSourceFlags(c)
	return c
}

// tellHistory reads and prints what has happened in a scope. Records are read first: with them the rest finds what belongs to machines that are gone.
func (o *Options) tellHistory(ctx context.Context, s history.Scope, since time.Duration) error {
	var err error
	if s.Namespace, err = o.namespace(); err != nil {
		return err
	}
	read, reader, clock, err := o.recordSource()
	if err != nil {
		return err
	}
	now := clock()
	if since > 0 {
		s.Since = now.Add(-since)
	}
	records, _, unread := read.records(ctx, s.Namespace, func(brief snapshot.Brief) (*mendv1.RemediationRecord, error) {
		if !s.Concerns(brief.RemediationRecord) {
			return nil, nil
		}
		return brief.Whole()
	})
	objects, readErrors, err := observeHistory(ctx, reader, s.Namespace)
	switch {
	case err != nil && len(records) == 0:
		return err
	case err != nil: // records are enough for a history
		readErrors = []string{err.Error()}
	}
	for _, record := range records {
		objects.Records = append(objects.Records, *record)
	}
	objects.Now = now
	if unread != nil {
		readErrors = append(readErrors, unread.Error())
	}
	return o.printHistory(chronicle{Entries: history.Of(objects, s), ReadErrors: readErrors}, now, s)
}

// aboutOne takes what the arguments name for what the flags of that name do.
func aboutOne(s *history.Scope, args []string) error {
	if len(args) == 0 {
		return nil
	}
	named, err := parseOne(args, machineKind, hostKind, clusterKind, nodeKind)
	if err != nil {
		return err
	}
	if s.Machine+s.Host+s.Cluster+s.Node != "" {
		return Exit{Misused, fmt.Errorf("%s excludes --machine, --host, --cluster and --node", named)}
	}
	switch named.kind {
	case machineKind:
		s.Machine = named.name
	case hostKind:
		s.Host = named.name
	case nodeKind:
		s.Node = named.name
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

func (o *Options) printHistory(c chronicle, now time.Time, s history.Scope) error {
	return o.print(o.Out, history.Document(c.Entries, c.ReadErrors), nil, func() error {
		for _, t := range c.ReadErrors {
			_, _ = fmt.Fprintln(o.ErrOut, text.Wrap("could not be read, and was done without: "+t, 4, text.Width(o.ErrOut)))
		}
		if len(c.Entries) == 0 {
			_, _ = fmt.Fprintln(o.ErrOut, text.Wrap(explain.NoHistory(s.About(), s.Since), 0, text.Width(o.ErrOut)))
			return nil
		}
		layout := history.Layout{
			Now: now, Width: text.Width(o.Out), Wide: o.isWide(), Namespaces: s.Namespace == "", Paint: o.painter(o.Out),
		}
		return history.Print(o.Out, c.Entries, layout)
	})
}
