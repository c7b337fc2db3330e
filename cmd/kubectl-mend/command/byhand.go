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

// maxReason is how many bytes a reason may have: it stands in an annotation and in an event, whose text may have 1024.
const maxReason = 256

// byHand is one call of a command by which a person changes something: claim, release, remediate, reset, hold, or allow.
type byHand struct {
	genericiooptions.IOStreams

	verb   string
	client client.Client
	now    time.Time
	reason string

	workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)

	yes    bool
	dryRun cmdutil.DryRunStrategy
	// asks reports that there is a terminal to ask at.
	asks bool
}

func (b *byHand) begin(c *cobra.Command, o *Options) error {
	if len(b.reason) > maxReason || strings.ContainsFunc(b.reason, func(r rune) bool { return r < ' ' }) {
		return Exit{Misused, fmt.Errorf("--reason: expected one line of %d bytes at most", maxReason)}
	}
	var err error
	c.Flags().Lookup("dry-run").NoOptDefVal = "" // kubectl logs the value of a bare --dry-run as deprecated
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

// complete makes c a command that does something about the one object that it names, of one of these kinds.
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
	c.Flags().Lookup("dry-run").NoOptDefVal = "client" // by default it is a value of its own, with the same meaning
	return c
}

// recorded adds the flag for the reason to a command whose change has an annotation and an event that record who asked.
func (b *byHand) recorded(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&b.reason, "reason", "", "Why. It is recorded in the annotation and the event that name you.")
	return c
}

// outcome is what becomes of an object that a person names.
type outcome int

const (
	changes outcome = iota
	staysSo         // it is so already
	refuses         // the change would do harm, or nothing
)

// plan is what becomes of an object, and why.
type plan struct {
	outcome outcome
	text    string
}

// announce prints what becomes of an object, and returns the error of a command that is refused.
func (b *byHand) announce(named string, p plan) error {
	verb := map[outcome]string{changes: b.verb, staysSo: "nothing to do for", refuses: "cannot " + b.verb}[p.outcome]
	b.say(fmt.Sprintf("%s %s: %s", verb, named, p.text))
	if p.outcome == refuses {
		return Exit{Refused, errors.New("nothing was changed")}
	}
	return nil
}

func (b *byHand) say(line string) { _, _ = fmt.Fprintln(b.Out, text.Wrap(line, 4, text.Width(b.Out))) }

// ask asks the user whether to proceed; the error says that they do not. There has to be somebody to be asked, unless the user has said
// yes before, or nothing is changed. An interrupt means no, and does not wait for the line to end.
func (b *byHand) ask(ctx context.Context) error {
	if b.yes || b.dryRun != cmdutil.DryRunNone {
		return nil
	}
	if !b.asks {
		return Exit{Refused, errors.New("nothing was changed: there is no terminal to ask at, so say --yes")}
	}
	_, _ = fmt.Fprint(b.Out, "Proceed? [y/N] ")
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(b.In).ReadString('\n') // what cannot be read is no yes
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
	// named is the object as the user named it, done what is printed when it was changed.
	named, done string
	// write changes the object, which then has the annotation that says who asked.
	write func(ctx context.Context, annotation string) error
	// about is what the event is about, reason its reason, and did what its text says that the user did.
	about       *corev1.ObjectReference
	reason, did string
}

// apply asks, makes the change, and creates the event. What the user may not do, the API server says.
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
	if err := b.client.Create(ctx, b.event(c, by)); err != nil { // the change is made all the same
		_, _ = fmt.Fprintln(b.ErrOut, "warning: no event was created, so the annotation alone records who asked:", err)
	}
	return nil
}

// who is the user, as the API server knows them.
func (b *byHand) who(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := b.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// carryOut asks, writes, and prints that an object was changed, or would be. The error of a write that another client was faster to make
// says that nothing was written.
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

// event is named as client-go names its events: the API server refuses a generateName that ends in a dot.
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

// annotate changes annotations of an object, unless more of it than its status has changed since it was read: controllers write the status
// of a machine that is unhealthy several times a second.
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
		same := target.UID == o.GetUID() && target.Generation == o.GetGeneration() && target.DeletionTimestamp.Equal(o.GetDeletionTimestamp())
		if read != nil || !same || !maps.Equal(target.Labels, o.GetLabels()) || !maps.Equal(target.Annotations, o.GetAnnotations()) {
			return err
		}
		version = target.ResourceVersion
	}
}

// mostTries is how often an object is written whose status changes each time.
const mostTries = 5

// writeOptions have the API server check a write, and not store it, where the flags ask for that.
func (b *byHand) writeOptions() []string {
	if b.dryRun == cmdutil.DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}
