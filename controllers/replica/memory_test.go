package replica

import (
	"cmp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestGarbageIsCollectedEarlyUnlessAUserSaysOtherwise(t *testing.T) {
	for name, tc := range map[string]struct {
		gogc string
		want int
	}{
		"by default":              {"", garbage},
		"what a user says counts": {"75", 100},
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(100))
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("MEMORY_LIMIT", "")
			if err := LimitMemory(); err != nil {
				t.Fatal(err)
			}
			if got := debug.SetGCPercent(100); got != tc.want {
				t.Errorf("garbage may be %d %%, want %d", got, tc.want)
			}
		})
	}
}

func TestGoKeepsWithinNineTenthsOfTheContainersMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, gomemlimit string
		want              int64 // 0 for what it was
		refused           bool
	}{
		"the limit of a container":           {limit: "2147483648", want: 1932735276},
		"none":                               {},
		"what a user has told Go counts":     {limit: "2147483648", gomemlimit: "1GiB"},
		"an amount that is no number":        {limit: "2Gi", refused: true},
		"nothing, as of a container of 0":    {limit: "0", refused: true},
		"more than any machine: no overflow": {limit: "9223372036854775807", want: 8301034833169298220},
	} {
		t.Run(name, func(t *testing.T) {
			const before = 1 << 40
			was := debug.SetMemoryLimit(before)
			defer debug.SetMemoryLimit(was)
			t.Setenv("MEMORY_LIMIT", tc.limit)
			t.Setenv("GOMEMLIMIT", tc.gomemlimit)
			err := LimitMemory()
			if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "MEMORY_LIMIT") {
				t.Errorf("LimitMemory() = %v", err)
			}
			if got := debug.SetMemoryLimit(-1); got != cmp.Or(tc.want, before) {
				t.Errorf("the limit is %d", got)
			}
		})
	}
}
