package explain

import (
	"fmt"
	"strings"
)

// TemplateNotThere warns of a template that does not exist.
func TemplateNotThere(template Ref) string {
	name := template.String()
	if template.Namespace == "" {
		name += ", without a namespace,"
	}
	return "remediation template " + name + " does not exist: the check will be Disabled until it does"
}

// NoSuchStatus warns of a status that no condition of a node has; it may have been meant as another one, or is one of all.
func NoSuchStatus(index int, status, meant string, all []string) string {
	hint := "it is one of " + strings.Join(all, ", ")
	if meant != "" {
		hint = meant + " is meant"
	}
	return fmt.Sprintf("spec.unhealthyConditions[%d].status is %q, which no node's condition ever is: %s", index, status, hint)
}

// Limit is a limit of a NodeHealthCheck, with its field.
func Limit(field, value string, isDefault bool) string {
	if isDefault {
		value += ", the default,"
	}
	return field + " " + value
}
