package command

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/controllers/explain"
)

// remediable are the kinds of which a person may have one remediated.
var remediable = []kind{machineKind, nodeKind, hostKind}

func (o *Options) remediate() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "remediate"}
	var cluster string
	c := &cobra.Command{
		Use:   "remediate (KIND NAME | KIND/NAME)",
		Short: "Request the remediation of a machine, a node or a host, also of a healthy one",
		Long: "Request the remediation of a machine, a node or a host, also of a healthy one. The command shows what will happen, and asks.\n\n" +
			"A machine gets the annotation " + clusterv1.RemediateMachineAnnotation + ". Its MachineHealthCheck then has its owner replace it, " +
			"within the limits of the check.\n\n" +
			"A host, and a machine whose check power-cycles, gets a HostRemediation, by which kubemend power-cycles the host. The command requests " +
			"it only if the check would remediate the machine now.\n\n" +
			"A node gets what its machine gets. An annotation and an event record who asked, when and why.",
		Example: fmt.Sprintf("  %[1]s remediate machine/workers-x7k2p --reason \"NIC drops packets\"\n"+
			"  %[1]s remediate node rack1-07 --cluster edge-3 --dry-run\n"+
			"  %[1]s remediate host/rack1-07 -n metal --yes", o.Name),
		Args:              oneOf(remediable...),
		ValidArgsFunction: o.completeNames(remediable...),
		RunE: b.runs(o, func(ctx context.Context, named subject, namespace string) error {
			return o.remediateNamed(ctx, b, named, namespace, cluster)
		}, remediable...),
	}
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	b.addFlags(c)
	return c
}

// remediateNamed says what a remediation of the object will do, asks, and requests it.
func (o *Options) remediateNamed(ctx context.Context, b *byHand, named subject, namespace, cluster string) error {
	scope, err := o.scopeAround(ctx, named.kind, client.ObjectKey{Namespace: namespace, Name: named.name}, cluster)
	if err != nil {
		return err
	}
	scope.AllMachines = true // the limits are to be counted
	a, err := o.asker(ctx, scope)
	if err != nil {
		return err
	}
	facts, err := observeRemediation(ctx, a, named.kind, namespace, named.name, cluster)
	if err != nil {
		return err
	}
	said := named.String()
	if named.kind != nodeKind {
		said += " in " + namespace
	}
	decided := planRemediation(facts)
	if err := b.announce(said, decided.plan); err != nil || decided.outcome != changes {
		return err
	}
	if decided.cycle {
		b.say(hardPowerOff(ctx, b.workload, facts.machine))
		return b.apply(ctx, b.powerCycle(facts, said))
	}
	_, _ = fmt.Fprintln(o.Out)
	if err := facts.after.Print(o.Out, page.Layout{Width: o.width(), Paint: o.painter(o.Out), Wide: o.isWide()}); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(o.Out)
	return b.apply(ctx, b.mark(facts.machine, said))
}

// mark is the change by which a check counts a machine as unhealthy.
func (b *byHand) mark(machine *clusterv1.Machine, said string) change {
	return change{
		named: said, done: "marked",
		about: referenceTo(machineKind, machine), reason: mendv1.EventRequestedByHand, text: explain.RequestedByHand,
		write: func(ctx context.Context, annotation string, dryRun []string) error {
			annotations := map[string]any{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: annotation}
			return b.annotate(ctx, machineKind, machine, annotations, dryRun)
		},
	}
}

// powerCycle is the change by which kubemend power-cycles the host of a machine.
func (b *byHand) powerCycle(facts *remediationFacts, said string) change {
	return change{
		named: said, done: "is power-cycled by HostRemediation " + facts.request.Name,
		about: referenceTo(machineKind, facts.machine), reason: mendv1.EventRequestedByHand, text: explain.RequestedByHand,
		write: func(ctx context.Context, annotation string, dryRun []string) error {
			request := facts.request.DeepCopy()
			request.Annotations = map[string]string{mendv1.RequestedAnnotation: annotation}
			return b.client.Create(ctx, request, &client.CreateOptions{DryRun: dryRun})
		},
	}
}

// machineNamed is the Machine that a user means; nil if the host, or the node, has none.
func machineNamed(ctx context.Context, a *inspect.Asker, k kind, namespace, name, cluster string) (*clusterv1.Machine, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch k {
	case hostKind:
		h := &bmov1alpha1.BareMetalHost{}
		if err := a.Reader().Get(ctx, key, h); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no BareMetalHost %s in namespace %s", name, namespace)
		} else if err != nil {
			return nil, fmt.Errorf("read BareMetalHost %s: %w", key, err)
		}
		return a.Hosts().MachineOf(ctx, h)
	case nodeKind:
		m, _, err := page.NodeNamed(ctx, a, namespace, cluster, name)
		return m, err
	}
	m := &clusterv1.Machine{}
	if err := a.Reader().Get(ctx, key, m); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Machine %s in namespace %s", name, namespace)
	} else if err != nil {
		return nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	return m, nil
}
