package faults

import (
	"flag"
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

// Document compares the figures of a campaign with its section of docs/reliability.md; with the flag -update it writes them there. A partial
// run, and one that has failed, has no figures.
func Document(t *testing.T, section, figures string) {
	t.Helper()
	if t.Failed() || !Whole() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
	}
	golden.Section(t, filepath.Join("..", "..", "..", "docs", "reliability.md"), section, "\n"+strings.TrimSpace(figures)+"\n\n")
}

// share is how many cases a sample leaves out for each one that it tries.
const share = 6

// Whole reports whether campaigns try all cases, as make campaigns does, and so may document their figures.
func Whole() bool { return os.Getenv("KUBEMEND_CAMPAIGNS") == "whole" }

// Seed chooses the sample. It is printed, so that a failing sample can be repeated.
var Seed = sync.OnceValue(func() uint64 {
	seed, err := strconv.ParseUint(os.Getenv("KUBEMEND_CAMPAIGN_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().Unix())
	}
	fmt.Printf("campaigns: a sample, again with KUBEMEND_CAMPAIGN_SEED=%d\n", seed)
	return seed
})

// Tries reports whether this run tries a case of a campaign: all cases, or those of the sample.
func Tries(of ...any) bool { return Whole() || chosen(Seed(), of...) }

func chosen(seed uint64, of ...any) bool {
	hash := fnv.New64a()
	_, _ = fmt.Fprintln(hash, append([]any{seed}, of...)...)
	return hash.Sum64()>>32%(share+1) == 0
}

// Orders yields all permutations.
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
