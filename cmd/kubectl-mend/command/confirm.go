package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

func (o *Options) confirm() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "confirm"}
	b.answering = func(ctx context.Context, cluster client.ObjectKey) (types.UID, error) {
		reader, err := snapshot.New().WorkloadReader(ctx, b.client, cluster)
		if err != nil {
			return "", err
		}
		return workload.UIDOf(ctx, reader)
	}
	c := &cobra.Command{
		Use:   "confirm (KIND NAME | KIND/NAME)",
		Short: "Confirm that the workload cluster that answers is the right one",
		Long: "Confirm that the workload cluster that answers by the kubeconfig of a Cluster is the right one, after another one was there. " +
			"Until then kubemend does not judge machines by its nodes (" + mendv1.ChangedReason + ").\n\n" +
			"The command shows the UID of the namespace kube-system of both, and asks. It writes the annotation " +
			mendv1.WorkloadClusterAnnotation + " of the Cluster. An annotation and an event record who asked, when and why.",
		Example: fmt.Sprintf("  %[1]s confirm cluster/prod -n metal --reason \"moved to the standby\"\n"+
			"  %[1]s confirm cluster prod --dry-run", o.Name),
		Args:              oneOf(clusterKind),
		ValidArgsFunction: o.completeNames(clusterKind),
		RunE:              b.changes(o, b.confirmNamed, clusterKind),
	}
	b.addFlags(c)
	return c
}

// confirmNamed says which workload cluster is kept and which one answers, asks, and keeps that one.
func (b *byHand) confirmNamed(ctx context.Context, named subject, namespace string) error {
	cluster, key, said := &clusterv1.Cluster{}, client.ObjectKey{Namespace: namespace, Name: named.name}, named.String()+" in "+namespace
	if err := b.read(ctx, key, cluster, clusterKind); err != nil {
		return err
	}
	found, err := b.answering(ctx, key)
	if err != nil {
		return fmt.Errorf("cannot confirm %s: read which workload cluster answers: %w", said, err)
	}
	confirms, text := explain.Confirm(workload.Kept(cluster), found)
	b.say(explain.Announced(b.verb, said, confirms, false, text))
	if !confirms {
		return nil
	}
	return b.apply(ctx, change{
		named: said, done: "confirmed", about: referenceTo(clusterKind, cluster), needs: resetNeeds(clusterKind, cluster),
		reason: mendv1.EventConfirmed, text: explain.ConfirmedByHand,
		write: func(ctx context.Context, annotation string, dry bool) error {
			return b.annotate(ctx, clusterKind, cluster, map[string]any{
				mendv1.WorkloadClusterAnnotation: workload.Keeps(cluster, found), mendv1.ConfirmedAnnotation: annotation,
			}, dry)
		},
	})
}
