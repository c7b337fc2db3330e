package faults

import (
	"fmt"
	"hash/fnv"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/golden"
)

// Document compares the figures of a campaign with its section of docs/reliability.md, which begins and ends with comments that name it;
// with the flag -update it writes them there.
func Document(t *testing.T, section, figures string) {
	t.Helper()
	golden.Section(t, filepath.Join("..", "..", "..", "docs", "reliability.md"), section, "\n"+strings.TrimSpace(figures)+"\n\n")
}

// share is how many of the cases of a campaign a sample leaves out for each that it tries.
const share = 6

// Whole reports whether campaigns try everything, as make campaigns asks, and write down how much that was.
func Whole() bool { return os.Getenv("KUBEMEND_CAMPAIGNS") == "whole" }

// Seed chooses the sample. It is printed, so that a sample with a failure can be tried again.
var Seed = sync.OnceValue(func() uint64 {
	seed, err := strconv.ParseUint(os.Getenv("KUBEMEND_CAMPAIGN_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().Unix())
	}
	fmt.Printf("campaigns: a sample, again with KUBEMEND_CAMPAIGN_SEED=%d\n", seed)
	return seed
})

// Tries reports whether this run tries a case of a campaign: all of them, or those of the sample.
func Tries(of ...any) bool { return Whole() || chosen(Seed(), of...) }

func chosen(seed uint64, of ...any) bool {
	hash := fnv.New64a()
	_, _ = fmt.Fprintln(hash, append([]any{seed}, of...)...)
	return hash.Sum64()>>32%(share+1) == 0
}

// Orders are all orders of some things.
func Orders[E any](of []E) iter.Seq[[]E] {
	return func(yield func([]E) bool) {
		var extend func(order, left []E) bool
		extend = func(order, left []E) bool {
			if len(left) == 0 {
				return yield(slices.Clone(order))
			}
			for i := range left {
				if !extend(append(order, left[i]), slices.Delete(slices.Clone(left), i, i+1)) {
					return false
				}
			}
			return true
		}
		extend(nil, of)
	}
}
