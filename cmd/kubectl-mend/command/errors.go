package command

import (
	"errors"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubemend/kubemend/controllers/explain"
)

// worded is an error as kubectl words it: an answer of the API server is passed on as it is, with its reason, and that no server answers is said in the
// same words. (kubectl: StandardErrorMessage in pkg/cmd/util/helpers.go.)
func worded(err error) string {
	exit := Exit{}
	if errors.As(err, &exit) { // of several errors, the one that the exit code is of
		return "error: " + err.Error()
	}
	if many, is := err.(interface{ Unwrap() []error }); is {
		all := make([]string, 0, len(many.Unwrap()))
		for _, one := range many.Unwrap() {
			all = append(all, worded(one))
		}
		return strings.Join(all, "\n")
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return explain.ServerAnswered(status.Status())
	}
	if unreached := (&url.Error{}); errors.As(err, &unreached) {
		return explain.ServerUnreached(unreached)
	}
	return "error: " + err.Error()
}
