package nodes

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is that of a scene's controller, which counts the looks at each check.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	mu    sync.Mutex
	looks map[string]int
}

// Done is called by the controller after each look.
func (q *queue) Done(item reconcile.Request) {
	q.mu.Lock()
	q.looks[item.Name]++
	q.mu.Unlock()
	q.TypedRateLimitingInterface.Done(item)
}

func (q *queue) count(check string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.looks[check]
}

// newQueue is for controller.Options.NewQueue.
func (s *scene) newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	s.queue = &queue{TypedRateLimitingInterface: s.clock.Queue(name, limiter), looks: map[string]int{}}
	return s.queue
}

// looks has the controller look at a check, and returns when it has. It does not wait for what the API server has not told the controller
// yet; but for what time alone brings about it is enough.
func (s *scene) looks(check string) {
	GinkgoHelper()
	name := s.called(check)
	for range 2 { // a look that is under way began too early
		before := s.queue.count(name)
		s.queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		Eventually(s.queue.count).WithArguments(name).Should(BeNumerically(">", before))
	}
}
