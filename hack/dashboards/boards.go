package main

import (
	"fmt"
	"strings"
)

// Parts of expressions that several boards use.
const (
	namespaces = `label_values(kubemend_workload_cluster_reachable, namespace)`
	inCluster  = `namespace=~"$namespace", cluster=~"$cluster"`
	ofCheck    = `namespace=~"$namespace", cluster=~"$cluster", name="$check"`
	half       = columns / 2
	third      = columns / 3
)

// none makes an expression return 0 instead of nothing.
func none(expr string) string { return expr + " or vector(0)" }

// grown returns by how much a counter has grown in a minute. A counter that has just appeared counts from zero, which increase() ignores.
func grown(by, counter string) string {
	return fmt.Sprintf("sum by (%[1]s) ((%[2]s unless %[2]s offset 1m) or increase(%[2]s[1m])) > 0", by, counter)
}

// slowest returns the 99th percentile of a histogram.
func slowest(metric, by string) string {
	return fmt.Sprintf("histogram_quantile(0.99, sum by (%s) (rate(%s_bucket[$__rate_interval])))", by, metric)
}

// nineteenOfTwenty returns the 95th percentile of a histogram over a day.
func nineteenOfTwenty(metric, by string) string {
	return fmt.Sprintf("histogram_quantile(0.95, sum by (le, %s) (rate(%s_bucket[1d])))", by, metric)
}

// mean returns the mean of a histogram over a day.
func mean(metric, by string) string {
	return fmt.Sprintf("sum by (%[2]s) (rate(%[1]s_sum[1d])) / sum by (%[2]s) (rate(%[1]s_count[1d]))", metric, by)
}

// clusters has one row for each cluster.
func clusters() panel {
	return table("Clusters", "Unreachable clusters come first.", half,
		query{`1 - min by (namespace, cluster) (kubemend_workload_cluster_reachable{` + inCluster + `})`, "out of reach"},
		query{`sum by (namespace, cluster) (max by (namespace, name, cluster) (kubemend_machinehealthcheck_short_circuited{` + inCluster + `}))`,
			"short-circuited checks"},
		query{`sum by (namespace, cluster) (max by (namespace, name, cluster) (kubemend_machinehealthcheck_targets{state="unhealthy", ` + inCluster + `}))`,
			"unhealthy machines"},
		query{`sum by (namespace, cluster) (max by (namespace, name, cluster) (kubemend_remediations_in_flight{` + inCluster + `}))`, "in flight"},
		query{`sum by (namespace, cluster) (max by (namespace, cluster, reason) (kubemend_capacity_missing{` + inCluster + `}))`, "missing capacity"})
}

// needsPerson counts the reasons of the alerts KubemendHostNeedsPerson, KubemendHostRemediationStuck, KubemendHostExhausted and
// KubemendCapacityNotBack. A Machine whose owner cannot replace it counts at once. Other missing capacity counts after an hour, like in the
// last of these alerts.
func needsPerson() panel {
	const waiting, missing = "kubemend_host_remediations_waiting_for_person", "kubemend_capacity_missing"
	counts := []string{
		`sum(max by (namespace, cluster, kind, reason) (` + waiting + `{reason!~"ClusterUnreachable|HostSwitchedOff", ` + inCluster + `}))`,
		`sum(max by (namespace, cluster, kind, reason) (` + waiting + `{reason="ClusterUnreachable", ` + inCluster + `})` +
			` unless on (namespace, cluster) min by (namespace, cluster) (kubemend_workload_cluster_reachable) == 0)`,
		`sum(max by (namespace, kind) (kubemend_host_remediations_stuck{namespace=~"$namespace"}))`,
		`count(max by (namespace, name) (kubemend_host_exhausted{namespace=~"$namespace"}) == 1)`,
		`sum(max by (namespace, cluster, reason) (` + missing + `{reason=~"CannotBeRemediated|NoOwner", ` + inCluster + `}))`,
		`count(time() - min by (namespace, cluster) (` + missing + `_oldest_timestamp_seconds{reason!~"Paused|CannotBeRemediated|NoOwner", ` +
			inCluster + `}) > 3600 unless on (namespace, cluster)` +
			` max by (namespace, cluster) (max_over_time(kubemend_workload_cluster_reachable[15m])) == 0)`,
	}
	for i := range counts {
		counts[i] = "(" + none(counts[i]) + ")"
	}
	return number("Needs a person", "Power cycles that wait for a person or are stuck, hosts out of service, Machines that their owner cannot "+
		"replace, and clusters whose capacity is not back after an hour. Hosts that their owners have switched off do not count.",
		strings.Join(counts, " + "), true)
}

func fleet() dashboard {
	d := board("fleet", "Fleet", "What kubemend sees, does, and is kept from doing, in all clusters. The orange marks are remediations begun, by the "+
		"counters of started remediations: Prometheus knows when, and kubectl get remediationrecords which machine or node.",
		[]variable{
			anyOf("namespace", "Namespace", namespaces),
			anyOf("cluster", "Cluster", `label_values(kubemend_workload_cluster_reachable{namespace=~"$namespace"}, cluster)`),
		},
		row{"Now", []panel{
			needsPerson(),
			number("Unreachable clusters", "Their nodes are not judged.",
				none(`count(min by (namespace, cluster) (kubemend_workload_cluster_reachable{`+inCluster+`}) == 0)`), true),
			number("Short-circuited MachineHealthChecks", "Too many machines are not healthy, or the limits are impossible.",
				none(`count(max by (namespace, name, cluster) (kubemend_machinehealthcheck_short_circuited{`+inCluster+`}) == 1)`), true),
			number("MachineHealthChecks without a controller", "Paused, without a Cluster, or claimed and of no shard.",
				none(`count((max by (namespace, name, cluster) (kubemend_machinehealthcheck_mode{mode=~"paused|none", `+inCluster+`}) == 1)`+
					` unless on (namespace, name) (max by (namespace, name) (kubemend_machinehealthcheck_mode{mode="acting"}) == 1))`), true),
			number("Short-circuited NodeHealthChecks", "Whatever the reason is.",
				none(`count(max by (name) (kubemend_nodehealthcheck_short_circuited) == 1)`), true),
			number("Remediations of machines in flight", "",
				none(`sum(max by (namespace, name, cluster) (kubemend_remediations_in_flight{`+inCluster+`}))`), false),
			number("Hosts kept powered off", "", none(`sum(max by (namespace, kind) (kubemend_hosts_kept_powered_off{namespace=~"$namespace"}))`), false),
			number("Hosts out of service", "Marked as unhealthy: repair them.",
				none(`count(max by (namespace, name) (kubemend_host_exhausted{namespace=~"$namespace"}) == 1)`), true),
			clusters(),
			list("Firing alerts", "", half, `ALERTS{alertname=~"Kubemend.*", alertstate="firing"}`),
		}},
		machinesAndNodes(),
		row{"Hosts", []panel{
			course("Power cycles under way", "By state.", "none", third,
				query{`sum by (state) (max by (namespace, kind, state) (kubemend_host_remediations{namespace=~"$namespace"}))`, "{{state}}"}),
			course("Power cycles over, per hour", "By result.", "none", third,
				query{`sum by (result) (rate(kubemend_host_remediations_finished_total{namespace=~"$namespace"}[1h])) * 3600`, "{{result}}"}),
			course("Time in a state", "99 of 100 are faster.", "s", third,
				query{slowest("kubemend_host_remediation_state_duration_seconds", "le, state"), "{{state}}"}),
		}},
		row{"The manager", []panel{
			list("Kinds", "1 if a kind is served; the reason says why not.", third, `max by (kind, reason) (kubemend_kind_served)`),
			course("Reconcile errors, per second", "By controller.", "none", third,
				query{
					`sum by (controller) (rate(controller_runtime_reconcile_errors_total{controller=~"` + controllers + `"}[$__rate_interval]))`,
					"{{controller}}",
				}),
			course("Workqueue depth", "By controller.", "none", third,
				query{`sum by (controller) (workqueue_depth{controller=~"` + controllers + `"})`, "{{controller}}"}),
		}},
	)
	d.Annotations.List = []annotation{
		event("Remediation begun", grown("namespace, cluster, kind", `kubemend_remediations_started_total{`+inCluster+`}`),
			"{{namespace}}/{{cluster}} {{kind}}"),
		event("Remediation of a node begun", grown("name, kind", "kubemend_nodehealthcheck_remediations_started_total"), "{{name}} {{kind}}"),
	}
	return d
}

// machinesAndNodes has panels about the targets of checks and the results of remediations.
func machinesAndNodes() row {
	return row{"Machines and nodes", []panel{
		course("Machines by state", "Of all that MachineHealthChecks watch.", "none", half,
			query{`sum by (state) (max by (namespace, name, cluster, state) (kubemend_machinehealthcheck_targets{` + inCluster + `}))`, "{{state}}"}),
		course("MachineHealthChecks by controller", "acting is kubemend; observing and core are Cluster API core.", "none", half,
			query{`count by (mode) (max by (namespace, name, cluster, mode) (kubemend_machinehealthcheck_mode{` + inCluster + `}) == 1)`, "{{mode}}"}),
		course("Nodes by state", "Of all that NodeHealthChecks watch.", "none", half,
			query{`sum by (state) (max by (name, state) (kubemend_nodehealthcheck_targets))`, "{{state}}"}),
		course("Remediations begun and over, per hour", "By kind and result.", "none", half,
			query{`sum by (kind) (rate(kubemend_remediations_started_total{` + inCluster + `}[1h])) * 3600`, "begun: {{kind}}"},
			query{`sum by (result) (rate(kubemend_remediations_finished_total{` + inCluster + `}[1h])) * 3600`, "{{result}}"},
			query{`sum by (result) (rate(kubemend_nodehealthcheck_remediations_finished_total[1h])) * 3600`, "nodes: {{result}}"}),
		course("Missing capacity", "Remediations begun whose machine is not back, by what they wait for.", "none", half,
			query{`sum by (reason) (max by (namespace, cluster, reason) (kubemend_capacity_missing{` + inCluster + `}))`, "{{reason}}"}),
		course("Time from due to begun", "95th percentile and mean, by remediator.", "s", half,
			query{nineteenOfTwenty("kubemend_remediation_due_to_begun_seconds", "remediator"), "{{remediator}}: 95%"},
			query{mean("kubemend_remediation_due_to_begun_seconds", "remediator"), "{{remediator}}: mean"}),
		course("Time from due to capacity back", "95th percentile and mean, by cause.", "s", half,
			query{nineteenOfTwenty("kubemend_remediation_due_to_capacity_seconds", "cause"), "{{cause}}: 95%"},
			query{mean("kubemend_remediation_due_to_capacity_seconds", "cause"), "{{cause}}: mean"}),
		course("Time waited for capacity, per day", "Of remediations that have ended.", "s", half,
			query{`sum by (reason) (rate(kubemend_capacity_waited_seconds_total[1d])) * 86400`, "{{reason}}"}),
		course("Time from due to acted", "99 of 100 are faster: how late kubemend itself is.", "s", half,
			query{slowest("kubemend_remediation_due_to_acted_seconds", "le"), "machines"},
			query{slowest("kubemend_nodehealthcheck_due_to_acted_seconds", "le"), "nodes"}),
	}}
}

// controllers matches the names of kubemend's controllers, because other managers export the same metrics.
const controllers = "machinehealthcheck.*|nodehealthcheck|remediationrecord|serving|metal3remediation|hostremediation"

func check() dashboard {
	return board("check", "Check", "One MachineHealthCheck, or one NodeHealthCheck: what it watches, what it allows, what it has done.",
		[]variable{
			anyOf("namespace", "Namespace", `label_values(kubemend_machinehealthcheck_targets, namespace)`),
			anyOf("cluster", "Cluster", `label_values(kubemend_machinehealthcheck_targets{namespace=~"$namespace"}, cluster)`),
			oneOf("check", "MachineHealthCheck", `label_values(kubemend_machinehealthcheck_targets{namespace=~"$namespace", cluster=~"$cluster"}, name)`),
			oneOf("nodecheck", "NodeHealthCheck", `label_values(kubemend_nodehealthcheck_targets, name)`),
		},
		row{"MachineHealthCheck $check", []panel{
			number("Short-circuited", "Its condition RemediationAllowed has the sum.", `max(kubemend_machinehealthcheck_short_circuited{`+ofCheck+`})`, true),
			number("In flight", "Remediations begun and not over.", `max(kubemend_remediations_in_flight{`+ofCheck+`})`, false),
			value("Remediations that its limits allow", "From its status.",
				`max(capi_machinehealthcheck_status_remediations_allowed{`+ofCheckState+`})`, "none"),
			value("Next deadline in", "When time alone makes a machine unhealthy.",
				`min(kubemend_machinehealthcheck_next_deadline_timestamp_seconds{`+ofCheck+`} > 0) - time()`, "s"),
			value("Oldest request", "How old it is.", `time() - min(kubemend_remediation_request_oldest_timestamp_seconds{`+ofCheck+`} > 0)`, "s"),
			value("Healthy", "From its status.",
				`max(capi_machinehealthcheck_status_current_healthy{`+ofCheckState+`})`+
					` / max(capi_machinehealthcheck_status_expected_machines{`+ofCheckState+`})`,
				"percentunit"),
			course("Machines by state", "", "none", half, query{`max by (state) (kubemend_machinehealthcheck_targets{` + ofCheck + `})`, "{{state}}"}),
			course("Remediations, per hour", "By kind and result.", "none", half,
				query{`sum by (kind) (rate(kubemend_remediations_started_total{` + ofCheck + `}[1h])) * 3600`, "begun: {{kind}}"},
				query{`sum by (result) (rate(kubemend_remediations_finished_total{` + ofCheck + `}[1h])) * 3600`, "{{result}}"}),
			states("Conditions", "1 while a condition is true.", columns,
				query{`max by (type) (capi_machinehealthcheck_status_condition{` + ofCheckState + `, status="True"})`, "{{type}}"}),
		}},
		row{"NodeHealthCheck $nodecheck", []panel{
			number("Short-circuited", "Its condition RemediationAllowed has the reason.",
				`max(kubemend_nodehealthcheck_short_circuited{name="$nodecheck"})`, true),
			number("Nodes under remediation", "", `max(kubemend_nodehealthcheck_remediations_in_flight{name="$nodecheck"})`, false),
			value("Next deadline in", "When time alone makes a node unhealthy.",
				`min(kubemend_nodehealthcheck_next_deadline_timestamp_seconds{name="$nodecheck"} > 0) - time()`, "s"),
			value("Oldest request", "How old it is.",
				`time() - min(kubemend_nodehealthcheck_request_oldest_timestamp_seconds{name="$nodecheck"} > 0)`, "s"),
			value("Healthy", "From its status.",
				`max(capi_nodehealthcheck_status_healthy_nodes{name="$nodecheck"}) / max(capi_nodehealthcheck_status_observed_nodes{name="$nodecheck"})`,
				"percentunit"),
			course("Nodes by state", "", "none", third, query{`max by (state) (kubemend_nodehealthcheck_targets{name="$nodecheck"})`, "{{state}}"}),
			course("Remediations, per hour", "By kind and result.", "none", third,
				query{`sum by (kind) (rate(kubemend_nodehealthcheck_remediations_started_total{name="$nodecheck"}[1h])) * 3600`, "begun: {{kind}}"},
				query{`sum by (result) (rate(kubemend_nodehealthcheck_remediations_finished_total{name="$nodecheck"}[1h])) * 3600`, "{{result}}"}),
			states("Phase", "", third, query{`max by (phase) (capi_nodehealthcheck_status_phase{name="$nodecheck"})`, "{{phase}}"}),
			list("Unhealthy nodes", "From its status.", half, `max by (node) (capi_nodehealthcheck_status_unhealthy_node{name="$nodecheck"})`),
			states("Conditions", "1 while a condition is true.", half,
				query{`max by (type) (capi_nodehealthcheck_status_condition{name="$nodecheck", status="True"})`, "{{type}}"}),
		}},
	)
}

// ofCheckState is ofCheck for metrics of kube-state-metrics, which have another name for the label of the cluster.
const ofCheckState = `namespace=~"$namespace", cluster_name=~"$cluster", name="$check"`

const theHost = `capi_hostremediation_status_host{namespace=~"$namespace", cluster_name=~"$cluster", host="$host"}`

// ofHost selects the series of the host from a metric of kube-state-metrics about HostRemediations, whose status names the host.
func ofHost(metric string) string {
	return fmt.Sprintf("%s * on (namespace, name, uid) group_left (host) %s", metric, theHost)
}

func host() dashboard {
	const held = `kubemend_hosts_kept_powered_off_oldest_timestamp_seconds{namespace=~"$namespace"}`
	return board("host", "Host", "One BareMetalHost and its HostRemediations, by kube-state-metrics; and what goes on in its namespace.",
		[]variable{
			anyOf("namespace", "Namespace", `label_values(kubemend_host_remediation_attempts_total, namespace)`),
			anyOf("cluster", "Cluster", `label_values(capi_hostremediation_status_host{namespace=~"$namespace"}, cluster_name)`),
			oneOf("host", "Host", `label_values(capi_hostremediation_status_host{namespace=~"$namespace", cluster_name=~"$cluster"}, host)`),
		},
		row{"Host $host", []panel{
			number("Out of service", "Marked as unhealthy: repair it.",
				none(`max(kubemend_host_exhausted{namespace=~"$namespace", name="$host"})`), true),
			value("Attempt", "", `max by (name) (`+ofHost("capi_hostremediation_status_attempt")+`)`, "none"),
			value("Attempts allowed", "", `max by (name) (`+ofHost("capi_hostremediation_spec_strategy_retry_limit")+`) + 1`, "none"),
			value("Time left for the step", "When it ends, from now.", `min by (name) (`+ofHost("capi_hostremediation_status_deadline")+`) - time()`, "s"),
			value("Attempt began", "How long ago.", `time() - max by (name) (`+ofHost("capi_hostremediation_status_started")+`)`, "s"),
			value("Remediation made", "How long ago.", `time() - max by (name) (`+ofHost("capi_hostremediation_created")+`)`, "s"),
			list("Remediations of this host", "And the step that each is at.", half,
				`max by (namespace, name, step, cluster_name) (`+theHost+`)`),
			states("Phase", "", half, query{`max by (name, phase) (` + ofHost("capi_hostremediation_status_phase") + `)`, "{{name}}: {{phase}}"}),
			states("Conditions", "1 while a condition is true: what is behind it.", columns,
				query{`max by (name, type) (` + ofHost(`capi_hostremediation_status_condition{status="True"}`) + `)`, "{{name}}: {{type}}"}),
		}},
		row{"All hosts of the namespace", []panel{
			course("Hosts kept powered off", "", "none", third,
				query{`sum by (namespace) (max by (namespace, kind) (kubemend_hosts_kept_powered_off{namespace=~"$namespace"}))`, "{{namespace}}"}),
			course("The longest that one is kept powered off", "", "s", third,
				query{`time() - min by (namespace, kind) (` + held + `)`, "{{namespace}}: {{kind}}"}),
			course("Stuck", "Past their deadline, and refused what they ask for.", "none", third,
				query{`max by (namespace, kind) (kubemend_host_remediations_stuck{namespace=~"$namespace"})`, "{{namespace}}: {{kind}}"}),
			course("Attempts, per hour", "", "none", third,
				query{
					`sum by (namespace, kind) (rate(kubemend_host_remediation_attempts_total{namespace=~"$namespace"}[1h])) * 3600`, "{{namespace}}: {{kind}}",
				}),
			course("Attempts that fenced no node, per hour", "By reason.", "none", third,
				query{`sum by (reason) (rate(kubemend_host_remediation_attempts_unfenced_total{namespace=~"$namespace"}[1h])) * 3600`, "{{reason}}"}),
			course("Fences that stayed, per day", "", "none", third,
				query{`sum by (namespace) (increase(kubemend_host_fences_left_total{namespace=~"$namespace"}[1d]))`, "{{namespace}}"}),
		}},
	)
}
