package crdgate

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Without its rights the caches of a controller are never filled: it would hang, and say nothing.
func TestAKindIsServedWhenTheManagerHasTheRights(t *testing.T) {
	s := environmentWith(t, Auto)
	s.has(kind, nil)
	s.has(needed, nil)
	s.service.Role, s.service.Rights = "things", []Right{{Verb: "watch", Group: "example.org", Resource: "things"}, {Verb: "update", Resource: "boxes", Namespace: "attic"}}
	allowed := map[string]bool{"watch example.org/things": true}
	asked := 0
	s.r.May = func(_ context.Context, r Right) (bool, error) {
		asked++
		return allowed[r.String()], nil
	}
	if called, why := s.reconcile(); len(called) > 0 || why != ForbiddenReason {
		t.Errorf("without one of its rights: called %v, %q", called, why)
	}
	_, sentence, err := s.r.Why(t.Context(), s.service)
	if want := "the manager may not update boxes in namespace attic; the role things says what it needs"; err != nil || sentence != want {
		t.Errorf("it says %q (%v), want %q", sentence, err, want)
	}
	if result, err := s.r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter == 0 {
		t.Errorf("no event says that a right was granted, and it reconciles again after %s, %v", result.RequeueAfter, err)
	}

	allowed["update boxes in namespace attic"] = true
	if called, why := s.reconcile(); !slices.Equal(called, []string{"start"}) || why != "served" {
		t.Errorf("with all its rights: called %v, %q", called, why)
	}
	asked = 0
	if result, err := s.r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != 0 || asked > 0 {
		t.Errorf("once it is started it asks %d times, and reconciles again after %s, %v", asked, result.RequeueAfter, err)
	}
}

// answering is an API server that says what its caller may do.
type answering struct {
	client.Writer
	allows bool
	fails  error
	asked  *authorizationv1.ResourceAttributes
}

func (a *answering) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	a.asked, review.Status.Allowed = review.Spec.ResourceAttributes, a.allows
	return a.fails
}

func TestTheAPIServerIsAskedForRights(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", nil)
	for name, row := range map[string]struct {
		server answering
		may    bool
		says   string
	}{
		"what it allows may be done":                   {answering{allows: true}, true, ""},
		"what it does not allow may not":               {answering{}, false, ""},
		"without the right to ask, it starts":          {answering{fails: forbidden}, true, ""},
		"one that does not answer has allowed nothing": {answering{fails: context.DeadlineExceeded}, false, "update coordination.k8s.io/leases in namespace medik8s-leases"},
	} {
		t.Run(name, func(t *testing.T) {
			_, rights := NodeRights("medik8s-leases")
			may, err := AskAPIServer(&row.server)(t.Context(), rights[len(rights)-1])
			if may != row.may || (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%t, %v", may, err)
			}
			if a := row.server.asked; a.Verb != "update" || a.Group != "coordination.k8s.io" || a.Resource != "leases" || a.Namespace != "medik8s-leases" {
				t.Errorf("asked about %+v", a)
			}
		})
	}
}
