package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metal3RemediationTemplateResource describes the Metal3Remediations that are created from a template.
type Metal3RemediationTemplateResource struct {
	// spec is copied into every Metal3Remediation that is created from this template.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="only supported remediation strategy is reboot",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 1)",message="minimum retry limit is 1",fieldPath=".strategy.retryLimit"
	Spec Metal3RemediationSpec `json:"spec"`
}

// Metal3RemediationTemplateSpec is the spec of a template.
type Metal3RemediationTemplateSpec struct {
	// template describes the Metal3Remediations that are created from this template.
	// +required
	Template Metal3RemediationTemplateResource `json:"template"`
}

// Metal3RemediationTemplateStatus exists because CAPM3's kind has it. Neither kubemend nor CAPM3 writes it.
type Metal3RemediationTemplateStatus struct {
	// status has the form of the status of a Metal3Remediation. Nothing writes it.
	// +optional
	Status Metal3RemediationStatus `json:"status,omitempty,omitzero"`
}

// Metal3RemediationTemplate is a template for Metal3Remediations. A MachineHealthCheck names it in spec.remediation.templateRef
// (spec.remediationTemplate in v1beta1) and creates a Metal3Remediation from it for each unhealthy machine.
//
// The template has no owner, so clusterctl moves it only because of the label clusterctl.cluster.x-k8s.io/move.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3remediationtemplates,scope=Namespaced,categories=cluster-api,shortName=m3rt;m3remediationtemplate;m3remediationtemplates;metal3rt;metal3remediationtemplate
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
type Metal3RemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the content of the template.
	// +optional
	Spec Metal3RemediationTemplateSpec `json:"spec,omitempty"`

	// status is not used: neither kubemend nor CAPM3 writes it.
	// +optional
	Status Metal3RemediationTemplateStatus `json:"status,omitempty,omitzero"`
}

// Metal3RemediationTemplateList is a list of Metal3RemediationTemplates.
//
// +kubebuilder:object:root=true
type Metal3RemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3RemediationTemplate `json:"items"`
}
