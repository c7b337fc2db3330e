package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// handing is one call of claim or of release.
type handing struct {
	genericiooptions.IOStreams

	way    way
	client client.Client
	now    time.Time

	yes, dryRun, force bool
	// asks says that there is somebody to be asked.
	asks bool
}

func (o *Options) claim() *cobra.Command {
	return o.handing(claiming, "Claim MachineHealthChecks for kubemend, in place of Cluster API core",
		"Claim MachineHealthChecks for kubemend, by the annotation "+clusterv1.PausedAnnotation+": "+mendv1.Claim+". "+
			"Cluster API core does not act on a check with that annotation, and kubemend does. Remediations that core has started go on.\n\n"+
			"A check is only claimed if a manager of kubemend runs that acts on it.\n\n"+
			"With cluster/NAME or namespace/NAME it writes the label "+mendv1.ClaimLabel+": "+mendv1.ClaimLabelAct+" on that object instead, and kubemend "+
			"claims all its checks, and each new one.")
}

func (o *Options) release() *cobra.Command {
	return o.handing(releasing, "Release MachineHealthChecks from kubemend to Cluster API core",
		"Release MachineHealthChecks from kubemend to Cluster API core, by removing the annotation "+clusterv1.PausedAnnotation+": "+mendv1.Claim+". "+
			"Remediations that kubemend has started go on.\n\n"+
			"A check is only released if Cluster API core runs.\n\n"+
			"With cluster/NAME or namespace/NAME it removes the label "+mendv1.ClaimLabel+" from that object instead, and kubemend releases the checks "+
			"that the label claimed.")
}

func (o *Options) handing(w way, short, long string) *cobra.Command {
	h := &handing{IOStreams: o.IOStreams, way: w}
	var cluster, selector string
	c := &cobra.Command{
		Use:   string(w) + " (mhc NAME... | mhc/NAME... | cluster/NAME | namespace/NAME | -l SELECTOR)",
		Short: short, Long: long,
		Example: fmt.Sprintf("  %[1]s %[2]s mhc/workers\n  %[1]s %[2]s cluster/prod --dry-run\n  %[1]s %[2]s -A -l team=a --yes", o.Name, w),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.selection(args, cluster, selector)
			if err != nil {
				return err
			}
			if h.client, err = o.client(); err != nil {
				return err
			}
			h.now, h.asks = o.timeAt(c.Context(), h.client), text.IsTerminal(o.In)
			return h.run(c.Context(), s)
		},
		ValidArgsFunction: o.completeNames(machineCheckKind, clusterKind, namespaceKind),
	}
	c.Flags().StringVar(&cluster, "cluster", "", "With names or --selector: the checks of one Cluster of Cluster API. Alone: the same as cluster/NAME.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "Checks whose labels match.")
	c.Flags().BoolVarP(&h.yes, "yes", "y", false, "Do not ask.")
	c.Flags().BoolVar(&h.dryRun, "dry-run", false, "Show what would change, and change nothing.")
	c.Flags().BoolVar(&h.force, "force", false, "Go on where the command cannot see whether a controller would act on a check. "+
		"Where it sees that none would, this does not help.")
	o.addScope(c)
	return c
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
	if err := s.addAll(args); err != nil {
		return s, err
	}
	if len(args) == 0 && selector == "" && s.cluster != "" && s.namespace != "" {
		s.label = &labelOwner{clusterKind, client.ObjectKey{Namespace: s.namespace, Name: s.cluster}}
	}
	if s.label != nil {
		return s, s.label.alone(s, args, selector)
	}
	switch {
	case len(s.names) > 0 && (selector != "" || s.namespace == ""):
		return s, Exit{Misused, errors.New("names go neither with --selector nor with --all-namespaces")}
	case len(s.names) == 0 && cluster == "" && selector == "":
		return s, Exit{Misused, errors.New("say which: mhc/NAME, cluster/NAME, namespace/NAME or --selector")}
	}
	return s, nil
}

// addAll adds what the arguments name.
func (s *selection) addAll(args []string) error {
	named, err := parseAll(args, machineCheckKind, clusterKind, namespaceKind)
	if err != nil {
		for _, arg := range args {
			called, _, _ := strings.Cut(arg, "/")
			if is, known := kindCalled(called); known && is == nodeCheckKind {
				return Exit{Misused, fmt.Errorf("%q: a NodeHealthCheck cannot be claimed: it has no mark by which two controllers could share checks out "+
					"among them, so one of them acts on all; --node-health-checks of the manager says whether it is kubemend: docs/coexistence.md", arg)}
			}
		}
		return err
	}
	for _, n := range named {
		switch n.kind {
		case clusterKind:
			s.label = &labelOwner{n.kind, client.ObjectKey{Namespace: s.namespace, Name: n.name}}
		case namespaceKind:
			s.label = &labelOwner{n.kind, client.ObjectKey{Name: n.name}}
		default:
			s.names = append(s.names, n.name)
		}
	}
	return nil
}

// run says what will be, asks, and does it.
func (h *handing) run(ctx context.Context, s selection) error {
	if s.label != nil {
		return h.runLabel(ctx, *s.label)
	}
	f, err := observeClaim(ctx, h.client, s, h.now)
	if err != nil {
		return err
	}
	claims := planHanding(h.way, f, h.force)
	changes, refused := h.show(claims)
	if changes > 0 && !h.dryRun {
		if err := ask(ctx, h.IOStreams, h.yes, h.asks); err != nil {
			return err
		}
		if err := h.do(ctx, claims); err != nil {
			return err
		}
	}
	if refused > 0 {
		return Exit{Refused, fmt.Errorf("%d of %d checks stay as they are", refused, len(claims))}
	}
	return nil
}

// show prints one paragraph for each check, and counts.
func (h *handing) show(claims []explain.Claim) (changes, refused int) {
	width := text.Width(h.Out)
	for i := range claims {
		c, end := &claims[i], ""
		verb := "nothing to do for"
		switch {
		case c.Changes():
			changes++
			verb = string(h.way)
		case c.Refused():
			refused++
			verb = "cannot " + string(h.way)
		}
		if c.Refused() && c.Unseen() {
			end = "; --force goes on all the same"
		}
		line := fmt.Sprintf("%s mhc/%s in %s: %s%s", verb, c.Check.Name, c.Check.Namespace, c.Text(), end)
		_, _ = fmt.Fprintln(h.Out, text.Wrap(line, 4, width))
	}
	return changes, refused
}

// do writes the annotation of each check, unless the check has changed since it was read.
func (h *handing) do(ctx context.Context, claims []explain.Claim) error {
	done := map[way]string{claiming: "claimed", releasing: "released"}[h.way]
	var errs []error
	for i := range claims {
		if !claims[i].Changes() {
			continue
		}
		check := claims[i].Check
		if err := h.write(ctx, check); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(h.Out, "mhc/%s in %s %s\n", check.Name, check.Namespace, done)
	}
	return errors.Join(errs...)
}

// write writes the annotation, unless what the plan depends on has changed since the check was read. That a controller has
// written the status meanwhile, which one that judges does at any moment, changes nothing.
func (h *handing) write(ctx context.Context, check *clusterv1.MachineHealthCheck) error {
	said := fmt.Sprintf("%s mhc/%s in %s", h.way, check.Name, check.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := h.annotate(ctx, check)
		if !apierrors.IsConflict(err) {
			return err
		}
		now := &clusterv1.MachineHealthCheck{}
		if failed := h.client.Get(ctx, client.ObjectKeyFromObject(check), now); failed != nil && !apierrors.IsNotFound(failed) {
			return failed
		}
		if !sameButStatus(check, now) {
			return errors.New("it was changed meanwhile, and nothing was written: check it, and run the command again")
		}
		check = now
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	return nil
}

// annotate fails with a conflict if the check is not the one that was read.
func (h *handing) annotate(ctx context.Context, check *clusterv1.MachineHealthCheck) error {
	annotations := map[string]any{clusterv1.PausedAnnotation: mendv1.Claim}
	if h.way == releasing { // with the mark of a label that is gone, which would take a later claim by hand for the label's
		annotations = map[string]any{clusterv1.PausedAnnotation: nil, mendv1.ClaimedByAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": check.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return err
	}
	named := &clusterv1.MachineHealthCheck{}
	named.Namespace, named.Name = check.Namespace, check.Name
	return h.client.Patch(ctx, named, client.RawPatch(types.MergePatchType, patch))
}

// sameButStatus tells whether two readings of a check differ in its status at most.
func sameButStatus(a, b *clusterv1.MachineHealthCheck) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
