package command

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
)

// observeHistory reads what history is made of beside records, of one namespace or of all if it is empty. What may not be read is done
// without, and said; it is an error if nothing can be. A kind that is not installed has no objects, and that is no trouble.
func observeHistory(ctx context.Context, c client.Reader, namespace string) (*history.Objects, []error, error) {
	var trouble []error
	lists := 0
	list := func(list client.ObjectList, namespace, what string) {
		err := c.List(ctx, list, client.InNamespace(namespace))
		switch {
		case err == nil:
			lists++
		case !meta.IsNoMatchError(err):
			trouble = append(trouble, fmt.Errorf("%s: %w", what, err))
		}
	}
	var machines clusterv1.MachineList
	var checks clusterv1.MachineHealthCheckList
	var hosts bmov1alpha1.BareMetalHostList
	var events, ofNodes eventsv1.EventList
	list(&machines, namespace, "Machines")
	list(&checks, namespace, "MachineHealthChecks")
	list(&hosts, namespace, "BareMetalHosts")
	list(&events, namespace, "events")
	if namespace != "" && namespace != metav1.NamespaceDefault { // there are the events about what has no namespace
		list(&ofNodes, metav1.NamespaceDefault, "events about nodes")
	}
	for _, event := range ofNodes.Items {
		if about := event.Regarding.Kind; about == string(nodeKind) || about == string(nodeCheckKind) {
			events.Items = append(events.Items, event)
		}
	}
	objects := &history.Objects{Events: events.Items, Machines: machines.Items, Checks: checks.Items, Hosts: hosts.Items}
	if lists == 0 && len(trouble) > 0 {
		return objects, nil, fmt.Errorf("nothing could be read: %w", trouble[0])
	}
	return objects, trouble, nil
}
