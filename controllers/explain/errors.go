package explain

import (
	"errors"
	"fmt"
	"net/url"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Missing is the error that an object does not exist.
type Missing string

// Error says what does not exist.
func (m Missing) Error() string { return string(m) }

// NoSuch is the error that there is no object of a kind and a name in a namespace.
func NoSuch(kind, namespace, name string) Missing {
	return Missing(fmt.Sprintf("there is no %s %s in namespace %s", kind, name, namespace))
}

// ServerAnswered is an error that the API server has answered, as kubectl words it.
func ServerAnswered(s metav1.Status) string {
	switch {
	case s.Reason == metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: You must be logged in to the server (%s)", s.Message)
	case s.Reason != "":
		return fmt.Sprintf("Error from server (%s): %s", s.Reason, s.Message)
	}
	return "Error from server: " + s.Message
}

// ServerUnreached is why the API server has not answered, as kubectl words it.
func ServerUnreached(err *url.Error) string {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("Unable to connect to the server: %v", err.Err)
	}
	host := err.URL
	if server, bad := url.Parse(err.URL); bad == nil {
		host = server.Host
	}
	return fmt.Sprintf("The connection to the server %s was refused - did you specify the right host or port?", host)
}
