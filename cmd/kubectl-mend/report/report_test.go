package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/test/golden"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func at(seconds int) *metav1.Time {
	return new(metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second)))
}

func ref(kind, name string) *mendv1.RecordRef {
	return &mendv1.RecordRef{Kind: kind, Namespace: "metal", Name: name}
}

type edit = func(*mendv1.RemediationRecord)

// one returns the record of a machine: unhealthy at noon, due after five minutes, begun ten seconds later, and replaced after another
// twenty minutes.
func one(machine string, edits ...edit) *mendv1.RemediationRecord {
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: machine + "-1"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Cause: "Ready=Unknown", UnhealthySince: at(0), Due: at(300), Decided: *at(305),
		Target: mendv1.RecordTarget{
			ClusterName: "prod", Machine: ref("Machine", machine), Host: ref("BareMetalHost", "host-of-"+machine), HostModel: "ACME R1",
		},
		Requester: mendv1.RecordRequester{Check: ref("MachineHealthCheck", "workers")},
	}
	r.Status = mendv1.RemediationRecordStatus{Begun: at(310), CapacityBack: at(1510), Ended: at(1511), Outcome: mendv1.RecordReplaced}
	for _, edit := range edits {
		edit(r)
	}
	return r
}

func later(d time.Duration) edit {
	return func(r *mendv1.RemediationRecord) {
		r.Spec.Decided.Time = r.Spec.Decided.Add(d)
		for _, t := range []*metav1.Time{r.Spec.UnhealthySince, r.Spec.Due, r.Status.Begun, r.Status.CapacityBack, r.Status.Ended} {
			if t != nil {
				t.Time = t.Add(d)
			}
		}
	}
}

func open(r *mendv1.RemediationRecord) {
	r.Status.CapacityBack, r.Status.Ended, r.Status.Outcome = nil, nil, ""
}

func notBegun(r *mendv1.RemediationRecord) {
	r.Status.Begun, r.Status.CapacityBack, r.Status.Outcome = nil, nil, mendv1.RecordCancelled
}

func ended(as mendv1.RecordOutcome) edit {
	return func(r *mendv1.RemediationRecord) {
		if r.Status.Outcome = as; as != mendv1.RecordHealed && as != mendv1.RecordReplaced {
			r.Status.CapacityBack = nil
		}
	}
}

// back sets the time at which the capacity was back, in seconds after noon.
func back(seconds int) edit {
	return func(r *mendv1.RemediationRecord) { r.Status.CapacityBack, r.Status.Ended = at(seconds), at(seconds+1) }
}

func byHand(r *mendv1.RemediationRecord) {
	r.Spec.UnhealthySince, r.Spec.Due, r.Spec.Requester, r.Spec.Cause = nil, nil, mendv1.RecordRequester{User: "alice"}, ""
}

func sums(count, mean, p95, most int) *cliv1.DurationSummary {
	return &cliv1.DurationSummary{Count: count, MeanSeconds: mean, P95Seconds: p95, MaxSeconds: most}
}

// The expected numbers were computed by hand.
func TestRemediationsAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		records []*mendv1.RemediationRecord
		q       Question
		want    cliv1.ReportGroup
	}{
		"none": {nil, Question{}, cliv1.ReportGroup{}},
		"one": {[]*mendv1.RemediationRecord{one("a")}, Question{}, cliv1.ReportGroup{
			Remediations: 1, Replaced: 1, TimeToDetect: sums(1, 300, 300, 300), TimeToBegin: sums(1, 10, 10, 10), TimeToCapacityBack: sums(1, 1510, 1510, 1510),
		}},
		"three, of which the slowest is the 95th percentile": {[]*mendv1.RemediationRecord{one("a"), one("b", back(910)), one("c", back(610), ended("Healed"))}, Question{}, cliv1.ReportGroup{
			Remediations: 3, Replaced: 2, Healed: 1, TimeToDetect: sums(3, 300, 300, 300), TimeToBegin: sums(3, 10, 10, 10), TimeToCapacityBack: sums(3, 1010, 1510, 1510),
		}},
		"an open one has no end": {[]*mendv1.RemediationRecord{one("a"), one("b", open)}, Question{}, cliv1.ReportGroup{
			Remediations: 2, Open: 1, Replaced: 1, TimeToDetect: sums(2, 300, 300, 300), TimeToBegin: sums(2, 10, 10, 10), TimeToCapacityBack: sums(1, 1510, 1510, 1510),
		}},
		"one that did not begin counts nowhere": {[]*mendv1.RemediationRecord{one("a", notBegun)}, Question{}, cliv1.ReportGroup{NotBegun: 1}},
		"one that was given up, one that was withdrawn, and one whose target is gone, have no capacity back": {
			[]*mendv1.RemediationRecord{one("a", ended("GivenUp")), one("b", ended("Cancelled")), one("c", ended("Gone"))}, Question{}, cliv1.ReportGroup{
				Remediations: 3, GivenUp: 1, Withdrawn: 1, Gone: 1, TimeToDetect: sums(3, 300, 300, 300), TimeToBegin: sums(3, 10, 10, 10),
			},
		},
		"of one that a user asked for it is not known how long it was unhealthy": {[]*mendv1.RemediationRecord{one("a", byHand)}, Question{}, cliv1.ReportGroup{
			Remediations: 1, Replaced: 1, TimeToBegin: sums(1, 5, 5, 5),
		}},
		"a timeout that had not expired when a user asked": {[]*mendv1.RemediationRecord{one("a", func(r *mendv1.RemediationRecord) { r.Spec.Due = at(3600) })}, Question{}, cliv1.ReportGroup{
			Remediations: 1, Replaced: 1, TimeToDetect: sums(1, 305, 305, 305), TimeToBegin: sums(1, 5, 5, 5), TimeToCapacityBack: sums(1, 1510, 1510, 1510),
		}},
		"a clock that is behind": {[]*mendv1.RemediationRecord{one("a", func(r *mendv1.RemediationRecord) { r.Spec.UnhealthySince = at(302) })}, Question{}, cliv1.ReportGroup{
			Remediations: 1, Replaced: 1, TimeToDetect: sums(1, 0, 0, 0), TimeToBegin: sums(1, 10, 10, 10), TimeToCapacityBack: sums(1, 1208, 1208, 1208),
		}},
		"one that began while no manager ran": {[]*mendv1.RemediationRecord{one("a", func(r *mendv1.RemediationRecord) { r.Status.Begun = nil })}, Question{}, cliv1.ReportGroup{
			Remediations: 1, Replaced: 1, TimeToDetect: sums(1, 300, 300, 300), TimeToCapacityBack: sums(1, 1510, 1510, 1510),
		}},
		"one that was decided before":       {[]*mendv1.RemediationRecord{one("a")}, Question{Since: at(306).Time}, cliv1.ReportGroup{}},
		"one of another cluster":            {[]*mendv1.RemediationRecord{one("a")}, Question{Cluster: "test"}, cliv1.ReportGroup{}},
		"one that was decided at that time": {[]*mendv1.RemediationRecord{one("a", notBegun)}, Question{Since: at(305).Time}, cliv1.ReportGroup{NotBegun: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, Of(tc.records, tc.q).Total)
		})
	}
}

func TestThePercentileIsThatOfTheNearestRank(t *testing.T) {
	upTo := func(n int) []time.Duration {
		times := make([]time.Duration, n)
		for i := range times {
			times[i] = time.Duration(n-i) * time.Second // unsorted
		}
		return times
	}
	for n, want := range map[int]int{1: 1, 2: 2, 10: 10, 19: 19, 20: 19, 21: 20, 40: 38, 41: 39, 100: 95, 101: 96, 1000: 950} {
		if got := summarize(upTo(n)).P95Seconds; got != want {
			t.Errorf("of 1 s to %d s it is %d s, want %d s", n, got, want)
		}
	}
	const year = 365 * 24 * 3600
	must.Equal(t, sums(30000, year, year, year), summarize(slices.Repeat([]time.Duration{year * time.Second}, 30000)), "of 30,000 years")
}

func onHost(host string, d time.Duration, edits ...edit) *mendv1.RemediationRecord {
	edits = append([]edit{later(d), func(r *mendv1.RemediationRecord) { r.Spec.Target.Host.Name = host }}, edits...)
	return one(fmt.Sprintf("m-%s", d), edits...) // a replacement has another name
}

func hostAlone(r *mendv1.RemediationRecord) { r.Spec.Target.Machine = nil }

func TestWhatIsRemediatedAgainAndAgainIsNamed(t *testing.T) {
	node := func(cluster string, d time.Duration) *mendv1.RemediationRecord {
		return one("n", later(d), func(r *mendv1.RemediationRecord) {
			r.Spec.Target = mendv1.RecordTarget{ClusterName: cluster, Node: &mendv1.RecordRef{Kind: "Node", Name: "n"}}
		})
	}
	for name, tc := range map[string]struct {
		records []*mendv1.RemediationRecord
		want    []string
	}{
		"twice":                              {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day)}, nil},
		"three times":                        {[]*mendv1.RemediationRecord{onHost("h", 2*day), onHost("h", 0), onHost("h", day)}, []string{"BareMetalHost/h 3 of 3"}},
		"three times in just that time":      {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day), onHost("h", 7*day)}, []string{"BareMetalHost/h 3 of 3"}},
		"three times in longer":              {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day), onHost("h", 7*day+time.Second)}, nil},
		"three of four times":                {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", 20*day), onHost("h", 21*day), onHost("h", 22*day)}, []string{"BareMetalHost/h 3 of 4"}},
		"two of one host and two of another": {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day), onHost("g", 2*day), onHost("g", 3*day)}, nil},
		"three, of which one did not begin":  {[]*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day), onHost("h", 2*day, notBegun)}, nil},
		"a machine that stays on its host": {[]*mendv1.RemediationRecord{one("a"), one("a", later(day)), one("a", later(2*day))},
			[]string{"Machine/a 3 of 3", "BareMetalHost/host-of-a 3 of 3"}},
		"one whose target is the host": {[]*mendv1.RemediationRecord{
			onHost("h", 0, hostAlone), onHost("h", day, hostAlone), onHost("h", 2*day, hostAlone)}, []string{"BareMetalHost/h 3 of 3"}},
		"nodes of the same name": {[]*mendv1.RemediationRecord{node("a", 0), node("b", day), node("a", 2*day), node("b", 3*day)}, nil},
		"one node":               {[]*mendv1.RemediationRecord{node("a", 0), node("b", day), node("a", 2*day), node("a", 3*day)}, []string{"Node/n 3 of 3"}},
		"the one with most first": {[]*mendv1.RemediationRecord{
			onHost("h", 0), onHost("h", day), onHost("h", 2*day), onHost("g", 3*day), onHost("g", 4*day), onHost("g", 5*day), onHost("g", 6*day)},
			[]string{"BareMetalHost/g 4 of 4", "BareMetalHost/h 3 of 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, entry := range Of(tc.records, Question{}).Repeated {
				got = append(got, fmt.Sprintf("%s/%s %d of %d", entry.Kind, entry.Name, entry.Most, entry.Remediations))
			}
			must.Equal(t, tc.want, got)
		})
	}
	causes := []*mendv1.RemediationRecord{onHost("h", 0), onHost("h", day, func(r *mendv1.RemediationRecord) { r.Spec.Cause = "Ready=False" }), onHost("h", 2*day)}
	want := cliv1.RepeatedlyRemediated{
		Reference: cliv1.Reference{Kind: "BareMetalHost", Namespace: "metal", Name: "h"}, Cluster: "prod", HostModel: "ACME R1", Remediations: 3, Most: 3,
		First: *at(310), Last: metav1.NewTime(at(310).Add(2 * day)), Causes: []string{"Ready=Unknown", "Ready=False"},
	}
	must.Equal(t, want, Of(causes, Question{}).Repeated[0])
}

// A user who may write records in one namespace can name objects of another namespace in them.
func TestARecordCountsForNothingOfAnotherNamespace(t *testing.T) {
	there := func(kind string) *mendv1.RecordRef {
		return &mendv1.RecordRef{Kind: kind, Namespace: "theirs", Name: "x"}
	}
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "r"}}
	record.Spec.Target = mendv1.RecordTarget{ClusterName: "c", Machine: there("Machine"), Host: there("BareMetalHost")}
	for _, object := range identify(record) {
		if object.Namespace != "ours" {
			t.Errorf("it counts for %v", object)
		}
	}
	if group := groupOf(record, Dimensions); group.Cluster.Namespace != "ours" {
		t.Errorf("it counts for %v", group)
	}
}

// fleet returns the records of two clusters in a week. In one, the host of a worker fails again and again; the other has GPUs.
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

// weekOn is the time of the reports about the fleet.
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
		must.Do(t, Print(&out, Of(s.records, q), text.Layout{Width: s.width, Wide: s.width > 80, Namespaces: s.width > 80}))
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
		must.Do(t, err)
		return string(content) + "\n"
	})
}
