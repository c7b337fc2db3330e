package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// safety are the rules that hold after each reconcile, whatever happens.
type safety struct {
	*environment
	seen map[string]bool   // the UIDs of requests
	told map[string]string // UIDs, to when their remediators were told to stop
	// steps is the step after the last one that was begun for a node, of those that ladder names.
	steps  map[string]int
	ladder []string
	// exchanged says that the template was exchanged during a remediation: then the request of the old one goes on, and one of the new one
	// is made.
	exchanged bool
}

// check fails the test if something is true that must never be.
func (s *safety) check() error {
	live := map[string][]string{}
	members := map[string]bool{}
	held := s.leases()
	for _, req := range s.requests() {
		node := about(req)
		if err := s.recorded(req); err != nil {
			return err
		}
		if !s.seen[string(req.GetUID())] {
			s.seen[string(req.GetUID())] = true
			if err := s.begun(req); err != nil {
				return err
			}
		}
		at := req.GetAnnotations()[nhcv1.TimedOutAnnotation]
		if was := s.told[string(req.GetUID())]; was != "" && at != was {
			return fmt.Errorf("%s was timed out at %s, and again at %q\n%s", named(req), was, at, s.state())
		}
		s.told[string(req.GetUID())] = at
		if _, member := req.GetLabels()[nhcv1.ControlPlaneLabel]; member {
			members[node] = true
		}
		if over(req) {
			continue
		}
		live[node] = append(live[node], named(req))
		if holder := held[node]; holder == "" {
			return fmt.Errorf("%s for %s is under way and the lease has no holder\n%s", named(req), node, s.state())
		}
	}
	for node, requests := range live {
		if len(requests) > 1 && !(s.exchanged && len(requests) == 2) {
			return fmt.Errorf("%s is remediated by several at once: %v\n%s", node, requests, s.state())
		}
	}
	if len(members) > 1 {
		return fmt.Errorf("two nodes of the control plane are remediated\n%s", s.state())
	}
	return nil
}

// recorded checks that a request carries a record of its node. Nothing closes those of the remediations before it here. What has no
// namespace has none.
func (s *safety) recorded(req *unstructured.Unstructured) error {
	list := &mendv1.RemediationRecordList{}
	if err := s.server.List(s.Context(), list); err != nil {
		return err
	}
	var of []string
	for i := range list.Items {
		if list.Items[i].Spec.Target.Node.Name == about(req) {
			of = append(of, records.Carried(&list.Items[i], req.GetNamespace()))
		}
	}
	if named := req.GetAnnotations()[mendv1.RecordAnnotation]; req.GetNamespace() != "" && !slices.Contains(of, named) {
		return fmt.Errorf("%s names the record %q, and those of its node are %q\n%s", req.GetName(), named, of, s.state())
	}
	return nil
}

// over reports whether a request was timed out, has succeeded or failed, or is being deleted.
func over(req *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(req.Object, "status", "conditions")
	return req.GetDeletionTimestamp() != nil || req.GetAnnotations()[nhcv1.TimedOutAnnotation] != "" ||
		slices.ContainsFunc(conditions, func(c any) bool {
			fields := c.(map[string]any)
			return fields["type"] == nhcv1.SucceededCondition && fields["status"] == string(metav1.ConditionTrue)
		})
}

// begun checks a request when it exists for the first time.
func (s *safety) begun(req *unstructured.Unstructured) error {
	node := s.getNode(about(req))
	if s.late { // the controller could not know better
		s.began(req)
		return nil
	}
	switch {
	case node == nil:
		return fmt.Errorf("%s was made for node %s, which is gone\n%s", named(req), about(req), s.state())
	case node.Status.Conditions[0].Status == corev1.ConditionTrue:
		return fmt.Errorf("%s was made for node %s, which is healthy\n%s", named(req), about(req), s.state())
	}
	if check := s.getCheck(req.GetOwnerReferences()[0].Name); check == nil || len(check.Spec.PauseRequests) > 0 {
		return fmt.Errorf("%s was made although its check is gone or paused\n%s", named(req), s.state())
	}
	if step := slices.Index(s.ladder, named(req)); s.ladder != nil && step > s.steps[about(req)] {
		return fmt.Errorf("%s was made as step %d, and the step before it was not\n%s", named(req), step+1, s.state())
	}
	s.began(req)
	return nil
}

func (s *safety) began(req *unstructured.Unstructured) {
	s.steps[about(req)] = max(s.steps[about(req)], slices.Index(s.ladder, named(req))+1)
}
