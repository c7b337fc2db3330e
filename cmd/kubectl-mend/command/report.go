package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/report"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// asCSV prints a table for spreadsheets.
const asCSV = "csv"

// reporting are the flags of a report.
type reporting struct {
	cluster string
	by      []string
	since   span
	lemons  int
	within  span
}

func (o *Options) report() *cobra.Command {
	r := reporting{since: span(30 * 24 * time.Hour), lemons: 3, within: span(7 * 24 * time.Hour), by: []string{string(report.ByCluster)}}
	c := &cobra.Command{
		Use:   "report",
		Short: "Say how long remediations take, and which hosts and machines fail most",
		Long: "Say how remediations went, by their RemediationRecords: mean and 95th percentile of the times to detect, to begin and until capacity is back; " +
			"the hosts, machines and nodes that were remediated again and again; and the checks that were short-circuited, as far as their conditions " +
			"and events know.",
		Example: fmt.Sprintf("  %[1]s report -A --since 90d --by check,cause\n  %[1]s report --cluster edge-3 --by host-model -o csv\n"+
			"  %[1]s report shadow -A --since 14d", o.Name),
		Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return o.printReport(c.Context(), &r) },
	}
	r.addTo(c)
	c.Flags().StringSliceVar(&r.by, "by", r.by, "What to divide the remediations by: "+listed(report.Dimensions, "or")+", or several of them; none if empty.")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(report.Dimensions, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.Flags().IntVar(&r.lemons, "lemons", r.lemons, "List hosts, machines and nodes with at least so many remediations within --lemon-window. 0 lists none.")
	c.Flags().Var(&r.within, "lemon-window", "The window of --lemons.")
	o.addOutput(c, wide, asCSV)
	o.addSourceFlags(c)
	c.AddCommand(o.shadow())
	return c
}

func (o *Options) shadow() *cobra.Command {
	r := reporting{since: span(14 * 24 * time.Hour)}
	c := &cobra.Command{
		Use:   "shadow",
		Short: "Say what kubemend would have done with checks that it observes, beside what was done",
		Long: "Say what kubemend would have done with the targets of checks that it only observes, beside what was done, by RemediationRecords with mode " +
			"Observed: which failures both would have remediated and how much later or earlier, which only one of them, and what healed by itself.",
		Example: fmt.Sprintf("  %[1]s report shadow -A --since 14d\n  %[1]s report shadow --cluster edge-3 -o csv", o.Name),
		Args:    noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return o.printShadow(c.Context(), &r) },
	}
	r.addTo(c)
	o.addOutput(c, wide, asCSV)
	o.addSourceFlags(c)
	return c
}

func (r *reporting) addTo(c *cobra.Command) {
	c.Flags().StringVar(&r.cluster, "cluster", "", "Name of the Cluster whose remediations count. If empty, those of all Clusters of the namespace.")
	c.Flags().Var(&r.since, "since", "How far back, such as 36h or 14d. 0 is as far as there are records.")
}

// question is what the flags ask for at a moment.
func (r *reporting) question(now time.Time) (report.Question, error) {
	q := report.Question{Now: now, Cluster: r.cluster, AtLeast: r.lemons, Within: time.Duration(r.within)}
	switch {
	case r.since < 0:
		return q, Exit{Misused, errors.New("--since: the future has not happened yet")}
	case r.lemons < 0, r.within < 0:
		return q, Exit{Misused, errors.New("--lemons and --lemon-window cannot be negative")}
	case r.since > 0:
		q.Since = now.Add(-time.Duration(r.since))
	}
	for _, by := range r.by {
		if by == "" {
			continue
		}
		if !slices.Contains(report.Dimensions, by) {
			return q, Exit{Misused, fmt.Errorf("--by %q: expected %s", by, listed(report.Dimensions, "or"))}
		}
		if !slices.Contains(q.By, report.Dimension(by)) {
			q.By = append(q.By, report.Dimension(by))
		}
	}
	return q, nil
}

func (o *Options) printReport(ctx context.Context, r *reporting) error {
	if _, err := r.question(time.Time{}); err != nil { // before anything is read
		return err
	}
	read, err := o.readReport(ctx, true)
	if err != nil {
		return err
	}
	q, _ := r.question(read.now)
	is := report.Of(read.remediations, q)
	is.ShortCircuits, is.ReadErrors = report.ShortCircuitsOf(read.checks, read.events, q), read.trouble
	return o.printTable(is.Document(), read, is.Print, is.WriteCSV)
}

func (o *Options) printShadow(ctx context.Context, r *reporting) error {
	if _, err := r.question(time.Time{}); err != nil { // before anything is read
		return err
	}
	read, err := o.readReport(ctx, false)
	if err != nil {
		return err
	}
	q, _ := r.question(read.now)
	is := report.ShadowOf(read.remediations, q)
	is.ReadErrors = read.trouble
	return o.printTable(is.Document(), read, is.Print, is.WriteCSV)
}

// printTable prints a report in the format of the flags, and what it does without.
func (o *Options) printTable(found runtime.Object, read *reportInput, page func(io.Writer, report.Layout) error, table func(io.Writer) error) error {
	for _, t := range read.trouble {
		_, _ = fmt.Fprintln(o.ErrOut, text.Wrap("could not be read, and was done without: "+t, 4, text.Width(o.ErrOut)))
	}
	forPrograms := o.output.printer != nil || *o.output.flags.OutputFormat == asCSV
	if !read.installed && forPrograms { // the page itself says it
		_, _ = fmt.Fprintln(o.ErrOut, explain.NoRecordsKept)
	}
	return o.print(o.Out, found, nil, func() error {
		if forPrograms {
			return table(o.Out)
		}
		return page(o.Out, report.Layout{
			Width: text.Width(o.Out), Wide: o.isWide(), Namespaces: read.namespace == "", NotInstalled: !read.installed, Paint: o.painter(o.Out),
		})
	})
}
