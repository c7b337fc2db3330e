// Package access asks the API server what the manager may do. It decides nothing.
package access

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Allowed asks the API server behind c whether c's user may do what is asked. Every user may ask that of themselves; where an administrator
// has taken that away, the answer is yes, and what is forbidden will show.
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

// Words say what is asked, such as watch example.org/things in namespace attic.
func Words(asked authorizationv1.ResourceAttributes) string {
	what := asked.Verb + " " + strings.TrimPrefix(asked.Group+"/"+asked.Resource, "/")
	if asked.Namespace != "" {
		what += " in namespace " + asked.Namespace
	}
	return what
}
