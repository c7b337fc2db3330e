// Package admission refuses what the schema of a NodeHealthCheck cannot, because it depends on other objects, such as a change of its
// selector while a request is at work; and it warns of what is allowed and most likely a mistake. It only reads, past all caches.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// +kubebuilder:webhook:name=vnodehealthcheck.kb.io,path=/validate-remediation-medik8s-io-v1alpha1-nodehealthcheck,mutating=false,failurePolicy=fail,sideEffects=None,groups=remediation.medik8s.io,resources=nodehealthchecks,versions=v1alpha1,verbs=create;update,admissionReviewVersions=v1

// A deletion is refused only by a webhook that answers: while none does, it is known to be survived. The next manager deletes the requests
// that the check has left, and then its leases; a manager that has gone for good must not keep its checks.
//
// +kubebuilder:webhook:name=delete.nodehealthcheck.remediation.medik8s.io,path=/validate-remediation-medik8s-io-v1alpha1-nodehealthcheck,mutating=false,failurePolicy=ignore,sideEffects=None,groups=remediation.medik8s.io,resources=nodehealthchecks,versions=v1alpha1,verbs=delete,admissionReviewVersions=v1

// Templates and requests of other groups are read as well. The remediators that bring them grant it, by a ClusterRole with the label
// rbac.ext-remediation/aggregate-to-ext-remediation.
//
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get
// +kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures,verbs=get
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations,verbs=list
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediationtemplates,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=list

// patience is for how long objects are read: the API server waits ten seconds for a webhook, and then says nothing of what the webhook was
// waiting for.
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
	// Live reads past the caches: what has been made or deleted a moment ago counts.
	Live client.Reader
}

var _ admission.Validator[*nhcv1.NodeHealthCheck] = NodeHealthCheck{}

// ValidateCreate implements admission.Validator.
func (v NodeHealthCheck) ValidateCreate(ctx context.Context, check *nhcv1.NodeHealthCheck) (admission.Warnings, error) {
	return v.validate(ctx, check, change{selector: true, template: true, steps: true})
}

// ValidateUpdate implements admission.Validator. It judges only what changes, so that a check that is not allowed any more can be paused.
func (v NodeHealthCheck) ValidateUpdate(ctx context.Context, old, check *nhcv1.NodeHealthCheck) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(old.Spec, check.Spec) {
		return nil, nil
	}
	return v.validate(ctx, check, changeOf(&old.Spec, &check.Spec))
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

func (v NodeHealthCheck) validate(ctx context.Context, check *nhcv1.NodeHealthCheck, c change) (admission.Warnings, error) {
	if c != (change{}) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := refusal(v.refusals(ctx, check, c)...); err != nil {
			return nil, err
		}
	}
	return warnings(&check.Spec), nil
}

// warnings says what of a check is most likely a slip, and shows neither in its status nor in an event: what can never act is in its
// condition Effective.
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

// refusal is all reasons as one error, nil if there is none. Its text is that of the only reason, or [a, b].
//
// It hides what reads have failed with: the API server would answer with their status and leave out what they were for.
func refusal(reasons ...error) error {
	var errs []error
	for _, reason := range reasons {
		if reason != nil {
			errs = append(errs, errors.New(reason.Error()))
		}
	}
	return kerrors.Flatten(kerrors.NewAggregate(errs))
}
