package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func (o *Options) claim() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "claim"}
	return b.complete(o, &cobra.Command{
		Short: "Claim a MachineHealthCheck for kubemend, in place of Cluster API core",
		Long: "Claim a MachineHealthCheck for kubemend, by the annotation " + clusterv1.PausedAnnotation + ": " + mendv1.Claim + ". " +
			"Cluster API core does not act on a check with that annotation, and kubemend does. " +
			"Remediations that core has started go on.\n\n" +
			"A check is only claimed if a manager of kubemend runs that acts on it.\n\n" +
			"To have all checks of a Cluster or a Namespace claimed, also new ones, give it the label " +
			mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct + ".",
		Example: fmt.Sprintf("  %[1]s claim mhc/workers\n  %[1]s claim mhc workers -n metal --dry-run=server", o.Name),
	}, b.claimNamed, machineCheckKind)
}

func (o *Options) release() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "release"}
	return b.complete(o, &cobra.Command{
		Short: "Release a MachineHealthCheck from kubemend to Cluster API core",
		Long: "Release a MachineHealthCheck from kubemend to Cluster API core, by removing the annotation " +
			clusterv1.PausedAnnotation + ": " + mendv1.Claim + ". Remediations that kubemend has started go on.\n\n" +
			"A check is only released if Cluster API core runs, and if no manager of kubemend would go on to act on it.",
		Example: fmt.Sprintf("  %[1]s release mhc/workers\n  %[1]s release mhc workers -n metal --yes", o.Name),
	}, b.claimNamed, machineCheckKind)
}

// claimNamed says which controller will act on a check, asks, and claims or releases it, unless that annotation has changed meanwhile. A
// new status is no such change.
func (b *byHand) claimNamed(ctx context.Context, named subject) error {
	planned, check := &clusterv1.MachineHealthCheck{}, &clusterv1.MachineHealthCheck{}
	if err := b.read(ctx, named.key(), planned, machineCheckKind); err != nil {
		return err
	}
	facts, err := b.observeClaim(ctx, planned)
	if err != nil {
		return err
	}
	decided := planClaim(facts, b.verb == "release")
	if err := b.announce(named.String(), decided); err != nil || decided.outcome != changes {
		return err
	}
	if err := b.ask(ctx); err != nil {
		return err
	}
	if b.dryRun != cmdutil.DryRunClient {
		if err := b.read(ctx, client.ObjectKeyFromObject(planned), check, machineCheckKind); err != nil {
			return err
		}
		before, paused := planned.Annotations[clusterv1.PausedAnnotation]
		now, pausedNow := check.Annotations[clusterv1.PausedAnnotation] // whatever its value, also an empty one
		err := errChanged
		if check.UID == planned.UID && now == before && pausedNow == paused {
			marks := map[string]map[string]any{"claim": {clusterv1.PausedAnnotation: mendv1.Claim}, "release": {clusterv1.PausedAnnotation: nil}}
			err = b.annotate(ctx, machineCheckKind, check, marks[b.verb])
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.verb, named, meanwhile(err))
		}
	}
	b.done(named.String() + " " + strings.TrimSuffix(b.verb, "e") + "ed")
	return nil
}
