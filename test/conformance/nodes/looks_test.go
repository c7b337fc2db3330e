package nodes

import (
	"context"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/pace"
)

// looks has the controller look at a check until it has heard of all that there is and finds nothing more to do.
func (s *scene) looks(check string) {
	GinkgoHelper()
	ctx := context.Background()
	Eventually(func() string {
		GinkgoHelper()
		before := s.written(ctx)
		if unheard := cmp.Diff(before, s.ears.heard(ctx)); unheard != "" {
			return unheard
		}
		s.look(check)
		return cmp.Diff(before, s.written(ctx))
	}).Should(BeEmpty(), "the controller is to come to rest")
}

// look has the controller look at a check.
func (s *scene) look(check string) {
	GinkgoHelper()
	Eventually(s.controller().At(reconcile.Request{NamespacedName: client.ObjectKey{Name: s.called(check)}})).Should(BeTrue())
}

// controller is the queue of the scene's controller.
func (s *scene) controller() *pace.Looks { return s.clock.Looks("nodehealthcheck") }
