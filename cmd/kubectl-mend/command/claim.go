package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

type claimCommand struct {
	byHand

	release bool
}

// selection says which checks are meant: those of these names, of a Cluster and of labels. No namespace means all.
type selection struct {
	namespace string
	names     []string
	cluster   string
	labels    labels.Selector
}

func (o *Options) claim() *cobra.Command {
	return o.claimOrRelease(&claimCommand{byHand: byHand{IOStreams: o.IOStreams, verb: "claim"}}, &cobra.Command{
		Short: "Claim MachineHealthChecks for kubemend, in place of Cluster API core",
		Long: "Claim MachineHealthChecks for kubemend, by the annotation " + clusterv1.PausedAnnotation + ": " + mendv1.Claim + ". " +
			"Cluster API core does not act on a check with that annotation, and kubemend does. " +
			"Remediations that core has started go on.\n\n" +
			"A check is only claimed if a manager of kubemend runs that acts on it.\n\n" +
			"To have all checks of a Cluster or a Namespace claimed, also new ones, give it the label " +
			mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct + ".",
	})
}

func (o *Options) release() *cobra.Command {
	return o.claimOrRelease(&claimCommand{byHand: byHand{IOStreams: o.IOStreams, verb: "release"}, release: true}, &cobra.Command{
		Short: "Release MachineHealthChecks from kubemend to Cluster API core",
		Long: "Release MachineHealthChecks from kubemend to Cluster API core, by removing the annotation " +
			clusterv1.PausedAnnotation + ": " + mendv1.Claim + ". Remediations that kubemend has started go on.\n\n" +
			"A check is only released if Cluster API core runs, and if no manager of kubemend would go on to act on it.",
	})
}

func (o *Options) claimOrRelease(h *claimCommand, c *cobra.Command) *cobra.Command {
	var s selection
	var selector string
	c.Use = h.verb + " (mhc NAME... | mhc/NAME... | -l SELECTOR | --cluster NAME)"
	c.Example = fmt.Sprintf("  %[1]s mhc/workers\n  %[1]s --cluster prod --dry-run=server\n  %[1]s -A -l team=a --yes", o.Name+" "+h.verb)
	c.ValidArgsFunction = o.completeNames(machineCheckKind)
	c.RunE = func(c *cobra.Command, args []string) error {
		named, err := parseAll(args, machineCheckKind)
		if err != nil {
			return err
		}
		for _, check := range named {
			s.names = append(s.names, check.name)
		}
		if s.labels, err = labels.Parse(selector); err != nil {
			return Exit{Misused, fmt.Errorf("--selector: %w", err)}
		}
		if len(s.names) == 0 && s.cluster == "" && selector == "" {
			return Exit{Misused, errors.New("say which: mhc/NAME, --cluster or --selector")}
		}
		if s.namespace, err = o.namespace(); err != nil {
			return err
		}
		if err := h.begin(c, o); err != nil {
			return err
		}
		return h.run(c.Context(), s)
	}
	c.Flags().StringVar(&s.cluster, "cluster", "", "Checks of this Cluster of Cluster API.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "Checks whose labels match.")
	h.addFlags(c)
	o.addScope(c)
	return c
}

// selected are the checks that are meant. If one of the names is of none, none is returned: a typing error changes nothing.
func (h *claimCommand) selected(ctx context.Context, s selection) ([]clusterv1.MachineHealthCheck, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := h.client.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabelsSelector{Selector: s.labels}); err != nil {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	missing := slices.Clone(s.names)
	checks := slices.DeleteFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == check.Name })
		return s.cluster != "" && check.Spec.ClusterName != s.cluster || len(s.names) > 0 && !slices.Contains(s.names, check.Name)
	})
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("there is no MachineHealthCheck %s in %s", strings.Join(missing, ", "), within(s.namespace))
	case len(checks) == 0:
		return nil, errors.New("no MachineHealthCheck is selected")
	}
	return checks, nil
}

// run says what will be, asks, and does it. A check that stays as it is holds up no other.
func (h *claimCommand) run(ctx context.Context, s selection) error {
	checks, err := h.selected(ctx, s)
	if err != nil {
		return err
	}
	controllers := h.controllers(ctx)
	changed, refused := make([]*clusterv1.MachineHealthCheck, 0, len(checks)), 0
	for i := range checks {
		facts, err := h.factsOf(ctx, &checks[i], controllers)
		if err != nil {
			return err
		}
		decided := planClaim(facts, h.release)
		if h.announce(checkNamed(&checks[i]), decided) != nil {
			refused++
		} else if decided.outcome == changes {
			changed = append(changed, &checks[i])
		}
	}
	if len(changed) > 0 {
		if err := h.ask(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, check := range changed {
		if err := h.mark(ctx, check); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", h.verb, checkNamed(check), meanwhile(err)))
			continue
		}
		h.done(checkNamed(check) + " " + strings.TrimSuffix(h.verb, "e") + "ed")
	}
	if refused > 0 && len(errs) == 0 {
		errs = append(errs, Exit{Refused, fmt.Errorf("%d of %d checks stay as they are", refused, len(checks))})
	}
	return errors.Join(errs...)
}

func checkNamed(check *clusterv1.MachineHealthCheck) string {
	return subject{kind: machineCheckKind, namespace: check.Namespace, name: check.Name}.String()
}

// mark writes the annotation, unless it has changed since the plan was made. A new status is no such change.
func (h *claimCommand) mark(ctx context.Context, planned *clusterv1.MachineHealthCheck) error {
	if h.dryRun == cmdutil.DryRunClient {
		return nil
	}
	marks := map[string]any{clusterv1.PausedAnnotation: mendv1.Claim}
	if h.release { // the mark that is left of a label would have a later claim by hand taken for the label's
		marks = map[string]any{clusterv1.PausedAnnotation: nil, mendv1.ClaimedByAnnotation: nil}
	}
	check := &clusterv1.MachineHealthCheck{}
	if err := h.read(ctx, client.ObjectKeyFromObject(planned), check, machineCheckKind); err != nil {
		return err
	}
	if check.UID != planned.UID || check.Annotations[clusterv1.PausedAnnotation] != planned.Annotations[clusterv1.PausedAnnotation] {
		return errChanged
	}
	return h.annotate(ctx, machineCheckKind, check, marks)
}
