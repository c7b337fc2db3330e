package main

import (
	"fmt"
	"math"
)

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

	aloneMedian     measured = "One change alone: marked after, p50"
	aloneWorst      measured = "One change alone: marked after, p99"
	alonePatches    measured = "One change alone: patches"
	aloneEvents     measured = "One change alone: events"
	aloneReads      measured = "One change alone: reads"
	aloneReconciles measured = "One change alone: reconciles"
	aloneSamples    measured = "One change alone: samples"

	spreadMedian     measured = "Changes spread: marked after, p50"
	spreadWorst      measured = "Changes spread: marked after, p99"
	spreadPatches    measured = "Changes spread: patches per change"
	spreadReconciles measured = "Changes spread: reconciles per change"
	spreadCPU        measured = "Changes spread: processor time per 1000 changes"
	spreadSamples    measured = "Changes spread: samples"

	massMedian  measured = "A tenth at once: marked after, p50"
	massWorst   measured = "A tenth at once: marked after, p99"
	massPatches measured = "A tenth at once: patches per change"
	massSamples measured = "A tenth at once: samples"
	// These two are not in the table: the estimate of a large fleet uses them.
	massCPU   measured = "A tenth at once: processor time for each"
	massCalls measured = "A tenth at once: calls for each"

	beatCPU        measured = "1000 heartbeats: processor time"
	beatReconciles measured = "1000 heartbeats: reconciles"

	steadyAllocations    measured = "Steady reconcile: allocations per machine"
	reconcileAllocations measured = "Steady reconcile: allocations"
	reconcileCPU         measured = "Steady reconcile: processor time"

	idleCPU         measured = "Idle: processor time per second"
	residentSteady  measured = "Resident memory, idle"
	residentHighest measured = "Resident memory, highest"
)

// row is one line of every table.
type row struct {
	measured
	show func(float64) string
	// aim returns the highest value that is good enough at a size; none where it is nil or returns less than 0.
	aim func(size) float64
}

// none is the aim where there is none.
const none = -1

func always(limit float64) func(size) float64 { return func(size) float64 { return limit } }

// upTo is an aim for at most so many machines.
func upTo(machines int, limit, beyond float64) func(size) float64 {
	return func(n size) float64 {
		if n.machines <= machines {
			return limit
		}
		return beyond
	}
}

// from is an aim for at least so many machines.
func from(machines int, limit float64) func(size) float64 { return upTo(machines-1, none, limit) }

// rows are the lines of a table, in order.
func rows() []row {
	return []row{
		{firstFullPass, seconds, upTo(999, 3, none)}, // with more machines the ratio counts: the API server alone needs longer
		{bareTime, seconds, nil},
		{firstPassRatio, count, from(1000, 1.15)},
		{firstPassPatches, count, nil},
		{firstPassCPU, seconds, nil},
		{firstPassServer, seconds, nil},
		{bareServer, seconds, nil},
		{aloneMedian, seconds, from(1000, 0.035)},
		{aloneWorst, seconds, upTo(1000, 0.2, 0.3)},
		{alonePatches, count, always(2)},
		{aloneEvents, count, always(1)},
		{aloneReads, count, always(0)},
		{aloneReconciles, count, nil},
		{aloneSamples, whole, nil},
		{spreadMedian, seconds, nil},
		{spreadWorst, seconds, always(0.2)},
		{spreadPatches, count, nil},
		{spreadReconciles, count, nil},
		{spreadCPU, seconds, from(5000, 12)},
		{spreadSamples, whole, nil},
		{massMedian, seconds, nil},
		{massWorst, seconds, upTo(1000, 1, none)},
		{massPatches, count, nil},
		{massSamples, whole, nil},
		{beatCPU, seconds, always(0.3)},
		{beatReconciles, count, always(0)},
		{steadyAllocations, count, func(n size) float64 {
			if n.machines/n.clusters < 1000 {
				return none // most of it would be what any reconcile costs
			}
			return 3
		}},
		{reconcileAllocations, whole, nil},
		{reconcileCPU, milliseconds, nil},
		{idleCPU, milliseconds1000, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, from(5000, 150)},
	}
}

// cell shows the figure of the row, or that it was not measured.
func (r row) cell(of figures) string {
	value, measured := of[r.measured]
	if !measured {
		return "–"
	}
	return r.show(value)
}

// verdict says whether the aim of the row is met; empty if there is none.
func (r row) verdict(n size, of figures) string {
	if r.aim == nil || r.aim(n) < 0 {
		return ""
	}
	limit := r.aim(n)
	// What is shown is what counts.
	if value, measured := of[r.measured]; !measured || math.Round(value*1000)/1000 > limit {
		return fmt.Sprintf("≤ %s: **missed**", r.show(limit))
	}
	return fmt.Sprintf("≤ %s: met", r.show(limit))
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
