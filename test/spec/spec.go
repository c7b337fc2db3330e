// Package spec is what suites need to tell their specs: several at a time, in the same order each time, with what runs beside them, and where: on a
// rig, in clusters with simulated hosts.
package spec

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// AtOnce does the same for every number below n, as many of them at a time as there are places. What fails in one stops no other.
func AtOnce(places, n int, do func(i int)) {
	var all sync.WaitGroup
	taken := make(chan struct{}, places)
	for i := range n {
		taken <- struct{}{}
		all.Go(func() {
			defer func() { <-taken }()
			defer ginkgo.GinkgoRecover()
			do(i)
		})
	}
	all.Wait()
}

// InOrder yields the entries of a table by name: specs have to be told in the same order each time.
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
