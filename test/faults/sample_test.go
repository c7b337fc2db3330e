package faults

import "testing"

// Over many seeds each case is tried, and each sample is a small part of all.
func TestSamplesTryEverythingInTime(t *testing.T) {
	const cases, seeds = 100, 60
	ever, sum := map[int]bool{}, 0
	for seed := range uint64(seeds) {
		for n := range cases {
			if chosen(seed, "write", n) {
				ever[n] = true
				sum++
			}
		}
	}
	if mean := sum / seeds; len(ever) != cases || mean < cases/(share+1)/2 || mean > cases/(share+1)*2 {
		t.Errorf("%d of %d cases were ever tried, %d in each sample", len(ever), cases, mean)
	}
}
