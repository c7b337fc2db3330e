package leftovers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// RBAC of a teardown: the controllers that wrote what it removes have most of the rights. Removing marks from requests needs the right
// to patch them, which comes with their kinds; hosts and leases on nodes need the rights of the controllers that marked them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// Options are the settings of the teardown.
type Options struct {
	// Enabled has the manager do nothing else.
	Enabled bool
}

// AddFlags adds the flag of the teardown to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "teardown", false,
		"Only remove what kubemend wrote on objects, before it is uninstalled (docs/uninstall.md). "+
			"A replica is ready when nothing is left.")
}

const (
	// soon is when to look again while something is left, seldom when nothing is.
	soon   = 2 * time.Second
	seldom = 30 * time.Second
	// mostNamed is how many leftovers an answer of Ready names.
	mostNamed = 20
)

// Clusters are the connections to workload clusters.
type Clusters interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Teardown finds what is left, removes what no controller removes, and says when nothing is left. It reads everything live, remembers
// nothing that counts, and leaves to each controller what that has to end in its own order. All replicas look; the leader acts.
type Teardown struct {
	Client    client.Client // writes
	Live      client.Reader // reads past the caches
	Clusters  Clusters
	Nodes     Unfencer
	Discovery discovery.ServerResourcesInterface
	// Serves reports whether the kind of a CustomResourceDefinition is ours to serve.
	Serves   func(ctx context.Context, crd string) (bool, error)
	Recorder events.EventRecorder
	Clock    clock.WithTicker

	// Namespace and WatchFilterValue limit what is read, as in the flags of these names; LeaseNamespace is where the leases on nodes are.
	Namespace, WatchFilterValue, LeaseNamespace string

	// Lock is nil if there is no leader election.
	Lock *Lock
	// Lease is the one that Lock is about, Pod the one that we run in; nil outside of a cluster.
	Lease *client.ObjectKey
	Pod   *metav1.OwnerReference
	// Elected is closed when this replica leads, and Begin is called then, once no other replica acts any more: it starts the
	// controllers that release hosts.
	Elected <-chan struct{}
	Begin   func() error

	failed map[client.ObjectKey]time.Time // since when clusters cannot be read
	said   map[string]bool                // what was reported last of what stays

	mu     sync.Mutex
	looked bool  // once at least
	left   error // as of the last reconcile
}

// NeedLeaderElection makes the manager start it in every replica.
func (*Teardown) NeedLeaderElection() bool { return false }

// Start looks and acts until ctx ends.
func (t *Teardown) Start(ctx context.Context) error {
	begun := false
	for {
		leads, next := t.leads(), soon
		if leads && !begun {
			if err := t.Begin(); err != nil {
				return err
			}
			begun = true
		}
		left := t.reconcile(ctx, leads)
		if left == nil {
			next = seldom
		}
		t.keep(ctx, left)
		select {
		case <-ctx.Done():
			return nil
		case <-t.Clock.After(next):
		}
	}
}

// leads reports whether this replica leads, and the one that did before has stopped.
func (t *Teardown) leads() bool {
	select {
	case <-t.Elected:
		return t.Lock == nil || !t.Clock.Now().Before(t.Lock.Quiet())
	default:
		return false
	}
}

// reconcile looks once, acts if this replica leads, and returns what is left: also what was just removed, until it is no longer found.
func (t *Teardown) reconcile(ctx context.Context, leads bool) error {
	found, err := t.find(ctx, leads)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot look for what is left")
		return err
	}
	var left []error
	stays := map[string]bool{}
	for _, l := range found {
		if l.do != pass {
			left = append(left, errors.New(l.String()))
		}
		if l.do == wait || l.do == pass {
			stays[l.String()] = true
		}
		if leads || l.do == wait {
			left = append(left, t.act(ctx, l))
		}
	}
	t.said = stays
	switch err := errors.Join(left...); {
	case err != nil:
		return err
	case leads:
		return t.own(ctx)
	case t.Lock != nil && IsTeardown(t.Lock.Holder()):
		return nil
	}
	return errors.New("no replica that tears down is the leader yet") // only the leader reads nodes
}

// keep remembers what is left, and logs when nothing is: an administrator who runs the manager by hand reads that it can go.
func (t *Teardown) keep(ctx context.Context, left error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left == nil && (!t.looked || t.left != nil) {
		log.FromContext(ctx).Info("Removed everything, kubemend can be stopped and deleted")
	}
	t.looked, t.left = true, left
}

// Ready is a check of readiness: its error names what is left. Nothing is known before the first look, so it is not ready until then.
func (t *Teardown) Ready(*http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.looked: // the manager answers before it starts us
		return errors.New("not removed yet: nothing was read yet")
	case t.left == nil:
		return nil
	}
	lines := strings.Split(t.left.Error(), "\n")
	if more := len(lines) - mostNamed; more > 0 {
		lines = append(lines[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not removed yet: %s", strings.Join(lines, "; "))
}

// act does with a leftover what becomes of it, and reports that. That another writer was faster, or that the object is gone, is no
// error: the next reconcile sees it.
func (t *Teardown) act(ctx context.Context, l *leftover) error {
	var err error
	switch l.do {
	case release, unmark:
		err = t.patch(ctx, l.on, unmarked(l))
	case erase:
		err = t.Client.Delete(ctx, remediationrequest.Identity(l.on), client.Preconditions{UID: ptr.To(l.on.UID)})
	case strip:
		capi.DropOwn(l.machine)
		err = capi.PatchConditions(ctx, t.Client, l.machine)
	case unfence:
		by := fence.Owner{UID: types.UID(l.on.Annotations[fence.FencedByAnnotation])}
		err = t.Nodes.Unfence(ctx, l.cluster, &corev1.Node{ObjectMeta: l.on.ObjectMeta}, by)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("%s %s: %w", l.do, l.object(), err)
	}
	t.report(ctx, l)
	return nil
}

// unmarked is what a merge patch has to say of the metadata of an object, to remove kubemend's marks.
func unmarked(l *leftover) map[string]any {
	marks := map[string]any{}
	for _, key := range l.marks {
		marks[key] = nil
	}
	changes := map[string]any{"annotations": marks, "labels": marks}
	if slices.Contains(l.on.Finalizers, l.finalizer) {
		changes["finalizers"] = slices.DeleteFunc(slices.Clone(l.on.Finalizers), func(f string) bool { return f == l.finalizer })
	}
	return changes
}

// patch changes metadata of that very object, if it did not change since it was read.
func (t *Teardown) patch(ctx context.Context, on *metadata, changes map[string]any) error {
	changes["uid"], changes["resourceVersion"] = on.UID, on.ResourceVersion
	content, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	return t.Client.Patch(ctx, remediationrequest.Identity(on), client.RawPatch(types.MergePatchType, content))
}

// own makes the leader lease go with this pod: once the manager is deleted, no controller is left to delete it. Another
// replica that takes it over does the same.
func (t *Teardown) own(ctx context.Context) error {
	if t.Pod == nil || t.Lease == nil {
		return nil
	}
	lease := as(leaseKind, metav1.ObjectMeta{})
	if err := t.Live.Get(ctx, *t.Lease, lease); err != nil {
		return fmt.Errorf("read lease %s: %w", t.Lease, err)
	}
	if owners := lease.OwnerReferences; len(owners) == 1 && owners[0].UID == t.Pod.UID {
		return nil
	}
	if err := t.patch(ctx, lease, map[string]any{"ownerReferences": []any{t.Pod}}); err != nil {
		return fmt.Errorf("have lease %s deleted with this pod: %w", t.Lease, err)
	}
	return nil
}

// report reports what was done, in an event and in the log; of what stays, once.
func (t *Teardown) report(ctx context.Context, l *leftover) {
	if t.said[l.String()] {
		return
	}
	if l.do == wait {
		log.FromContext(ctx).Info("Waiting", "for", l.String())
		return
	}
	log.FromContext(ctx).Info("Carried out a teardown step", "action", l.do, "object", l.object(), "because", l.why)
	recorder.Send(t.Recorder, eventOf(l))
}

// eventOf is the event about what was done.
func eventOf(l *leftover) recorder.Event {
	event := recorder.Event{About: remediationrequest.Identity(l.on), Kind: corev1.EventTypeNormal, Action: "Teardown"}
	switch l.do {
	case release:
		event.Reason = mendv1.EventCheckReleased
		event.Text = "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
		if l.template.Group == mendv1.GroupVersion.Group {
			event.Kind = corev1.EventTypeWarning
			event.Text += ". No controller acts on what is made from a " + l.template.Kind +
				" any more: have it name another template, or none"
		}
	case pass:
		event.Kind, event.Reason, event.Text = corev1.EventTypeWarning, mendv1.EventNotRemoved,
			fmt.Sprintf("Its nodes could not be read: %v. "+
				"A node that is fenced there has annotation kubemend.io/fenced-by (docs/uninstall.md)", l.cause)
	case unfence: // users of this cluster look for events of the Cluster
		event.About = as(clusterKind, metav1.ObjectMeta{Namespace: l.cluster.Namespace, Name: l.cluster.Name})
		event.Reason, event.Text = mendv1.EventOrphanSwept, fmt.Sprintf("Unfenced %s: %s", l.object(), l.why)
	case erase:
		event.Reason, event.Text = mendv1.EventRequestReleased, "Deleted: "+l.why
	default:
		event.Reason, event.Text = mendv1.EventMarksRemoved, "kubemend is being removed: its marks were removed; "+l.why
	}
	return event
}
