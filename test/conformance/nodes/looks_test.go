package nodes

import (
	"context"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/testclock"
)

// looks has the controller look at a check until it has heard of all that there is and finds nothing more to do.
func (s *environment) looks(check string) {
	GinkgoHelper()
	if s.memory != nil {
		Expect(s.memory.Settle()).To(Succeed())
		s.look(check)
		Expect(s.memory.Settle()).To(Succeed())
		return
	}
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
func (s *environment) look(check string) {
	GinkgoHelper()
	item := reconcile.Request{NamespacedName: client.ObjectKey{Name: s.called(check)}}
	if s.memory != nil {
		Expect(s.memory.Pass(item)).To(Succeed())
		return
	}
	Eventually(s.controller().Reconcile(item)).Should(BeTrue())
}

// passes are how many passes the controller has made over each check.
func (s *environment) passes() map[reconcile.Request]int {
	if s.memory != nil {
		return s.memory.Counts()
	}
	return s.controller().Counts()
}

// controller is the queue of the environment's controller at the API server.
func (s *environment) controller() *testclock.Queue { return s.pace.QueueOf("nodehealthcheck") }
