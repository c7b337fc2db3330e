package observability

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	unreachable  = "KubemendWorkloadClusterUnreachable"
	shortCircuit = "KubemendMachineHealthCheckShortCircuited"
)

// recording is what Prometheus has recorded of several clusters. All its series have the same length.
type recording struct {
	every time.Duration
	lines []string
}

// record adds a series, in the notation of promqltest. There "0x2" means three samples, which is a run of length 3 here.
func (r *recording) record(series string, runs ...run) {
	var values []string
	for _, run := range runs {
		switch {
		case run.value == "_" && run.samples > 0:
			values = append(values, fmt.Sprintf("_x%d", run.samples))
		case run.samples > 0:
			values = append(values, fmt.Sprintf("%sx%d", run.value, run.samples-1))
		}
	}
	r.lines = append(r.lines, series+" "+strings.Join(values, " "))
}

type run struct {
	value   string
	samples int
}

// held returns a run of equal samples; "_" means no sample.
func held(value any, samples int) run { return run{fmt.Sprint(value), samples} }

// leads records a manager that is always the leader.
func (r *recording) leads(all int) {
	r.record(`leader_election_master_status{name="leader.kubemend.io", namespace="kubemend-system", pod="a"}`, held(1, all))
}

// alerts evaluates every rule. By an alert's name and labels it returns the samples at which the alert starts and stops firing.
func (r *recording) alerts(t *testing.T, all int) map[string][]int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load "+r.every.String()+"\n  "+strings.Join(r.lines, "\n  ")+"\n")
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 10_000_000), storage)
	var evaluated []*rules.AlertingRule
	for _, rule := range rulesOf(t) {
		evaluated = append(evaluated, ruleOf(t, rule))
	}
	turns := map[string][]int{}
	for at := range all {
		now := map[string]bool{}
		for _, rule := range evaluated {
			if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(time.Duration(at)*r.every), query, &url.URL{}, 0); err != nil {
				t.Fatal(err)
			}
			for _, alert := range firing(rule) {
				now[strings.Join(slices.DeleteFunc([]string{
					rule.Name(), alert.Labels.Get("namespace"), alert.Labels.Get("cluster"), alert.Labels.Get("name"),
					alert.Labels.Get("reason"),
				}, func(s string) bool { return s == "" }), " ")] = true
			}
		}
		for name := range now {
			if len(turns[name])%2 == 0 {
				turns[name] = append(turns[name], at)
			}
		}
		for name, begun := range turns {
			if !now[name] && len(begun)%2 == 1 {
				turns[name] = append(begun, at)
			}
		}
	}
	return turns
}

// begun counts how often alerts have started to fire.
func begun(turns map[string][]int) int {
	n := 0
	for _, moments := range turns {
		n += (len(moments) + 1) / 2
	}
	return n
}

func clusterLabels(namespace, cluster string) string {
	return fmt.Sprintf("namespace=%q, cluster=%q", namespace, cluster)
}

// site records all metrics of a cluster with three checks: while the cluster is reachable, unreachable, and reachable again. During the
// outage the machines are unknown, so the checks are short-circuited. Requested remediations remain, and power cycles fail as far as they
// need the cluster.
func (r *recording) site(namespace, cluster string, before, outage, after int) {
	all, label := before+outage+after, clusterLabels(namespace, cluster)
	r.record("kubemend_workload_cluster_reachable{"+label+"}", held(1, before), held(0, outage), held(1, after))
	for _, check := range []string{"control-plane", "workers", "gpu"} {
		label := label + fmt.Sprintf(", name=%q", cluster+"-"+check)
		late := min(5, after) // until kubemend has read and judged the nodes again
		r.record("kubemend_machinehealthcheck_short_circuited{"+label+"}", held(0, before), held(1, outage+late), held(0, after-late))
		r.record("kubemend_machinehealthcheck_targets{"+label+`, state="unknown"}`,
			held(0, before), held(20, outage+late), held(0, after-late))
		r.record("kubemend_machinehealthcheck_targets{"+label+`, state="unhealthy"}`, held(1, all))
		r.record("kubemend_remediations_in_flight{"+label+"}", held(1, before+outage+late), held(0, after-late))
		r.record("kubemend_remediations_finished_total{"+label+`, kind="HostRemediation", result="recovered"}`,
			held(3, before+outage+late), held(4, after-late))
		r.record("kubemend_remediation_request_oldest_timestamp_seconds{"+label+"}", held(60, before+outage+late), held(0, after-late))
	}
	host := label + `, kind="HostRemediation"`
	r.record("kubemend_host_remediations_stuck{"+host+"}", held(0, all))
	r.record("kubemend_host_remediations_waiting_for_person{"+host+`, reason="ClusterUnreachable"}`,
		held("_", before), held("_", 4), held(1, outage-4), held("_", after))
	r.record("kubemend_host_remediation_attempts_unfenced_total{"+host+`, reason="ClusterUnreachable"}`,
		held("_", before), held("_", 2), held(1, outage-2+after))
}

// fleet records 40 clusters behind one uplink. Each name exists in two namespaces.
func (r *recording) fleet(before, outage, after int) {
	for i := range 40 {
		r.site([]string{"east", "west"}[i%2], fmt.Sprintf("site-%02d", i/2), before, outage, after)
	}
}

func TestALostUplinkIsOneAlertForEachClusterBehindIt(t *testing.T) {
	for name, row := range map[string]struct {
		every                 time.Duration
		before, outage, after int
	}{
		"for half an hour": {time.Minute, 30, 30, 150},
		"for five hours":   {time.Minute, 30, 300, 200},
		"for fifty hours":  {5 * time.Minute, 12, 50 * 12, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, all := &recording{every: row.every}, row.before+row.outage+row.after
			r.leads(all)
			r.fleet(row.before, row.outage, row.after)
			// An alert with another cause still fires, during the outage and after it: here for a check whose machines stay unhealthy.
			r.record(`kubemend_machinehealthcheck_short_circuited{`+clusterLabels("east", "site-07")+`, name="storage"}`,
				held(0, row.before), held(1, row.outage+row.after))
			turns := r.alerts(t, all)
			quarter := int(15 * time.Minute / row.every)
			for alert, at := range turns {
				switch {
				case strings.HasPrefix(alert, unreachable+" "):
					if want := []int{row.before + quarter, row.before + row.outage}; !slices.Equal(at, want) {
						t.Errorf("%s fires, and stops, at %v; want %v", alert, at, want)
					}
				case alert == shortCircuit+" east site-07 storage":
					if want := []int{row.before + row.outage + 2*quarter}; !slices.Equal(at, want) {
						t.Errorf("%s fires, and stops, at %v; want %v, half an hour after the cluster was found again", alert, at, want)
					}
				default:
					t.Errorf("%s fires, and stops, at %v; want it silent", alert, at)
				}
			}
			if n := begun(turns); n != 41 {
				t.Errorf("alerts begin to fire %d times, want 41: one for each cluster, and the check", n)
			}
		})
	}
}

// Only alerts of the unreachable cluster are silent. Alerts of a cluster with the same name in another namespace, or of another cluster in
// the same namespace, are not.
func TestAnOutageSilencesNoAlertOfAReachableCluster(t *testing.T) {
	t.Parallel()
	const all = 52 * 12 // of five minutes
	r := &recording{every: 5 * time.Minute}
	r.leads(all)
	r.site("east", "c1", 12, all-12, 0)
	for _, where := range [][2]string{{"west", "c1"}, {"east", "c2"}} {
		label, n := clusterLabels(where[0], where[1]), all
		check, host := label+`, name="workers"`, label+`, kind="HostRemediation"`
		r.record("kubemend_workload_cluster_reachable{"+label+"}", held(1, n))
		r.record("kubemend_machinehealthcheck_short_circuited{"+check+"}", held(1, n))
		r.record("kubemend_remediations_in_flight{"+check+"}", held(1, n))
		r.record("kubemend_remediation_request_oldest_timestamp_seconds{"+check+"}", held(60, n))
		r.record("kubemend_host_remediations_waiting_for_person{"+host+`, reason="ClusterUnreachable"}`, held(1, n))
		r.record("kubemend_host_remediation_attempts_unfenced_total{"+host+`, reason="ClusterUnreachable"}`, held(1, 10), held(2, n-10))
	}
	// This cluster has power cycles but no MachineHealthCheck, so no alert about the cluster exists.
	r.record("kubemend_host_remediations_waiting_for_person{"+clusterLabels("east", "c3")+
		`, kind="HostRemediation", reason="ClusterUnreachable"}`, held(1, all))
	want := []string{unreachable + " east c1", "KubemendHostNeedsPerson east c3 ClusterUnreachable"}
	for _, where := range []string{"west c1", "east c2"} {
		want = append(want, shortCircuit+" "+where+" workers", "KubemendMachineRemediationStuck "+where+" workers",
			"KubemendRemediationRequestOld "+where+" workers",
			"KubemendHostNeedsPerson "+where+" ClusterUnreachable", "KubemendFencingImpossible "+where+" ClusterUnreachable")
	}
	turns := r.alerts(t, all)
	if got := slices.Sorted(maps.Keys(turns)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("these fire:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(slices.Sorted(slices.Values(want)), "\n"))
	}
	for alert, at := range turns {
		if len(at) > 1 && !strings.HasPrefix(alert, "KubemendFencingImpossible") {
			t.Errorf("%s stops although nothing ended: %v", alert, at)
		}
	}
}

// apart are the alerts about a cluster that fire whether or not it is reachable, with the reason.
var apart = map[string]string{
	unreachable: "it is the one",

	"KubemendMachineHealthCheckUnattended": "who acts on a check does not depend on it",
	"KubemendClusterPartlyClaimed":         "who acts on a check does not depend on it",
	"KubemendRemediationLoop":              "a host, and what a provider cannot make, fail without it; an outage begins no remediation",
	"KubemendManagerStuck":                 "a check of an unreachable cluster is reconciled as well",
}

// A new alert about a cluster has to consider whether the cluster is reachable, or be listed in apart.
func TestEveryAlertOfAClusterAsksWhetherItIsReachable(t *testing.T) {
	k := exported(t)
	asking := 0
	for _, r := range rulesOf(t) {
		parsed, err := promQL.ParseExpr(r.Expr)
		mustDo(t, err)
		ofCluster := false
		for _, matchers := range parser.ExtractSelectors(parsed) {
			for _, m := range matchers {
				ofCluster = ofCluster || m.Name == "__name__" && k[m.Value]["cluster"]
			}
		}
		asks := strings.Contains(r.Expr, "unless on (namespace, cluster)") &&
			strings.Contains(r.Expr, "kubemend_workload_cluster_reachable")
		switch {
		case ofCluster && !asks && apart[r.Alert] == "":
			t.Errorf("%s is about something of a cluster, and does not ask whether that is reachable", r.Alert)
		case asks:
			asking++
		}
	}
	if asking < 5 {
		t.Errorf("%d alerts ask whether a cluster is reachable, want five", asking)
	}
}
