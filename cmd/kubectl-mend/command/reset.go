package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
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
		Long: "Remove the annotations that keep machines off a repaired host, and those that act on its power for remediations that do " +
			"not exist any more, but none while a remediation of the host is under way, or the machine that it is marked for is still to " +
			"be replaced. From a machine remove the annotation " + clusterv1.RemediateMachineAnnotation + ".",
		Example: fmt.Sprintf("  %[1]s reset host/rack1-07 -n metal --reason \"new power supply\"\n"+
			"  %[1]s reset host rack1-07 --dry-run=server\n  %[1]s reset machine/workers-x7k2p --yes", o.Name),
	}, b.resetNamed, hostKind, machineKind))
}

func (b *byHand) resetNamed(ctx context.Context, named subject) error {
	var object client.Object = &clusterv1.Machine{}
	if named.kind == hostKind {
		object = &bmov1alpha1.BareMetalHost{}
	}
	if err := page.Read(ctx, b.client, named.key(), object, string(named.kind)); err != nil {
		return err
	}
	marks, wrong := map[string]any{}, ""
	if bmh, is := object.(*bmov1alpha1.BareMetalHost); is {
		var err error
		if marks, wrong, err = b.marksOf(ctx, bmh); err != nil {
			return err
		}
	} else {
		for _, key := range []string{clusterv1.RemediateMachineAnnotation, mendv1.RequestedAnnotation} {
			if _, has := object.GetAnnotations()[key]; has {
				marks[key] = nil
			}
		}
	}
	decided := planReset(object, len(marks), wrong)
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

func planReset(object client.Object, marks int, wrong string) plan {
	switch {
	case object.GetDeletionTimestamp() != nil:
		return refuse("it is being deleted", "")
	case wrong != "":
		return refuse(wrong, "")
	case marks == 0:
		return plan{outcome: staysSo, text: "it has no mark that could be removed"}
	}
	says := explain.Number(marks, "annotation") + " removed"
	if bmh, is := object.(*bmov1alpha1.BareMetalHost); is {
		says += "; no remediation of it is in progress"
		if host.Unhealthy(bmh) && host.MarkedFor(bmh) == "" {
			says += "; kubemend did not mark the host unhealthy, so find out first who did"
		}
	}
	return plan{text: says}
}

// marksOf returns the marks of a host, and why they are not removed; empty if they can be. It returns every error of a read: otherwise a
// remediation that it could not read would be taken for one that does not exist, and its annotation would be removed.
func (b *byHand) marksOf(ctx context.Context, bmh *bmov1alpha1.BareMetalHost) (marks map[string]any, wrong string, err error) {
	kinds, err := remediation.InstalledKinds(b.client.RESTMapper())
	if err != nil {
		return nil, "", err
	}
	existing, err := remediation.List(ctx, b.client, kinds, bmh.Namespace)
	if err != nil {
		return nil, "", err
	}
	orphans := host.AllMarks(bmh)
	if len(orphans) > 0 && len(kinds) == 0 {
		return nil, "", errors.New("the host has annotations of remediations, but no kind of remediations is installed, " +
			"so it is not known whether they exist: see docs/uninstall.md")
	}
	maps.DeleteFunc(orphans, func(_ string, uid types.UID) bool { return existing.Has(uid) })
	machine, err := (&host.Hosts{Client: b.client, Live: b.client}).MachineOf(ctx, bmh)
	if err != nil {
		return nil, "", err
	}
	remediations, _ := existing.OnHost(bmh)
	if machine != nil {
		remediations = append(remediations, existing.Of(machine)...)
	}
	if wrong = underway(remediations, bmh); wrong == "" {
		wrong, err = b.awaited(ctx, bmh)
	}
	return host.Cleared(bmh, orphans), wrong, err
}

// underway says which remediation of a host has not ended; empty if there is none. If the host is disproved, a remediation that has not
// powered it off yet waits for this reset, and does not count.
func underway(remediations []remediation.OfKind, bmh *bmov1alpha1.BareMetalHost) string {
	for _, rem := range remediations {
		state := remediation.Remembered(rem).State
		ended := state.Final() && len(rem.GetFinalizers()) == 0
		begins := state == powercycle.Pending || state == powercycle.Preparing
		if !ended && !(host.Disproved(bmh) && begins) {
			return fmt.Sprintf("%s %s is in progress, and removes its own annotations when it ends. To end it now, delete it",
				rem.Kind.Kind, rem.GetName())
		}
	}
	return ""
}

// awaited says which machine a host is marked unhealthy for, if it has not been replaced yet.
func (b *byHand) awaited(ctx context.Context, bmh *bmov1alpha1.BareMetalHost) (string, error) {
	machines, marked := &clusterv1.MachineList{}, host.MarkedFor(bmh)
	if err := b.client.List(ctx, machines, client.InNamespace(bmh.Namespace)); err != nil {
		return "", fmt.Errorf("list Machines in %s: %w", bmh.Namespace, err)
	}
	for _, machine := range machines.Items {
		if marked != "" && machine.UID == marked {
			return fmt.Sprintf("Machine %s, for which the host is marked, has not been replaced by its owner yet: without "+
				"the mark its replacement may be put on this host. Reset the host when that machine is gone. If the machine becomes "+
				"healthy, kubemend removes the mark", machine.Name), nil
		}
	}
	return "", nil
}
