package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/access"
	"github.com/kubemend/kubemend/controllers/explain"
)

// longestReason is how many bytes a reason may have: it stands in an annotation and in an event, whose text may have 1024.
const longestReason = 256

// byHand is one call of a command by which a person changes something: remediate, reset, or confirm.
type byHand struct {
	genericiooptions.IOStreams

	verb   string
	client client.Client
	now    time.Time
	reason string

	// answering reads the UID of the workload cluster of a Cluster.
	answering func(ctx context.Context, cluster client.ObjectKey) (types.UID, error)

	yes, dryRun bool
	// asks says that there is somebody to be asked.
	asks bool
}

func (b *byHand) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&b.reason, "reason", "", "Why. It is recorded in the annotation and the event that name you.")
	c.Flags().BoolVarP(&b.yes, "yes", "y", false, "Do not ask.")
	c.Flags().BoolVar(&b.dryRun, "dry-run", false, "Show what would change, have the API server check it, and change nothing.")
}

// begin checks the flags, and connects.
func (b *byHand) begin(ctx context.Context, o *Options) error {
	if len(b.reason) > longestReason || strings.ContainsFunc(b.reason, func(r rune) bool { return r < ' ' }) {
		return Exit{Misused, fmt.Errorf("--reason: expected one line of %d bytes at most", longestReason)}
	}
	var err error
	if b.client, err = o.client(); err != nil {
		return err
	}
	b.now, b.asks = o.timeAt(ctx, b.client), text.IsTerminal(o.In)
	return nil
}

// changes is a command that changes the one object that it names, of one of these kinds, by do.
func (b *byHand) changes(
	o *Options, do func(ctx context.Context, named subject, namespace string) error, kinds ...kind,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		named, err := parseOne(args, kinds...)
		if err != nil {
			return err
		}
		namespace, err := o.namespace()
		if err != nil {
			return err
		}
		if err := b.begin(c.Context(), o); err != nil {
			return err
		}
		return do(c.Context(), named, namespace)
	}
}

// change is one write, of one object.
type change struct {
	// named is the object as the user named it, done what is printed when it was changed.
	named, done string
	// write changes the object; with dry, the API server only checks that.
	write func(ctx context.Context, annotation string, dry bool) error
	// needs are the rights that it takes.
	needs []authorizationv1.ResourceAttributes
	// about is what the event is about, reason its reason, and text its text.
	about  *corev1.ObjectReference
	reason string
	text   func(explain.Attribution) string
}

// apply says what the user may not do, has the API server check the change, asks, and makes it.
func (b *byHand) apply(ctx context.Context, c change) error {
	by, err := b.attribution(ctx)
	if err != nil {
		return err
	}
	annotation, err := json.Marshal(by)
	if err != nil {
		return fmt.Errorf("%s %s: %w", b.verb, c.named, err)
	}
	for _, right := range c.needs {
		if may, err := access.Allowed(ctx, b.client, right); err != nil || !may {
			resource := strings.TrimSuffix(right.Resource+"/"+right.Subresource, "/") + "." + right.Group
			return errors.Join(err, fmt.Errorf("nothing was changed: %s", explain.MayNot(by.By, right.Verb, resource, right.Namespace)))
		}
	}
	if err := b.written(c, c.write(ctx, string(annotation), true)); err != nil {
		return err
	}
	event := authorizationv1.ResourceAttributes{Verb: "create", Group: eventsv1.GroupName, Resource: "events", Namespace: c.about.Namespace}
	tells, err := access.Allowed(ctx, b.client, event)
	if err != nil {
		return fmt.Errorf("ask whether you may create events: %w", err)
	}
	if !tells {
		b.say(explain.MayNot(by.By, "create", "events.events.k8s.io", c.about.Namespace) + ": the annotation alone records it")
	}
	if b.dryRun {
		return nil
	}
	if err := ask(ctx, b.IOStreams, b.yes, b.asks); err != nil {
		return err
	}
	if err := b.written(c, c.write(ctx, string(annotation), false)); err != nil {
		return err
	}
	b.say(c.named + " " + c.done)
	if tells {
		b.tell(ctx, c, by)
	}
	return nil
}

// written is the error of a write.
func (b *byHand) written(c change, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s %s: it was changed meanwhile, and nothing was written: run the command again", b.verb, c.named)
	}
	return fmt.Errorf("%s %s: %w", b.verb, c.named, err)
}

// attribution is who asks, by what the API server says.
func (b *byHand) attribution(ctx context.Context) (explain.Attribution, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := b.client.Create(ctx, review); err != nil {
		return explain.Attribution{}, fmt.Errorf("ask the API server who you are: %w", err)
	}
	return explain.Attribution{By: review.Status.UserInfo.Username, At: b.now.UTC().Truncate(time.Second), Reason: b.reason}, nil
}

// tell creates the event. The change is made, whatever becomes of it.
func (b *byHand) tell(ctx context.Context, c change, by explain.Attribution) {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.about.Namespace, GenerateName: c.about.Name + "."},
		EventTime:  metav1.NewMicroTime(b.now), ReportingController: mendv1.CommandLineFieldOwner, ReportingInstance: mendv1.CommandLineFieldOwner,
		Regarding: *c.about, Reason: c.reason, Action: text.Capital(b.verb), Type: corev1.EventTypeNormal, Note: c.text(by),
	}
	if err := b.client.Create(ctx, e); err != nil {
		_, _ = fmt.Fprintln(b.ErrOut, "warning: no event was created:", err)
	}
}

// say prints one line, broken where it is too long.
func (b *byHand) say(line string) { _, _ = fmt.Fprintln(b.Out, text.Wrap(line, 4, text.Width(b.Out))) }

// dryRun are the options of a write that the API server only checks.
func dryRun(dry bool) []string {
	if dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// referenceTo is an object as the object of an event.
func referenceTo(k kind, o metav1.Object) *corev1.ObjectReference {
	gvk := groups[k]
	return &corev1.ObjectReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}

// annotate changes annotations of an object, unless it has changed since it was read.
func (b *byHand) annotate(ctx context.Context, k kind, o metav1.Object, changes map[string]any, dry bool) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "annotations": changes,
	}})
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(groups[k])
	target.Namespace, target.Name = o.GetNamespace(), o.GetName()
	return b.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), &client.PatchOptions{DryRun: dryRun(dry)})
}
