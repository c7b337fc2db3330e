package faults

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"sync"
	"time"
)

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
