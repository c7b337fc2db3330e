package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// shardCounts are the numbers of shards that the fleet is spread over.
func shardCounts() []int { return []int{1, 4, 8, 16, 32} }

// fleetTable is the estimate for the fleet by the number of its shards, and by how clusters are assigned to them.
func (r rates) fleetTable(of []smallFleetResults) string {
	sizes := generateFleet(fleetClusters, fleetMachines, fleetSeed)
	whole := share{fleetClusters, fleetMachines}
	var measured share
	for _, p := range of {
		measured = share{max(measured.clusters, p.clusters), max(measured.machines, p.machines)}
	}
	var b strings.Builder
	b.WriteString("| shards | by | clusters | machines | most / mean | heap in use | resident, idle | resident, highest | cores, steady | " +
		"storm: processor time | storm: by calls at least | started again: processor time | started again: time | open sockets | " +
		"calls in a second | beyond what was measured |\n" +
		"|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, n := range shardCounts() {
		for _, way := range []struct {
			name    string
			spread  func([]int, int) []share
			byLabel bool
		}{{"namespace, filled", filled, false}, {"namespace, hashed", hashed, false}, {"label, hashed", hashed, true}} {
			if n == 1 && way.name != "namespace, filled" {
				continue // one shard has everything
			}
			shares := way.spread(sizes, n)
			all := make([]estimate, 0, n)
			for _, s := range shares {
				all = append(all, r.estimateShard(s, whole, way.byLabel))
			}
			b.WriteString(estimateRow(n, way.name, all, unevenness(shares), measured))
		}
	}
	return b.String()
}

func estimateRow(shards int, by string, all []estimate, uneven float64, measured share) string {
	both := func(of func(estimate) float64, show func(float64) string) string {
		middle, high := show(medianOf(all, of)), show(highestOf(all, of))
		if middle == high {
			return middle
		}
		return middle + " – " + high
	}
	beyond := func(byMachines, byClusters float64) string {
		return fmt.Sprintf("× %.0f / × %.0f", byMachines, byClusters)
	}
	clusters, machines := func(o estimate) float64 { return float64(o.clusters) }, func(o estimate) float64 { return float64(o.machines) }
	cells := []string{
		strconv.Itoa(shards), by, both(clusters, whole), both(machines, whole), fmt.Sprintf("%.2f", uneven),
		both(func(o estimate) float64 { return o.heap }, gibibytes), both(func(o estimate) float64 { return o.resident }, gibibytes),
		both(func(o estimate) float64 { return o.highest }, gibibytes),
		both(func(o estimate) float64 { return o.steady }, count2), both(func(o estimate) float64 { return o.stormCPU }, minutes),
		both(func(o estimate) float64 { return o.stormTime }, minutes), both(func(o estimate) float64 { return o.restartCPU }, minutes),
		both(func(o estimate) float64 { return o.restartTime }, minutes), both(func(o estimate) float64 { return o.files }, whole),
		both(func(o estimate) float64 { return o.calls }, count2),
		beyond(highestOf(all, machines)/float64(measured.machines), highestOf(all, clusters)/float64(measured.clusters)),
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func gibibytes(v float64) string { return fmt.Sprintf("%.1f GiB", v/1024) }

func minutes(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f min", v/60)
	}
	return fmt.Sprintf("%.0f s", v)
}

// fleetAssumptions says what the simulated fleet is like.
func fleetAssumptions() string {
	sizes := generateFleet(fleetClusters, fleetMachines, fleetSeed)
	slices.Sort(sizes)
	classes := make([]string, 0, len(sizeClasses()))
	for _, c := range sizeClasses() {
		classes = append(classes, fmt.Sprintf("%d %% of %d to %d", c.percent, c.least, c.most))
	}
	return fmt.Sprintf("Clusters by the number of their machines: %s, as often in each octave of a class, all stretched to %d in sum (seed: %d). "+
		"That gives a median of %d, a 99th percentile of %d, and a largest of %d. One check for each cluster. %s",
		strings.Join(classes, ", "), fleetMachines, fleetSeed, sizes[len(sizes)/2], sizes[len(sizes)*99/100], sizes[len(sizes)-1], fleetReading)
}

// fleetReading says how the table of the simulated fleet is to be read.
const fleetReading = `Nodes report every 5 minutes, checks are
reconciled every 10; in a storm one node in a hundred becomes Unknown at once. A cell has the figure of the median shard and that of the highest.

- **namespace, filled**: the largest cluster first, each into the shard with the fewest machines. **hashed**: by the FNV-1a hash of its name. **label**: by
  --watch-filter, under which a shard's caches hold the Machines, Clusters, checks and kubeconfigs of all shards.
- **Storm**: conditions and events of the machines, without remediations. *By calls at least*: the time that the calls take with --kube-api-qps=1000.
- **Started again**: as after an upgrade or a new election of the leader. The time is that of two cores which also ran all API servers, and for
  other shards' objects processor time alone.
- **Beyond what was measured**: how many times the machines, and the clusters, of the largest small fleet.
`

// fleetMethod says how the figures of fleets are taken, and what distorts them.
const fleetMethod = `How much memory and processor time a workload cluster, a machine with its node, and a check cost is measured of small fleets that
differ in one of these after another, each with new control planes; all objects are as in the tables above. From that the cost of a very large
fleet is estimated. kubemend's manager is a process of its own, whose metrics are read; the workload clusters share one API server, and a proxy for each,
over TLS and HTTP/2 with a connection of its own, shows the nodes of one cluster.

- **Heap in use**: go_memstats_heap_alloc_bytes just after a collection that the profiler was asked for. **Resident memory**:
  process_resident_memory_bytes, idle after the first start, and the highest of all readings, with those while a tenth of the nodes became Unknown.
- **Processor time** is process_cpu_seconds_total, so other programs on the same cores do not count; delays do depend on them.
- **Idle**: of half a minute with nothing but ClusterCache's probes (one each 10 s and cluster). The manager keeps no leases.
- **Heartbeats, steady reconciles, first full pass**: as above. **A tenth at once**: for each node that became Unknown.
- **Started again**: on machines that are marked already, so that nothing is left to write, until kubemend_machinehealthcheck_targets counts all of them.
- **Of another shard**: with a --watch-filter that no object matches. The objects are in the caches nevertheless, and the manager connects to no
  workload cluster.
- **Slopes**: the plane base + a·clusters + b·machines + c·checks with the least squares to all columns; the last column is by how much it misses the
  worst of them. Where a slope is smaller than that, it is noise. Negative ones count as 0 in the fleet. What could not be measured, because
  requests timed out on a busy computer, has a dash and is left out of the fit; if too few columns are left, the cost of a check is part of that of its cluster.

What this leaves out: a real workload cluster is far away and requires a client certificate; watches are opened again every 5 to 10 minutes, which half a minute
hardly shows; Go's collector lets garbage grow with the heap, so resident memory is no straight line, and GOMEMLIMIT bends it; BareMetalHosts and remediations
are not among the objects (see the power cycles above). A line that was measured up to thousands of machines is a guess for hundreds of thousands.
`
