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
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

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
		ValidArgsFunction: cobra.NoFileCompletions,
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

// tellHistory reads and prints what has happened in a scope.
func (o *Options) tellHistory(ctx context.Context, s history.Scope, since time.Duration, utc bool) error {
	reader, namespace, err := o.reader()
	if err != nil {
		return err
	}
	s.Namespace = namespace
	records, _, unread := listRecords(ctx, reader, namespace)
	now := o.Clock.Now()
	if since > 0 {
		s.Since = now.Add(-since)
	}
	records = slices.DeleteFunc(records, func(record *mendv1.RemediationRecord) bool { return !s.Concerns(record) })
	objects, trouble, err := observeHistory(ctx, reader, s.Namespace)
	if err != nil && len(records) == 0 {
		return err
	}
	if unread != nil {
		trouble = append(trouble, unread.Error())
	}
	objects.Records = records
	found := history.Of(objects, s)
	found.ReadErrors = trouble
	return o.print(found, func() error {
		return o.printHistory(found, s, text.Layout{
			Now: now, Width: text.Width(o.Out), UTC: utc, Wide: o.isWide(), Namespaces: s.Namespace == "", Paint: o.painter(o.Out),
		})
	})
}

// observeHistory reads what history is made of beside records, of one namespace or of all if it is empty. What may not be read is done
// without, and said; it is an error if nothing can be. A kind that is not installed has no objects, and that is no trouble.
func observeHistory(ctx context.Context, c client.Reader, namespace string) (*history.Objects, []string, error) {
	var machines clusterv1.MachineList
	var events, ofNodes eventsv1.EventList
	var trouble []string
	list := func(into client.ObjectList, namespace, what string) {
		if err := c.List(ctx, into, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
			trouble = append(trouble, what+": "+err.Error())
		}
	}
	list(&machines, namespace, "Machines")
	list(&events, namespace, "events")
	objects := &history.Objects{Events: events.Items, Machines: machines.Items}
	if len(trouble) == 2 {
		return objects, trouble, fmt.Errorf("nothing could be read: %s", trouble[0])
	}
	if namespace != "" && namespace != metav1.NamespaceDefault { // there are the events about what has no namespace
		list(&ofNodes, metav1.NamespaceDefault, "events about nodes")
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
		_, _ = fmt.Fprintln(o.ErrOut, text.Wrap("could not be read, and was done without: "+t, 4, text.Width(o.ErrOut)))
	}
	switch {
	case len(found.Items) == 0 && s.Since.IsZero():
		_, err := fmt.Fprintln(o.ErrOut, "No RemediationRecord and no event was found.")
		return err
	case len(found.Items) == 0:
		_, err := fmt.Fprintln(o.ErrOut, s.Since.UTC().Format("No RemediationRecord and no event was found since 2006-01-02 15:04:05 UTC."))
		return err
	case o.output.format == svg:
		return history.SVG(o.Out, found.Items)
	}
	return history.Print(o.Out, found.Items, layout)
}
