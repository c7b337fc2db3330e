package command

import (
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
)

// historian reads what history is made of.
type historian struct {
	client.Reader

	trouble []error
	// read is how many lists there were.
	read int
}

// observeHistory reads what history is made of beside records, of one namespace or of all if it is empty. What may not be read is done
// without, and said; it is an error if nothing can be.
func observeHistory(ctx context.Context, c client.Reader, namespace string) (*history.Objects, []error, error) {
	h := &historian{Reader: c}
	var machines clusterv1.MachineList
	var checks clusterv1.MachineHealthCheckList
	var hosts bmov1alpha1.BareMetalHostList
	h.list(ctx, &machines, namespace, "Machines")
	h.list(ctx, &checks, namespace, "MachineHealthChecks")
	h.list(ctx, &hosts, namespace, "BareMetalHosts")
	objects := &history.Objects{Events: h.events(ctx, namespace), Machines: machines.Items, Checks: checks.Items, Hosts: hosts.Items}
	if h.read == 0 && len(h.trouble) > 0 {
		return objects, nil, fmt.Errorf("nothing could be read: %w", h.trouble[0])
	}
	return objects, h.trouble, nil
}

// list fills in a list. A kind that is not installed has no objects, and that is no trouble.
func (h *historian) list(ctx context.Context, list client.ObjectList, namespace, what string) {
	err := h.List(ctx, list, client.InNamespace(namespace))
	switch {
	case err == nil:
		h.read++
	case !meta.IsNoMatchError(err):
		h.trouble = append(h.trouble, fmt.Errorf("%s: %w", what, err))
	}
}

// events are those of a namespace, and those about nodes and their checks, which have none: their events are in the namespace default.
func (h *historian) events(ctx context.Context, namespace string) []eventsv1.Event {
	var here, elsewhere eventsv1.EventList
	h.list(ctx, &here, namespace, "events")
	if namespace == "" || namespace == metav1.NamespaceDefault {
		return here.Items
	}
	h.list(ctx, &elsewhere, metav1.NamespaceDefault, "events about nodes")
	return append(here.Items, slices.DeleteFunc(elsewhere.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Kind != groups[nodeKind].Kind && e.Regarding.Kind != groups[nodeCheckKind].Kind
	})...)
}
