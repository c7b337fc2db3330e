package workload

import (
	"context"
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// Plain returns a text of err for users. The text must be the same each time, because a status that contains it would otherwise be written
// again and again. So for a failed connection it is only the kind of failure, without port and request. The message of an API server stays
// as it is.
func Plain(err error) string {
	var answer apierrors.APIStatus
	var op *net.OpError
	var request *url.Error
	var refused *RefusedError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answer):
		return answer.Status().Message
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		return "the workload cluster cannot be reached"
	case errors.Is(err, ErrSilent):
		return ErrSilent.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &request):
		return "no connection: " + request.Err.Error()
	}
	return err.Error()
}
