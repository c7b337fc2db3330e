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
	"unicode"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
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
	if len(b.reason) > maxReason || strings.ContainsFunc(b.reason, unicode.IsControl) {
		return Exit{Misused, fmt.Errorf("--reason: expected one line of %d bytes at most", maxReason)}
	}
	var err error
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
	notes   []string // more lines for the user
	// done is printed after the object when write has changed it.
	done  string
	write func(ctx context.Context) error
	// event says who asked; nil if the object does.
	event *eventsv1.Event
}

// carryOut prints the plan for the object that the user named, asks the user, writes, and creates the event. It returns an error if the
// plan refuses, or if another client has changed or created the object first.
func (b *byHand) carryOut(ctx context.Context, named subject, p plan) error {
	verb := map[outcome]string{changes: b.verb, staysSo: "nothing to do for", refuses: "cannot " + b.verb}[p.outcome]
	b.say(fmt.Sprintf("%s %s: %s", verb, named, p.text))
	switch p.outcome {
	case refuses:
		return Exit{Refused, errors.New("nothing was changed")}
	case staysSo:
		return nil
	}
	for _, note := range p.notes {
		b.say(note)
	}
	if err := b.ask(ctx); err != nil {
		return err
	}
	if b.dryRun == cmdutil.DryRunServer {
		b.client = client.NewDryRunClient(b.client)
	}
	if b.dryRun != cmdutil.DryRunClient {
		err := p.write(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			err = errChanged
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.verb, named, err)
		}
	}
	suffix := map[cmdutil.DryRunStrategy]string{cmdutil.DryRunClient: " (dry run)", cmdutil.DryRunServer: " (server dry run)"}
	b.say(named.String() + " " + p.done + suffix[b.dryRun])
	if p.event == nil || b.dryRun != cmdutil.DryRunNone {
		return nil
	}
	if err := b.client.Create(ctx, p.event); err != nil { // only warn: the change was made
		_, _ = fmt.Fprintln(b.ErrOut, "warning: no event was created, so the annotation alone records who asked:", err)
	}
	return nil
}

var errChanged = errors.New("it was changed meanwhile, and nothing was written: run the command again")

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

// who returns the name by which the API server knows the user.
func (b *byHand) who(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := b.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// attribute adds an event to the plan that says who did something with an object, when and why. It returns the same as an annotation. The
// event has a name like client-go's, because the API server refuses a generateName that ends in a dot.
func (b *byHand) attribute(ctx context.Context, p *plan, k kind, o metav1.Object, reason, did string) (annotation string, err error) {
	by := explain.Attribution{At: b.now.UTC().Truncate(time.Second), Reason: b.reason}
	if by.By, err = b.who(ctx); err != nil {
		return "", err
	}
	gvk := k.gvk()
	p.event = &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: fmt.Sprintf("%s.%x", o.GetName(), b.now.UnixNano())},
		EventTime:           metav1.NewMicroTime(b.now),
		ReportingController: mendv1.CommandLineFieldOwner, ReportingInstance: mendv1.CommandLineFieldOwner,
		Regarding: corev1.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		},
		Reason: reason, Action: text.Capital(b.verb), Type: corev1.EventTypeNormal, Note: by.Note(did),
	}
	said, err := json.Marshal(by)
	return string(said), err
}

// annotate changes annotations of an object, unless more than its status has changed since it was read: controllers may write the status
// of an unhealthy machine several times a second.
func (b *byHand) annotate(ctx context.Context, k kind, read metav1.Object, annotations map[string]any) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := &metav1.PartialObjectMetadata{}
		now.SetGroupVersionKind(k.gvk())
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: read.GetNamespace(), Name: read.GetName()}, now); err != nil {
			return err
		}
		if now.UID != read.GetUID() || now.Generation != read.GetGeneration() || !maps.Equal(now.Annotations, read.GetAnnotations()) ||
			!maps.Equal(now.Labels, read.GetLabels()) || !now.DeletionTimestamp.Equal(read.GetDeletionTimestamp()) {
			return errChanged
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": now.UID, "resourceVersion": now.ResourceVersion, "annotations": annotations,
		}})
		if err != nil {
			return err
		}
		return b.client.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch))
	})
}
