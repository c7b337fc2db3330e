package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// labelOwner is the Cluster or the Namespace whose label claims all its checks.
type labelOwner struct {
	kind kind
	key  client.ObjectKey
}

// String is how a user names it.
func (l labelOwner) String() string {
	if l.kind == namespaceKind {
		return l.kind.alias() + "/" + l.key.Name
	}
	return l.kind.alias() + "/" + l.key.Name + " in " + l.key.Namespace
}

// alone is an error if more is selected than the object.
func (l labelOwner) alone(s selection, args []string, selector string) error {
	switch {
	case len(args) > 1, selector != "", len(args) == 1 && s.cluster != "":
		return Exit{Misused, errors.New("the label of a cluster/NAME or a namespace/NAME is for all its checks: it goes with no other selection")}
	case l.kind == clusterKind && s.namespace == "":
		return Exit{Misused, errors.New("cluster/NAME does not go with --all-namespaces")}
	}
	return nil
}

// checks selects those that the label is about.
func (l labelOwner) checks() selection {
	if l.kind == namespaceKind {
		return selection{namespace: l.key.Name, labels: labels.Everything()}
	}
	return selection{namespace: l.key.Namespace, cluster: l.key.Name, labels: labels.Everything()}
}

// read is the metadata of the object.
func (l labelOwner) read(ctx context.Context, c client.Reader) (*metav1.PartialObjectMetadata, error) {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(groups[l.kind])
	err := c.Get(ctx, l.key, is)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no %s", l)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", l, err)
	}
	return is, nil
}

// runLabel says what becomes of the checks when the label is written or removed, asks, and does it. A check that would have no controller then, or two, holds
// the label up; others that stay as they are do not.
func (h *handing) runLabel(ctx context.Context, l labelOwner) error {
	is, err := l.read(ctx, h.client)
	if err != nil {
		return err
	}
	f, err := observeClaim(ctx, h.client, l.checks(), h.now)
	if err != nil && !errors.Is(err, errNoneSelected) {
		return err
	}
	claims := planLabel(h.way, l.kind, f, h.force)
	value, has := is.Labels[mendv1.ClaimLabel]
	changes := has
	if h.way == claiming {
		changes = value != mendv1.ClaimLabelAct
	}
	_, _ = fmt.Fprintln(h.Out, text.Wrap(h.labelSays(l, is, changes), 4, text.Width(h.Out)))
	h.show(claims)
	if !changes {
		return nil
	}
	for i := range claims {
		if claims[i].Holds() {
			return Exit{Refused, fmt.Errorf("%s stays as it is, because of mhc/%s", l, claims[i].Check.Name)}
		}
	}
	if h.dryRun {
		return nil
	}
	if err := ask(ctx, h.IOStreams, h.yes, h.asks); err != nil {
		return err
	}
	return h.writeLabel(ctx, l, is)
}

// labelSays is what is done about the label, with what there is to do in Git where a tool applies the object.
func (h *handing) labelSays(l labelOwner, is *metav1.PartialObjectMetadata, changes bool) string {
	release := h.way == releasing
	if changes {
		says := append([]string{explain.LabelWritten(release, is.Labels[mendv1.ClaimLabel])}, explain.LabelInGit(is, is.Kind, release)...)
		return fmt.Sprintf("%s %s: %s", h.way, l, strings.Join(says, "; "))
	}
	says := explain.LabelAsIs(release)
	if ends := explain.LabelEnds(is, history.LabelledBy(is)); ends != "" && !release {
		says += "; " + ends
	}
	return fmt.Sprintf("nothing to do for %s: %s", l, says)
}

// planLabel returns what becomes of each check when the label of an object of that kind is written, or removed.
func planLabel(w way, of kind, f claimFacts, force bool) []explain.Claim {
	for i := range f.checks {
		if facts := &f.checks[i].Labels; w == releasing && of == clusterKind {
			facts.Cluster = decide.Absent
		} else if w == releasing {
			facts.Namespace = decide.Absent
		}
	}
	claims := planHanding(w, f, force)
	for i := range claims {
		c := &claims[i]
		c.ByLabel = true
		switch {
		case w == claiming || c.Labels.Pause != decide.Claimed:
		case c.Labels.By == "":
			c.Reason, c.Forced = explain.ClaimedOnCheck, false
		case decide.Decide(c.Labels).Reason == decide.InvalidLabel:
			c.Reason, c.Forced = explain.InvalidLabelKeeps, false
		}
		c.Awaits = w == releasing && c.Changes() && f.noneActs(c)
	}
	return claims
}

// noneActs reports whether it is known that no manager of kubemend acts on a check.
func (f claimFacts) noneActs(c *explain.Claim) bool {
	return f.unlisted.Err == nil && !slices.ContainsFunc(f.managers, func(m managerlease.Manager) bool {
		off := m.StandsOff(c.Check, c.Cluster)
		return off.Reason == "" || off.Unknown()
	})
}

// writeLabel writes the label, or removes it, unless the object was made anew since it was read.
func (h *handing) writeLabel(ctx context.Context, l labelOwner, is *metav1.PartialObjectMetadata) error {
	value := map[way]any{claiming: mendv1.ClaimLabelAct, releasing: nil}[h.way]
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": is.UID, "labels": map[string]any{mendv1.ClaimLabel: value}}})
	if err != nil {
		return fmt.Errorf("%s %s: %w", h.way, l, err)
	}
	named := &metav1.PartialObjectMetadata{}
	named.SetGroupVersionKind(groups[l.kind])
	named.Namespace, named.Name = l.key.Namespace, l.key.Name
	if err := h.client.Patch(ctx, named, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("%s %s: %w", h.way, l, err)
	}
	done := map[way]string{claiming: "labelled", releasing: "has no label any more"}[h.way]
	_, _ = fmt.Fprintf(h.Out, "%s %s\n", l, done)
	return nil
}
