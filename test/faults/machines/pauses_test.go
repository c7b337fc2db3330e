package machines

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// While a check is paused kubemend does not read its workload cluster, and misses that it is unreachable and comes back. After that the cache shows
// the nodes as they were until its watch is made again.
func TestANodeThatRecoveredDuringAPauseIsNotUnhealthyBecauseOfAStaleCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ pause, unpause func(*environment) }{
		"the check is paused":   {func(e *environment) { e.edit("check", paused) }, func(e *environment) { e.edit("check", unpaused) }},
		"the Cluster is paused": {func(e *environment) { e.pauseCluster(true) }, func(e *environment) { e.pauseCluster(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := judged(t, []string{"m1", "m2"}, byTemplate, timeouts(300, 300))
			e.happens(time.Second, func() { e.there.sets("m1", corev1.ConditionUnknown, 290*time.Second) })
			e.happens(time.Second, func() { tc.pause(e) })
			e.happens(25*time.Second, e.cut, func() { e.recover("m1") })
			e.happens(time.Millisecond, e.reconnect, func() { tc.unpause(e) })
			e.requested()
			e.happens(2 * catchUp)
			e.requested()
			e.health("m1", healthy)
		})
	}
}
