package simulate

import (
	"testing"
	"time"
)

// BenchmarkAThousandMachines plays two hours of 1000 machines of which 100 fail, by their owners and by power cycles, of which none helps.
func BenchmarkAThousandMachines(b *testing.B) {
	for name, s := range map[string]struct {
		fixture  func(*fixture) *fixture
		manifest string
	}{
		"replaced":     {func(s *fixture) *fixture { return s.workers(1000) }, workersCheck},
		"power-cycled": {func(s *fixture) *fixture { return s.workers(1000).onMetal() }, powerCycle},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				a := s.fixture(newFixture(b)).run(s.manifest, question(func(q *Question) {
					q.Fail, q.Hard, q.Horizon = "tenth=yes", true, 2*time.Hour
				}))
				if a.Summary.Begun != 100 {
					b.Fatalf("%d remediations begin, want 100", a.Summary.Begun)
				}
			}
		})
	}
}
