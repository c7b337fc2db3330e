package nodes

import (
	"errors"
	"fmt"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Disabled is why a check can do nothing, as its condition says. The texts are medik8s', with namespace and name.
type Disabled struct{ Reason, Message string }

// Is reports whether d disables the check.
func (d Disabled) Is() bool { return d.Reason != "" }

// fixes are what a user has to do about it. They depend on the reason alone, which may be that of a condition that another process wrote.
var fixes = map[string]string{
	nhcv1.ConflictReason:          "delete the MachineHealthChecks of OpenShift but the one that it brings along",
	nhcv1.TemplateNotFoundReason:  "make the template, or have the check name one that is there",
	nhcv1.TemplateInvalidReason:   "fix the template, or have the check name another one",
	nhcv1.TemplateForbiddenReason: "bind the rights that the remediator's ClusterRole is to bring",
	nhcv1.SelectorInvalidReason:   "fix spec.selector",
	nhcv1.InvalidLimitReason:      "fix spec.minHealthy or spec.maxUnhealthy",
}

// ConflictMessage is what a check says that is disabled beside MachineHealthChecks of OpenShift.
const ConflictMessage = "Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"

// TeardownMessage is what a check says that is disabled while kubemend is being uninstalled.
const TeardownMessage = "kubemend is being uninstalled: " +
	"it does not act on this check any more, and deletes its remediation requests and leases"

// SelectorInvalid disables a check whose selector cannot be parsed.
func SelectorInvalid(err error) Disabled {
	return Disabled{Reason: nhcv1.SelectorInvalidReason, Message: "spec.selector is invalid: " + err.Error()}
}

// NoTemplates disables a check that names no template.
func NoTemplates() Disabled {
	return Disabled{
		Reason:  nhcv1.TemplateInvalidReason,
		Message: "Remediation template is invalid: either spec.remediationTemplate or at least one of spec.escalatingRemediations must be set",
	}
}

// TemplateNotFound disables a check whose template does not exist. It names the template: the API server's NotFound has no namespace.
func TemplateNotFound(t *Template, err error) Disabled {
	why := "failed to get " + t.Place() + ": " + innermost(err)
	return Disabled{Reason: nhcv1.TemplateNotFoundReason, Message: fmt.Sprintf("Remediation template not found: %q", why)}
}

// TemplateInvalid disables a check whose template cannot be used.
func TemplateInvalid(t *Template, err error) Disabled {
	text := fmt.Sprintf("Remediation template is invalid: %q", innermost(err))
	if t.Step != nil {
		text += ", of " + t.Place()
	}
	return Disabled{Reason: nhcv1.TemplateInvalidReason, Message: text}
}

// TemplateForbidden disables a check if objects of kind, a template or its requests, may not be read.
func TemplateForbidden(t *Template, kind string, err error) Disabled {
	return Disabled{Reason: nhcv1.TemplateForbiddenReason, Message: fmt.Sprintf(
		"%s may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: \"true\" has to allow it, "+
			"as the remediator brings one: %q",
		kind, t.Place()+": "+innermost(err))}
}

// innermost is the text of the innermost of err, which is the API server's.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
