package v1beta2

// Hub marks this version as the one that the other is converted to and from.
func (*Metal3Remediation) Hub() {}

// Hub marks this version as the one that the other is converted to and from.
func (*Metal3RemediationTemplate) Hub() {}
