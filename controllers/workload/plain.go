package workload

import (
	"context"
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// Plain is the text of err for users, the same for the same failure. An answer of an API server stays as it is. Of a connection that fails
// it is the kind of the failure: the error's own text has another port and another request in it each time, and a status with it would be
// written for ever.
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
