package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

func TestTheSameErrorHasTheSameText(t *testing.T) {
	refused := func(port int) error {
		op := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		return fmt.Errorf("look at node: %w", &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/x", Err: op})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a connection that was reset, without its ports": {refused(40001), "read: read: connection reset by peer"},
		"the same one from another port":                 {refused(40002), "read: read: connection reset by peer"},
		"an answer of the API server, as it is":          {fmt.Errorf("x: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))), `nodes "n" is forbidden: no`},
		"an answer that did not come":                    {fmt.Errorf("x: %w", context.DeadlineExceeded), "no answer in time"},
		"a kubeconfig that is refused": {
			fmt.Errorf("x: %w: %w", clustercache.ErrClusterNotConnected, &RefusedError{Entry: "users[u].user.exec", Why: "names a program"}),
			"the kubeconfig is refused: users[u].user.exec names a program",
		},
		"what is neither": {errors.New("odd"), "odd"},
		"nothing":         {nil, ""},
	} {
		must.Is(t, tc.want, Plain(tc.err), "%s:", name)
	}
}
