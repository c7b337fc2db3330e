package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// claimCommand is one call of claim, or of release.
type claimCommand struct {
	genericiooptions.IOStreams

	release bool
	client  client.Client
	now     time.Time

	dryRun     dryRun
	yes, force bool
	// asks reports that there is a terminal to ask at.
	asks bool
}

// selection says which checks are meant. No namespace means all namespaces, no names mean all names.
type selection struct {
	namespace string
	names     []string
	cluster   string
	labels    labels.Selector
}

func (o *Options) claim() *cobra.Command {
	return o.claimOrRelease(&claimCommand{IOStreams: o.IOStreams}, &cobra.Command{
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
	return o.claimOrRelease(&claimCommand{IOStreams: o.IOStreams, release: true}, &cobra.Command{
		Short: "Release MachineHealthChecks from kubemend to Cluster API core",
		Long: "Release MachineHealthChecks from kubemend to Cluster API core, by removing the annotation " +
			clusterv1.PausedAnnotation + ": " + mendv1.Claim + ". Remediations that kubemend has started go on.\n\n" +
			"A check is only released if Cluster API core runs, and if no manager of kubemend would go on to act on it.",
	})
}

// claimOrRelease completes the command of claim, or of release.
func (o *Options) claimOrRelease(h *claimCommand, c *cobra.Command) *cobra.Command {
	var cluster, selector string
	c.Use = h.verb() + " (mhc NAME... | mhc/NAME... | -l SELECTOR | --cluster NAME)"
	c.Example = fmt.Sprintf("  %[1]s %[2]s mhc/workers\n  %[1]s %[2]s --cluster prod --dry-run\n  %[1]s %[2]s -A -l team=a --yes",
		o.Name, h.verb())
	c.ValidArgsFunction = o.completeNames(machineCheckKind)
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := o.selection(args, cluster, selector)
		if err != nil {
			return err
		}
		if h.client, err = o.client(); err != nil {
			return err
		}
		h.now, h.asks = o.timeAt(c.Context(), h.client), text.IsTerminal(o.In)
		return h.run(c.Context(), s)
	}
	c.Flags().StringVar(&cluster, "cluster", "", "Checks of this Cluster of Cluster API.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "Checks whose labels match.")
	c.Flags().BoolVarP(&h.yes, "yes", "y", false, "Do not ask.")
	h.dryRun.addTo(c.Flags())
	c.Flags().BoolVar(&h.force, "force", false, "Go on where the command cannot see whether a controller would act on a check. "+
		"Where it sees that none would, this does not help.")
	o.addScope(c)
	return c
}

// notClaimed says of kinds that users may take for one that can be claimed what to do instead.
var notClaimed = map[kind]string{
	nodeCheckKind: "a NodeHealthCheck cannot be claimed: it has no mark by which two controllers could share checks out among them, " +
		"so one of them acts on all; --node-health-checks of the manager says whether it is kubemend: docs/coexistence.md",
	clusterKind: "name checks, or --cluster. The label " + mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct +
		" on a Cluster has kubemend claim all its checks: docs/claim-by-policy.md",
	namespaceKind: "name checks. The label " + mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct +
		" on a Namespace has kubemend claim all its checks: docs/claim-by-policy.md",
}

// selection is what the arguments and flags ask for.
func (o *Options) selection(args []string, cluster, selector string) (selection, error) {
	s := selection{cluster: cluster}
	var err error
	if s.labels, err = labels.Parse(selector); err != nil {
		return s, Exit{Misused, fmt.Errorf("--selector: %w", err)}
	}
	if s.namespace, err = o.namespace(); err != nil {
		return s, err
	}
	named, err := parseAll(args, machineCheckKind)
	if err != nil {
		called, _, _ := strings.Cut(args[0], "/")
		if k, known := kindCalled(called); known && notClaimed[k] != "" {
			return s, Exit{Misused, fmt.Errorf("%q: %s", args[0], notClaimed[k])}
		}
		return s, err
	}
	for _, n := range named {
		s.names = append(s.names, n.name)
	}
	switch {
	case len(s.names) > 0 && (selector != "" || s.namespace == ""):
		return s, Exit{Misused, errors.New("names go neither with --selector nor with --all-namespaces")}
	case len(s.names) == 0 && cluster == "" && selector == "":
		return s, Exit{Misused, errors.New("say which: mhc/NAME, --cluster or --selector")}
	}
	return s, nil
}

// selected are the checks that are meant. If a name does not exist none is returned: a typing error is not to hand half of them over.
func (h *claimCommand) selected(ctx context.Context, s selection) ([]clusterv1.MachineHealthCheck, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := h.client.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabelsSelector{Selector: s.labels}); err != nil {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	missing := slices.Clone(s.names)
	checks := slices.DeleteFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool {
		if s.cluster != "" && check.Spec.ClusterName != s.cluster || len(s.names) > 0 && !slices.Contains(s.names, check.Name) {
			return true
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == check.Name })
		return false
	})
	where := "in any namespace"
	if s.namespace != "" {
		where = "in namespace " + s.namespace
	}
	if s.cluster != "" {
		where += " of Cluster " + s.cluster
	}
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("there is no MachineHealthCheck %s %s", strings.Join(missing, ", "), where)
	case len(checks) == 0:
		return nil, fmt.Errorf("no MachineHealthCheck %s is selected", where)
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
		decided := h.plan(facts)
		named := fmt.Sprintf("mhc/%s in %s", checks[i].Name, checks[i].Namespace)
		_, _ = fmt.Fprintln(h.Out, text.Wrap(decided.line(h.verb(), named), 4, text.Width(h.Out)))
		switch decided.outcome {
		case changes:
			changed = append(changed, &checks[i])
		case refuses:
			refused++
		case staysSo:
		}
	}
	if len(changed) > 0 {
		if err := h.write(ctx, changed); err != nil {
			return err
		}
	}
	if refused > 0 {
		return Exit{Refused, fmt.Errorf("%d of %d checks stay as they are", refused, len(checks))}
	}
	return nil
}

// write asks, and writes the annotation of each check.
func (h *claimCommand) write(ctx context.Context, checks []*clusterv1.MachineHealthCheck) error {
	if h.dryRun == noDryRun {
		if err := ask(ctx, h.IOStreams, h.yes, h.asks); err != nil {
			return err
		}
	}
	var errs []error
	for _, check := range checks {
		named := fmt.Sprintf("mhc/%s in %s", check.Name, check.Namespace)
		if h.dryRun != clientDryRun {
			if err := h.annotate(ctx, check); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", h.verb(), named, err))
				continue
			}
		}
		_, _ = fmt.Fprintf(h.Out, "%s %sed%s\n", named, strings.TrimSuffix(h.verb(), "e"), h.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// annotate writes the annotation, unless it has changed since the plan was made. A status that a controller has written meanwhile is no
// such change.
func (h *claimCommand) annotate(ctx context.Context, planned *clusterv1.MachineHealthCheck) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		check := &clusterv1.MachineHealthCheck{}
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(planned), check); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		before := check.DeepCopy()
		value, paused := check.Annotations[clusterv1.PausedAnnotation]
		plannedValue, plannedPaused := planned.Annotations[clusterv1.PausedAnnotation]
		if check.UID != planned.UID || value != plannedValue || paused != plannedPaused {
			return errors.New("it was changed meanwhile, and nothing was written: check it, and run the command again")
		}
		if h.release { // the mark that is left of a label would have a later claim by hand taken for the label's
			delete(check.Annotations, clusterv1.PausedAnnotation)
			delete(check.Annotations, mendv1.ClaimedByAnnotation)
		} else {
			metav1.SetMetaDataAnnotation(&check.ObjectMeta, clusterv1.PausedAnnotation, mendv1.Claim)
		}
		return h.client.Patch(ctx, check, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
			&client.PatchOptions{DryRun: h.dryRun.options()})
	})
}

func (h *claimCommand) verb() string {
	if h.release {
		return "release"
	}
	return "claim"
}
