package health

import (
	"testing"
	"time"
)

// NodeHealthy repeats four conditions of the node. (Cluster API)
func TestWhatClusterAPIMakesOfFourConditionsOfANode(t *testing.T) {
	const m = time.Minute
	four := func(changed ...Signal) Target {
		is := Target{Node: NodePresent, Signals: changed}
		for kind, good := range map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"} {
			is.Signals = append(is.Signals, onNode(kind, good, ago(9*m)))
		}
		return is // of two signals of one condition the first counts
	}
	says := func(kind, status string, since time.Duration) Signal {
		return onNode(kind, status, ago(since))
	}
	for name, tc := range map[string]struct {
		given  Target
		status string
		since  time.Time
	}{
		"all four are good":                                 {four(), "True", time.Time{}},
		"one that is not known":                             {four(says("Ready", "Unknown", m)), "Unknown", ago(m)},
		"of two that are not known the older one counts":    {four(says("Ready", "Unknown", m), says("DiskPressure", "Unknown", 2*m)), "Unknown", ago(2 * m)},
		"whichever comes first":                             {four(says("Ready", "Unknown", 2*m), says("DiskPressure", "Unknown", m)), "Unknown", ago(2 * m)},
		"one that is bad goes before one that is not known": {four(says("Ready", "Unknown", 2*m), says("PIDPressure", "True", m)), "False", ago(m)},
		"also if that is older":                             {four(says("Ready", "False", m), says("MemoryPressure", "Unknown", 2*m)), "False", ago(m)},
		"of two that are bad the older one counts":          {four(says("Ready", "False", m), says("MemoryPressure", "True", 2*m)), "False", ago(2 * m)},
		"of a node that is gone it is not true":             {Target{Node: NodeGone}, "False", time.Time{}},
		"of one that cannot be seen nothing is known of it": {Target{Node: NodeUnseen}, "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			if status, since := nodeSays(NodeHealthy, tc.given); status != tc.status || !since.Equal(tc.since) {
				t.Errorf("%s since %v, want %s since %v", status, since, tc.status, tc.since)
			}
		})
	}
}
