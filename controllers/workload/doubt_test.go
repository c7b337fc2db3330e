package workload

import (
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestADoubtBecomesCertaintyThatTheClusterIsDown(t *testing.T) {
	since := noon.Time
	cases := map[string]struct {
		after     time.Duration
		failures  int
		answered  bool
		connected bool
		link      health.Link
		recheck   time.Duration
	}{
		"one probe that failed is nothing":                      {time.Second, 1, false, true, Unsure, time.Second / 2},
		"two are an outage":                                     {time.Second, 2, false, true, Down, time.Second / 2},
		"a connection that is being made is awaited":            {time.Second, 0, false, false, Unsure, time.Second / 2},
		"at first it is looked at often":                        {0, 0, false, false, Unsure, time.Second / 4},
		"later as often as the cluster is probed":               {50 * time.Second, 0, false, false, Unsure, ProbeInterval},
		"but not for ever":                                      {time.Minute, 0, false, false, Down, 0},
		"also when it can be probed and not be read":            {time.Minute, 0, false, true, Down, ProbeInterval},
		"just before that nothing is lost":                      {time.Minute - 1, 0, false, true, Unsure, ProbeInterval},
		"that it is connected again is an event":                {time.Second, 2, false, false, Down, 0},
		"no event says that a cache has caught up":              {time.Second, 0, true, true, Unsure, catchUpInterval},
		"not even if that takes so long that it counts as down": {time.Minute, 0, true, true, Down, catchUpInterval},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doubt{since: since, answered: tc.answered}
			got := d.view(since.Add(tc.after), tc.connected, clustercache.HealthCheckingState{ConsecutiveFailures: tc.failures})
			if got.Link != tc.link || got.Recheck != tc.recheck {
				t.Errorf("link %d, again after %s; want %d, %s", got.Link, got.Recheck, tc.link, tc.recheck)
			}
		})
	}
}
