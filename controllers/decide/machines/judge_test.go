package machines

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A clock that is set back makes what was due not due yet. A time that was measured since the process started does not show it.
func TestAVerdictIsGivenAtATimeOfTheWallClock(t *testing.T) {
	f := of(bad(), is(health.Healthy))
	f.Now, f.Memory.Decisions = time.Now(), nil //nolint:forbidigo // only the real clock has a monotonic reading
	for i, d := range Decide(f).Decisions {
		if strings.Contains(d.At.String(), " m=") || !d.At.Equal(f.Now) {
			t.Errorf("the verdict on machine %d was given at %s", i, d.At)
		}
	}
}
