package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var nearly = cmpopts.EquateApprox(1e-6, 1e-6)

func TestAPlaneIsFoundAgain(t *testing.T) {
	var rows [][]float64
	var values []float64
	for _, p := range smallFleets(false) {
		c, m, k := float64(p.clusters), float64(p.machines), float64(p.checks())
		rows, values = append(rows, []float64{c, m, k}), append(values, 50+0.5*c+0.02*m+0.1*k)
	}
	got, err := fit(rows, values)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(line{base: 50, slopes: []float64{0.5, 0.02, 0.1}}, got, cmp.AllowUnexported(line{}), nearly); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheWorstMissOfALineIsReturned(t *testing.T) {
	got, err := fit([][]float64{{0}, {1}, {2}}, []float64{0, 3, 0})
	if err != nil {
		t.Fatal(err)
	}
	if want := (line{base: 1, slopes: []float64{0}, worst: 2}); !cmp.Equal(want, got, cmp.AllowUnexported(line{}), nearly) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, err = each([]float64{1, 3}, []float64{1, 1}); err != nil || !cmp.Equal(line{slopes: []float64{0.4}, worst: 0.6}, got, cmp.AllowUnexported(line{}), nearly) {
		t.Errorf("without a base: %+v (%v)", got, err)
	}
}

func TestPointsThatDetermineNoLineAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		rows   [][]float64
		values []float64
	}{
		"none":                    {},
		"fewer than unknowns":     {[][]float64{{1, 2}}, []float64{1}},
		"the same one again":      {[][]float64{{1}, {1}, {1}}, []float64{1, 2, 3}},
		"one is made of another":  {[][]float64{{1, 2}, {2, 4}, {3, 6}, {4, 8}}, []float64{1, 2, 3, 4}},
		"one is always nothing":   {[][]float64{{1, 0}, {2, 0}, {3, 0}, {4, 0}}, []float64{1, 2, 3, 4}},
		"more rows than values":   {[][]float64{{1}, {2}, {3}}, []float64{1, 2}},
		"values without any rows": {nil, []float64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := fit(row.rows, row.values); !errors.Is(err, errFewPoints) {
				t.Errorf("got %+v (%v)", got, err)
			}
		})
	}
}

func TestNegativeSlopesCountAsZero(t *testing.T) {
	l := line{base: -5, slopes: []float64{-1, 2}}
	if got := l.at(1000, 3); got != 6 {
		t.Errorf("got %g, want 6", got)
	}
}

func TestTheSmallFleetsDetermineEverySlope(t *testing.T) {
	for _, quick := range []bool{false, true} {
		var all []smallFleetResults
		for _, p := range smallFleets(quick) {
			if p.machines%(p.clusters*p.parts) != 0 || smallFleetScale(p, quick).mass < 1 {
				t.Errorf("%s: the checks have different numbers of machines, or none becomes Unknown", p)
			}
			of := figures{}
			for _, row := range fleetRows() {
				of[row.measured] = 1
			}
			all = append(all, smallFleetResults{p, of})
		}
		if _, err := fitRates(all); err != nil {
			t.Errorf("quick %t: %v", quick, err)
		}
	}
}

func TestNoSlopesAreDerivedFromNothing(t *testing.T) {
	if _, err := fitRates([]smallFleetResults{{smallFleets(true)[0], figures{}}}); err == nil {
		t.Error("slopes were derived from nothing")
	}
}

func TestAFleetHasItsNumberOfMachines(t *testing.T) {
	for _, want := range []struct{ clusters, machines int }{{fleetClusters, fleetMachines}, {100, 5000}, {7, 700}} {
		sizes, sum := generateFleet(want.clusters, want.machines, fleetSeed), 0
		for _, machines := range sizes {
			sum += machines
		}
		if len(sizes) != want.clusters || sum != want.machines || slices.Min(sizes) < 1 {
			t.Errorf("%d clusters with %d machines, the smallest %d; want %+v", len(sizes), sum, slices.Min(sizes), want)
		}
	}
	if !slices.Equal(generateFleet(100, 5000, 1), generateFleet(100, 5000, 1)) || slices.Equal(generateFleet(100, 5000, 1), generateFleet(100, 5000, 2)) {
		t.Error("a fleet does not follow from its seed")
	}
	sizes := generateFleet(fleetClusters, fleetMachines, fleetSeed)
	slices.Sort(sizes)
	if median, largest := sizes[len(sizes)/2], sizes[len(sizes)-1]; median > 30 || largest < 2000 || largest > 5000 {
		t.Errorf("median %d, largest %d: want mostly small ones, and none larger than Kubernetes allows", median, largest)
	}
}

func TestEveryClusterIsInOneShard(t *testing.T) {
	sizes := generateFleet(fleetClusters, fleetMachines, fleetSeed)
	for name, spread := range map[string]func([]int, int) []share{"filled": filled, "hashed": hashed} {
		for _, shards := range shardCounts() {
			all, sum := spread(sizes, shards), share{}
			for _, s := range all {
				sum.clusters += s.clusters
				sum.machines += s.machines
			}
			if want := (share{fleetClusters, fleetMachines}); len(all) != shards || sum != want {
				t.Errorf("%s over %d: %d shards with %+v in all, want %+v", name, shards, len(all), sum, want)
			}
		}
	}
	if even, chance := unevenness(filled(sizes, 32)), unevenness(hashed(sizes, 32)); even > 1.001 || chance <= even || chance > 2 {
		t.Errorf("filled %g, hashed %g times the mean", even, chance)
	}
}

func TestAShardByLabelHoldsTheObjectsOfOthers(t *testing.T) {
	r := rates{
		heap: line{10, []float64{1, 0.1, 0.01}, 0}, otherShardHeap: line{10, []float64{0.5, 0.01, 0}, 0},
		idle: line{0, []float64{0.001, 0, 0}, 0}, beat: line{slopes: []float64{0.0005}}, reconcile: line{0.001, []float64{0.00001}, 0},
		failed: line{slopes: []float64{0.01}}, failedCalls: line{slopes: []float64{3}},
	}
	for _, l := range []*line{&r.resident, &r.highest, &r.calls, &r.files, &r.restartTime, &r.restartCPU, &r.otherShardResident, &r.otherShardCPU} {
		l.slopes = []float64{0, 0, 0}
	}
	own, fleet := share{100, 30_000}, share{200, 60_000}
	got := r.estimateShard(own, fleet, false)
	want := estimate{
		share: own, heap: 10 + 100 + 3000 + 1, steady: 0.1 + 100*0.0005 + (0.1+0.3)/600, stormCPU: 3, stormTime: 0.9,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(estimate{}, share{}), nearly); diff != "" {
		t.Errorf("by namespace (-want +got):\n%s", diff)
	}
	if more := r.estimateShard(own, fleet, true).heap - got.heap; math.Abs(more-350) > 1e-6 {
		t.Errorf("by label it needs %g MiB more, want 350", more)
	}
}

func TestTheReportOfAFleetHasAllItsParts(t *testing.T) {
	var r report
	if r.fleetSection() != "" {
		t.Error("a fleet was reported that was not measured")
	}
	for i, p := range smallFleets(false) {
		of := figures{}
		for n, row := range fleetRows() {
			of[row.measured] = float64(p.machines)/10 + float64(p.clusters*(n+1)) + float64(i%2)
		}
		r.fleet = append(r.fleet, smallFleetResults{p, of})
	}
	text := r.fleetSection()
	for _, part := range []string{
		"## A fleet, and its shards\n", "| machines / clusters / checks | 400 / 10 / 10 |", "\n### Slopes\n", "\n### 10000 clusters, 1000000 machines and nodes\n",
		"\n| 1 | namespace, filled | 10000 | 1000000 | 1.00 |", "\n| 32 | label, hashed |", "| × 250 / × 125 |\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}
	delete(r.fleet[0].figures, heapInUse)
	if text := r.fleetSection(); !strings.Contains(text, "| Heap in use, garbage collected | – |") || !strings.Contains(text, "### Slopes") {
		t.Errorf("without one small fleet no slopes were derived:\n%s", text)
	}
	last := len(r.fleet) - 1
	delete(r.fleet[last].figures, heapInUse) // the one that has more checks than clusters
	if derived, err := fitRates(r.fleet); err != nil || derived.heap.slopes[2] != 0 {
		t.Errorf("checks cost %+v (%v), and cannot be separated from clusters", derived.heap, err)
	}
	for i := range 3 {
		delete(r.fleet[i].figures, heapInUse)
	}
	if text := r.fleetSection(); !strings.Contains(text, "No slopes could be derived from that") || strings.Contains(text, "### Slopes") {
		t.Errorf("slopes of what was not measured:\n%s", text)
	}
}
