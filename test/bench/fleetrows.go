package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What is measured of small fleets besides what is measured at all sizes.
const (
	heapInUse measured = "Heap in use, garbage collected"
	idleCalls measured = "Idle: calls to the management cluster per second"
	openFiles measured = "Open files and sockets"

	restartTime measured = "Started again: all machines judged after"
	restartCPU  measured = "Started again: processor time until then"

	otherShardCPU      measured = "Of another shard: processor time, start"
	otherShardResident measured = "Of another shard: resident memory"
	otherShardHeap     measured = "Of another shard: heap in use"
)

// fleetRows are the lines of the table of small fleets, in order.
func fleetRows() []row {
	return []row{
		{heapInUse, mebibytes, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, nil},
		{idleCPU, milliseconds1000, nil},
		{idleCalls, count, nil},
		{openFiles, whole, nil},
		{beatCPU, seconds, nil},
		{reconcileCPU, milliseconds, nil},
		{massCPU, milliseconds1000, nil},
		{massCalls, count, nil},
		{firstFullPass, seconds, nil},
		{firstPassCPU, seconds, nil},
		{restartTime, seconds, nil},
		{restartCPU, seconds, nil},
		{otherShardHeap, mebibytes, nil},
		{otherShardResident, mebibytes, nil},
		{otherShardCPU, seconds, nil},
	}
}

// fitRates fits the lines to what was measured of small fleets. A figure that one of them lacks is fitted to the others, if these are enough.
func fitRates(all []smallFleetResults) (rates, error) {
	var r rates
	var errs []error
	over := func(numbers func(smallFleetResults) []float64, of measured) (rows [][]float64, values []float64) {
		for _, p := range all {
			if value, known := p.figures[of]; known {
				rows, values = append(rows, numbers(p)), append(values, value)
			}
		}
		return rows, values
	}
	fitted := func(into *line, numbers func(smallFleetResults) []float64, of measured) {
		rows, values := over(numbers, of)
		var err error
		if *into, err = fit(rows, values); err != nil && len(rows) > 0 && len(rows[0]) == 3 {
			*into, err = together(rows, values)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", of, err))
		}
	}
	things := func(p smallFleetResults) []float64 {
		return []float64{float64(p.clusters), float64(p.machines), float64(p.checks())}
	}
	for of, into := range map[measured]*line{
		heapInUse: &r.heap, residentSteady: &r.resident, residentHighest: &r.highest, idleCPU: &r.idle, idleCalls: &r.calls, openFiles: &r.files,
		restartTime: &r.restartTime, restartCPU: &r.restartCPU,
		otherShardHeap: &r.otherShardHeap, otherShardResident: &r.otherShardResident, otherShardCPU: &r.otherShardCPU,
	} {
		fitted(into, things, of)
	}
	fitted(&r.reconcile, func(p smallFleetResults) []float64 { return []float64{float64(p.machines) / float64(p.checks())} }, reconcileCPU)
	for into, of := range map[*line]measured{&r.failed: massCPU, &r.failedCalls: massCalls} {
		rows, values := over(func(p smallFleetResults) []float64 { return []float64{float64(p.machines / 10)} }, of)
		var numbers []float64
		for i, row := range rows { // the figure of each, times how many there were
			numbers, values[i] = append(numbers, row[0]), values[i]*row[0]
		}
		var err error
		if *into, err = each(numbers, values); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", of, err))
		}
	}
	_, beats := over(things, beatCPU)
	r.beat = mean(beats).scaled(1e-3)      // they come in thousands
	r.reconcile = r.reconcile.scaled(1e-3) // milliseconds
	return r, errors.Join(errs...)
}

// together is the line for small fleets that all have as many checks as clusters: the cost of a check is part of that of its cluster.
func together(rows [][]float64, values []float64) (line, error) {
	without := make([][]float64, len(rows))
	for i, row := range rows {
		without[i] = row[:2]
	}
	l, err := fit(without, values)
	if err != nil {
		return line{}, err
	}
	l.slopes = append(l.slopes, 0)
	return l, nil
}

// mean is the line of one value for each of something.
func mean(values []float64) line {
	sum, worst := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	m := sum / float64(max(len(values), 1))
	for _, v := range values {
		worst = max(worst, v-m, m-v)
	}
	return line{slopes: []float64{m}, worst: worst}
}

// fleetSection is the part of the report about fleets.
func (r *report) fleetSection() string {
	if len(r.fleet) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.heading(fleetPart, "A fleet, and its shards", fleetMethod) + "### Measured\n\n")
	b.WriteString(smallFleetTable(r.fleet))
	derived, err := fitRates(r.fleet)
	if err != nil {
		fmt.Fprintf(&b, "\nNo slopes could be derived from that: %v.\n", err)
		return b.String()
	}
	fmt.Fprintf(&b, "\n### Slopes\n\n%s\n### %d clusters, %d machines and nodes\n\n%s\n%s",
		derived.table(), fleetClusters, fleetMachines, fleetAssumptions(), derived.fleetTable(r.fleet))
	return b.String()
}

// smallFleetTable has a column for each small fleet.
func smallFleetTable(all []smallFleetResults) string {
	var b strings.Builder
	b.WriteString("| machines / clusters / checks |")
	for _, p := range all {
		fmt.Fprintf(&b, " %d / %d / %d |", p.machines, p.clusters, p.checks())
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", len(all)))
	for _, row := range fleetRows() {
		fmt.Fprintf(&b, "| %s |", row.measured)
		for _, p := range all {
			fmt.Fprintf(&b, " %s |", row.cell(p.figures))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// table has the slopes, in units for users.
func (r rates) table() string {
	var b strings.Builder
	b.WriteString("| | by itself | cluster | 1000 machines | check | misses by |\n|---|---:|---:|---:|---:|---:|\n")
	for _, one := range []struct {
		what string
		line
		show func(float64) string
	}{
		{"Heap in use", r.heap, mebibytes2}, {"Resident memory, idle", r.resident, mebibytes2}, {"Resident memory, highest", r.highest, mebibytes2},
		{"Idle: processor time in an hour", hourly(r.idle), seconds}, {"Idle: calls to the management cluster in an hour", hourly(r.calls), whole},
		{"Open files and sockets", r.files, count2},
		{"Started again: processor time", r.restartCPU, seconds}, {"Started again: time until all are judged", r.restartTime, seconds},
		{"Of another shard, by label: heap in use", r.otherShardHeap, mebibytes2},
		{"Of another shard, by label: resident memory", r.otherShardResident, mebibytes2},
		{"Of another shard, by label: processor time", r.otherShardCPU, seconds},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", one.what, one.show(one.base), one.show(one.slopes[0]), one.show(one.slopes[1]*1000),
			one.show(one.slopes[2]), one.show(one.worst))
	}
	fmt.Fprintf(&b, "\n- A reconcile of a check: %.2f ms of processor time, and %.2f ms for 1000 machines; misses by at most %.2f ms.\n",
		r.reconcile.base*1000, r.reconcile.slopes[0]*1e6, r.reconcile.worst*1000)
	fmt.Fprintf(&b, "- A heartbeat of a node: %.2f ms, in a small fleet at most %.2f ms more or less; "+
		"every five minutes, that is %.1f ms in an hour.\n",
		r.beat.slopes[0]*1000, r.beat.worst*1000, r.beat.slopes[0]*1000*time.Hour.Seconds()/reportEvery.Seconds())
	fmt.Fprintf(&b, "- A node that becomes Unknown with a tenth of all: %.1f ms and %.1f calls to the management cluster; "+
		"misses the sum of a small fleet by at most %s and %.0f calls.\n",
		r.failed.slopes[0]*1000, r.failedCalls.slopes[0], seconds(r.failed.worst), r.failedCalls.worst)
	return b.String()
}

func hourly(l line) line {
	return l.scaled(time.Hour.Seconds())
}

func mebibytes2(v float64) string { return fmt.Sprintf("%.2f MiB", v) }
func count2(v float64) string     { return fmt.Sprintf("%.2f", v) }
