package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// override is one call of `hold` or `allow`.
type override struct {
	*byHand

	lasts               time.Duration
	unhealthy, inFlight string
}

func (o *Options) hold() *cobra.Command {
	b := override{byHand: &byHand{IOStreams: o.IOStreams, verb: "hold"}}
	return b.flags(b.complete(o, &cobra.Command{
		Short: "Hold remediations for some time, and record who asked and why",
		Long: "Let no remediation of the object begin for some time, by a RemediationOverride. Remediations in progress go on, and " +
			"machines are still judged. A namespace or a failure domain is held in the namespace of RemediationPolicies, mostly " +
			"kubemend-system.\n\nIt ends by itself. To end it before, delete the RemediationOverride.",
		Example: fmt.Sprintf("  %[1]s hold cluster/prod -n metal --for 2h --reason \"switch swap, CHG-4711\"\n"+
			"  %[1]s hold failuredomain/b07 -n kubemend-system --for 30m --reason \"power work\"", o.Name),
	}, b.create, clusterKind, machineCheckKind, deploymentKind, machineKind, hostKind, namespaceKind, domainKind))
}

func (o *Options) allow() *cobra.Command {
	b := override{byHand: &byHand{IOStreams: o.IOStreams, verb: "allow"}}
	c := b.flags(b.complete(o, &cobra.Command{
		Short: "Let remediations begin for some time although too many machines are unhealthy",
		Long: "Let remediations begin for some time although more machines are unhealthy than the check allows, by a RemediationOverride " +
			"with other limits. RemediationPolicies hold all the same; to lift the limits of one, name it.",
		Example: fmt.Sprintf("  %[1]s allow mhc/workers -n metal --max-unhealthy 60%% --max-in-flight 2 --for 1h "+
			"--reason \"power is back\"\n  %[1]s allow policy/racks -n kubemend-system --for 1h --reason \"power is back\"", o.Name),
	}, b.create, clusterKind, machineCheckKind, policyKind))
	c.Flags().StringVar(&b.unhealthy, "max-unhealthy", "", "How many machines of a check may be unhealthy: a number or a percentage.")
	c.Flags().StringVar(&b.inFlight, "max-in-flight", "", "How many remediations may be under way: a number or a percentage.")
	return c
}

func (b *override) flags(c *cobra.Command) *cobra.Command {
	c.Flags().DurationVar(&b.lasts, "for", 0, "How long, such as 2h: at most 168h.")
	c.Flags().StringVar(&b.reason, "reason", "", "Why. Everybody who explains the target sees it.")
	return c
}

func (b *override) create(ctx context.Context, named subject) error {
	if b.lasts < time.Minute || b.lasts > 7*24*time.Hour {
		return Exit{Misused, fmt.Errorf("--for: expected a duration from 1m to 168h, not %s", b.lasts)}
	}
	if b.reason == "" {
		return Exit{Misused, errors.New("--reason: expected why")}
	}
	object := &mendv1.RemediationOverride{}
	object.Namespace, object.GenerateName = named.namespace, b.verb+"-"+named.name+"-"
	object.Spec = mendv1.RemediationOverrideSpec{
		TargetRef: mendv1.OverrideTarget{Kind: string(named.kind), Name: named.name}, Reason: b.reason,
		Action: mendv1.OverrideAction(text.Capital(b.verb)),
		Until:  metav1.NewTime(b.now.Add(b.lasts).Truncate(time.Second)),
	}
	if b.verb == "allow" && named.kind != policyKind {
		if b.unhealthy == "" || b.inFlight == "" {
			return Exit{Misused, errors.New("--max-unhealthy, --max-in-flight: expected both")}
		}
		object.Spec.Allow = &mendv1.OverrideAllowance{MaxUnhealthy: intstr.Parse(b.unhealthy), MaxInFlight: intstr.Parse(b.inFlight)}
	}
	key, read := named.key(), &metav1.PartialObjectMetadata{}
	if named.kind == namespaceKind {
		key.Namespace = ""
	}
	if named.kind != domainKind { // a failure domain is no object
		read.SetGroupVersionKind(named.kind.gvk())
		if err := page.Read(ctx, b.client, key, read, string(named.kind)); err != nil {
			return err
		}
	}
	b.yes = b.yes || b.verb == "hold" // a hold does no harm: do not ask
	by, err := b.who(ctx)
	if err != nil {
		return err
	}
	object.Spec.By = by
	until := "until " + object.Spec.Until.UTC().Format(time.RFC3339)
	return b.carryOut(ctx, named, plan{
		text: until, done: map[string]string{"hold": "is held ", "allow": "is allowed "}[b.verb] + until,
		write: func(ctx context.Context) error { return b.client.Create(ctx, object) },
	})
}
