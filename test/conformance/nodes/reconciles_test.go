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

// settle makes the controller reconcile a check until it has seen every change and has nothing more to write.
func (s *environment) settle(check string) {
	GinkgoHelper()
	if s.memory != nil {
		Expect(s.memory.Settle()).To(Succeed())
		s.reconcile(check)
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
		s.reconcile(check)
		return cmp.Diff(before, s.written(ctx))
	}).Should(BeEmpty(), "the controller is to come to rest")
}

// reconcile makes the controller reconcile a check once.
func (s *environment) reconcile(check string) {
	GinkgoHelper()
	item := reconcile.Request{NamespacedName: client.ObjectKey{Name: s.called(check)}}
	if s.memory != nil {
		Expect(s.memory.Reconcile(item)).To(Succeed())
		return
	}
	Eventually(s.controller().Reconcile(item)).Should(BeTrue())
}

// reconciles counts how often the controller has reconciled each check.
func (s *environment) reconciles() map[reconcile.Request]int {
	if s.memory != nil {
		return s.memory.Counts()
	}
	return s.controller().Counts()
}

// controller is the queue of the environment's controller at the API server.
func (s *environment) controller() *testclock.Queue { return s.pace.QueueOf("nodehealthcheck") }
