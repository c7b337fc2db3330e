package process

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// garbage is the value of GOGC: by how many percent the heap may grow before Go collects garbage. The manager has long-lived caches and
// makes little garbage. With 40 instead of Go's default of 100 it needs a fifth less memory, and no measurable CPU time.
// (docs/performance.md)
const garbage = 40

// LimitMemory makes Go collect garbage early, unless GOGC is set, and limits its memory to 90 % of the container's limit, MEMORY_LIMIT in
// bytes, unless GOMEMLIMIT is set.
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
