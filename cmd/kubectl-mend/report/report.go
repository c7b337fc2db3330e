// Package report counts RemediationRecords: how long remediations took, and which hosts, machines and nodes needed them again and again.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The dimensions that remediations are divided by, as the flag --by spells them.
const (
	ByCluster = "cluster"
	ByCheck   = "check"
	ByCause   = "cause"
)

// Dimensions are the values of the flag --by.
var Dimensions = []string{ByCluster, ByCheck, ByCause}

// Question is what is asked for.
type Question struct {
	// Now is when, Since from when on remediations count by when they were decided; zero for all.
	Now, Since time.Time
	// Cluster is the name of the one whose remediations count; empty for all.
	Cluster string
	By      []string
}

// Of counts the records that q asks for.
func Of(records []*mendv1.RemediationRecord, q Question) *cliv1.Report {
	report := &cliv1.Report{
		TypeMeta: cliv1.TypeOf("Report"), Time: metav1.NewTime(q.Now.UTC()), Since: cliv1.Moment(q.Since), By: q.By,
		RepeatedAtLeast: often, RepeatedWithin: metav1.Duration{Duration: window},
	}
	total, groups := &tally{}, map[string]*tally{}
	begun := make([]*mendv1.RemediationRecord, 0, len(records))
	for _, record := range records {
		switch {
		case record.Spec.Decided.Time.Before(q.Since), q.Cluster != "" && record.Spec.Target.ClusterName != q.Cluster:
			continue
		case happened(record):
			begun = append(begun, record)
		}
		group := groupOf(record, q.By)
		key := fmt.Sprintf("%v\n%v\n%s", group.Cluster, group.Check, group.Cause)
		if groups[key] == nil {
			groups[key] = &tally{ReportGroup: group}
		}
		total.add(record)
		groups[key].add(record)
	}
	report.Total = total.group()
	report.Items = make([]cliv1.ReportGroup, 0, len(groups))
	if len(q.By) > 0 {
		for _, counted := range groups {
			report.Items = append(report.Items, counted.group())
		}
	}
	slices.SortFunc(report.Items, func(a, b cliv1.ReportGroup) int {
		return cmp.Or(cmp.Compare(b.Remediations, a.Remediations),
			cmp.Compare(named(a.Cluster), named(b.Cluster)), cmp.Compare(named(a.Check), named(b.Check)), cmp.Compare(a.Cause, b.Cause))
	})
	report.Repeated = repeated(begun)
	return report
}

// named is the name of an object behind its namespace; empty if there is none.
func named(object *cliv1.Reference) string {
	switch {
	case object == nil:
		return ""
	case object.Namespace == "":
		return object.Name
	}
	return object.Namespace + "/" + object.Name
}

// groupOf has what the remediations of its group share with that of a record. What the report is not divided by is empty.
func groupOf(record *mendv1.RemediationRecord, by []string) cliv1.ReportGroup {
	var group cliv1.ReportGroup
	if name := record.Spec.Target.ClusterName; name != "" && slices.Contains(by, ByCluster) {
		group.Cluster = &cliv1.Reference{Kind: "Cluster", Namespace: record.Namespace, Name: name}
	}
	if check := record.Spec.Requester.Check; check != nil && slices.Contains(by, ByCheck) {
		group.Check = &cliv1.Reference{Kind: check.Kind, Namespace: check.Namespace, Name: check.Name}
	}
	if slices.Contains(by, ByCause) {
		group.Cause = record.Spec.Cause
	}
	return group
}

// happened reports whether there was a remediation: it was begun, or it has ended otherwise than by being cancelled. When a machine went
// while no manager ran it is not known when its remediation began.
func happened(record *mendv1.RemediationRecord) bool {
	status := &record.Status
	return status.Begun != nil || status.Ended != nil && status.Outcome != mendv1.RecordCancelled
}

// tally counts the remediations of a group.
type tally struct {
	cliv1.ReportGroup

	detect, begin, back []time.Duration
}

// add counts one remediation. One that was not begun is in no time, one whose capacity is not back in none that ends with that.
func (t *tally) add(record *mendv1.RemediationRecord) {
	spec, status := &record.Spec, &record.Status
	if !happened(record) {
		t.NotBegun++
		return
	}
	t.Remediations++
	switch {
	case status.Ended == nil:
		t.Open++
	case status.Outcome == mendv1.RecordHealed:
		t.Healed++
	case status.Outcome == mendv1.RecordReplaced:
		t.Replaced++
	case status.Outcome == mendv1.RecordGone:
		t.Gone++
	case status.Outcome == mendv1.RecordGivenUp:
		t.GivenUp++
	case status.Outcome == mendv1.RecordCancelled:
		t.Withdrawn++
	}
	counted := &spec.Decided // no timeout had expired, such as of a remediation that a user asked for
	if spec.Due != nil && !spec.Due.After(spec.Decided.Time) {
		counted = spec.Due
	}
	t.detect = between(t.detect, spec.UnhealthySince, counted)
	t.begin = between(t.begin, counted, status.Begun)
	t.back = between(t.back, spec.UnhealthySince, status.CapacityBack)
}

// between appends the time between two moments if both are known. The clocks of two machines may differ: no time is negative.
func between(times []time.Duration, from, until *metav1.Time) []time.Duration {
	if from == nil || until == nil {
		return times
	}
	return append(times, max(until.Sub(from.Time), 0))
}

func (t *tally) group() cliv1.ReportGroup {
	t.TimeToDetect, t.TimeToBegin, t.TimeToCapacityBack = summarize(t.detect), summarize(t.begin), summarize(t.back)
	return t.ReportGroup
}

// summarize sums up times, whose order it changes; it is nil if there are none. The 95th percentile is by nearest rank: the shortest of the
// times that at least 95 of 100 do not exceed.
func summarize(times []time.Duration) *cliv1.DurationSummary {
	n := len(times)
	if n == 0 {
		return nil
	}
	slices.Sort(times)
	var sum int64 // of microseconds: 30,000 times a year fit
	for _, d := range times {
		sum += d.Microseconds()
	}
	mean := time.Duration(sum/int64(n)) * time.Microsecond
	return &cliv1.DurationSummary{
		Count: n, MeanSeconds: seconds(mean), P95Seconds: seconds(times[(95*n+99)/100-1]), MaxSeconds: seconds(times[n-1]),
	}
}

func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }
