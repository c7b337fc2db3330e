package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NoHistory is that what is known tells nothing of an object since a moment; of anything, if no object is named, and at any time, if the moment is zero.
// Without a namespace all were looked at.
func NoHistory(of Ref, since time.Time) string {
	what, where, from := "anything", "", ""
	if of.Name != "" {
		what = of.Kind + " " + of.Name
	}
	if of.Namespace != "" {
		where = " in namespace " + of.Namespace
	}
	if !since.IsZero() {
		from = since.UTC().Format(" since 2006-01-02 15:04:05 UTC")
	}
	return "No RemediationRecord, event or condition tells of " + what + where + from + "."
}

// RequestMadeFor is which check a remediation request was made for; the kind of check is empty if kubemend did not make the request.
func RequestMadeFor(check Ref) string {
	if check.Kind == "" {
		return "requested by a user, or by Cluster API core"
	}
	return "requested by kubemend for " + check.String()
}

// DeletionAsked is what an object waits for that is being deleted.
func DeletionAsked(finalizers []string) string {
	if len(finalizers) == 0 {
		return "deletion requested"
	}
	return "deletion requested; it waits for " + strings.Join(finalizers, ", ")
}

// ConditionTurned is that a condition of an object became what it is.
func ConditionTurned(c metav1.Condition) string {
	return cmp.Or(c.Message, fmt.Sprintf("%s is %s", c.Type, c.Status))
}

// Annotated is an annotation of an object, and who wrote it.
func Annotated(key, value, writer string) string {
	if value != "" {
		key += "=" + value
	}
	return fmt.Sprintf("annotation %s, by %s", key, writer)
}

// hostOperations are what hosts report that the Bare Metal Operator did with them.
var hostOperations = map[string]string{
	"Register": "registration", "Inspect": "inspection", "Provision": "provisioning", "Deprovision": "deprovisioning",
}

// OperationBegan is that an operation on a host began.
func OperationBegan(reason string) string { return hostOperations[reason] + " began" }

// OperationEnded is that an operation on a host ended.
func OperationEnded(reason string) string { return hostOperations[reason] + " ended" }
