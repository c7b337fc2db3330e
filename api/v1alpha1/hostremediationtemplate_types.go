package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostRemediationTemplateResource describes the HostRemediations that are created from a template.
type HostRemediationTemplateResource struct {
	// spec is copied into every HostRemediation that is created from this template.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="only supported remediation strategy is reboot",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 0)",message="minimum retry limit is 0",fieldPath=".strategy.retryLimit"
	Spec HostRemediationSpec `json:"spec"`
}

// HostRemediationTemplateSpec is the spec of a template.
type HostRemediationTemplateSpec struct {
	// template describes the HostRemediations that are created from this template.
	// +required
	Template HostRemediationTemplateResource `json:"template"`
}

// HostRemediationTemplate is a template for HostRemediations. A MachineHealthCheck names it in spec.remediation.templateRef
// (spec.remediationTemplate in v1beta1) and creates a HostRemediation from it for each unhealthy machine.
//
// The template has no owner, so clusterctl moves it only because of the label clusterctl.cluster.x-k8s.io/move.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hostremediationtemplates,scope=Namespaced,categories=cluster-api;kubemend,shortName=hremt
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.template.spec.strategy.type`,description="What is done to the host"
// +kubebuilder:printcolumn:name="Retry limit",type=integer,JSONPath=`.spec.template.spec.strategy.retryLimit`,description="How many attempts may follow the first one"
// +kubebuilder:printcolumn:name="Timeout",type=integer,JSONPath=`.spec.template.spec.strategy.timeoutSeconds`,description="How many seconds one attempt may take"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostRemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the content of the template.
	// +optional
	Spec HostRemediationTemplateSpec `json:"spec,omitempty"`
}

// HostRemediationTemplateList is a list of HostRemediationTemplates.
//
// +kubebuilder:object:root=true
type HostRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostRemediationTemplate `json:"items"`
}
