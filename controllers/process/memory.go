package process

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// garbage is how much the heap may grow before it is collected again, in percent of what is in use. The manager keeps caches, which live
// long, and makes little garbage: collected more than twice as often as by Go's default of 100 it takes a fifth less memory, and no
// processor time that could be measured. (docs/performance.md)
const garbage = 40

// LimitMemory tells Go's runtime to collect garbage early, unless GOGC is set, and to keep within nine tenths of the container's memory,
// MEMORY_LIMIT in bytes, unless GOMEMLIMIT is.
func LimitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	limit := os.Getenv("MEMORY_LIMIT")
	if limit == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	bytes, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || bytes <= 0 {
		return fmt.Errorf("MEMORY_LIMIT is %q, and no number of bytes", limit)
	}
	debug.SetMemoryLimit(bytes / 10 * 9)
	return nil
}
