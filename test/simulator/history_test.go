package simulator_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/simulator"
)

func TestWhatAHistoryTells(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(minute int, to simulator.Power) simulator.PowerChange {
		return simulator.PowerChange{At: noon.Add(time.Duration(minute) * time.Minute), To: to}
	}
	for name, tc := range map[string]struct {
		histories []simulator.History
		cycles    int
		mostOff   int
	}{
		"nothing happened": {[]simulator.History{nil}, 0, 0},
		"the first power on is no cycle, and before it the host was never powered off": {
			[]simulator.History{{at(0, simulator.On)}}, 0, 0,
		},
		"off and on is a cycle": {
			[]simulator.History{{at(0, simulator.On), at(1, simulator.Off), at(2, simulator.On)}}, 1, 1,
		},
		"a reset is a cycle in which the host is not off": {
			[]simulator.History{{at(0, simulator.On), at(1, simulator.Reset)}}, 1, 0,
		},
		"one that stays off is off": {
			[]simulator.History{{at(0, simulator.On), at(1, simulator.Off)}}, 0, 1,
		},
		"two hosts one after the other": {
			[]simulator.History{{at(1, simulator.Off), at(2, simulator.On)}, {at(2, simulator.Off), at(3, simulator.On)}}, 1, 1,
		},
		"two hosts at the same time": {
			[]simulator.History{{at(1, simulator.Off), at(3, simulator.On)}, {at(2, simulator.Off), at(4, simulator.On)}}, 1, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(tc.histories[0].Cycles()).To(Equal(tc.cycles))
			g.Expect(simulator.MostOff(tc.histories...)).To(Equal(tc.mostOff))
		})
	}
	both := simulator.History{at(0, simulator.On), at(1, simulator.Off)}
	NewWithT(t).Expect(both.Since(noon.Add(time.Minute))).To(Equal(both[1:]))
}
