// Package leftovers removes what kubemend wrote on objects and no other controller removes. While kubemend runs, Sweep removes what deleted
// remediations have left on hosts and nodes. Teardown removes everything, so that kubemend can be uninstalled.
//
// The package starts no remediation, and removes nothing that an existing remediation may still need to end its power cycle in order.
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
	soon   = 2 * time.Second  // after which a teardown searches again while something is left
	seldom = 30 * time.Second // after which it searches again when nothing is left
	// answerWithin is the timeout for the nodes of one workload cluster.
	answerWithin = 10 * time.Second
)

var (
	clusterKind = clusterv1.GroupVersion.WithKind("Cluster")
	nodeKind    = corev1.SchemeGroupVersion.WithKind("Node")
)

// action is what to do with a leftover.
type action string

const (
	wait     action = "wait for"
	release  action = "unclaim" // in one patch, so that Cluster API core acts on the check at once
	unmark   action = "remove kubemend's marks from"
	erase    action = "delete"
	strip    action = "remove kubemend's conditions from"
	free     action = "release"
	withdraw action = "withdraw the request to replace the machine of"
	unfence  action = "unfence"
	pass     action = "skip" // with a warning, because nodes in the cluster may be fenced
)

// metadata is the part of an object that kubemend reads here.
type metadata = metav1.PartialObjectMetadata

// as returns the metadata of an object with its kind set.
func as(kind schema.GroupVersionKind, object metav1.ObjectMeta) *metadata {
	obj := &metadata{ObjectMeta: object}
	obj.SetGroupVersionKind(kind)
	return obj
}

// leftover is what kubemend wrote on an object, what to do with it, and why.
type leftover struct {
	on        *metadata        // the object, with its kind
	cluster   client.ObjectKey // the Cluster, if the object is a Node
	do        action
	why       string
	marks     []string // annotations and labels to remove
	finalizer string   // the finalizer to remove, if the object has it
	// template is the kind of the template of a claimed check.
	template schema.GroupKind
	// machine is the Machine whose conditions are to be removed, or whose owner should no longer replace it.
	machine *clusterv1.Machine
	// cause is why the nodes of a cluster cannot be read.
	cause error
}

// object returns the kind and the name of the object.
func (l *leftover) object() string {
	if l.cluster.Name != "" {
		return fmt.Sprintf("%s %s of cluster %s", l.on.Kind, l.on.Name, l.cluster)
	}
	return fmt.Sprintf("%s %s", l.on.Kind, client.ObjectKeyFromObject(l.on))
}

func (l *leftover) String() string { return fmt.Sprintf("%s: %s (%s it)", l.object(), l.why, l.do) }

// Remover carries out the actions on leftovers.
type Remover struct {
	Client client.Client // reads from caches and writes
	Live   client.Reader // reads from the API server
	Nodes  interface {   // a fence.Nodes
		Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
		Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	}
	Hosts    *host.Hosts
	Recorder events.EventRecorder
}

// remove carries out the action on l, and reports it in the log and in an event. A conflict, or an object that is gone, is no error: the
// next search sees what is left.
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

// unmarked returns the metadata of a merge patch that removes the annotations, labels and finalizer of l.
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

// patch patches the metadata of an object. It returns a conflict if the object has changed since it was read.
func (r *Remover) patch(ctx context.Context, on *metadata, changes map[string]any) error {
	changes["uid"], changes["resourceVersion"] = on.UID, on.ResourceVersion
	content, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	return r.Client.Patch(ctx, remediationrequest.Identity(on), client.RawPatch(types.MergePatchType, content))
}

// eventOf returns the event about an action.
func eventOf(l *leftover) recorder.Event {
	event := recorder.Event{About: remediationrequest.Identity(l.on), Kind: corev1.EventTypeNormal, Action: "RemoveLeftover"}
	switch l.do {
	case release:
		event.Reason = mendv1.EventCheckReleased
		event.Text = "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
		if l.template.Group == mendv1.GroupVersion.Group {
			event.Kind = corev1.EventTypeWarning
			event.Text += ". No controller acts on requests from a " + l.template.Kind +
				" any more: name another template in the check, or none"
		}
	case pass:
		event.Kind, event.Reason, event.Text = corev1.EventTypeWarning, mendv1.EventNotRemoved,
			fmt.Sprintf("Its nodes could not be read: %v. "+
				"A node that is fenced there has annotation kubemend.io/fenced-by (docs/uninstall.md)", l.cause)
	case free:
		event.Reason, event.Text = mendv1.EventOrphanSwept, fmt.Sprintf("Removed %s: %s", strings.Join(l.marks, ", "), l.why)
	case unfence: // an event of the Cluster, because the Node is in another cluster
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
