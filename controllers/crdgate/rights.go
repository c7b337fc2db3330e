package crdgate

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/access"
)

// ForbiddenReason is that of a kind whose feature was installed without its rights.
const ForbiddenReason = "Forbidden"

// Right is one of the things that a service has to be allowed to do, of those that only one role allows.
type Right struct {
	Verb, Group, Resource string
	// Namespace is where; empty for everywhere.
	Namespace string
}

func (r Right) String() string {
	s := r.Verb + " " + strings.TrimPrefix(r.Group+"/"+r.Resource, "/")
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// HostRights are what a controller needs that power-cycles the hosts of a namespace, or of all.
func HostRights(namespace string) (role string, rights []Right) {
	return "kubemend-hosts", []Right{{Verb: "patch", Group: "metal3.io", Resource: "baremetalhosts", Namespace: namespace}}
}

// NodeRights are what a controller needs that acts on NodeHealthChecks, with the leases on nodes in a namespace.
func NodeRights(leases string) (role string, rights []Right) {
	return "kubemend-nodes", []Right{
		{Verb: "watch", Group: "remediation.medik8s.io", Resource: "nodehealthchecks"}, {Verb: "watch", Resource: "nodes"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: leases},
	}
}

// May reports whether who asks has a right.
type May func(ctx context.Context, right Right) (bool, error)

// AskAPIServer asks the API server behind c about c's user.
func AskAPIServer(c client.Writer) May {
	return func(ctx context.Context, r Right) (bool, error) {
		may, err := access.Allowed(ctx, c, authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace})
		if err != nil {
			return false, fmt.Errorf("ask whether the manager may %s: %w", r, err)
		}
		return may, nil
	}
}

// forbidden says what s needs and may not do; empty if there is nothing, or the rights are not asked for. One that has started is not asked about: its caches
// are filled, and what it may not do any more it reports itself.
func (r *Reconciler) forbidden(ctx context.Context, s *Service) (string, error) {
	if r.May == nil || s.started {
		return "", nil
	}
	for _, right := range s.Rights {
		allowed, err := r.May(ctx, right)
		if err != nil {
			return "", err
		}
		if !allowed {
			return fmt.Sprintf("the manager may not %s; the role %s says what it needs", right.String(), s.Role), nil
		}
	}
	return "", nil
}
