package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubemend/kubemend/controllers/explain"
)

// A killed control plane was said to lack a right.
func TestAClusterThatDoesNotAnswerIsNoMissingRight(t *testing.T) {
	asked := func(err error) error {
		return fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://c1:6443", Err: err})
	}
	for name, row := range map[string]struct {
		err    error
		silent bool
	}{
		"it refuses the connection":            {asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"its name is not known":                {asked(&net.DNSError{Err: "no such host", Name: "c1"}), true},
		"its certificate is another's":         {asked(errors.New("x509: certificate signed by unknown authority")), true},
		"it does not answer in time":           {asked(context.DeadlineExceeded), true},
		"a load balancer answers in its place": {apierrors.NewServiceUnavailable("no backend"), true},
		"it forbids the reading":               {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no")), false},
		"it does not know the user":            {apierrors.NewUnauthorized("no"), false},
		"its kubeconfig cannot be read":        {errors.New("no kubeconfig"), false},
	} {
		if got := why(row.err); explain.Silent(got) != row.silent {
			t.Errorf("%s: %q", name, got)
		}
	}
}
