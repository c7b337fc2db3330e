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
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
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

	// workload returns a reader of the workload cluster of a Cluster.
	workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)

	yes    bool
	dryRun dryRun
	// asks reports that there is a terminal to ask at.
	asks bool
}

func (b *byHand) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&b.reason, "reason", "", "Why. It is recorded in the annotation and the event that name you.")
	c.Flags().BoolVarP(&b.yes, "yes", "y", false, "Do not ask.")
	b.dryRun.addTo(c.Flags())
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
	b.workload = func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
		return snapshot.New().WorkloadReader(ctx, b.client, cluster)
	}
	return nil
}

// oneOf are the arguments of a command that is about one object of these kinds.
func oneOf(kinds ...kind) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		_, err := parseOne(args, kinds...)
		return err
	}
}

// runs is a command that does something about the one object that it names, of one of these kinds.
func (b *byHand) runs(
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
	// write changes the object, which then has the annotation that says who asked. With dryRun=server the API server only checks that.
	write func(ctx context.Context, annotation string, dryRun []string) error
	// about is what the event is about, reason its reason, and text its text.
	about  *corev1.ObjectReference
	reason string
	text   func(explain.Attribution) string
}

// apply asks, makes the change, and creates the event. What the user may not do, the API server says.
func (b *byHand) apply(ctx context.Context, c change) error {
	by, err := b.attribution(ctx)
	if err != nil {
		return err
	}
	annotation, err := json.Marshal(by)
	if err != nil {
		return fmt.Errorf("%s %s: %w", b.verb, c.named, err)
	}
	if b.dryRun == noDryRun {
		if err := ask(ctx, b.IOStreams, b.yes, b.asks); err != nil {
			return err
		}
	}
	if b.dryRun != clientDryRun {
		err := c.write(ctx, string(annotation), b.dryRun.options())
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s %s: it was changed meanwhile, and nothing was written: run the command again", b.verb, c.named)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.verb, c.named, err)
		}
	}
	b.say(c.named + " " + c.done + b.dryRun.suffix())
	if b.dryRun != noDryRun {
		return nil
	}
	if err := b.client.Create(ctx, b.event(c, by)); err != nil { // the change is made all the same
		_, _ = fmt.Fprintln(b.ErrOut, "warning: no event was created, so the annotation alone records who asked:", err)
	}
	return nil
}

// attribution is who asks, by what the API server says.
func (b *byHand) attribution(ctx context.Context) (explain.Attribution, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := b.client.Create(ctx, review); err != nil {
		return explain.Attribution{}, fmt.Errorf("ask the API server who you are: %w", err)
	}
	return explain.Attribution{By: review.Status.UserInfo.Username, At: b.now.UTC().Truncate(time.Second), Reason: b.reason}, nil
}

// event is named as client-go names its events: the API server refuses a generateName that ends in a dot.
func (b *byHand) event(c change, by explain.Attribution) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: c.about.Namespace, Name: fmt.Sprintf("%s.%x", c.about.Name, b.now.UnixNano())},
		EventTime:           metav1.NewMicroTime(b.now),
		ReportingController: mendv1.CommandLineFieldOwner, ReportingInstance: mendv1.CommandLineFieldOwner,
		Regarding: *c.about, Reason: c.reason, Action: text.Capital(b.verb), Type: corev1.EventTypeNormal, Note: c.text(by),
	}
}

// announce prints what becomes of an object, and returns the error of a command that is refused.
func (b *byHand) announce(named string, p plan) error {
	b.say(p.line(b.verb, named))
	if p.outcome == refuses {
		return Exit{Refused, errors.New("nothing was changed")}
	}
	return nil
}

// say prints one line, broken where it is too long.
func (b *byHand) say(line string) { _, _ = fmt.Fprintln(b.Out, text.Wrap(line, 4, text.Width(b.Out))) }

func (b *byHand) read(ctx context.Context, key client.ObjectKey, into client.Object, k kind) error {
	err := b.client.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s %s in namespace %s", k, key.Name, key.Namespace)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", k, key, err)
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
func (b *byHand) annotate(ctx context.Context, k kind, o metav1.Object, annotations map[string]any, dryRun []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "annotations": annotations,
	}})
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(groups[k])
	target.Namespace, target.Name = o.GetNamespace(), o.GetName()
	return b.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), &client.PatchOptions{DryRun: dryRun})
}
