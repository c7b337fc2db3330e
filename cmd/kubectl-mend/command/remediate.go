package command

import (
	"context"
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
	"github.com/kubemend/kubemend/controllers/explain"
)

var remediable = []kind{machineKind, nodeKind, hostKind}

func (o *Options) remediate() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "remediate"}
	var cluster string
	c := b.recorded(b.complete(o, &cobra.Command{
		Short: "Request the remediation of a machine, a node or a host, also of a healthy one",
		Long: "Request the remediation of a machine, a node or a host, also of a healthy one. The command shows what will happen, and " +
			"asks.\n\nA machine gets the annotation " + clusterv1.RemediateMachineAnnotation + ", and its MachineHealthCheck has its " +
			"owner replace it, within the limits of the check. A host, and a machine whose check power-cycles, gets a HostRemediation, " +
			"if the check would remediate the machine now. A node gets what its machine gets.",
		Example: fmt.Sprintf("  %[1]s remediate machine/workers-x7k2p --reason \"NIC drops packets\"\n"+
			"  %[1]s remediate node rack1-07 --cluster edge-3 --dry-run=server\n"+
			"  %[1]s remediate host/rack1-07 -n metal --yes", o.Name),
	}, func(ctx context.Context, named subject) error { return o.remediateNamed(ctx, b, named, cluster) }, remediable...))
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name.")
	return c
}

func (o *Options) remediateNamed(ctx context.Context, b *byHand, named subject, cluster string) error {
	facts, err := o.observeRemediation(ctx, b, named, cluster)
	if err != nil {
		return err
	}
	decided := planRemediation(facts)
	if decided.outcome != changes {
		return b.carryOut(ctx, named, decided)
	}
	by, err := b.attribute(ctx, &decided, machineKind, facts.machine, mendv1.EventRequestedByHand, "remediation requested")
	if err != nil {
		return err
	}
	if facts.cycles() {
		decided.notes = []string{b.hardPowerOff(ctx, facts.machine)}
		decided.done = "is power-cycled by HostRemediation " + facts.request.Name
		decided.write = func(ctx context.Context) error {
			facts.request.Annotations = map[string]string{mendv1.RequestedAnnotation: by}
			return b.client.Create(ctx, facts.request)
		}
		return b.carryOut(ctx, named, decided)
	}
	if err := facts.marked.Print(o.Out, o.layout()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(o.Out)
	decided.done, decided.write = "marked", func(ctx context.Context) error {
		annotations := map[string]any{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: by}
		return b.annotate(ctx, machineKind, facts.machine, annotations)
	}
	return b.carryOut(ctx, named, decided)
}

// remediationFacts are what planRemediation decides on.
type remediationFacts struct {
	named subject
	// machine is nil if the host or the node has no Machine.
	machine *clusterv1.Machine
	// paused is true if the Machine's Cluster is paused.
	paused bool
	// marked explains the machine as it would be with the annotation remediate-machine.
	marked *page.Explanation
	// request is the HostRemediation that the command would create, cycle its explanation, and host the host that the machine names. They
	// are known only if the command requests a power cycle, and HostRemediations are installed.
	request *mendv1.HostRemediation
	cycle   *explain.Remediation
	host    host.Found
}

// template returns the kind of the remediation requests of the machine's MachineHealthCheck; empty if the check uses no template.
func (f *remediationFacts) template() string {
	target := targetOf(f.marked)
	if target == nil || f.marked.Checks[0].Kind != string(machineCheckKind) || target.Action == nil ||
		target.Action.Kind != cliv1.CreateRemediationRequest {
		return ""
	}
	return target.Remediator
}

// cycles reports whether the command requests a power cycle: for a host, or for a machine whose check power-cycles.
func (f *remediationFacts) cycles() bool {
	return f.named.kind == hostKind || slices.Contains([]string{remediation.Own.Kind, remediation.Metal3.Kind}, f.template())
}

// underway reports whether a remediation of the machine has not ended.
func (f *remediationFacts) underway() bool {
	target := targetOf(f.marked)
	return target != nil && target.InFlight ||
		slices.ContainsFunc(f.marked.Remediations, func(rem explain.Remediation) bool { return !powercycle.State(rem.State).Final() })
}

// observeRemediation explains a machine as it would be with the annotation or with the request, both of which it adds to the snapshot.
func (o *Options) observeRemediation(ctx context.Context, b *byHand, named subject, cluster string) (*remediationFacts, error) {
	a, err := o.askerAround(ctx, named, cluster, true) // no manager has written yet what the new annotation would cause
	if err != nil {
		return nil, err
	}
	facts := &remediationFacts{named: named}
	facts.machine, err = b.machineNamed(ctx, a, named, cluster)
	if err != nil || facts.machine == nil {
		return facts, err
	}
	itsCluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{
		Namespace: facts.machine.Namespace, Name: facts.machine.Spec.ClusterName,
	})
	facts.paused = itsCluster != nil && ptr.Deref(itsCluster.Spec.Paused, false)
	if facts.marked, err = explainMarked(ctx, a, facts.machine); err != nil || !facts.cycles() {
		return facts, err
	}
	facts.request, err = requestByHand(ctx, a.Snapshot, facts.machine)
	switch {
	case meta.IsNoMatchError(err):
		return facts, nil
	case err != nil:
		return nil, err
	}
	if err := a.Snapshot.Add(facts.request); err != nil {
		return nil, err
	}
	if named.kind == hostKind {
		if facts.host, err = a.Hosts().Of(ctx, facts.machine); err != nil {
			return nil, fmt.Errorf("find the host of Machine %s: %w", facts.machine.Name, err)
		}
	}
	facts.cycle, err = a.Remediation(ctx, remediation.Own.Kind, client.ObjectKeyFromObject(facts.request))
	return facts, err
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

// explainMarked explains a machine as it would be with the annotation remediate-machine. If the user may not read its nodes, it goes by
// what the manager wrote, because the manager may read them.
func explainMarked(ctx context.Context, a *inspect.Asker, machine *clusterv1.Machine) (*page.Explanation, error) {
	marked := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
	if err := a.Snapshot.Add(marked); err != nil {
		return nil, err
	}
	explained, err := page.Machine(ctx, a, client.ObjectKeyFromObject(machine))
	if err == nil && len(explained.Checks) > 0 && explained.Checks[0].NodesNotReadable() {
		a.Judges = false
		return page.Machine(ctx, a, client.ObjectKeyFromObject(machine))
	}
	return explained, err
}

// requestByHand returns the HostRemediation that a user requests for a machine. If two users ask at once, both create the same name, and
// the API server refuses one of them. Ended HostRemediations keep their names, so the next name gets a number.
func requestByHand(ctx context.Context, reader client.Reader, machine *clusterv1.Machine) (*mendv1.HostRemediation, error) {
	others := &mendv1.HostRemediationList{}
	if err := reader.List(ctx, others, client.InNamespace(machine.Namespace)); err != nil {
		return nil, fmt.Errorf("list HostRemediations in %s: %w", machine.Namespace, err)
	}
	name := machine.Name + "-by-hand"
	for n := 2; slices.ContainsFunc(others.Items, func(other mendv1.HostRemediation) bool { return other.Name == name }); n++ {
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
	return request, nil
}
