package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/test/golden"
)

// fleet is two clusters in a week: a worker whose host fails again and again, and a cluster of GPUs.
func fleet() []*mendv1.RemediationRecord {
	var records []*mendv1.RemediationRecord
	add := func(machine string, d time.Duration, edits ...edit) {
		records = append(records, one(machine, append([]edit{later(d)}, edits...)...))
	}
	on := func(host, model string) edit {
		return func(r *mendv1.RemediationRecord) { r.Spec.Target.Host.Name, r.Spec.Target.HostModel = host, model }
	}
	gpu := func(r *mendv1.RemediationRecord) {
		r.Spec.Target.ClusterName, r.Spec.Requester.Check.Name = "training-cluster-3", "gpu"
	}
	for i := range 4 {
		add(fmt.Sprintf("workers-%c", 'a'+i), time.Duration(i)*day, on("rack1-07", "ACME R640"))
	}
	add("workers-x", day, on("rack1-08", "ACME R640"), func(r *mendv1.RemediationRecord) { r.Spec.Cause = "KernelDeadlock=True" })
	add("workers-y", 2*day, on("rack1-09", "ACME R650"), func(r *mendv1.RemediationRecord) {
		r.Status.CapacityBack.Time = r.Status.CapacityBack.Add(3 * time.Hour)
	})
	add("workers-z", 6*day, on("rack1-10", "ACME R650"), open)
	add("gpu-a", 3*day, on("rack2-01", "Initech H100"), ended("GivenUp"), gpu)
	add("gpu-b", 3*day, on("rack2-02", "Initech H100"), notBegun, gpu)
	return records
}

// weekOn is when the fleet is reported.
var weekOn = noon.Add(7 * day)

func TestReportsArePrinted(t *testing.T) {
	type story struct {
		by      []string
		width   int
		records []*mendv1.RemediationRecord
	}
	golden.Stories(t, "stories", map[string]story{
		"all at 80 columns":                {nil, 80, fleet()},
		"by cluster at 80 columns":         {[]string{ByCluster}, 80, fleet()},
		"by cluster at 200 columns":        {[]string{ByCluster}, 200, fleet()},
		"by check and cause at 80 columns": {[]string{ByCheck, ByCause}, 80, fleet()},
		"by all at 80 columns":             {Dimensions, 80, fleet()},
		"nothing":                          {[]string{ByCluster}, 80, nil},
	}, func(t *testing.T, s story) string {
		var out strings.Builder
		q := Question{Now: weekOn, Since: weekOn.Add(-14 * day), By: s.by}
		if err := Print(&out, Of(s.records, q), text.Layout{Width: s.width, Wide: s.width > 80, Namespaces: s.width > 80}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); len([]rune(line)) > s.width || strings.TrimRight(line, " ") != line {
				t.Errorf("%d columns, or blanks at the end: %q", len([]rune(line)), line)
			}
		}
		return out.String()
	})
}

func TestReportsForPrograms(t *testing.T) {
	golden.Stories(t, "programs", map[string]Question{
		"a report":            {Now: weekOn, Since: weekOn.Add(-14 * day), By: []string{ByCluster, ByCause}},
		"a report of nothing": {Now: weekOn, Cluster: "none"},
	}, func(t *testing.T, q Question) string {
		content, err := json.MarshalIndent(Of(fleet(), q), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(content) + "\n"
	})
}
