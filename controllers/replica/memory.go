package replica

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// LimitMemory tells Go's runtime to keep within nine tenths of the container's memory, MEMORY_LIMIT in bytes, unless GOMEMLIMIT tells it more.
func LimitMemory() error {
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
