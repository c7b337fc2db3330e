package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// maxReason is how many bytes a reason may have. It is part of an event's note, which may have 1024 bytes.
const maxReason = 256

// byHand is one call of a command that changes something: claim, release, remediate, reset, hold or allow.
type byHand struct {
	genericiooptions.IOStreams

	verb   string
	client client.Client
	now    time.Time
	reason string

	workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)

	yes    bool
	dryRun cmdutil.DryRunStrategy
	// asks is true if the standard input is a terminal, where the command can ask.
	asks bool
}

func (b *byHand) begin(c *cobra.Command, o *Options) error {
	if len(b.reason) > maxReason || strings.ContainsFunc(b.reason, func(r rune) bool { return r < ' ' }) {
		return Exit{Misused, fmt.Errorf("--reason: expected one line of %d bytes at most", maxReason)}
	}
	var err error
	c.Flags().Lookup("dry-run").NoOptDefVal = "" // else GetDryRunStrategy warns that the value of a bare --dry-run is deprecated
	if b.dryRun, err = cmdutil.GetDryRunStrategy(c); err != nil {
		return Exit{Misused, err}
	}
	if b.client, err = o.client(); err != nil {
		return err
	}
	b.now, b.asks = o.timeAt(c.Context(), b.client), text.IsTerminal(o.In)
	b.workload = func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
		return snapshot.WorkloadReader(ctx, b.client, cluster)
	}
	return nil
}

// complete makes c a command that takes one object of these kinds as its argument, and calls do for it.
func (b *byHand) complete(o *Options, c *cobra.Command, do func(ctx context.Context, named subject) error, kinds ...kind) *cobra.Command {
	c.Use = b.verb + " (KIND NAME | KIND/NAME)"
	c.RunE = func(c *cobra.Command, args []string) error {
		named, err := parseOne(args, kinds...)
		if err != nil {
			return err
		}
		if named.namespace, err = o.namespace(); err != nil {
			return err
		}
		if err := b.begin(c, o); err != nil {
			return err
		}
		return do(c.Context(), named)
	}
	c.Flags().BoolVarP(&b.yes, "yes", "y", false, "Do not ask.")
	cmdutil.AddDryRunFlag(c)
	c.Flags().Lookup("dry-run").NoOptDefVal = "client" // kubectl's default is "unchanged", which means the same
	return c
}

// recorded adds the flag --reason to a command that records who asked in an annotation and an event.
func (b *byHand) recorded(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&b.reason, "reason", "", "Why. It is recorded in the annotation and the event that name you.")
	return c
}

// outcome is what a command does with the object that the user names.
type outcome int

const (
	changes outcome = iota
	staysSo         // the object is as the user wants it already
	refuses         // the change would do harm, or have no effect
)

// plan is what a command does with an object, and why.
type plan struct {
	outcome outcome
	text    string
}

// announce prints the plan for an object, and returns an error if the plan refuses.
func (b *byHand) announce(named string, p plan) error {
	verb := map[outcome]string{changes: b.verb, staysSo: "nothing to do for", refuses: "cannot " + b.verb}[p.outcome]
	b.say(fmt.Sprintf("%s %s: %s", verb, named, p.text))
	if p.outcome == refuses {
		return Exit{Refused, errors.New("nothing was changed")}
	}
	return nil
}

func (b *byHand) say(line string) { _, _ = fmt.Fprintln(b.Out, text.Wrap(line, 4, text.Width(b.Out))) }

// ask asks the user whether to proceed, unless --yes or a dry run is set. It returns an error if the user refuses, if there is no terminal,
// or as soon as the user interrupts.
func (b *byHand) ask(ctx context.Context) error {
	if b.yes || b.dryRun != cmdutil.DryRunNone {
		return nil
	}
	if !b.asks {
		return Exit{Refused, errors.New("nothing was changed: there is no terminal to ask for confirmation, so add --yes")}
	}
	_, _ = fmt.Fprint(b.Out, "Proceed? [y/N] ")
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(b.In).ReadString('\n') // an error means no
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
	}
	return Exit{Refused, errors.New("nothing was changed")}
}

// change is one write, of one object.
type change struct {
	// named is the object as the user named it. done is printed after it when it was changed.
	named, done string
	// write changes the object and sets the annotation, which records who asked.
	write func(ctx context.Context, annotation string) error
	// about is the object of the event.
	about *corev1.ObjectReference
	// reason is the reason of the event, did what its note says that the user did.
	reason, did string
}

// apply asks the user, makes the change and creates the event.
func (b *byHand) apply(ctx context.Context, c change) error {
	name, err := b.who(ctx)
	if err != nil {
		return err
	}
	by := explain.Attribution{By: name, At: b.now.UTC().Truncate(time.Second), Reason: b.reason}
	annotation, err := json.Marshal(by)
	if err != nil {
		return fmt.Errorf("%s %s: %w", b.verb, c.named, err)
	}
	err = b.carryOut(ctx, c.named, c.done, func() error { return c.write(ctx, string(annotation)) })
	if err != nil || b.dryRun != cmdutil.DryRunNone {
		return err
	}
	if err := b.client.Create(ctx, b.event(c, by)); err != nil { // only warn: the change was made
		_, _ = fmt.Fprintln(b.ErrOut, "warning: no event was created, so the annotation alone records who asked:", err)
	}
	return nil
}

// who returns the name by which the API server knows the user.
func (b *byHand) who(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := b.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// carryOut asks the user, writes, and prints that the object was changed or, in a dry run, would be. If another client has changed or
// created the object first, the error says that nothing was written.
func (b *byHand) carryOut(ctx context.Context, named, done string, write func() error) error {
	if err := b.ask(ctx); err != nil {
		return err
	}
	if b.dryRun != cmdutil.DryRunClient {
		err := write()
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			err = errors.New("it was changed meanwhile, and nothing was written: run the command again")
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.verb, named, err)
		}
	}
	suffix := map[cmdutil.DryRunStrategy]string{cmdutil.DryRunClient: " (dry run)", cmdutil.DryRunServer: " (server dry run)"}
	b.say(named + " " + done + suffix[b.dryRun])
	return nil
}

// event returns the event of a change. It sets a name like client-go's, because the API server refuses a generateName that ends in a dot.
func (b *byHand) event(c change, by explain.Attribution) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: c.about.Namespace, Name: fmt.Sprintf("%s.%x", c.about.Name, b.now.UnixNano())},
		EventTime:           metav1.NewMicroTime(b.now),
		ReportingController: mendv1.CommandLineFieldOwner, ReportingInstance: mendv1.CommandLineFieldOwner,
		Regarding: *c.about, Reason: c.reason, Action: text.Capital(b.verb), Type: corev1.EventTypeNormal, Note: by.Note(c.did),
	}
}

func referenceTo(k kind, o metav1.Object) *corev1.ObjectReference {
	gvk := k.gvk()
	return &corev1.ObjectReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}

// annotate changes annotations of an object. It retries a conflict if only the status has changed since the object was read, because
// controllers may write the status of an unhealthy machine several times a second.
func (b *byHand) annotate(ctx context.Context, k kind, o metav1.Object, annotations map[string]any) error {
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(k.gvk())
	target.Namespace, target.Name = o.GetNamespace(), o.GetName()
	for version, tries := o.GetResourceVersion(), 1; ; tries++ {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.GetUID(), "resourceVersion": version, "annotations": annotations,
		}})
		if err != nil {
			return err
		}
		err = b.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), &client.PatchOptions{DryRun: b.writeOptions()})
		if !apierrors.IsConflict(err) || tries == mostTries {
			return err
		}
		read := b.client.Get(ctx, client.ObjectKeyFromObject(target), target)
		same := target.UID == o.GetUID() && target.Generation == o.GetGeneration() &&
			target.DeletionTimestamp.Equal(o.GetDeletionTimestamp())
		if read != nil || !same || !maps.Equal(target.Labels, o.GetLabels()) || !maps.Equal(target.Annotations, o.GetAnnotations()) {
			return err
		}
		version = target.ResourceVersion
	}
}

// mostTries is how often annotate tries to write.
const mostTries = 5

// writeOptions returns the value of dryRun for a write, which is set for --dry-run=server.
func (b *byHand) writeOptions() []string {
	if b.dryRun == cmdutil.DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}
