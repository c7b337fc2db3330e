package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/explain"
)

func (o *Options) reset() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "reset"}
	return b.complete(o, &cobra.Command{
		Short: "Remove the marks of a repaired host, or of a machine that was marked by hand",
		Long: "Remove the marks of a repaired host: the annotations " + infrav1.UnhealthyAnnotation + " and " + infrav1.LegacyUnhealthyAnnotation +
			", which keep machines off it, and annotations that act on its power for remediations that do not exist any more. While a remediation of the " +
			"host is under way, or the machine that it is marked for is still to be replaced, the command removes nothing.\n\n" +
			"From a machine the command removes the annotation " + clusterv1.RemediateMachineAnnotation + ", which kubectl mend remediate sets.\n\n" +
			"The command shows what it removes, and asks. An annotation and an event record who asked, when and why.",
		Example: fmt.Sprintf("  %[1]s reset host/rack1-07 -n metal --reason \"new power supply\"\n"+
			"  %[1]s reset host rack1-07 --dry-run=server\n  %[1]s reset machine/workers-x7k2p --yes", o.Name),
	}, b.resetNamed, hostKind, machineKind)
}

func (b *byHand) resetNamed(ctx context.Context, named subject) error {
	var object metav1.Object
	var decided resetPlan
	if named.kind == machineKind {
		machine := &clusterv1.Machine{}
		if err := b.read(ctx, named.key(), machine, machineKind); err != nil {
			return err
		}
		object, decided = machine, planResetMachine(machine)
	} else {
		facts, err := b.observeHost(ctx, named.key())
		if err != nil {
			return err
		}
		object, decided = facts.host, planResetHost(facts)
	}
	if err := b.announce(named.String(), decided.plan); err != nil || decided.outcome != changes {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(decided.marks)) {
		b.say("  - " + key + ": " + decided.marks[key])
	}
	return b.apply(ctx, change{
		named: named.String(), done: "reset", about: referenceTo(named.kind, object), reason: mendv1.EventReset, text: explain.ResetByHand,
		write: func(ctx context.Context, annotation string) error {
			annotations := map[string]any{mendv1.ResetAnnotation: annotation}
			for key := range decided.marks {
				annotations[key] = nil
			}
			return b.annotate(ctx, named.kind, object, annotations)
		},
	})
}

// observeHost reads what a reset of a host depends on, from the API server itself. What cannot be read fails it: a remediation that is
// not seen would be taken for one that does not exist.
func (b *byHand) observeHost(ctx context.Context, key client.ObjectKey) (resetFacts, error) {
	f := resetFacts{host: &bmov1alpha1.BareMetalHost{}}
	if err := b.read(ctx, key, f.host, hostKind); err != nil {
		return f, err
	}
	kinds, err := remediation.InstalledKinds(b.client.RESTMapper())
	if err != nil {
		return f, err
	}
	existing, err := remediation.List(ctx, b.client, kinds, key.Namespace)
	if err != nil {
		return f, err
	}
	f.orphans = host.AllMarks(f.host)
	if len(f.orphans) > 0 && len(kinds) == 0 {
		return f, errors.New("no kind of remediations is installed, so whether those exist that the host is annotated for is not known: see docs/uninstall.md")
	}
	for mark, uid := range f.orphans {
		if existing.Has(uid) {
			delete(f.orphans, mark)
		}
	}
	list := &clusterv1.MachineList{}
	if err := b.client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return f, fmt.Errorf("list Machines in %s: %w", key.Namespace, err)
	}
	marked := host.MarkedFor(f.host)
	if i := slices.IndexFunc(list.Items, func(m clusterv1.Machine) bool { return marked != "" && m.UID == marked }); i >= 0 {
		f.markedFor = &list.Items[i]
	}
	hosts := &host.Hosts{Client: b.client, Live: b.client}
	m, err := hosts.MachineOf(ctx, f.host)
	if err != nil {
		return f, err
	}
	f.remediations, _ = existing.OnHost(f.host)
	if m != nil {
		f.remediations = append(f.remediations, existing.Of(m)...)
	}
	return f, nil
}
