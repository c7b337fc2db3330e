package command

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
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
		RunE: func(c *cobra.Command, args []string) error {
			named, err := parseOne(args, remediable...)
			if err != nil {
				return err
			}
			if err := b.begin(c.Context(), o); err != nil {
				return err
			}
			return o.remediateNamed(c.Context(), b, named, cluster)
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	b.addFlags(c)
	return c
}

// oneOf are the arguments of a command that is about one object of these kinds.
func oneOf(kinds ...kind) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		_, err := parseOne(args, kinds...)
		return err
	}
}

// remediateNamed says what a remediation of the object will do, asks, and requests it.
func (o *Options) remediateNamed(ctx context.Context, b *byHand, named subject, cluster string) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	scope, err := o.scopeAround(ctx, named.kind, client.ObjectKey{Namespace: namespace, Name: named.name}, cluster)
	if err != nil {
		return err
	}
	scope.AllMachines = true // the limits are to be counted
	a, err := o.asker(ctx, scope)
	if err != nil {
		return err
	}
	f, err := observeByHand(ctx, a, named.kind, namespace, named.name, cluster)
	if err != nil {
		return err
	}
	plan := planByHand(f)
	said := named.String()
	if named.kind != nodeKind {
		said += " in " + namespace
	}
	b.say(explain.Announced(b.verb, said, plan.Changes(), plan.Refused(), plan.Text()))
	if plan.Refused() {
		return Exit{Refused, fmt.Errorf("%s is not remediated", said)}
	}
	if !plan.Changes() {
		return nil
	}
	shown := f.after
	if plan.Reason == explain.RequestedCycle {
		shown = f.cyclePage
	}
	_, _ = fmt.Fprintln(o.Out)
	if err := shown.Print(o.Out, o.width(), o.painter(o.Out)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(o.Out)
	return b.apply(ctx, b.remediation(f, &plan, said))
}

// remediation is the write by which it is requested.
func (b *byHand) remediation(f *byHandFacts, plan *explain.ByHand, said string) change {
	c := change{named: said, done: "marked", about: referenceTo(machineKind, f.machine), reason: mendv1.EventRequestedByHand, text: explain.RequestedByHand}
	right := authorizationv1.ResourceAttributes{
		Verb: "patch", Group: clusterv1.GroupVersion.Group, Resource: "machines", Namespace: f.machine.Namespace, Name: f.machine.Name,
	}
	c.write = func(ctx context.Context, annotation string, dry bool) error {
		return b.annotate(ctx, machineKind, f.machine, map[string]any{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: annotation}, dry)
	}
	if plan.Reason == explain.RequestedCycle {
		right = authorizationv1.ResourceAttributes{
			Verb: "create", Group: mendv1.GroupVersion.Group, Resource: "hostremediations", Namespace: f.machine.Namespace,
		}
		c.done = "is power-cycled by HostRemediation " + f.request.Name
		c.write = func(ctx context.Context, annotation string, dry bool) error {
			request := f.request.DeepCopy()
			request.Annotations = map[string]string{mendv1.RequestedAnnotation: annotation}
			return b.client.Create(ctx, request, &client.CreateOptions{DryRun: dryRun(dry)})
		}
	}
	c.needs = []authorizationv1.ResourceAttributes{right}
	return c
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
