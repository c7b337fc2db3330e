package command

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/controllers/explain"
)

var remediable = []kind{machineKind, nodeKind, hostKind}

func (o *Options) remediate() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "remediate"}
	var cluster string
	c := b.complete(o, &cobra.Command{
		Short: "Request the remediation of a machine, a node or a host, also of a healthy one",
		Long: "Request the remediation of a machine, a node or a host, also of a healthy one. The command shows what will happen, and asks.\n\n" +
			"A machine gets the annotation " + clusterv1.RemediateMachineAnnotation + ". Its MachineHealthCheck then has its owner replace it, " +
			"within the limits of the check.\n\n" +
			"A host, and a machine whose check power-cycles, gets a HostRemediation, by which kubemend power-cycles the host. The command requests " +
			"it only if the check would remediate the machine now.\n\n" +
			"A node gets what its machine gets. An annotation and an event record who asked, when and why.",
		Example: fmt.Sprintf("  %[1]s remediate machine/workers-x7k2p --reason \"NIC drops packets\"\n"+
			"  %[1]s remediate node rack1-07 --cluster edge-3 --dry-run=server\n"+
			"  %[1]s remediate host/rack1-07 -n metal --yes", o.Name),
	}, func(ctx context.Context, named subject) error { return o.remediateNamed(ctx, b, named, cluster) }, remediable...)
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	return c
}

// remediateNamed says what a remediation of the object will do, asks, and requests it.
func (o *Options) remediateNamed(ctx context.Context, b *byHand, named subject, cluster string) error {
	scope, err := o.scopeAround(ctx, named.kind, named.key(), cluster)
	if err != nil {
		return err
	}
	scope.AllMachines = true // the limits are to be counted
	a, err := o.asker(ctx, scope)
	if err != nil {
		return err
	}
	facts, err := b.observeRemediation(ctx, a, named, cluster)
	if err != nil {
		return err
	}
	decided := planRemediation(facts)
	if err := b.announce(named.String(), decided); err != nil || decided.outcome != changes {
		return err
	}
	requested := change{
		named: named.String(), about: referenceTo(machineKind, facts.machine),
		reason: mendv1.EventRequestedByHand, text: explain.RequestedByHand,
	}
	if facts.cycles() {
		b.say(b.hardPowerOff(ctx, facts.machine))
		requested.done = "is power-cycled by HostRemediation " + facts.request.Name
		requested.write = func(ctx context.Context, annotation string) error {
			request := facts.request.DeepCopy()
			request.Annotations = map[string]string{mendv1.RequestedAnnotation: annotation}
			return b.client.Create(ctx, request, &client.CreateOptions{DryRun: b.writeOptions()})
		}
		return b.apply(ctx, requested)
	}
	_, _ = fmt.Fprintln(o.Out)
	if err := facts.after.Print(o.Out, page.Layout{Width: o.width(), Paint: o.painter(o.Out), Wide: o.isWide()}); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(o.Out)
	requested.done = "marked"
	requested.write = func(ctx context.Context, annotation string) error {
		annotations := map[string]any{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: annotation}
		return b.annotate(ctx, machineKind, facts.machine, annotations)
	}
	return b.apply(ctx, requested)
}

// machineNamed is the Machine that a user means; nil if the host, or the node, has none.
func (b *byHand) machineNamed(ctx context.Context, a *inspect.Asker, named subject, cluster string) (*clusterv1.Machine, error) {
	switch named.kind {
	case hostKind:
		host := &bmov1alpha1.BareMetalHost{}
		if err := b.read(ctx, named.key(), host, hostKind); err != nil {
			return nil, err
		}
		return a.Hosts().MachineOf(ctx, host)
	case nodeKind:
		machine, _, err := page.NodeNamed(ctx, a, named.namespace, cluster, named.name)
		return machine, err
	}
	machine := &clusterv1.Machine{}
	return machine, b.read(ctx, named.key(), machine, machineKind)
}
