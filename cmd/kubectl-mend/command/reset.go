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
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/controllers/explain"
)

func (o *Options) reset() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "reset"}
	return b.recorded(b.complete(o, &cobra.Command{
		Short: "Remove the marks of a repaired host, or of a machine that was marked by hand",
		Long: "Remove the annotations that keep machines off a repaired host, and those that act on its power for remediations that do not " +
			"exist any more, but none while a remediation of the host is under way, or the machine that it is marked for is still to " +
			"be replaced. From a machine remove the annotation " + clusterv1.RemediateMachineAnnotation + ".",
		Example: fmt.Sprintf("  %[1]s reset host/rack1-07 -n metal --reason \"new power supply\"\n"+
			"  %[1]s reset host rack1-07 --dry-run=server\n  %[1]s reset machine/workers-x7k2p --yes", o.Name),
	}, b.resetNamed, hostKind, machineKind))
}

func (b *byHand) resetNamed(ctx context.Context, named subject) error {
	var object metav1.Object
	var decided plan
	marks := map[string]any{}
	if named.kind == machineKind {
		machine := &clusterv1.Machine{}
		if err := page.Read(ctx, b.client, named.key(), machine, string(machineKind)); err != nil {
			return err
		}
		for _, key := range []string{clusterv1.RemediateMachineAnnotation, mendv1.RequestedAnnotation} {
			if metav1.HasAnnotation(machine.ObjectMeta, key) {
				marks[key] = nil
			}
		}
		object, decided = machine, planReset(machine, len(marks))
	} else {
		facts, err := b.observeHost(ctx, named.key())
		if err != nil {
			return err
		}
		marks = host.Cleared(facts.host, facts.orphans)
		object, decided = facts.host, planResetHost(facts, len(marks))
	}
	if decided.outcome == changes {
		for _, key := range slices.Sorted(maps.Keys(marks)) {
			decided.notes = append(decided.notes, "  - "+key)
		}
		by, err := b.attribute(ctx, &decided, named.kind, object, mendv1.EventReset, "reset")
		if err != nil {
			return err
		}
		marks[mendv1.ResetAnnotation] = by
	}
	decided.done, decided.write = "reset", func(ctx context.Context) error { return b.annotate(ctx, named.kind, object, marks) }
	return b.carryOut(ctx, named, decided)
}

type resetFacts struct {
	host *bmov1alpha1.BareMetalHost
	// orphans are the host's power annotations of remediations that do not exist.
	orphans map[string]types.UID
	// remediations are the remediations that act on the host's power, and those of its machine.
	remediations []remediation.OfKind
	// markedFor is the machine for which kubemend marked the host unhealthy; nil if that machine is gone.
	markedFor *clusterv1.Machine
}

// observeHost reads what planResetHost decides on from the API server. It returns every read error: otherwise a remediation that it could
// not read would be taken for one that does not exist, and its annotation would be removed.
func (b *byHand) observeHost(ctx context.Context, key client.ObjectKey) (*resetFacts, error) {
	facts := &resetFacts{host: &bmov1alpha1.BareMetalHost{}}
	if err := page.Read(ctx, b.client, key, facts.host, string(hostKind)); err != nil {
		return nil, err
	}
	kinds, err := remediation.InstalledKinds(b.client.RESTMapper())
	if err != nil {
		return nil, err
	}
	existing, err := remediation.List(ctx, b.client, kinds, key.Namespace)
	if err != nil {
		return nil, err
	}
	facts.orphans = host.AllMarks(facts.host)
	if len(facts.orphans) > 0 && len(kinds) == 0 {
		return nil, errors.New("the host has annotations of remediations, but no kind of remediations is installed, " +
			"so it is not known whether they exist: see docs/uninstall.md")
	}
	maps.DeleteFunc(facts.orphans, func(_ string, uid types.UID) bool { return existing.Has(uid) })
	machines := &clusterv1.MachineList{}
	if err := b.client.List(ctx, machines, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("list Machines in %s: %w", key.Namespace, err)
	}
	marked := host.MarkedFor(facts.host)
	is := func(machine clusterv1.Machine) bool { return marked != "" && machine.UID == marked }
	if i := slices.IndexFunc(machines.Items, is); i >= 0 {
		facts.markedFor = &machines.Items[i]
	}
	hosts := &host.Hosts{Client: b.client, Live: b.client}
	machine, err := hosts.MachineOf(ctx, facts.host)
	if err != nil {
		return nil, err
	}
	facts.remediations, _ = existing.OnHost(facts.host)
	if machine != nil {
		facts.remediations = append(facts.remediations, existing.Of(machine)...)
	}
	return facts, nil
}

func planReset(object metav1.Object, marks int) plan {
	switch {
	case object.GetDeletionTimestamp() != nil:
		return plan{outcome: refuses, text: "it is being deleted"}
	case marks == 0:
		return plan{outcome: staysSo, text: "it has no mark that could be removed"}
	}
	return plan{outcome: changes, text: explain.Number(marks, "annotation") + " removed"}
}

func planResetHost(facts *resetFacts, marks int) plan {
	decided, underway := planReset(facts.host, marks), underwayOf(facts)
	switch {
	case decided.outcome == refuses:
		return decided
	case underway != "":
		return plan{outcome: refuses, text: underway + " is in progress, and removes its own annotations when it ends. To end it now, delete it"}
	case facts.markedFor != nil:
		return plan{outcome: refuses, text: fmt.Sprintf("Machine %s, for which the host is marked, has not been replaced by its owner yet: without "+
			"the mark its replacement may be put on this host. Reset the host when that machine is gone. If the machine becomes "+
			"healthy, kubemend removes the mark", facts.markedFor.Name)}
	case decided.outcome == changes:
		decided.text += "; no remediation of it is in progress"
		if host.Unhealthy(facts.host) && host.MarkedFor(facts.host) == "" {
			decided.text += "; kubemend did not mark the host unhealthy, so find out first who did"
		}
	}
	return decided
}

// underwayOf names a remediation of the host that has not ended; empty if there is none. If the host is disproved, a remediation that has
// not powered it off yet waits for this reset, and does not count.
func underwayOf(facts *resetFacts) string {
	underway := ""
	for _, rem := range facts.remediations {
		state := remediation.Remembered(rem).State
		ended := state.Final() && len(rem.GetFinalizers()) == 0
		begins := state == powercycle.Pending || state == powercycle.Preparing
		if waits := host.Disproved(facts.host) && begins; !ended && !waits {
			underway = rem.Kind.Kind + " " + rem.GetName()
		}
	}
	return underway
}
