package report

import (
	"slices"
	"time"
)

// Summary sums up durations. All of it is zero if there is none.
type Summary struct {
	Count int
	Mean  time.Duration
	// P95 is the 95th percentile by nearest rank: the shortest of the durations that at least 95 of 100 do not exceed. It is one that has been measured.
	P95 time.Duration
	Max time.Duration
}

// Summarize sums up durations, whose order it changes.
func Summarize(all []time.Duration) Summary {
	n := len(all)
	if n == 0 {
		return Summary{}
	}
	slices.Sort(all)
	var sum int64 // of microseconds: 30,000 times a year fit
	for _, d := range all {
		sum += d.Microseconds()
	}
	return Summary{
		Count: n, Mean: time.Duration(sum/int64(n)) * time.Microsecond,
		P95: all[(95*n+99)/100-1], Max: all[n-1],
	}
}
