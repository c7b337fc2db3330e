package main

import (
	"fmt"
	"strings"
	"time"
)

// What is measured of NodeHealthChecks.
const (
	nodeFirstPass measured = "First pass over all nodes after the start"

	nodePassTime        measured = "Steady pass: time"
	nodePassCPU         measured = "Steady pass: processor time"
	nodePassAllocations measured = "Steady pass: allocations"
	nodePassCalls       measured = "Steady pass: calls to the API server"

	dueMedian   measured = "A node's time is over → its request, p50"
	dueWorst    measured = "A node's time is over → its request, p99"
	duePasses   measured = "A node that becomes unhealthy: passes"
	duePassTime measured = "A node that becomes unhealthy: time of a pass"
	dueReads    measured = "A node that becomes unhealthy: reads"
	duePatches  measured = "A node that becomes unhealthy: patches"
	dueCreates  measured = "A node that becomes unhealthy: creates (request, lease, events)"
	dueSamples  measured = "Nodes that became unhealthy"

	sickPassTime        measured = "Steady pass with them: time"
	sickPassCPU         measured = "Steady pass with them: processor time"
	sickPassAllocations measured = "Steady pass with them: allocations"
	sickPassCalls       measured = "Steady pass with them: calls to the API server"
)

// nodeRows are the lines of the table of NodeHealthChecks, in order.
func nodeRows() []row {
	upTo := func(limit float64) func(world) float64 { return func(world) float64 { return limit } }
	return []row{
		{nodeFirstPass, seconds, nil},
		{nodePassTime, milliseconds, nil},
		{nodePassCPU, milliseconds, nil},
		{nodePassAllocations, whole, nil},
		{nodePassCalls, count, upTo(0)},
		{dueMedian, seconds, nil},
		{dueWorst, seconds, upTo(0.3)},
		{duePasses, count, nil},
		{duePassTime, milliseconds, nil},
		{dueReads, count, nil},
		{duePatches, count, nil},
		{dueCreates, count, nil},
		{dueSamples, whole, nil},
		{sickPassTime, milliseconds, nil},
		{sickPassCPU, milliseconds, nil},
		{sickPassAllocations, whole, nil},
		{sickPassCalls, count, upTo(0)},
		{beatCPU, seconds, nil},
		{beatPasses, count, upTo(0)},
		{idleCPU, milliseconds1000, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, nil},
	}
}

// nodesMarkdown is the part of the report about NodeHealthChecks.
func (r report) nodesMarkdown() string {
	if len(r.nodes.figures) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## NodeHealthChecks\n\nThis part was generated on %s, in %s, on %s. %s. "+
		"`make bench ARGS=\"-only node-checks\"` takes it anew and leaves the rest as it is.\n\n%s\n",
		r.settings.date, r.nodesTook.Round(time.Second), strings.Join(r.machine, ", "), versions(), nodeMethod)
	fmt.Fprintf(&b, "| measured | %d nodes, %d unhealthy | aim |\n|---|---:|---|\n", r.nodes.nodes, r.nodes.unhealthy)
	w := worldResults{world: world{r.nodes.nodes, 1}, contenders: []contenderResults{{cycler(nil), r.nodes.figures}}}
	for _, row := range nodeRows() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.measured, w.contenders[0].cell(row), w.verdict(row))
	}
	return b.String()
}

// nodeMethod says how the figures of NodeHealthChecks are taken, and what distorts them.
const nodeMethod = `One API server with nodes of about 8 KiB, one NodeHealthCheck of all of them with two templates, and kubemend's
manager as a process of its own. Nobody serves the requests, so those that are made stay.

- **Steady pass**: forced by a label on one node. Its time is from controller_runtime_reconcile_time_seconds; calls are in
  rest_client_requests_total.
- **A node's time is over → its request**: nodes become Unknown one after another, and are unhealthy 5 s after the whole second that is stored
  as their transition; until the watch event with which the request is seen.
- **A node that becomes unhealthy**: all passes and calls of that phase, those that find the node pending included, over the nodes.
- **1000 heartbeats, idle, memory**: as above, for MachineHealthChecks.

There is no other contender: medik8s' operator is not to be had as a Go module. By its code it makes about two LISTs per node and pass.
The API server, etcd and the clients that write and watch share the cores with the manager. There is one run.
`
