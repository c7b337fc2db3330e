package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/report"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

func (o *Options) report() *cobra.Command {
	q := report.Question{By: []string{report.ByCluster}}
	since := model.Duration(30 * 24 * time.Hour)
	c := &cobra.Command{
		Use:   "report",
		Short: "Say how long remediations take, and which hosts and machines fail most",
		Long: "Say how remediations went, by their RemediationRecords: mean and 95th percentile of the times to detect, to begin " +
			"and until capacity is back; and the hosts, machines and nodes that were remediated again and again.",
		Example: fmt.Sprintf("  %[1]s report -A --since 90d --by check,cause\n  %[1]s report --cluster edge-3 -o json", o.Name),
		Args:    noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.printReport(c.Context(), q, time.Duration(since))
		},
	}
	c.Flags().StringVar(&q.Cluster, "cluster", "",
		"Name of the Cluster whose remediations count. If empty, those of all Clusters of the namespace.")
	c.Flags().TextVar(&since, "since", &since, "How far back, such as 36h or 14d. 0 is as far as there are records.")
	c.Flags().StringSliceVar(&q.By, "by", q.By,
		"What to divide the remediations by: "+listed(report.Dimensions, "or")+", or several of them; none if empty.")
	dimensions := cobra.FixedCompletions(report.Dimensions, cobra.ShellCompDirectiveNoFileComp)
	_ = c.RegisterFlagCompletionFunc("by", dimensions) // the flag is there
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

// printReport reads the records of the namespace that the user means, and prints what they answer. Since is zero for all of them.
func (o *Options) printReport(ctx context.Context, q report.Question, since time.Duration) error {
	q.By = slices.DeleteFunc(q.By, func(by string) bool { return by == "" })
	for _, by := range q.By {
		if !slices.Contains(report.Dimensions, by) {
			return Exit{Misused, fmt.Errorf("--by %q: expected %s", by, listed(report.Dimensions, "or"))}
		}
	}
	reader, namespace, err := o.reader()
	if err != nil {
		return err
	}
	records, installed, err := listRecords(ctx, reader, namespace)
	if err != nil {
		return err
	}
	if q.Now = o.Clock.Now(); since > 0 {
		q.Since = q.Now.Add(-since)
	}
	const notInstalled = "RemediationRecords are not installed, so no remediation was recorded."
	if !installed && o.output.printer != nil {
		_, _ = fmt.Fprintln(o.ErrOut, notInstalled)
	}
	found := report.Of(records, q)
	return o.print(found, func() error {
		if !installed {
			_, err := fmt.Fprintln(o.Out, notInstalled)
			return err
		}
		return report.Print(o.Out, found, text.Layout{Width: text.Width(o.Out), Wide: o.isWide(), Namespaces: namespace == ""})
	})
}

// listRecords lists the RemediationRecords of a namespace, or of all if it is empty, by name. It is false where their kind is not
// installed.
func listRecords(ctx context.Context, reader client.Reader, namespace string) ([]*mendv1.RemediationRecord, bool, error) {
	list := &mendv1.RemediationRecordList{}
	err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, true, fmt.Errorf("RemediationRecords: %w", err)
	}
	records := make([]*mendv1.RemediationRecord, len(list.Items))
	for i := range list.Items {
		records[i] = &list.Items[i]
	}
	slices.SortFunc(records, func(a, b *mendv1.RemediationRecord) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return records, true, nil
}
