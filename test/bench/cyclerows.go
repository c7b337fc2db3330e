package main

import (
	"fmt"
	"strings"
)

// What is measured of power cycles.
const (
	cycleMedian      measured = "From the node Unknown to the machine healthy, p50"
	cycleWorst       measured = "From the node Unknown to the machine healthy, highest"
	cycleAddedMedian measured = "of it neither the host's nor the kubelet's, p50"
	cycleAddedWorst  measured = "of it neither the host's nor the kubelet's, highest"
	cycleToRequest   measured = "Node Unknown → remediation created"
	cycleToOff       measured = "→ power-off requested"
	cycleHostOff     measured = "→ host off (the host's)"
	cycleToFence     measured = "→ node fenced"
	cycleToOn        measured = "→ power-on requested"
	cycleHostOn      measured = "→ host on (the host's)"
	cycleToUnfence   measured = "Host on → fence removed"
	cycleToReady     measured = "Host on → node Ready (the kubelet's)"
	cycleToHealthy   measured = "→ machine healthy"
	cycleToEnd       measured = "→ remediation deleted"
	cycleSamples     measured = "Samples, one after another"

	cyclePatches     measured = "Calls for one cycle: patches"
	cycleCreates     measured = "Calls for one cycle: creates, events above all"
	cycleReads       measured = "Calls for one cycle: reads"
	cycleOthers      measured = "Calls for one cycle: deletions"
	cycleWorkload    measured = "Calls for one cycle: to the workload cluster"
	cycleOwnCalls    measured = "A cycle that a user requests: calls to the management cluster"
	cycleOwnWorkload measured = "A cycle that a user requests: calls to the workload cluster"
	cycleCPU         measured = "Processor time for one cycle"

	cycleMassMedian   measured = "A tenth at once: node Unknown to machine healthy, p50"
	cycleMassWorst    measured = "A tenth at once: node Unknown to machine healthy, p99"
	cycleMassCalls    measured = "A tenth at once: calls for each, to the management cluster"
	cycleMassWorkload measured = "A tenth at once: calls for each, to the workload cluster"
	cycleMassSamples  measured = "A tenth at once: samples"
)

// cycleRows are the lines of the table of power cycles, in order. An aim holds for any number of hosts.
func cycleRows() []row {
	return []row{
		{cycleMedian, seconds, always(1)},
		{cycleWorst, seconds, nil},
		{cycleAddedMedian, seconds, nil},
		{cycleAddedWorst, seconds, nil},
		{cycleToRequest, seconds, nil},
		{cycleToOff, seconds, nil},
		{cycleHostOff, seconds, nil},
		{cycleToFence, seconds, nil},
		{cycleToOn, seconds, nil},
		{cycleHostOn, seconds, nil},
		{cycleToUnfence, seconds, nil},
		{cycleToReady, seconds, nil},
		{cycleToHealthy, seconds, nil},
		{cycleToEnd, seconds, nil},
		{cycleSamples, whole, nil},
		{cyclePatches, count, nil},
		{cycleCreates, count, nil},
		{cycleReads, count, nil},
		{cycleOthers, count, nil},
		{cycleWorkload, count, nil},
		{cycleOwnCalls, count, always(20)},
		{cycleOwnWorkload, count, always(8)},
		{cycleCPU, seconds, nil},
		{cycleMassMedian, seconds, nil},
		{cycleMassWorst, seconds, always(15)},
		{cycleMassCalls, count, always(30)},
		{cycleMassWorkload, count, always(8)},
		{cycleMassSamples, whole, nil},
		{idleCPU, milliseconds1000, nil},
		{residentSteady, mebibytes, nil},
		{residentHighest, mebibytes, nil},
	}
}

// cyclesSection is the part of the report about power cycles.
func (r *report) cyclesSection() string {
	if len(r.cycles) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.heading(cyclesPart, "Power cycles of hosts", cycleMethod) + "| measured ")
	for _, c := range r.cycles {
		fmt.Fprintf(&b, "| %d hosts ", c.hosts)
	}
	fmt.Fprintf(&b, "| aim |\n|---|%s---|\n", strings.Repeat("---:|", len(r.cycles)))
	for _, row := range cycleRows() {
		fmt.Fprintf(&b, "| %s |", row.measured)
		aim := ""
		for _, c := range r.cycles {
			fmt.Fprintf(&b, " %s |", row.cell(c.figures))
			aim = row.verdict(size{c.hosts, 1}, c.figures) // that of the most hosts
		}
		fmt.Fprintf(&b, " %s |\n", aim)
	}
	if few, many := r.cycles[0], r.cycles[len(r.cycles)-1]; many.hosts > few.hosts {
		more := (many.figures[residentSteady] - few.figures[residentSteady]) * 1000 / float64(many.hosts-few.hosts)
		fmt.Fprintf(&b, "\nFrom %d to %d hosts, kubemend grows by %.1f MiB (idle) for every 1000 hosts with their Machines, Metal3Machines and Nodes.\n",
			few.hosts, many.hosts, more)
	}
	return b.String()
}

// cycleMethod says how the figures of power cycles are taken, and what distorts them.
const cycleMethod = `One management and one workload API server of their own, with as many Machines, Metal3Machines, BareMetalHosts (of
about 8 KiB), Nodes and one MachineHealthCheck with a HostRemediationTemplate; kubemend's manager is a process of
its own. Hosts, the Bare Metal Operator that switches them and kubelets are simulated: a host is powered off or on at
once, and its kubelet reports Ready at once under a new boot ID. No pods run, so there is nothing to wait
for after a node is fenced; in a real cluster Kubernetes deletes the pods of such a node in rounds of 20 s, and a
host takes minutes. So this is what kubemend and the API servers add to that, and not how long a power cycle takes.

- **From the node Unknown to the machine healthy**: from the API server's answer to the write of Ready=Unknown, dated 30 minutes back, to
  the watch event with which the Machine has HealthCheckSucceeded=True again. The benchmark watches hosts, nodes, remediations and
  machines. *The host's* is from the annotation to status.poweredOn, which the simulated operator writes; *the kubelet's* from the host
  on to the node Ready. The lines in between are medians of their own, and do not add up to the median of the whole.
- **Calls**: of the manager, in rest_client_requests_total, from before the first to after the last cycle; the MachineHealthCheck's are
  among them, ClusterCache's probes are not.
- **A tenth at once**: the nodes become Unknown at the same time.
- **Memory**: process_resident_memory_bytes of the whole manager.

There is no other contender: CAPM3's controller is not available as a Go module. In an environment like this one, with one machine, it took
25.6 s from Unknown to healthy, measured once by hand and not repeated here; it polls every remediation each 5 s. API servers, etcd, the
simulators and the benchmark share the cores with the manager. There is one run of each.
`
