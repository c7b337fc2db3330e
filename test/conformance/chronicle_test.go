package conformance

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
)

// chronicle remembers every turn of every condition of every machine.
type chronicle struct {
	mu    sync.Mutex
	seen  map[turned]string // the last transition
	order map[turned][]string
}

// turned names a condition of a machine.
type turned struct{ namespace, machine, kind string }

func newChronicle() *chronicle {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	watcher, err := client.NewWithWatch(management.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	events, err := rig.Follow(context.Background(), watcher, &clusterv1.MachineList{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(events.Stop)
	c := &chronicle{seen: map[turned]string{}, order: map[turned][]string{}}
	go c.write(events.ResultChan())
	return c
}

func (c *chronicle) write(events <-chan watch.Event) {
	for e := range events {
		if m, ok := e.Object.(*clusterv1.Machine); ok {
			c.add(m)
		}
	}
}

func (c *chronicle) add(m *clusterv1.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, condition := range m.Status.Conditions {
		key := turned{m.Namespace, m.Name, condition.Type}
		// The same status since another moment is a turn too: another client wrote it again.
		is := string(condition.Status) + " " + condition.LastTransitionTime.UTC().String()
		if c.seen[key] != is {
			c.seen[key] = is
			c.order[key] = append(c.order[key], string(condition.Status))
		}
	}
}

// turns returns the statuses that a condition has had, one after the other.
func (c *chronicle) turns(namespace, machine, kind string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order[turned{namespace, machine, kind}]
}
