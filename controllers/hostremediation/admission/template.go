// Package admission sets defaults in remediation templates that a schema cannot set: those for values such as "" and 0. The defaults of a
// schema only replace missing values.
//
// It rejects nothing. All validation is in the schemas, so that it also works without the webhooks.
package admission

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// +kubebuilder:webhook:name=default.metal3remediationtemplate.infrastructure.cluster.x-k8s.io,path=/mutate-infrastructure-cluster-x-k8s-io-v1beta2-metal3remediationtemplate,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,versions=v1beta2,verbs=create;update,admissionReviewVersions=v1;v1beta1
// +kubebuilder:webhook:name=default.hostremediationtemplate.kubemend.io,path=/mutate-kubemend-io-v1alpha1-hostremediationtemplate,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,groups=kubemend.io,resources=hostremediationtemplates,versions=v1alpha1,verbs=create;update,admissionReviewVersions=v1

// SetUp registers the defaulting of both templates, and the conversion of the kinds that have two versions.
func SetUp(m ctrl.Manager) error {
	if err := ctrl.NewWebhookManagedBy(m, &infrav1.Metal3Remediation{}).Complete(); err != nil {
		return fmt.Errorf("set up the webhooks of Metal3Remediation: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(m, &infrav1.Metal3RemediationTemplate{}).WithDefaulter(Metal3Template{}).Complete(); err != nil {
		return fmt.Errorf("set up the webhooks of Metal3RemediationTemplate: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(m, &mendv1.HostRemediationTemplate{}).WithDefaulter(HostTemplate{}).Complete(); err != nil {
		return fmt.Errorf("set up the webhooks of HostRemediationTemplate: %w", err)
	}
	return nil
}

// Metal3Template sets the defaults of a Metal3RemediationTemplate.
type Metal3Template struct{}

// HostTemplate sets the defaults of a HostRemediationTemplate.
type HostTemplate struct{}

var (
	_ admission.Defaulter[*infrav1.Metal3RemediationTemplate] = Metal3Template{}
	_ admission.Defaulter[*mendv1.HostRemediationTemplate]    = HostTemplate{}
)

// Default implements admission.Defaulter. It never fails.
func (Metal3Template) Default(_ context.Context, t *infrav1.Metal3RemediationTemplate) error {
	if s := t.Spec.Template.Spec.Strategy; s != nil {
		complete(&s.Type, &s.TimeoutSeconds)
		s.RetryLimit = max(s.RetryLimit, infrav1.DefaultRetryLimit)
	}
	return nil
}

// Default implements admission.Defaulter. It never fails.
func (HostTemplate) Default(_ context.Context, t *mendv1.HostRemediationTemplate) error {
	if s := t.Spec.Template.Spec.Strategy; s != nil {
		complete(&s.Type, &s.TimeoutSeconds)
		if s.RetryLimit == nil {
			s.RetryLimit = ptr.To[int32](infrav1.DefaultRetryLimit)
		}
	}
	return nil
}

// complete sets an empty strategy and a timeout of 0 to the defaults of CAPM3.
func complete(strategy *infrav1.RemediationType, seconds *int32) {
	*strategy, *seconds = cmp.Or(*strategy, infrav1.RebootRemediationStrategy), cmp.Or(*seconds, infrav1.DefaultTimeoutSeconds)
}
