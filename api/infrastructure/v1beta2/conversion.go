package v1beta2

// Hub marks this version as the hub: v1beta1 is converted to and from it.
func (*Metal3Remediation) Hub() {}

// Hub marks this version as the hub: v1beta1 is converted to and from it.
func (*Metal3RemediationTemplate) Hub() {}
