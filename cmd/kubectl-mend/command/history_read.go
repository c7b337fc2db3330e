package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// historian reads what history is made of.
type historian struct {
	client.Reader

	trouble []string
	// failed is the first error.
	failed error
	// read is how many lists there were.
	read int
}

// observeHistory reads all that history is made of, of one namespace or of all if it is empty. What may not be read is done without, and said; it
// is an error if nothing can be.
func observeHistory(ctx context.Context, c client.Reader, namespace string) (history.Objects, []string, error) {
	h := &historian{Reader: c}
	var machines clusterv1.MachineList
	var checks clusterv1.MachineHealthCheckList
	var nodeChecks nhcv1.NodeHealthCheckList
	var hosts bmov1alpha1.BareMetalHostList
	h.list(ctx, &machines, namespace, "Machines")
	h.list(ctx, &checks, namespace, "MachineHealthChecks")
	h.list(ctx, &nodeChecks, "", "NodeHealthChecks")
	h.list(ctx, &hosts, namespace, "BareMetalHosts")
	o := history.Objects{
		Events: h.events(ctx, namespace), Machines: machines.Items, Checks: checks.Items, NodeChecks: nodeChecks.Items, Hosts: hosts.Items,
	}
	for _, kind := range requestKinds(checks.Items, nodeChecks.Items) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		h.list(ctx, list, namespace, kind.Kind+"s")
		o.Requests = append(o.Requests, list.Items...)
	}
	if h.read == 0 && len(h.trouble) > 0 {
		return o, nil, fmt.Errorf("nothing could be read: %w", h.failed)
	}
	return o, h.trouble, nil
}

// list fills in a list. A kind that is not installed has no objects, and that is no trouble.
func (h *historian) list(ctx context.Context, list client.ObjectList, namespace, what string, options ...client.ListOption) {
	err := h.List(ctx, list, append(options, client.InNamespace(namespace))...)
	switch {
	case err == nil:
		h.read++
	case !meta.IsNoMatchError(err):
		h.trouble = append(h.trouble, fmt.Sprintf("%s: %s", what, err))
		h.failed = cmp.Or(h.failed, fmt.Errorf("%s: %w", what, err))
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

// requestKinds are the kinds of remediation requests: those that kubemend carries out, and those that the checks make.
func requestKinds(checks []clusterv1.MachineHealthCheck, nodeChecks []nhcv1.NodeHealthCheck) []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{groups[metal3Kind], groups[ownKind]}
	add := func(kind schema.GroupVersionKind) {
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() }) {
			kinds = append(kinds, kind)
		}
	}
	for i := range checks {
		if ref := checks[i].Spec.Remediation.TemplateRef; ref.IsDefined() {
			add(remediationrequest.KindOf(remediationrequest.TemplateKind(ref)))
		}
	}
	for i := range nodeChecks {
		spec := &nodeChecks[i].Spec
		if ref := spec.RemediationTemplate; ref != nil {
			add(remediationrequest.KindOf(ref.GroupVersionKind()))
		}
		for _, step := range spec.EscalatingRemediations {
			add(remediationrequest.KindOf(step.RemediationTemplate.GroupVersionKind()))
		}
	}
	return kinds
}
