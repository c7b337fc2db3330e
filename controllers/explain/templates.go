package explain

// TemplateRefRefused is why a MachineHealthCheck's reference is none to a remediation template, and what to do.
func TemplateRefRefused(why error) (text, fix string) {
	return "spec.remediation.templateRef: " + why.Error(), "Name a remediation template there"
}

// KindNotInstalled is that a remediation template, or its requests, cannot be read since there is no such kind, and what to do.
func KindNotInstalled(kind string) (text, fix string) {
	return "the kind " + kind + " is not installed", "Install the kind"
}

// KindForbidden is that the manager may not list a kind, and what to do.
func KindForbidden(kind string) (text, fix string) {
	return "kubemend has no right to list the kind " + kind, "Give it that right"
}

// TemplateMissing is that there is no such remediation template, and what to do.
func TemplateMissing(template Ref) (text, fix string) {
	return template.String() + " does not exist", "Make it"
}
