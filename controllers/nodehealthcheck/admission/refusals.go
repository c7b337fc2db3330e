package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// What is refused, in the words of medik8s.
const (
	selectorProhibited = "selector update prohibited due to running remediation"
	templateProhibited = "remediation template update prohibited due to running remediation"
	stepsProhibited    = "escalating remediations update prohibited due to running remediation"
	deletionProhibited = "deletion prohibited due to running remediation"
	invalidSelector    = "Invalid selector: %v"
	duplicateKind      = "Using multiple templates of same kind is not supported for this template: duplicate template kind: %s"
	wrongTopology      = "Unsupported control plane topology"
)

// refused is an error in the words of medik8s, which begin with a capital.
type refused string

func (r refused) Error() string { return string(r) }

// change is what a write changes of the fields that depend on other objects. Changes of all others are judged by the schema alone.
type change struct{ selector, template, steps bool }

func changeOf(old, spec *nhcv1.NodeHealthCheckSpec) change {
	return change{
		selector: !equality.Semantic.DeepEqual(old.Selector, spec.Selector),
		template: !equality.Semantic.DeepEqual(old.RemediationTemplate, spec.RemediationTemplate),
		steps:    !equality.Semantic.DeepEqual(inOrder(old.EscalatingRemediations), inOrder(spec.EscalatingRemediations)),
	}
}

// inOrder sorts steps as they are taken. Where they stand in the list means nothing.
func inOrder(steps []nhcv1.EscalatingRemediation) []nhcv1.EscalatingRemediation {
	return slices.SortedStableFunc(slices.Values(steps), func(a, b nhcv1.EscalatingRemediation) int { return a.Order - b.Order })
}

// refusals are the reasons for which a write is refused, and what could not be found out, each of which says what to do.
func (v NodeHealthCheck) refusals(ctx context.Context, check *nhcv1.NodeHealthCheck, c change) []error {
	var errs []error
	if c.selector {
		if _, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector); err != nil {
			errs = append(errs, refused(fmt.Sprintf(invalidSelector, err)))
		}
	}
	if c.steps {
		errs = append(errs, v.repeated(ctx, check.Spec.EscalatingRemediations)...)
	}
	errs = append(errs, v.topology(ctx))
	running, err := v.remediating(ctx, &check.Status)
	if running == "" {
		return append(errs, err)
	}
	for _, prohibited := range []struct {
		changed bool
		reason  string
	}{{c.selector, selectorProhibited}, {c.template, templateProhibited}, {c.steps, stepsProhibited}} {
		if prohibited.changed {
			errs = append(errs, errors.New(prohibited.reason+": "+running))
		}
	}
	return errs
}

// remediating names one of the requests that the status lists, with its node, which still exists; empty if none does. The status alone is
// no evidence: a request may have gone with its node, or by somebody else's hand, and the status would then be out of date until the next
// reconcile. (reference W8)
//
// A request that is being deleted exists: its remediator is at work until the last finalizer is gone. One that exists says enough, whatever
// could not be asked.
func (v NodeHealthCheck) remediating(ctx context.Context, status *nhcv1.NodeHealthCheckStatus) (string, error) {
	type place struct {
		kind      schema.GroupVersionKind
		namespace string
	}
	lists := map[place][]remediationrequest.Metadata{} // one call for all requests of a kind in a namespace
	var errs []error
	for _, node := range status.UnhealthyNodes {
		for _, remediation := range node.Remediations {
			ref := remediation.Resource
			at := place{ref.GroupVersionKind(), ref.Namespace}
			if at.kind.Kind == "" || at.kind.Version == "" || ref.Name == "" {
				continue // there can be no such request
			}
			if _, listed := lists[at]; !listed {
				requests, err := v.list(ctx, at.kind, client.InNamespace(at.namespace))
				if err != nil {
					errs = append(errs, fmt.Errorf("cannot find out whether a remediation is running: %w; try again when kubemend can list %s (%s)",
						err, at.kind.Kind, at.kind.GroupVersion()))
				}
				lists[at] = requests
			}
			runs := func(request remediationrequest.Metadata) bool { return v.runs(ctx, &request, &ref, node.Name) }
			if slices.ContainsFunc(lists[at], runs) {
				return fmt.Sprintf("%s (%s %s)", node.Name, ref.Kind, nameOf(&ref)), nil
			}
		}
	}
	return "", kerrors.NewAggregate(errs)
}

// runs reports whether request is the one that ref names, and its remediator is waited for. A reference without a UID names whatever has
// its name. If the node is gone, and the remediator has kept the request for longer than is waited for, that may last for ever, and must
// not keep a check as it is for ever.
func (v NodeHealthCheck) runs(ctx context.Context, request *remediationrequest.Metadata, ref *corev1.ObjectReference, node string) bool {
	if ref.UID == "" && request.Name != ref.Name || ref.UID != "" && request.UID != ref.UID {
		return false
	}
	now := clock.RealClock{}.Now() // the webhook is asked now
	if request.DeletionTimestamp == nil || now.Sub(request.DeletionTimestamp.Time) < remediationrequest.ClingingFor {
		return true
	}
	return !apierrors.IsNotFound(v.Live.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}))
}

func nameOf(ref *corev1.ObjectReference) string {
	if ref.Namespace == "" {
		return ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}

// repeated refuses kinds that several steps use, unless all templates of the kind say that their remediator copes with several.
func (v NodeHealthCheck) repeated(ctx context.Context, steps []nhcv1.EscalatingRemediation) []error {
	worksAlone := func(template remediationrequest.Metadata) bool {
		_, copes := template.Annotations[nhcv1.MultipleTemplatesAnnotation]
		return !copes
	}
	var errs []error
	seen := map[schema.GroupKind][]schema.GroupVersionKind{}
	for i := range steps {
		kind := steps[i].RemediationTemplate.GroupVersionKind()
		seen[kind.GroupKind()] = append(seen[kind.GroupKind()], kind)
		if len(seen[kind.GroupKind()]) != 2 {
			continue
		}
		kind = seen[kind.GroupKind()][0]
		templates, err := v.list(ctx, kind)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("cannot find out whether several templates of kind %s may be used: %w; "+
				"try again when kubemend can list %s (%s), or use one template of each kind", kind.Kind, err, kind.Kind, kind.GroupVersion()))
		case len(templates) == 0 || slices.ContainsFunc(templates, worksAlone):
			errs = append(errs, refused(fmt.Sprintf(duplicateKind, kind.Kind)))
		}
	}
	return errs
}

// topologies are the control planes of OpenShift whose nodes may be remediated. (medik8s, reference 1.4.)
var topologies = []string{"HighlyAvailable", "SingleReplica", "HighlyAvailableArbiter", "External"}

// openshift is the object that describes a cluster of OpenShift; elsewhere there is no such kind.
var openshift = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Infrastructure"}

func (v NodeHealthCheck) topology(ctx context.Context) error {
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetGroupVersionKind(openshift)
	if err := v.Live.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure); remediationrequest.Missing(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot find out the topology of the control plane: %w; "+
			"try again when kubemend can get Infrastructure cluster (%s)", err, openshift.GroupVersion())
	}
	topology, _, err := unstructured.NestedString(infrastructure.Object, "status", "controlPlaneTopology")
	if err != nil {
		return fmt.Errorf("read Infrastructure cluster: %w", err)
	}
	if !slices.Contains(topologies, topology) {
		return refused(wrongTopology)
	}
	return nil
}

func (v NodeHealthCheck) list(
	ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption,
) ([]remediationrequest.Metadata, error) {
	found := &metav1.PartialObjectMetadataList{}
	found.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := v.Live.List(ctx, found, options...); err != nil && !remediationrequest.Missing(err) {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return found.Items, nil
}
