package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

var remediable = []kind{machineKind, nodeKind, hostKind}

func (o *Options) remediate() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "remediate"}
	var cluster string
	c := b.recorded(b.complete(o, &cobra.Command{
		Short: "Request the remediation of a machine, a node or a host, also of a healthy one",
		Long: "Request the remediation of a machine, a node or a host, also of a healthy one. The command shows what will happen, and " +
			"asks.\n\nA machine gets the annotation " + clusterv1.RemediateMachineAnnotation +
			". Its MachineHealthCheck then has its owner replace it, within the limits of the check.\n\nA host, and a machine whose " +
			"check power-cycles, gets a HostRemediation, by which kubemend power-cycles the host. The command requests it only if the " +
			"check would remediate the machine now.\n\nA node gets what its machine gets. An annotation and an event record who asked, " +
			"when and why.",
		Example: fmt.Sprintf("  %[1]s remediate machine/workers-x7k2p --reason \"NIC drops packets\"\n"+
			"  %[1]s remediate node rack1-07 --cluster edge-3 --dry-run=server\n"+
			"  %[1]s remediate host/rack1-07 -n metal --yes", o.Name),
	}, func(ctx context.Context, named subject) error { return o.remediateNamed(ctx, b, named, cluster) }, remediable...))
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	return c
}

func (o *Options) remediateNamed(ctx context.Context, b *byHand, named subject, cluster string) error {
	scope, err := o.scopeAround(ctx, named.kind, named.key(), cluster)
	if err != nil {
		return err
	}
	scope.Judge = true // judge the nodes here: no manager has written yet what the new annotation would cause
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
		named: named.String(), about: referenceTo(machineKind, facts.machine), done: "marked",
		reason: mendv1.EventRequestedByHand, did: "remediation requested",
		write: func(ctx context.Context, annotation string) error {
			annotations := map[string]any{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: annotation}
			return b.annotate(ctx, machineKind, facts.machine, annotations)
		},
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
	if err := facts.after.Print(o.Out, text.Layout{Width: o.width(), Paint: o.painter(o.Out)}); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(o.Out)
	return b.apply(ctx, requested)
}

// remediationFacts are what planRemediation decides on.
type remediationFacts struct {
	named subject
	// machine is nil if the host or the node has no Machine.
	machine *clusterv1.Machine
	// before explains the machine as it is, after as it would be with the annotation remediate-machine.
	before, after *page.Explanation
	// alone is the annotation or the paused Cluster that keeps every controller from the machine; empty if there is none.
	alone string
	// template is the kind of the remediation requests of the machine's MachineHealthCheck; empty if the check uses no template.
	template string
	// underway is true if a remediation of the machine has not ended, or begins now.
	underway bool
	// request is the HostRemediation that the command would create, cycle its explanation. Both are nil if the kind is not installed.
	request *mendv1.HostRemediation
	cycle   *explain.Remediation
	// host is the host that the machine names.
	host host.Found
}

// cycles reports whether the command requests a power cycle: for a host, or for a machine whose check power-cycles.
func (f *remediationFacts) cycles() bool {
	return f.named.kind == hostKind || f.template == remediation.Own.Kind || f.template == remediation.Metal3.Kind
}

// machineNamed returns the Machine that the user named, or that of the host or node; nil if the host or node has none.
func (b *byHand) machineNamed(ctx context.Context, a *inspect.Asker, named subject, cluster string) (*clusterv1.Machine, error) {
	switch named.kind {
	case hostKind:
		bmh := &bmov1alpha1.BareMetalHost{}
		if err := page.Read(ctx, b.client, named.key(), bmh, string(hostKind)); err != nil {
			return nil, err
		}
		return a.Hosts().MachineOf(ctx, bmh)
	case nodeKind:
		machine, _, err := page.NodeNamed(ctx, a, named.namespace, cluster, named.name)
		return machine, err
	}
	machine := &clusterv1.Machine{}
	return machine, page.Read(ctx, b.client, named.key(), machine, string(machineKind))
}

// observeRemediation explains a machine as it is, and as it would be with the annotation and with the request. It adds the request to the
// snapshot of a.
func (b *byHand) observeRemediation(ctx context.Context, a *inspect.Asker, named subject, cluster string) (*remediationFacts, error) {
	machine, err := b.machineNamed(ctx, a, named, cluster)
	facts := &remediationFacts{named: named, machine: machine}
	if err != nil || machine == nil {
		return facts, err
	}
	if facts.before, facts.after, err = explainWithAndWithout(ctx, a, facts.machine); err != nil {
		return nil, err
	}
	target := targetOf(facts.before)
	facts.underway = target != nil && (target.InFlight || target.StartsNow) ||
		slices.ContainsFunc(facts.before.Remediations, func(rem explain.Remediation) bool { return !powercycle.State(rem.State).Final() })
	target, facts.alone = targetOf(facts.after), aloneBy(a, facts.machine)
	asks := target != nil && target.Action != nil && target.Action.Kind == cliv1.CreateRemediationRequest
	if asks && facts.after.Checks[0].Kind == string(machineCheckKind) {
		facts.template = target.Remediator
	}
	if facts.cycles() {
		err = facts.observeCycle(ctx, a)
	}
	return facts, err
}

// explainWithAndWithout explains a machine as it is, and as it would be with the annotation remediate-machine. If the user may not read
// its nodes, both are from what the manager wrote, because the manager may read them.
func explainWithAndWithout(ctx context.Context, a *inspect.Asker, machine *clusterv1.Machine) (before, after *page.Explanation, err error) {
	before, err = page.Machine(ctx, a, client.ObjectKeyFromObject(machine))
	if err == nil && len(before.Checks) > 0 && before.Checks[0].NodesNotReadable() {
		a.Judges = false
		before, err = page.Machine(ctx, a, client.ObjectKeyFromObject(machine))
	}
	if err != nil {
		return nil, nil, err
	}
	after, err = explainWith(ctx, a, machine)
	return before, after, err
}

// explainWith explains a machine as it would be with the annotation remediate-machine, and removes the annotation from the snapshot again.
func explainWith(ctx context.Context, a *inspect.Asker, machine *clusterv1.Machine) (*page.Explanation, error) {
	with := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&with.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
	if err := a.Snapshot.Add(with); err != nil {
		return nil, err
	}
	after, err := page.Machine(ctx, a, client.ObjectKeyFromObject(machine))
	return after, errors.Join(err, a.Snapshot.Add(machine.DeepCopy()))
}

// aloneBy names the annotation or the paused Cluster that keeps every controller from a machine, whichever check judges it; else empty.
func aloneBy(a *inspect.Asker, machine *clusterv1.Machine) string {
	for _, key := range []string{clusterv1.MachineSkipRemediationAnnotation, clusterv1.PausedAnnotation} {
		if _, has := machine.Annotations[key]; has {
			return "The machine has the annotation " + key
		}
	}
	cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if cluster != nil && ptr.Deref(cluster.Spec.Paused, false) {
		return fmt.Sprintf("Cluster %s is paused (spec.paused)", cluster.Name)
	}
	return ""
}

// observeCycle explains the HostRemediation that the command would create. It does nothing if the kind is not installed.
func (f *remediationFacts) observeCycle(ctx context.Context, a *inspect.Asker) error {
	list := &mendv1.HostRemediationList{}
	err := a.Snapshot.List(ctx, list, client.InNamespace(f.machine.Namespace))
	if meta.IsNoMatchError(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("list HostRemediations in %s: %w", f.machine.Namespace, err)
	}
	f.request = requestByHand(f.machine, list.Items)
	if err := a.Snapshot.Add(f.request); err != nil {
		return err
	}
	if f.host, err = a.Hosts().Of(ctx, f.machine); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("find the host of Machine %s: %w", f.machine.Name, err)
	}
	f.cycle, err = a.Remediation(ctx, remediation.Own.Kind, client.ObjectKeyFromObject(f.request))
	return err
}

// requestByHand returns the HostRemediation that a user requests for a machine. If two users ask at once, both create the same name, and
// the API server refuses one of them. Ended HostRemediations keep their names, so the next name gets a number.
func requestByHand(machine *clusterv1.Machine, others []mendv1.HostRemediation) *mendv1.HostRemediation {
	name := machine.Name + "-by-hand"
	for n := 2; slices.ContainsFunc(others, func(other mendv1.HostRemediation) bool { return other.Name == name }); n++ {
		name = fmt.Sprintf("%s-by-hand-%d", machine.Name, n)
	}
	request := &mendv1.HostRemediation{}
	request.Namespace, request.Name = machine.Namespace, name
	request.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: string(machineKind), Name: machine.Name, UID: machine.UID,
	}}
	request.Spec.Strategy = &mendv1.HostRemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: infrav1.DefaultTimeoutSeconds,
	}
	return request
}
