package command

import (
	"errors"
	"strings"

	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// worded is an error as kubectl words it: an answer of the API server is passed on as it is, with its reason, and that no server answers is said in the
// same words.
func worded(err error) string {
	exit := Exit{}
	if errors.As(err, &exit) { // of several errors, the one that the exit code is of
		return "error: " + err.Error()
	}
	if joined, several := err.(interface{ Unwrap() []error }); several {
		lines := make([]string, 0, len(joined.Unwrap()))
		for _, one := range joined.Unwrap() {
			lines = append(lines, worded(one))
		}
		return strings.Join(lines, "\n")
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if says, known := cmdutil.StandardErrorMessage(cause); known {
			return says
		}
	}
	return "error: " + err.Error()
}
