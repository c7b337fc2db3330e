// Package leftovers removes what kubemend wrote on objects and nothing else will remove. While kubemend runs, Sweep removes
// what remediations of hosts have left that do not exist any more. Teardown removes everything, so that kubemend can be uninstalled.
//
// It begins nothing, and never touches what a remediation that exists may still need: a power cycle ends in its own order.
package leftovers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	// soon is when a teardown looks again while something is left, seldom when nothing is.
	soon   = 2 * time.Second
	seldom = 30 * time.Second
	// answerWithin is how long a workload cluster is waited for in one reconcile.
	answerWithin = 10 * time.Second
)

var (
	clusterKind = clusterv1.GroupVersion.WithKind("Cluster")
	nodeKind    = corev1.SchemeGroupVersion.WithKind("Node")
)

// action is what becomes of a leftover.
type action string

const (
	wait     action = "wait for"
	release  action = "unclaim" // in one patch, so that Cluster API core takes the check up at once
	unmark   action = "take our marks off"
	erase    action = "delete"
	strip    action = "remove our conditions from"
	free     action = "release"
	withdraw action = "withdraw the request to replace the machine of"
	unfence  action = "unfence"
	pass     action = "pass over" // with a warning: there may be something of ours behind it
)

// metadata is an object as far as kubemend writes on it.
type metadata = metav1.PartialObjectMetadata

// as is an object of this kind with this metadata.
func as(kind schema.GroupVersionKind, object metav1.ObjectMeta) *metadata {
	obj := &metadata{ObjectMeta: object}
	obj.SetGroupVersionKind(kind)
	return obj
}

// leftover is something that kubemend wrote on an object, what becomes of it, and why.
type leftover struct {
	// on is the object, with its kind; of a node it is in cluster.
	on      *metadata
	cluster client.ObjectKey
	do      action
	why     string
	// marks are the annotations and labels on it that say something to kubemend alone, finalizer is one that nothing else removes.
	marks     []string
	finalizer string
	// template is the kind of the template of a check that is claimed.
	template schema.GroupKind
	// machine is the one whose conditions are to be removed, or whose owner is no longer to replace it.
	machine *clusterv1.Machine
	// cause is why the nodes of a cluster could not be read.
	cause error
}

// object names the object.
func (l *leftover) object() string {
	if l.cluster.Name != "" {
		return fmt.Sprintf("%s %s of cluster %s", l.on.Kind, l.on.Name, l.cluster)
	}
	return fmt.Sprintf("%s %s", l.on.Kind, client.ObjectKeyFromObject(l.on))
}

func (l *leftover) String() string { return fmt.Sprintf("%s: %s (%s it)", l.object(), l.why, l.do) }

// Remover does with leftovers what becomes of them.
type Remover struct {
	Client client.Client // reads from caches and writes
	Live   client.Reader // reads past the caches
	Nodes  interface {   // fence.Nodes
		Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
		Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	}
	Hosts    *host.Hosts
	Recorder events.EventRecorder
}

// remove does with l what becomes of it, and reports that in the log and in an event. That another client was faster, or that the object
// is gone, is no error: the next look sees it.
func (r *Remover) remove(ctx context.Context, l *leftover) error {
	var err error
	switch l.do {
	case wait:
		log.FromContext(ctx).Info("Waiting", "for", l.String())
		return nil
	case release, unmark:
		err = r.patch(ctx, l.on, unmarked(l))
	case erase:
		err = r.Client.Delete(ctx, remediationrequest.Identity(l.on), client.Preconditions{UID: ptr.To(l.on.UID)})
	case strip:
		capi.DropOwn(l.machine)
		err = capi.PatchConditions(ctx, r.Client, l.machine)
	case free:
		marks := host.AllMarks(l.on)
		maps.DeleteFunc(marks, func(key string, _ types.UID) bool { return !slices.Contains(l.marks, key) })
		err = r.Hosts.RemoveOrphans(ctx, l.on, marks)
	case withdraw:
		if err = remediation.WithdrawFromOwner(ctx, r.Client, l.machine); err == nil {
			err = r.Hosts.MarkHealthy(ctx, l.on, l.machine.UID)
		}
	case unfence:
		by := fence.Owner{UID: types.UID(l.on.Annotations[fence.FencedByAnnotation])}
		err = r.Nodes.Unfence(ctx, l.cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.on.Name}}, by)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s %s: %w", l.do, l.object(), err)
	}
	log.FromContext(ctx).Info("Removed a leftover", "action", l.do, "object", l.object(), "because", l.why)
	recorder.Send(r.Recorder, eventOf(l))
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
func (r *Remover) patch(ctx context.Context, on *metadata, changes map[string]any) error {
	changes["uid"], changes["resourceVersion"] = on.UID, on.ResourceVersion
	content, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	return r.Client.Patch(ctx, remediationrequest.Identity(on), client.RawPatch(types.MergePatchType, content))
}

// eventOf is the event about what was done.
func eventOf(l *leftover) recorder.Event {
	event := recorder.Event{About: remediationrequest.Identity(l.on), Kind: corev1.EventTypeNormal, Action: "RemoveLeftover"}
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
	case free:
		event.Reason, event.Text = mendv1.EventOrphanSwept, fmt.Sprintf("Removed %s: %s", strings.Join(l.marks, ", "), l.why)
	case unfence: // users of this cluster look for events of the Cluster
		event.About = as(clusterKind, metav1.ObjectMeta{Namespace: l.cluster.Namespace, Name: l.cluster.Name})
		event.Reason, event.Text = mendv1.EventOrphanSwept, fmt.Sprintf("Unfenced %s: %s", l.object(), l.why)
	case withdraw:
		event.Reason, event.Text = mendv1.EventMarkRemoved, l.why+": the host is no longer marked as unhealthy"
	case erase:
		event.Reason, event.Text = mendv1.EventRequestReleased, "Deleted: "+l.why
	default:
		event.Reason, event.Text = mendv1.EventMarksRemoved, "kubemend is being removed: its marks were removed; "+l.why
	}
	return event
}
