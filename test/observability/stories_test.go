package observability

import (
	"strings"
	"time"
)

// flaps are the samples of a cluster that is lost for ten minutes in every twenty. It is never unreachable for long, so it silences nothing.
var flaps = strings.Repeat("1x9 0x9 ", 12)

var stories = map[string][]story{
	"KubemendMachineHealthCheckShortCircuited": {
		{
			name:     "a check that starts nothing for half an hour",
			recorded: []string{`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1", pod="a"} 0x9 1x49 0x20`},
			turns:    []time.Duration{40 * time.Minute, 60 * time.Minute}, says: "MachineHealthCheck ns/workers of cluster c1",
		},
		{
			name: "while the leader changes",
			recorded: []string{
				`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1", pod="a"} 1x20 stale`,
				`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1", pod="b"} _x20 1x40`,
			},
			turns: []time.Duration{30 * time.Minute},
		},
		quiet("a check of a cluster that cannot be reached, also by a new leader",
			`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1", pod="a"} 0x59 stale`,
			`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1", pod="b"} _x60 0x59`,
			`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1", pod="a"} 1x59 stale`,
			`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1", pod="b"} _x60 1x59`),
		{
			name: "a check of a cluster that is lost and found: its alert ends as the cluster's begins, and begins half an hour after it",
			recorded: []string{
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x59 0x39 1x59`,
				`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1"} 1x159`,
			},
			turns: []time.Duration{30 * time.Minute, 74 * time.Minute, 130 * time.Minute},
		},
		{
			name: "a check of a cluster that flaps",
			recorded: []string{
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} ` + flaps,
				`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1"} 1x239`,
			},
			turns: []time.Duration{30 * time.Minute},
		},
		quiet("a check that starts nothing whenever its cluster is lost",
			`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} `+flaps,
			`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1"} 0x9 `+flaps),
		quiet("a check that does so for a moment now and then",
			`kubemend_machinehealthcheck_short_circuited{namespace="ns", name="workers", cluster="c1"} 1x20 0x2 1x20 0x2 1x20 0x2`),
	},
	"KubemendMachineHealthCheckUnattended": {
		{
			name: "checks whose Cluster stays paused for hours",
			recorded: []string{
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting"} 1x9 stale _x99 1x30`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="paused"} _x10 1x99 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="control-plane", cluster="c1", mode="observing"} 1x9 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="control-plane", cluster="c1", mode="paused"} _x10 1x99 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="elsewhere", cluster="c2", mode="acting"} 1x140`,
			},
			turns: []time.Duration{70 * time.Minute, 110 * time.Minute}, says: "2 MachineHealthChecks of cluster ns/c1 have no controller",
		},
		{
			name: "a check without a Cluster, whatever a manager of another shard sees, and which replica says so",
			recorded: []string{
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="none", pod="a"} 1x30 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="none", pod="b"} _x30 1x60`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="core", pod="other"} 1x90`,
			},
			turns: []time.Duration{60 * time.Minute}, says: "1 MachineHealthChecks of cluster ns/c1",
		},
		{
			name: "unclaimed checks while Cluster API core does not run",
			recorded: []string{
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="observing"} 1x200`,
				`leader_election_master_status{name="controller-leader-election-capi", namespace="capi-system"} 1x29 stale _x119 1x50`,
			},
			turns: []time.Duration{104 * time.Minute, 150 * time.Minute}, says: "1 MachineHealthChecks of cluster ns/c1",
		},
		quiet("unclaimed checks while core runs",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="observing"} 1x200`,
			`leader_election_master_status{name="controller-leader-election-capi", namespace="capi-system", pod="a"} 1x90 stale`,
			`leader_election_master_status{name="controller-leader-election-capi", namespace="capi-system", pod="b"} 0x95 1x105`),
		quiet("unclaimed checks where core is not scraped", `kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="observing"} 1x200`),
		quiet("a claimed check that is not of another shard",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", pod="a"} 1x200`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="none", pod="b"} 1x200`),
		quiet("a move, which pauses a Cluster for minutes",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting"} 1x30 stale`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="paused"} _x31 1x20 stale`),
	},
	"KubemendClusterPartlyClaimed": {
		{
			name: "a pool that was made after the claims, until it is claimed",
			recorded: []string{
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting"} 1x140`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="gpu", cluster="c1", mode="observing"} _x10 1x79 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="gpu", cluster="c1", mode="acting"} _x90 1x50`,
			},
			turns: []time.Duration{70 * time.Minute, 90 * time.Minute}, says: "1 MachineHealthChecks of cluster ns/c1 are not claimed",
		},
		quiet("a cluster without claims", `kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="observing"} 1x200`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="gpu", cluster="c1", mode="observing"} 1x200`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="elsewhere", cluster="c2", mode="acting"} 1x200`),
		quiet("one of whose checks a user has paused", `kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting"} 1x200`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="gpu", cluster="c1", mode="paused"} 1x200`),
		quiet("one of another shard, which that acts on", `kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", pod="a"} 1x200`,
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="core", pod="b"} 1x200`),
	},
	"KubemendNodeHealthCheckShortCircuited": {
		{
			name: "too many, and then a storm",
			recorded: []string{
				`kubemend_nodehealthcheck_short_circuited{name="nhc", reason=""} 0x4 stale`,
				`kubemend_nodehealthcheck_short_circuited{name="nhc", reason="TooManyUnhealthy"} _x5 1x14 stale`,
				`kubemend_nodehealthcheck_short_circuited{name="nhc", reason="StormRecovery"} _x20 1x29 stale`,
				`kubemend_nodehealthcheck_short_circuited{name="nhc", reason=""} _x50 0x10`,
			},
			turns: []time.Duration{35 * time.Minute, 50 * time.Minute}, says: "NodeHealthCheck nhc",
		},
		quiet("one that was paused", `kubemend_nodehealthcheck_short_circuited{name="nhc", reason="PauseRequested"} 1x60`),
		quiet("one that waits for an upgrade", `kubemend_nodehealthcheck_short_circuited{name="nhc", reason="ClusterUpgrading"} 1x60`),
		quiet("one that goes about its work", `kubemend_nodehealthcheck_short_circuited{name="nhc", reason=""} 0x60`),
	},
	"KubemendMachineRemediationStuck": {
		{
			name: "one that never ends",
			recorded: []string{
				`kubemend_remediations_in_flight{namespace="ns", name="workers", cluster="c1"} 0x39 1x149 0x20`,
				`kubemend_remediations_finished_total{namespace="ns", name="workers", cluster="c1", kind="Owner", result="replaced"} 4x189 5x20`,
			},
			turns: []time.Duration{160 * time.Minute, 190 * time.Minute}, says: "ns/workers of cluster c1 has 1 remediations in flight",
		},
		{
			name: "one in a cluster that flaps",
			recorded: []string{
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} ` + flaps,
				`kubemend_remediations_in_flight{namespace="ns", name="workers", cluster="c1"} 1x239`,
			},
			turns: []time.Duration{120 * time.Minute},
		},
		quiet("one after another, each of which ends",
			`kubemend_remediations_in_flight{namespace="ns", name="workers", cluster="c1"} 1x240`,
			`kubemend_remediations_finished_total{namespace="ns", name="workers", cluster="c1", kind="Owner", result="replaced"} 4x60 5x60 6x60 7x60`),
		{
			name: "the first of all that end counts too",
			recorded: []string{
				`kubemend_remediations_in_flight{namespace="ns", name="workers", cluster="c1"} 1x240`,
				`kubemend_remediations_finished_total{namespace="ns", name="workers", cluster="c1", kind="Owner", result="replaced"} _x60 1x181`,
			},
			turns: []time.Duration{210 * time.Minute}, // two hours after the half hour in which it ended
		},
	},
	"KubemendCapacityNotBack": {
		{
			name: "one that waits for another thing each half hour",
			recorded: []string{
				`kubemend_capacity_missing_oldest_timestamp_seconds{namespace="ns", cluster="c1", reason="DrainingNode"} _x10 600x29 stale`,
				`kubemend_capacity_missing_oldest_timestamp_seconds{namespace="ns", cluster="c1", reason="NoHost"} _x40 600x60 stale`,
			},
			turns: []time.Duration{76 * time.Minute, 101 * time.Minute}, says: "cluster ns/c1 a machine or node was to be remediated",
		},
		{
			name:     "one of an object that a user has paused",
			recorded: []string{`kubemend_capacity_missing_oldest_timestamp_seconds{namespace="ns", cluster="c1", reason="ObjectPaused"} 0x89 stale`},
			turns:    []time.Duration{66 * time.Minute, 90 * time.Minute},
		},
		quiet("one after another, each of which ends",
			`kubemend_capacity_missing_oldest_timestamp_seconds{namespace="ns", cluster="c1", reason="Booting"} 0x50 3000x50 6000x50 9000x50`),
		quiet("a Cluster that is paused",
			`kubemend_capacity_missing_oldest_timestamp_seconds{namespace="ns", cluster="c1", reason="Paused"} 0x300`),
	},
	"KubemendRemediationLoop": {
		{
			name:     "a third remediation, until it lasts",
			recorded: []string{`kubemend_remediation_loop{namespace="ns", cluster="c1", kind="BareMetalHost", name="host-7"} _x10 2x9 3x39 stale`},
			turns:    []time.Duration{20 * time.Minute, time.Hour}, says: "BareMetalHost ns/host-7 was remediated 3 times",
		},
		quiet("a second one", `kubemend_remediation_loop{namespace="ns", cluster="c1", kind="MachineSet", name="workers"} 2x300`),
	},
	"KubemendNodeRemediationStuck": {
		{
			name: "one that never ends",
			recorded: []string{
				`kubemend_nodehealthcheck_remediations_in_flight{name="nhc"} 0x39 2x149 0x20`,
				`kubemend_nodehealthcheck_remediations_finished_total{name="nhc", result="recovered"} 4x210`,
			},
			turns: []time.Duration{160 * time.Minute, 190 * time.Minute}, says: "NodeHealthCheck nhc has 2 nodes",
		},
		quiet("one after another, each of which ends",
			`kubemend_nodehealthcheck_remediations_in_flight{name="nhc"} 1x240`,
			`kubemend_nodehealthcheck_remediations_finished_total{name="nhc", result="recovered"} _x60 1x60 2x60 3x60`),
	},
	"KubemendHostRemediationStuck": {
		{
			name:     "a release that is refused",
			recorded: []string{`kubemend_host_remediations_stuck{namespace="ns", kind="HostRemediation"} 0x9 1x19 0x10`},
			turns:    []time.Duration{15 * time.Minute, 30 * time.Minute}, says: "1 HostRemediations in ns",
		},
		quiet("none", `kubemend_host_remediations_stuck{namespace="ns", kind="HostRemediation"} 0x30`),
	},
	"KubemendHostNeedsPerson": {
		{
			name:     "until the person has come",
			recorded: []string{`kubemend_host_remediations_waiting_for_person{namespace="ns", cluster="c1", kind="HostRemediation", reason="OperatorSilent"} _x10 1x19 stale`},
			turns:    []time.Duration{15 * time.Minute, 30 * time.Minute}, says: "1 HostRemediations of cluster ns/c1 wait for a person: OperatorSilent",
		},
		quiet("a host that its owner has switched off", `kubemend_host_remediations_waiting_for_person{namespace="ns", cluster="c1", kind="HostRemediation", reason="HostSwitchedOff"} 1x60`),
		quiet("what continues without a person", `kubemend_host_remediations_waiting_for_person{namespace="ns", cluster="c1", kind="HostRemediation", reason="OperatorSilent"} 1x2 stale`),
	},
	"KubemendHostKeptOffTooLong": {
		{
			name: "one that was asked to power off ten minutes after midnight",
			recorded: []string{
				`kubemend_hosts_kept_powered_off_oldest_timestamp_seconds{namespace="ns", kind="HostRemediation"} _x10 600x89 stale`,
			},
			turns: []time.Duration{76 * time.Minute, 100 * time.Minute}, says: "A host in ns has been kept powered off by a HostRemediation",
		},
		quiet("one after another", `kubemend_hosts_kept_powered_off_oldest_timestamp_seconds{namespace="ns", kind="HostRemediation"} 0x40 2400x40 4800x40`),
	},
	"KubemendHostExhausted": {
		{
			name:     "one that is repaired in the end",
			recorded: []string{`kubemend_host_exhausted{namespace="ns", name="host-1"} _x5 1x39 stale`},
			turns:    []time.Duration{20 * time.Minute, 45 * time.Minute}, says: "BareMetalHost ns/host-1",
		},
		quiet("one whose mark is removed", `kubemend_host_exhausted{namespace="ns", name="host-1"} 1x10 stale`),
	},
	"KubemendFencingImpossible": {
		{
			name:     "the first time",
			recorded: []string{`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="PowerOffTimedOut", pod="a"} _x10 1x120`},
			turns:    []time.Duration{10 * time.Minute, 70 * time.Minute}, says: "1 attempts of HostRemediations of cluster ns/c1 could not fence their node: PowerOffTimedOut",
		},
		{
			name:     "another time",
			recorded: []string{`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="PowerOffTimedOut", pod="a"} 3x99 4x120`},
			// At first too: a Prometheus that has just been started takes all that there is for new.
			turns: []time.Duration{0, 60 * time.Minute, 100 * time.Minute, 159 * time.Minute},
		},
		{
			name: "by a new leader",
			recorded: []string{
				`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="PowerOffTimedOut", pod="a"} _x5 3x99 stale`,
				`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="PowerOffTimedOut", pod="b"} _x105 1x10`,
			},
			turns: []time.Duration{5 * time.Minute, 65 * time.Minute, 105 * time.Minute},
		},
		{
			name: "for an outage that ends before the cluster's alert fires",
			recorded: []string{
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x59 0x14 1x74`,
				`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="ClusterUnreachable"} _x63 1x86`,
			},
			turns: []time.Duration{75 * time.Minute, 123 * time.Minute},
		},
		quiet("for an outage that is the cluster's alert",
			`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x59 0x15 1x73`,
			`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="ClusterUnreachable"} _x63 1x86`),
		quiet("a host that must not be powered off",
			`kubemend_host_remediation_attempts_unfenced_total{namespace="ns", cluster="c1", kind="HostRemediation", reason="PowerOffDisabled"} _x10 1x60`),
	},
	"KubemendTaintLeft": {
		{
			name: "one stays", every: 10 * time.Minute,
			recorded: []string{`kubemend_host_fences_left_total{namespace="ns", kind="Metal3Remediation"} _x6 1x200`},
			turns:    []time.Duration{time.Hour, 25 * time.Hour}, says: "1 Metal3Remediations in ns",
		},
	},
	"KubemendRemediationRequestOld": {
		{
			name: "of a machine", every: 30 * time.Minute,
			recorded: []string{`kubemend_remediation_request_oldest_timestamp_seconds{namespace="ns", name="workers", cluster="c1"} 0x1 3600x120 0x5`},
			turns:    []time.Duration{50*time.Hour + 30*time.Minute, 61*time.Hour + 30*time.Minute}, says: "A remediation request of health check workers is 2d",
		},
		{
			name: "of a node", every: 30 * time.Minute,
			recorded: []string{`kubemend_nodehealthcheck_request_oldest_timestamp_seconds{name="nhc"} 0x1 3600x120 0x5`},
			turns:    []time.Duration{50*time.Hour + 30*time.Minute, 61*time.Hour + 30*time.Minute}, says: "A remediation request of health check nhc is 2d",
		},
		{
			name: "none", every: time.Hour,
			recorded: []string{`kubemend_nodehealthcheck_request_oldest_timestamp_seconds{name="nhc"} 0x60`}, turns: []time.Duration{},
		},
	},
	"KubemendWorkloadClusterUnreachable": {
		{
			name:     "one that is gone for half an hour",
			recorded: []string{`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x9 0x29 1x10`},
			turns:    []time.Duration{25 * time.Minute, 40 * time.Minute}, says: "Cluster ns/c1",
		},
		{
			name: "one that is lost and found again", every: 5 * time.Minute,
			recorded: []string{`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x3 0 0 1 1 0 0 1 1 0 0 1x40`},
			turns:    []time.Duration{55 * time.Minute, 95 * time.Minute}, says: "lost and found again",
		},
		{
			name: "one that a new leader cannot reach either, after an hour without a leader, and the next one",
			recorded: []string{
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1", pod="a"} 1x29 0x29 stale`,
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1", pod="b"} _x120 0x59 stale`,
				`kubemend_workload_cluster_reachable{namespace="ns", cluster="c1", pod="c"} _x180 0x59`,
			},
			turns: []time.Duration{45 * time.Minute, 60 * time.Minute, 135 * time.Minute},
		},
		quiet("one that misses a few probes", `kubemend_workload_cluster_reachable{namespace="ns", cluster="c1"} 1x9 0x9 1x20`),
	},
	"KubemendKindNotServed": {
		{
			name: "one that could not be started",
			recorded: []string{
				`kubemend_kind_served{kind="hostremediations.kubemend.io", reason="Failed"} 0x29 stale`,
				`kubemend_kind_served{kind="hostremediations.kubemend.io", reason=""} _x30 1x10`,
			},
			turns: []time.Duration{15 * time.Minute, 30 * time.Minute}, says: "hostremediations.kubemend.io is installed, and its controller does not run: Failed",
		},
		{
			name: "one that waits for others, while there are objects of it",
			recorded: []string{
				`kubemend_kind_served{kind="hostremediations.kubemend.io", reason="Waiting"} 0x60`,
				`capi_hostremediation_info{namespace="ns", name="r"} _x10 1x29 stale`,
			},
			turns: []time.Duration{25 * time.Minute, 40 * time.Minute},
		},
		{
			name: "one that is switched off, while there are objects of it",
			recorded: []string{
				`kubemend_kind_served{kind="nodehealthchecks.remediation.medik8s.io", reason="Off"} 0x60`,
				`capi_nodehealthcheck_info{name="nhc"} 1x60`,
			},
			turns: []time.Duration{15 * time.Minute},
		},
		{
			name: "one that the manager has no rights to, while there are objects of it",
			recorded: []string{
				`kubemend_kind_served{kind="nodehealthchecks.remediation.medik8s.io", reason="Forbidden"} 0x60`,
				`capi_nodehealthcheck_info{name="nhc"} 1x60`,
			},
			turns: []time.Duration{15 * time.Minute},
		},
		quiet("one that waits where there are no hosts", `kubemend_kind_served{kind="hostremediations.kubemend.io", reason="Waiting"} 0x60`),
		quiet("one that others serve, and one that is not installed",
			`kubemend_kind_served{kind="metal3remediations.infrastructure.cluster.x-k8s.io", reason="Foreign"} 0x60`,
			`kubemend_kind_served{kind="nodehealthchecks.remediation.medik8s.io", reason="NotInstalled"} 0x60`),
	},
	"KubemendManagerStuck": {
		{
			name: "a manager that stops to reconcile, until it is started again",
			recorded: []string{
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", instance="a"} 1x119 stale`,
				`controller_runtime_reconcile_total{controller="machinehealthcheck", result="success", instance="a"} 1+1x39 40x79 stale`,
				`controller_runtime_reconcile_total{controller="claims", result="success", instance="a"} 1+1x119 stale`,
				`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", instance="b"} _x120 1x60`,
				`controller_runtime_reconcile_total{controller="machinehealthcheck", result="success", instance="b"} _x120 1x9 2x9 3x40`,
			},
			turns: []time.Duration{83 * time.Minute, 120 * time.Minute}, says: "acts on 1 MachineHealthChecks",
		},
		quiet("one that has just started, and waits for the first resync",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", instance="a"} 1x60`,
			`controller_runtime_reconcile_total{controller="machinehealthcheck", result="success", instance="a"} 5x9 6x9 7x9 8x9 9x9 10x9`),
		quiet("one that acts on no check",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="observing", instance="a"} 1x100`,
			`controller_runtime_reconcile_total{controller="machinehealthcheck", result="success", instance="a"} 5x100`),
		quiet("one whose reconciles fail, which its log and another metric say",
			`kubemend_machinehealthcheck_mode{namespace="ns", name="workers", cluster="c1", mode="acting", instance="a"} 1x100`,
			`controller_runtime_reconcile_total{controller="machinehealthcheck", result="success", instance="a"} 5x100`,
			`controller_runtime_reconcile_total{controller="machinehealthcheck", result="error", instance="a"} 0+1x100`),
	},
	"KubemendManagerClockWrong": {
		{
			name: "a clock that is behind one workload cluster's, until it is set",
			recorded: []string{
				`kubemend_clock_error_seconds{namespace="", cluster="", instance="a"} 0x60`,
				`kubemend_clock_error_seconds{namespace="ns", cluster="c1", instance="a"} 0x9 -600x29 0x21`,
			},
			turns: []time.Duration{15 * time.Minute, 40 * time.Minute}, says: "Cluster ns/c1 differ by 600 seconds",
		},
		quiet("one that is wrong for a moment", `kubemend_clock_error_seconds{namespace="", cluster="", instance="a"} 0x9 600x4 0x50`),
	},
	"KubemendNoLeader": {
		{
			name: "both replicas wait for a lease without a holder",
			recorded: []string{
				`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="a"} 1x9 0x50`,
				`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="b"} 0x29 1x30`,
			},
			turns: []time.Duration{15 * time.Minute, 30 * time.Minute},
		},
		{
			name:     "none is there",
			recorded: []string{`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="a"} 1x9 stale _x19 1x20`},
			turns:    []time.Duration{15 * time.Minute, 30 * time.Minute}, says: "nothing is remediated",
		},
		{
			name: "that of one shard is gone, and the other goes on",
			recorded: []string{
				`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-red", pod="a"} 1x9 stale _x19 1x31`,
				`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-blue", pod="b"} 1x60`,
			},
			turns: []time.Duration{15 * time.Minute, 30 * time.Minute},
		},
		quiet("the lead passes on",
			`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="a"} 1x9 stale`,
			`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="b"} 0x11 1x30`,
			`leader_election_master_status{name="another", namespace="other", pod="c"} 0x50`),
	},
}
