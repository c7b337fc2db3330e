package main

import "fmt"

// measured is what is measured, in the words of the tables.
type measured string

const (
	firstFullPass    measured = "First full pass after the start"
	firstPassPatches measured = "First full pass: patches per machine"
	firstPassCPU     measured = "First full pass: processor time"
	firstPassServer  measured = "First full pass: processor time of the API server"
	bareTime         measured = "First full pass: a bare client writes the same patches"
	bareServer       measured = "First full pass: processor time of the API server for the bare client"
	firstPassRatio   measured = "First full pass: times what the bare client needs"

	aloneMedian  measured = "One change alone: marked after, p50"
	aloneWorst   measured = "One change alone: marked after, p99"
	alonePatches measured = "One change alone: patches"
	aloneEvents  measured = "One change alone: events"
	aloneReads   measured = "One change alone: reads"
	alonePasses  measured = "One change alone: passes"
	aloneSamples measured = "One change alone: samples"

	spreadMedian  measured = "Changes spread: marked after, p50"
	spreadWorst   measured = "Changes spread: marked after, p99"
	spreadPatches measured = "Changes spread: patches per change"
	spreadPasses  measured = "Changes spread: passes per change"
	spreadCPU     measured = "Changes spread: processor time per 1000 changes"
	spreadSamples measured = "Changes spread: samples"

	massMedian  measured = "A tenth at once: marked after, p50"
	massWorst   measured = "A tenth at once: marked after, p99"
	massPatches measured = "A tenth at once: patches per change"
	massSamples measured = "A tenth at once: samples"
	// These two are no lines of the table: simulated fleets are made of them.
	massCPU   measured = "A tenth at once: processor time for each"
	massCalls measured = "A tenth at once: calls for each"

	beatCPU    measured = "1000 heartbeats: processor time"
	beatPasses measured = "1000 heartbeats: passes"

	steadyAllocations measured = "Steady pass: allocations per machine"
	passAllocations   measured = "Steady pass: allocations"
	passCPU           measured = "Steady pass: processor time"

	idleCPU         measured = "Idle: processor time per second"
	residentSteady  measured = "Resident memory, idle"
	residentHighest measured = "Resident memory, highest"
)

// row is one line of every table.
type row struct {
	measured
	show func(float64) string
	// aim is the highest value that is good enough in a world; none where it is nil or negative.
	aim func(world) float64
}

// rows are the lines of a table, in order. The aims are for 1000 and 5000 machines; those for 1000 hold below as well, unless they say otherwise.
func rows() []row {
	always := func(limit float64) func(world) float64 { return func(world) float64 { return limit } }
	upTo1000 := func(limit, beyond float64) func(world) float64 {
		return func(w world) float64 {
			if w.machines <= 1000 {
				return limit
			}
			return beyond
		}
	}
	const none = -1
	from1000 := func(limit float64) func(world) float64 {
		return func(w world) float64 {
			if w.machines < 1000 {
				return none
			}
			return limit
		}
	}
	at5000 := func(limit float64) func(world) float64 {
		return func(w world) float64 {
			if w.machines < 5000 {
				return none
			}
			return limit
		}
	}
	return []row{
		{firstFullPass, seconds, func(w world) float64 {
			if w.machines < 1000 {
				return 3
			}
			return none // the ratio counts
		}},
		{bareTime, seconds, nil},
		{firstPassRatio, count, from1000(1.15)},
		{firstPassPatches, count, nil},
		{firstPassCPU, seconds, nil},
		{firstPassServer, seconds, nil},
		{bareServer, seconds, nil},
		{aloneMedian, seconds, from1000(0.035)},
		{aloneWorst, seconds, upTo1000(0.2, 0.3)},
		{alonePatches, count, always(2)},
		{aloneEvents, count, always(1)},
		{aloneReads, count, always(0)},
		{alonePasses, count, nil},
		{aloneSamples, whole, nil},
		{spreadMedian, seconds, nil},
		{spreadWorst, seconds, always(0.2)},
		{spreadPatches, count, nil},
		{spreadPasses, count, nil},
		{spreadCPU, seconds, at5000(12)},
		{spreadSamples, whole, nil},
		{massMedian, seconds, nil},
		{massWorst, seconds, upTo1000(1, none)},
		{massPatches, count, nil},
		{massSamples, whole, nil},
		{beatCPU, seconds, always(0.3)},
		{beatPasses, count, always(0)},
		{steadyAllocations, count, func(w world) float64 {
			if w.machines/w.clusters < 1000 {
				return none // what a pass costs in itself would be most of it
			}
			return 3
		}},
		{passAllocations, whole, nil},
		{passCPU, milliseconds, nil},
		{idleCPU, milliseconds1000, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, at5000(150)},
	}
}

func seconds(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1f s", v)
	}
	return fmt.Sprintf("%.3f s", v)
}

func milliseconds(v float64) string     { return fmt.Sprintf("%.1f ms", v) }
func milliseconds1000(v float64) string { return milliseconds(v * 1000) }
func mebibytes(v float64) string        { return fmt.Sprintf("%.0f MiB", v) }
func whole(v float64) string            { return fmt.Sprintf("%.0f", v) }

func count(v float64) string {
	if v == float64(int(v)) {
		return whole(v)
	}
	return fmt.Sprintf("%.2f", v)
}
