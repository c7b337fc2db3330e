package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/workload"
)

func (o *Options) confirm() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "confirm"}
	return b.recorded(b.complete(o, &cobra.Command{
		Short: "Confirm that the workload cluster that answers is the right one",
		Long: "Confirm that the workload cluster that answers by the kubeconfig of a Cluster is the right one, after another one was there. " +
			"Until then kubemend does not judge machines by its nodes (" + mendv1.ChangedReason + ").\n\n" +
			"The command shows the UID of the namespace kube-system of both, and asks. It writes the annotation " +
			mendv1.WorkloadClusterAnnotation + " of the Cluster. An annotation and an event record who asked, when and why.",
		Example: fmt.Sprintf("  %[1]s confirm cluster/prod -n metal --reason \"moved to the standby\"\n"+
			"  %[1]s confirm cluster prod --dry-run=server", o.Name),
	}, b.confirmNamed, clusterKind))
}

// confirmNamed says which workload cluster is kept and which one answers, asks, and keeps that one.
func (b *byHand) confirmNamed(ctx context.Context, named subject) error {
	cluster := &clusterv1.Cluster{}
	if err := b.read(ctx, named.key(), cluster, clusterKind); err != nil {
		return err
	}
	reader, err := b.workload(ctx, named.key())
	if err != nil {
		return fmt.Errorf("cannot confirm %s: %w", named, err)
	}
	found, err := workload.UIDOf(ctx, reader)
	if err != nil {
		return fmt.Errorf("cannot confirm %s: read which workload cluster answers: %w", named, err)
	}
	decided := planConfirmation(workload.Kept(cluster), found)
	if err := b.announce(named.String(), decided); err != nil || decided.outcome != changes {
		return err
	}
	return b.apply(ctx, change{
		named: named.String(), done: "confirmed", about: referenceTo(clusterKind, cluster),
		reason: mendv1.EventConfirmed, did: "the workload cluster was confirmed",
		write: func(ctx context.Context, annotation string) error {
			return b.annotate(ctx, clusterKind, cluster, map[string]any{
				mendv1.WorkloadClusterAnnotation: workload.Keeps(cluster, found), mendv1.ConfirmedAnnotation: annotation,
			})
		},
	})
}

func planConfirmation(kept, found types.UID) plan {
	switch kept {
	case "":
		return plan{staysSo, fmt.Sprintf("no workload cluster is kept yet, and kubemend keeps the one that answers, %s", found)}
	case found:
		return plan{staysSo, fmt.Sprintf("the workload cluster that answers is the one that is kept, %s", found)}
	}
	return plan{changes, fmt.Sprintf("the workload cluster that answers, %s, is kept in place of %s, and its nodes count", found, kept)}
}
