package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/report"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// reporting are the flags of a report.
type reporting struct {
	cluster string
	by      []string
	since   model.Duration
	lemons  int
	within  model.Duration
}

func (o *Options) report() *cobra.Command {
	r := reporting{since: model.Duration(30 * 24 * time.Hour), lemons: 3, within: model.Duration(7 * 24 * time.Hour), by: []string{report.ByCluster}}
	c := &cobra.Command{
		Use:   "report",
		Short: "Say how long remediations take, and which hosts and machines fail most",
		Long: "Say how remediations went, by their RemediationRecords: mean and 95th percentile of the times to detect, to begin " +
			"and until capacity is back; and the hosts, machines and nodes that were remediated again and again.",
		Example: fmt.Sprintf("  %[1]s report -A --since 90d --by check,cause\n  %[1]s report --cluster edge-3 -o json", o.Name),
		Args:    noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return o.printReport(c.Context(), &r) },
	}
	c.Flags().StringVar(&r.cluster, "cluster", "",
		"Name of the Cluster whose remediations count. If empty, those of all Clusters of the namespace.")
	c.Flags().TextVar(&r.since, "since", &r.since, "How far back, such as 36h or 14d. 0 is as far as there are records.")
	c.Flags().StringSliceVar(&r.by, "by", r.by,
		"What to divide the remediations by: "+listed(report.Dimensions, "or")+", or several of them; none if empty.")
	dimensions := cobra.FixedCompletions(report.Dimensions, cobra.ShellCompDirectiveNoFileComp)
	_ = c.RegisterFlagCompletionFunc("by", dimensions) // the flag is there
	c.Flags().IntVar(&r.lemons, "lemons", r.lemons,
		"List hosts, machines and nodes with at least so many remediations within --lemon-window. 0 lists none.")
	c.Flags().TextVar(&r.within, "lemon-window", &r.within, "The window of --lemons.")
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

// check refuses what cannot be meant.
func (r *reporting) check() error {
	if r.lemons < 0 {
		return Exit{Misused, errors.New("--lemons cannot be negative")}
	}
	for _, by := range r.by {
		if !slices.Contains(report.Dimensions, by) {
			return Exit{Misused, fmt.Errorf("--by %q: expected %s", by, listed(report.Dimensions, "or"))}
		}
	}
	return nil
}

// question is what the flags ask for at a moment.
func (r *reporting) question(now time.Time) report.Question {
	q := report.Question{Now: now, Cluster: r.cluster, By: r.by, AtLeast: r.lemons, Within: time.Duration(r.within)}
	if r.since > 0 {
		q.Since = now.Add(-time.Duration(r.since))
	}
	return q
}

func (o *Options) printReport(ctx context.Context, r *reporting) error {
	r.by = slices.DeleteFunc(r.by, func(by string) bool { return by == "" })
	if err := r.check(); err != nil {
		return err
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	reader, now, err := o.recordSource()
	if err != nil {
		return err
	}
	records, installed, err := listRecords(ctx, reader, namespace)
	if err != nil {
		return err
	}
	o.sayClock()
	const notInstalled = "RemediationRecords are not installed, so no remediation was recorded."
	if !installed && o.output.printer != nil {
		_, _ = fmt.Fprintln(o.ErrOut, notInstalled)
	}
	found := report.Of(records, r.question(now()))
	return o.print(o.Out, found, nil, func() error {
		if !installed {
			_, err := fmt.Fprintln(o.Out, notInstalled)
			return err
		}
		return report.Print(o.Out, found, report.Layout{Width: text.Width(o.Out), Wide: o.isWide(), Namespaces: namespace == ""})
	})
}
