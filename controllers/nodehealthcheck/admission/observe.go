package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// openshift is the object that describes a cluster of OpenShift; elsewhere there is no such kind.
var openshift = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Infrastructure"}

// observe finds out what refusals of a change depend on. What it cannot find out, it returns as errors, each of which says what to do.
func (v NodeHealthCheck) observe(ctx context.Context, check *nhcv1.NodeHealthCheck, c change) (f facts, unknown []error) {
	var err error
	if c.ladder {
		f.alone, err = v.alone(ctx, repeated(check.Spec.EscalatingRemediations))
		unknown = append(unknown, err)
	}
	f.topology, err = v.topology(ctx)
	unknown = append(unknown, err)
	f.remediating, err = v.remediating(ctx, &check.Status)
	return f, append(unknown, err)
}

// remediating are those requests that the status lists which still exist, sorted. The status alone is no evidence: a request may have gone
// with its node, or by somebody else's hand, and the status would then be out of date until the next reconcile. (reference W8)
//
// A request that is being deleted exists: its remediator is at work until the last finalizer is gone. One that exists says enough, whatever
// could not be asked.
func (v NodeHealthCheck) remediating(ctx context.Context, status *nhcv1.NodeHealthCheckStatus) ([]string, error) {
	requests := listed(status)
	var running []string
	errs := make([]error, 0, len(requests))
	byKind := func(a, b place) int {
		return cmp.Or(cmp.Compare(a.kind.String(), b.kind.String()), cmp.Compare(a.namespace, b.namespace))
	}
	for _, at := range slices.SortedFunc(maps.Keys(requests), byKind) {
		left, err := v.left(ctx, at, requests[at])
		running, errs = append(running, left...), append(errs, err)
	}
	if len(running) > 0 {
		slices.Sort(running)
		return running, nil
	}
	return nil, kerrors.NewAggregate(errs)
}

// left are those of these requests that exist. It lists, since that is one call for all of them.
func (v NodeHealthCheck) left(ctx context.Context, at place, requests []listing) ([]string, error) {
	found, err := v.list(ctx, at.kind, client.InNamespace(at.namespace))
	if err != nil {
		return nil, fmt.Errorf("cannot find out whether a remediation is running: %w; try again when kubemend can list %s (%s)",
			err, at.kind.Kind, at.kind.GroupVersion())
	}
	var left []string
	for _, r := range requests {
		if slices.ContainsFunc(found, func(o remediationrequest.Metadata) bool { return same(&o, r.ref) && !v.forgotten(ctx, &o, r.node) }) {
			left = append(left, r.String())
		}
	}
	return left, nil
}

// forgotten reports whether the node of a request is gone, and its remediator clings to it for longer than is waited for. That may last for ever, and must
// not keep a check as it is for ever. What cannot be found out is not forgotten.
func (v NodeHealthCheck) forgotten(ctx context.Context, req *remediationrequest.Metadata, node string) bool {
	now := clock.RealClock{}.Now() // the webhook is asked now
	if req.DeletionTimestamp == nil || now.Sub(req.DeletionTimestamp.Time) < remediationrequest.ClingingFor {
		return false
	}
	return apierrors.IsNotFound(v.Live.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}))
}

// alone returns those kinds of templates of which two cannot be used together.
func (v NodeHealthCheck) alone(ctx context.Context, kinds []schema.GroupVersionKind) ([]string, error) {
	worksAlone := func(template remediationrequest.Metadata) bool { // its remediator does not say that it copes with several
		_, copes := template.Annotations[nhcv1.MultipleTemplatesAnnotation]
		return !copes
	}
	var names []string
	var errs []error
	for _, kind := range kinds {
		templates, err := v.list(ctx, kind)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("cannot find out whether several templates of kind %s may be used: %w; "+
				"try again when kubemend can list %s (%s), or use one template of each kind", kind.Kind, err, kind.Kind, kind.GroupVersion()))
		case len(templates) == 0 || slices.ContainsFunc(templates, worksAlone):
			names = append(names, kind.Kind)
		}
	}
	return names, kerrors.NewAggregate(errs)
}

// topology is that of OpenShift's control plane; nil if this is not OpenShift.
func (v NodeHealthCheck) topology(ctx context.Context) (*string, error) {
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetGroupVersionKind(openshift)
	err := v.Live.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure)
	if remediationrequest.Missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find out the topology of the control plane: %w; "+
			"try again when kubemend can get Infrastructure cluster (%s)", err, openshift.GroupVersion())
	}
	topology, _, err := unstructured.NestedString(infrastructure.Object, "status", "controlPlaneTopology")
	if err != nil {
		return nil, fmt.Errorf("read Infrastructure cluster: %w", err)
	}
	return &topology, nil
}

// list returns the objects of a kind; none if the kind does not exist.
func (v NodeHealthCheck) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]remediationrequest.Metadata, error) {
	found := &metav1.PartialObjectMetadataList{}
	found.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := v.Live.List(ctx, found, options...); err != nil && !remediationrequest.Missing(err) {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return found.Items, nil
}
