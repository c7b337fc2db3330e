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
	file := document(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, found := replace(string(content), section, figures)
	if !found {
		t.Fatalf("%s has no section %q", file, section)
	}
	golden.Compare(t, file, text)
}

// replace is text with what is between the two comments of a section replaced.
func replace(text, section, figures string) (string, bool) {
	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	return before + begin + "\n" + strings.TrimSpace(figures) + "\n\n" + end + after, begins && ends
}

func document(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, "docs", "reliability.md")
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("there is no go.mod above this folder")
		}
		folder = above
	}
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
