// Package access asks the API server what the manager may do.
package access

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Allowed asks the API server with a SelfSubjectAccessReview whether the user of c has the right that asked describes. By default all users
// may create such a review. If an administrator has removed that right, Allowed returns true: the later request fails if it is forbidden.
func Allowed(ctx context.Context, c client.Writer, asked authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked}}
	err := c.Create(ctx, review)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the manager may %s: %w", Words(asked), err)
	}
	return review.Status.Allowed, nil
}

// Words describes asked for a message, such as "watch example.org/things in namespace attic".
func Words(asked authorizationv1.ResourceAttributes) string {
	what := asked.Verb + " " + strings.TrimPrefix(asked.Group+"/"+asked.Resource, "/")
	if asked.Namespace != "" {
		what += " in namespace " + asked.Namespace
	}
	return what
}
