package main

import (
	"fmt"
	"strings"
)

// What is measured of NodeHealthChecks.
const (
	nodeFirstReconcile measured = "First reconcile of all nodes after the start"

	nodeReconcileTime        measured = "Steady reconcile: time"
	nodeReconcileCPU         measured = "Steady reconcile: processor time"
	nodeReconcileAllocations measured = "Steady reconcile: allocations"
	nodeReconcileCalls       measured = "Steady reconcile: calls to the API server"

	dueMedian        measured = "Timeout of a node → its remediation, p50"
	dueWorst         measured = "Timeout of a node → its remediation, p99"
	dueReconciles    measured = "A node that becomes unhealthy: reconciles"
	dueReconcileTime measured = "A node that becomes unhealthy: time of a reconcile"
	dueReads         measured = "A node that becomes unhealthy: reads"
	duePatches       measured = "A node that becomes unhealthy: patches"
	dueCreates       measured = "A node that becomes unhealthy: creates (remediation, lease, events)"
	dueSamples       measured = "Nodes that became unhealthy"

	unhealthyReconcileTime        measured = "Steady reconcile with them: time"
	unhealthyReconcileCPU         measured = "Steady reconcile with them: processor time"
	unhealthyReconcileAllocations measured = "Steady reconcile with them: allocations"
	unhealthyReconcileCalls       measured = "Steady reconcile with them: calls to the API server"
)

// nodeRows are the lines of the table of NodeHealthChecks, in order.
func nodeRows() []row {
	return []row{
		{nodeFirstReconcile, seconds, nil},
		{nodeReconcileTime, milliseconds, nil},
		{nodeReconcileCPU, milliseconds, nil},
		{nodeReconcileAllocations, whole, nil},
		{nodeReconcileCalls, count, always(0)},
		{dueMedian, seconds, nil},
		{dueWorst, seconds, always(0.3)},
		{dueReconciles, count, nil},
		{dueReconcileTime, milliseconds, nil},
		{dueReads, count, nil},
		{duePatches, count, nil},
		{dueCreates, count, nil},
		{dueSamples, whole, nil},
		{unhealthyReconcileTime, milliseconds, nil},
		{unhealthyReconcileCPU, milliseconds, nil},
		{unhealthyReconcileAllocations, whole, nil},
		{unhealthyReconcileCalls, count, always(0)},
		{beatCPU, seconds, nil},
		{beatReconciles, count, always(0)},
		{idleCPU, milliseconds1000, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, nil},
	}
}

// nodesSection is the part of the report about NodeHealthChecks.
func (r *report) nodesSection() string {
	if len(r.nodes.figures) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.heading(nodesPart, "NodeHealthChecks", nodeMethod))
	fmt.Fprintf(&b, "| measured | %d nodes, %d unhealthy | aim |\n|---|---:|---|\n", r.nodes.nodes, r.nodes.unhealthy)
	for _, row := range nodeRows() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.measured, row.cell(r.nodes.figures), row.verdict(size{r.nodes.nodes, 1}, r.nodes.figures))
	}
	return b.String()
}

// nodeMethod says how the figures of NodeHealthChecks are taken, and what distorts them.
const nodeMethod = `One API server with nodes of about 8 KiB, one NodeHealthCheck of all of them with two templates, and kubemend's
manager as a process of its own. No remediator runs, so the remediations stay.

- **Steady reconcile**: forced by a label on one node. Its time is from controller_runtime_reconcile_time_seconds; calls are in
  rest_client_requests_total.
- **Timeout of a node → its remediation**: nodes become Unknown one after another, and are unhealthy 5 s after the whole second that is stored
  as their transition; until the watch event with which the remediation is seen.
- **A node that becomes unhealthy**: all reconciles and calls of that phase, with those that find the node pending, divided by the nodes.
- **1000 heartbeats, idle, memory**: as above, for MachineHealthChecks.

There is no other contender: medik8s' operator is not available as a Go module. By its code it makes about two LISTs per node and reconcile.
The API server, etcd and the clients that write and watch share the cores with the manager. There is one run.
`
