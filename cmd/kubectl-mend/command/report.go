package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
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
		Args:    noArgs,
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
	_ = c.RegisterFlagCompletionFunc("by", dimensions) // fails only for an unknown flag
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

// printReport reads the RemediationRecords of the namespace of the flags and prints the report. If since is zero, all records count.
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
	records, err := listRecords(ctx, reader, namespace)
	if meta.IsNoMatchError(err) {
		_, _ = fmt.Fprintln(o.ErrOut, "RemediationRecords are not installed, so no remediation was recorded.")
	} else if err != nil {
		return fmt.Errorf("RemediationRecords: %w", err)
	}
	if q.Now = o.Clock.Now(); since > 0 {
		q.Since = q.Now.Add(-since)
	}
	found := report.Of(records, q)
	return o.print(found, func() error {
		layout := o.layout()
		layout.Namespaces = namespace == ""
		return report.Print(o.Out, found, layout)
	})
}

func listRecords(ctx context.Context, reader client.Reader, namespace string) ([]*mendv1.RemediationRecord, error) {
	list := &mendv1.RemediationRecordList{}
	err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	records := make([]*mendv1.RemediationRecord, len(list.Items))
	for i := range list.Items {
		records[i] = &list.Items[i]
	}
	return records, err
}

var historyOf = []kind{machineKind, hostKind, nodeKind, machineCheckKind, nodeCheckKind, clusterKind}

func (o *Options) history() *cobra.Command {
	var utc bool
	since := model.Duration(24 * time.Hour)
	c := &cobra.Command{
		Use:   "history [KIND/NAME]",
		Short: "List what has happened to machines, their nodes, hosts and checks",
		Long: "List what has happened, oldest first: the steps of RemediationRecords, which outlive their machines, and events " +
			"that tell what no step does, which the API server keeps for an hour by default.",
		Example: fmt.Sprintf("  %[1]s history machine/workers-x7k2p\n  %[1]s history -A --since 1h -o wide\n"+
			"  %[1]s history machine/workers-x7k2p -o svg > postmortem.svg", o.Name),
		RunE: func(c *cobra.Command, args []string) error {
			var s history.Scope
			if len(args) > 0 {
				named, err := parseOne(args, historyOf...)
				if err != nil {
					return err
				}
				s.Kind, s.Name = string(named.kind), named.name
			}
			return o.tellHistory(c.Context(), s, time.Duration(since), utc)
		},
	}
	c.Flags().TextVar(&since, "since", &since, "How far back, such as 36h or 14d. 0 is as far as is remembered.")
	c.Flags().BoolVar(&utc, "utc", false, "Print dates and times in UTC, as -o wide does.")
	o.addOutput(c, wide, svg)
	o.addSourceFlags(c)
	return c
}

func (o *Options) tellHistory(ctx context.Context, s history.Scope, since time.Duration, utc bool) error {
	reader, namespace, err := o.reader()
	if err != nil {
		return err
	}
	s.Namespace = namespace
	objects, trouble, err := observeHistory(ctx, reader, namespace)
	if err != nil {
		return err
	}
	now := o.Clock.Now()
	if since > 0 {
		s.Since = now.Add(-since)
	}
	objects.Records = slices.DeleteFunc(objects.Records, func(record *mendv1.RemediationRecord) bool { return !s.Concerns(record) })
	found := history.Of(objects, s)
	found.ReadErrors = trouble
	return o.print(found, func() error {
		layout := o.layout()
		layout.Now, layout.UTC, layout.Namespaces = now, utc, namespace == ""
		return o.printHistory(found, s, layout)
	})
}

// observeHistory reads records, Machines and events of a namespace, or of all if it is empty. It returns a line of trouble for each kind
// that could not be read, and an error if no kind could. A kind that is not installed is no trouble.
func observeHistory(ctx context.Context, c client.Reader, namespace string) (*history.Objects, []string, error) {
	var machines clusterv1.MachineList
	var events, ofNodes eventsv1.EventList
	var trouble []string
	failed := func(what string, err error) {
		if err != nil && !meta.IsNoMatchError(err) {
			trouble = append(trouble, what+": "+err.Error())
		}
	}
	records, err := listRecords(ctx, c, namespace)
	failed("RemediationRecords", err)
	failed("Machines", c.List(ctx, &machines, client.InNamespace(namespace)))
	failed("events", c.List(ctx, &events, client.InNamespace(namespace)))
	objects := &history.Objects{Events: events.Items, Machines: machines.Items, Records: records}
	if len(trouble) == 3 {
		return nil, trouble, fmt.Errorf("nothing could be read: %s", trouble[0])
	}
	if namespace != "" && namespace != metav1.NamespaceDefault { // events about cluster-scoped objects are in namespace default
		failed("events about nodes", c.List(ctx, &ofNodes, client.InNamespace(metav1.NamespaceDefault)))
	}
	for _, event := range ofNodes.Items {
		if about := event.Regarding.Kind; about == string(nodeKind) || about == string(nodeCheckKind) {
			objects.Events = append(objects.Events, event)
		}
	}
	return objects, trouble, nil
}

func (o *Options) printHistory(found *cliv1.History, s history.Scope, layout text.Layout) error {
	for _, t := range found.ReadErrors {
		_, _ = fmt.Fprintln(o.ErrOut, text.Wrap("could not be read, and is left out: "+t, 4, text.Width(o.ErrOut)))
	}
	switch {
	case len(found.Items) == 0:
		since := ""
		if !s.Since.IsZero() {
			since = s.Since.UTC().Format(" since 2006-01-02 15:04:05 UTC")
		}
		_, err := fmt.Fprintf(o.ErrOut, "No RemediationRecord and no event was found%s.\n", since)
		return err
	case o.format == svg:
		return history.SVG(o.Out, found.Items)
	}
	return history.Print(o.Out, found.Items, layout)
}
