package command

import (
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnErrorOfTheAPIServerIsPassedOnAsKubectlDoes(t *testing.T) {
	machines := schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}
	forbidden := apierrors.NewForbidden(machines, "m", errors.New(`User "jane" cannot get resource "machines"`))
	const forbidding = `Error from server (Forbidden): machines.cluster.x-k8s.io "m" is forbidden: User "jane" cannot get resource "machines"`
	const refused = "The connection to the server api:6443 was refused - did you specify the right host or port?"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"what is forbidden":            {fmt.Errorf("read Machine ns/m: %w", forbidden), forbidding},
		"what is missing":              {apierrors.NewNotFound(machines, "m"), `Error from server (NotFound): machines.cluster.x-k8s.io "m" not found`},
		"a login that has run out":     {apierrors.NewUnauthorized("Unauthorized"), "error: You must be logged in to the server (Unauthorized)"},
		"an answer without a reason":   {&apierrors.StatusError{ErrStatus: metav1.Status{Message: "no"}}, "Error from server: no"},
		"a server that is not there":   {&url.Error{Op: "Get", URL: "https://api:6443/api", Err: fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)}, refused},
		"a server that does not reply": {&url.Error{Op: "Get", URL: "https://api:6443", Err: errors.New("i/o timeout")}, "Unable to connect to the server: i/o timeout"},
		"an error of the program":      {errors.New("there is no Machine m"), "error: there is no Machine m"},
		"several":                      {errors.Join(errors.New("a"), forbidden), "error: a\n" + forbidding},
		"one with a code of its own":   {Exit{Refused, errors.Join(errors.New("a"), errors.New("b"))}, "error: a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := worded(tc.err); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
