// Package admission validates NodeHealthChecks where the schema cannot, because the answer depends on other objects: for example it refuses
// a change of the selector during a remediation. It also warns of likely mistakes. It only reads, without caches.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// +kubebuilder:webhook:name=vnodehealthcheck.kb.io,path=/validate-remediation-medik8s-io-v1alpha1-nodehealthcheck,mutating=false,failurePolicy=fail,sideEffects=None,groups=remediation.medik8s.io,resources=nodehealthchecks,versions=v1alpha1,verbs=create;update,admissionReviewVersions=v1

// While no webhook answers, a deletion is allowed: the next manager deletes the requests and leases of the check, and if the manager was
// uninstalled for good, users have to be able to delete its checks.
//
// +kubebuilder:webhook:name=delete.nodehealthcheck.remediation.medik8s.io,path=/validate-remediation-medik8s-io-v1alpha1-nodehealthcheck,mutating=false,failurePolicy=ignore,sideEffects=None,groups=remediation.medik8s.io,resources=nodehealthchecks,versions=v1alpha1,verbs=delete,admissionReviewVersions=v1

// The right to read templates and requests of other groups comes from their remediators, by a ClusterRole with the label
// rbac.ext-remediation/aggregate-to-ext-remediation.
//
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get
// +kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures,verbs=get
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations,verbs=list
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediationtemplates,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=list

// patience limits the reads: the API server waits ten seconds for a webhook, and its error would not say which read took so long.
const patience = 8 * time.Second

// SetUp registers the validation at the manager's webhook server. The manager's scheme has to know NodeHealthCheck.
func SetUp(m ctrl.Manager) error {
	validation := NodeHealthCheck{Live: m.GetAPIReader()}
	if err := ctrl.NewWebhookManagedBy(m, &nhcv1.NodeHealthCheck{}).WithValidator(validation).Complete(); err != nil {
		return fmt.Errorf("set up the webhooks of NodeHealthCheck: %w", err)
	}
	return nil
}

// NodeHealthCheck validates NodeHealthChecks.
type NodeHealthCheck struct {
	// Live reads without caches, because objects that were just created or deleted matter.
	Live client.Reader
}

var _ admission.Validator[*nhcv1.NodeHealthCheck] = NodeHealthCheck{}

// ValidateCreate implements admission.Validator.
func (v NodeHealthCheck) ValidateCreate(ctx context.Context, check *nhcv1.NodeHealthCheck) (admission.Warnings, error) {
	return v.validate(ctx, nil, check)
}

// ValidateUpdate implements admission.Validator. It validates only fields that change: a check that has become invalid can still be paused.
func (v NodeHealthCheck) ValidateUpdate(ctx context.Context, old, check *nhcv1.NodeHealthCheck) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(old.Spec, check.Spec) {
		return nil, nil
	}
	return v.validate(ctx, &old.Spec, check)
}

// ValidateDelete implements admission.Validator.
func (v NodeHealthCheck) ValidateDelete(ctx context.Context, check *nhcv1.NodeHealthCheck) (admission.Warnings, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	running, err := v.remediating(ctx, &check.Status)
	if running != "" {
		err = errors.New(deletionProhibited + ": " + running)
	}
	return nil, refusal(err)
}

func (v NodeHealthCheck) validate(
	ctx context.Context, old *nhcv1.NodeHealthCheckSpec, check *nhcv1.NodeHealthCheck,
) (admission.Warnings, error) {
	if err := refusal(v.refusals(ctx, old, check)...); err != nil {
		return nil, err
	}
	return warnings(&check.Spec), nil
}

// warnings returns warnings about likely mistakes, except those that the condition Effective of the check shows.
func warnings(spec *nhcv1.NodeHealthCheckSpec) (texts []string) {
	if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		texts = append(texts, "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane")
	}
	field, value, everything, nothing := "spec.minHealthy", spec.MinHealthy, []string{"0", "0%"}, []string{"100%"}
	if spec.MaxUnhealthy != nil {
		field, value, everything, nothing = "spec.maxUnhealthy", spec.MaxUnhealthy, nothing, everything
	}
	switch {
	case value == nil:
	case slices.Contains(everything, value.String()):
		texts = append(texts, field+" "+value.String()+" limits nothing: nodes are remediated however many are unhealthy")
	case slices.Contains(nothing, value.String()):
		texts = append(texts, field+" "+value.String()+" allows no remediation, not even of a single node")
	}
	return texts
}

// refusal returns all reasons as one error, nil if there is none. Its text is that of the only reason, or [a, b]. It does not wrap the
// errors of failed reads: the API server would answer with their status, and omit why the webhook has read the objects.
func refusal(reasons ...error) error {
	var errs []error
	for _, reason := range reasons {
		if reason != nil {
			errs = append(errs, errors.New(reason.Error()))
		}
	}
	return kerrors.Flatten(kerrors.NewAggregate(errs))
}

// Texts of refusals, in the words of medik8s.
const (
	selectorProhibited = "selector update prohibited due to running remediation"
	templateProhibited = "remediation template update prohibited due to running remediation"
	stepsProhibited    = "escalating remediations update prohibited due to running remediation"
	deletionProhibited = "deletion prohibited due to running remediation"
	invalidSelector    = "Invalid selector: %v"
	duplicateKind      = "Using multiple templates of same kind is not supported for this template: duplicate template kind: %s"
	wrongTopology      = "Unsupported control plane topology"
)

// refused is an error with a text of medik8s that begins with a capital letter.
type refused string

func (r refused) Error() string { return string(r) }

// inOrder returns steps sorted by their order. Their position in the list has no meaning.
func inOrder(steps []nhcv1.EscalatingRemediation) []nhcv1.EscalatingRemediation {
	return slices.SortedStableFunc(slices.Values(steps), func(a, b nhcv1.EscalatingRemediation) int { return a.Order - b.Order })
}

// refusals returns the reasons why a write is refused, and the errors of reads, each with what to do. Old is nil for a new check. It
// validates three fields; for changes of the others the schema is enough.
func (v NodeHealthCheck) refusals(ctx context.Context, old *nhcv1.NodeHealthCheckSpec, check *nhcv1.NodeHealthCheck) []error {
	spec, same := &check.Spec, equality.Semantic.DeepEqual
	selector := old == nil || !same(old.Selector, spec.Selector)
	template := old == nil || !same(old.RemediationTemplate, spec.RemediationTemplate)
	steps := old == nil || !same(inOrder(old.EscalatingRemediations), inOrder(spec.EscalatingRemediations))
	if !selector && !template && !steps {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	if selector {
		if _, err := metav1.LabelSelectorAsSelector(&spec.Selector); err != nil {
			errs = append(errs, refused(fmt.Sprintf(invalidSelector, err)))
		}
	}
	if steps {
		errs = append(errs, v.repeated(ctx, spec.EscalatingRemediations)...)
	}
	errs = append(errs, v.topology(ctx))
	running, err := v.remediating(ctx, &check.Status)
	if running == "" {
		return append(errs, err)
	}
	for _, prohibited := range []struct {
		changed bool
		reason  string
	}{{selector, selectorProhibited}, {template, templateProhibited}, {steps, stepsProhibited}} {
		if prohibited.changed {
			errs = append(errs, errors.New(prohibited.reason+": "+running))
		}
	}
	return errs
}

// remediating returns the name of a request in the status that still exists, with its node; empty if there is none. The status alone is not
// enough, because it is out of date if a request was deleted since the last reconcile. (reference W8)
//
// A request that is being deleted counts, because its remediator works until the last finalizer is removed. If a request exists, errors of
// other reads do not matter.
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
				continue // an incomplete reference names no request
			}
			if _, listed := lists[at]; !listed {
				requests, err := v.list(ctx, at.kind, client.InNamespace(at.namespace))
				if err != nil {
					errs = append(errs, fmt.Errorf("cannot find out whether a remediation is running: %w; try again when kubemend can "+
						"list %s (%s)",
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

// runs reports whether request is the one that ref names, and still counts as running. A reference without a UID matches by name. A request
// does not count if its node is gone and its deletion takes longer than ClingingFor: its remediator may never release it, and users have to
// be able to change the check.
func (v NodeHealthCheck) runs(ctx context.Context, request *remediationrequest.Metadata, ref *corev1.ObjectReference, node string) bool {
	if ref.UID == "" && request.Name != ref.Name || ref.UID != "" && request.UID != ref.UID {
		return false
	}
	now := clock.RealClock{}.Now() // a webhook has no reconciler's clock
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

// repeated refuses kinds that several steps use, unless all templates of the kind have the annotation that allows this.
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
				"try again when kubemend can list %s (%s), or use one template of each kind", kind.Kind, err, kind.Kind,
				kind.GroupVersion()))
		case len(templates) == 0 || slices.ContainsFunc(templates, worksAlone):
			errs = append(errs, refused(fmt.Sprintf(duplicateKind, kind.Kind)))
		}
	}
	return errs
}

// topologies are the control-plane topologies of OpenShift that are supported. (medik8s, reference 1.4.)
var topologies = []string{"HighlyAvailable", "SingleReplica", "HighlyAvailableArbiter", "External"}

// openshift is the kind that describes a cluster of OpenShift; other clusters do not have it.
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
