package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group of kubemend's own kinds.
var GroupVersion = schema.GroupVersion{Group: "kubemend.io", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&HostRemediation{}, &HostRemediationList{}, &HostRemediationTemplate{}, &HostRemediationTemplateList{},
		&RemediationRecord{}, &RemediationRecordList{}, &RemediationPolicy{}, &RemediationPolicyList{},
		&RemediationOverride{}, &RemediationOverrideList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme adds the kinds of this package to a scheme.
var AddToScheme = schemeBuilder.AddToScheme
