// Package suite has what several Ginkgo suites share: they start a rig, build clusters on simulated hosts, make clients, and read metrics and logs.
// It asserts with Gomega, so nothing but suites may import it.
package suite

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// InOrder yields the entries of a table by name: specs have to be declared in the same order each time.
func InOrder[V any](table map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !yield(name, table[name]) {
				return
			}
		}
	}
}

// Beside runs something until the suite, or the spec that asks for it, ends.
func Beside(start func(context.Context) error) {
	ginkgo.GinkgoHelper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	ginkgo.DeferCleanup(func() {
		stop()
		gomega.Expect(<-ended).To(gomega.Succeed())
	})
}
