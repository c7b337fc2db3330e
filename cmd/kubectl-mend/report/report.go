// Package report counts RemediationRecords: how long remediations took, and which hosts, machines and nodes needed them again and again.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The values of the flag --by.
const (
	ByCluster = "cluster"
	ByCheck   = "check"
	ByCause   = "cause"
)

// Dimensions are all values of the flag --by.
var Dimensions = []string{ByCluster, ByCheck, ByCause}

// Question selects the remediations of a report.
type Question struct {
	// Now is the time of the report. Remediations that were decided before Since do not count; zero means all count.
	Now, Since time.Time
	// Cluster is the name of the Cluster whose remediations count; empty for all.
	Cluster string
	By      []string // the Dimensions by which remediations are grouped
}

// Of returns the report about the records that q selects.
func Of(records []*mendv1.RemediationRecord, q Question) *cliv1.Report {
	report := &cliv1.Report{
		TypeMeta: cliv1.TypeOf("Report"), Time: metav1.NewTime(q.Now.UTC()), Since: cliv1.Moment(q.Since), By: q.By,
		RepeatedAtLeast: often, RepeatedWithin: metav1.Duration{Duration: window},
	}
	total, groups := &tally{}, map[string]*tally{}
	var begun []*mendv1.RemediationRecord
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

// named returns NAMESPACE/NAME of an object; empty if object is nil.
func named(object *cliv1.Reference) string {
	if object == nil {
		return ""
	}
	return strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")
}

// groupOf returns the group of a record. Only the fields of the dimensions in by are set.
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

// happened reports whether the remediation of a record has begun, or has ended without being cancelled. If a machine went while no manager
// ran, the record has an outcome without a beginning.
func happened(record *mendv1.RemediationRecord) bool {
	status := &record.Status
	return status.Begun != nil || status.Ended != nil && status.Outcome != mendv1.RecordCancelled
}

// tally counts the remediations of a group.
type tally struct {
	cliv1.ReportGroup

	detect, begin, back []time.Duration
}

// add counts one remediation, and adds the times that its record has.
func (t *tally) add(record *mendv1.RemediationRecord) {
	spec, status := &record.Spec, &record.Status
	if !happened(record) {
		t.NotBegun++
		return
	}
	t.Remediations++
	ended := map[mendv1.RecordOutcome]*int{
		mendv1.RecordHealed: &t.Healed, mendv1.RecordReplaced: &t.Replaced, mendv1.RecordGone: &t.Gone, mendv1.RecordGivenUp: &t.GivenUp,
		mendv1.RecordCancelled: &t.Withdrawn,
	}[status.Outcome]
	if status.Ended == nil {
		t.Open++
	} else if ended != nil {
		*ended++
	}
	counted := &spec.Decided // the detection ends with the decision if no timeout expired, as for a remediation that a user requested
	if spec.Due != nil && !spec.Due.After(spec.Decided.Time) {
		counted = spec.Due
	}
	t.detect = between(t.detect, spec.UnhealthySince, counted)
	t.begin = between(t.begin, counted, status.Begun)
	t.back = between(t.back, spec.UnhealthySince, status.CapacityBack)
}

// between appends the time from one moment to another if both are known. A negative time, from clocks that differ, counts as zero.
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

// summarize sorts and sums up times; nil if there are none. The 95th percentile is by nearest rank: the shortest of the times that at least
// 95% of the times do not exceed.
func summarize(times []time.Duration) *cliv1.DurationSummary {
	n := len(times)
	if n == 0 {
		return nil
	}
	slices.Sort(times)
	var sum int64 // in microseconds, so that 30,000 times of a year each do not overflow
	for _, d := range times {
		sum += d.Microseconds()
	}
	mean := time.Duration(sum/int64(n)) * time.Microsecond
	return &cliv1.DurationSummary{
		Count: n, MeanSeconds: seconds(mean), P95Seconds: seconds(times[(95*n+99)/100-1]), MaxSeconds: seconds(times[n-1]),
	}
}

func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }

// identity identifies an object. It has the cluster because two clusters may have nodes of the same name.
type identity struct {
	cliv1.Reference
	cluster string
}

// identify returns the objects that a record counts for: its host, and its machine or else its node. The host counts separately because it
// outlives its machines. Machines and hosts count in the namespace of the record, whatever it says, so that a tenant who may write records
// cannot make them count for machines of other tenants.
func identify(record *mendv1.RemediationRecord) []identity {
	target := &record.Spec.Target
	var objects []identity
	add := func(ref *mendv1.RecordRef, namespace, cluster string) {
		objects = append(objects, identity{cliv1.Reference{Kind: ref.Kind, Namespace: namespace, Name: ref.Name}, cluster})
	}
	if target.Host != nil {
		add(target.Host, record.Namespace, "")
	}
	switch {
	case target.Machine != nil && target.ClusterName == "": // of a NodeHealthCheck: the machine may be in another namespace
		add(target.Machine, target.Machine.Namespace, "")
	case target.Machine != nil:
		add(target.Machine, record.Namespace, "")
	case target.Node != nil:
		add(target.Node, "", record.Namespace+"/"+target.ClusterName)
	}
	return objects
}

// An object is remediated repeatedly if it has at least `often` remediations within `window`.
const (
	often  = 3
	window = 7 * 24 * time.Hour
)

// repeated returns the hosts, machines and nodes that are remediated repeatedly, most remediations first.
func repeated(begun []*mendv1.RemediationRecord) []cliv1.RepeatedlyRemediated {
	found := []cliv1.RepeatedlyRemediated{}
	recordsOf := map[identity][]*mendv1.RemediationRecord{}
	for _, record := range begun {
		for _, object := range identify(record) {
			recordsOf[object] = append(recordsOf[object], record)
		}
	}
	for object, records := range recordsOf {
		slices.SortFunc(records, func(a, b *mendv1.RemediationRecord) int { return since(a).Compare(since(b)) })
		most := mostWithin(records)
		if most < often {
			continue
		}
		newest := records[len(records)-1]
		entry := cliv1.RepeatedlyRemediated{
			Reference: object.Reference, Cluster: newest.Spec.Target.ClusterName, Remediations: len(records), Most: most,
			First: metav1.NewTime(since(records[0]).UTC()), Last: metav1.NewTime(since(newest).UTC()), Causes: causesOf(records),
		}
		if host := newest.Spec.Target.Host; host != nil && host.Kind == object.Kind {
			entry.HostModel = newest.Spec.Target.HostModel
		}
		found = append(found, entry)
	}
	slices.SortFunc(found, func(a, b cliv1.RepeatedlyRemediated) int {
		return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(b.Remediations, a.Remediations), b.Last.Compare(a.Last.Time),
			cmp.Compare(named(&a.Reference), named(&b.Reference)), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}

func since(record *mendv1.RemediationRecord) time.Time {
	if record.Status.Begun == nil {
		return record.Spec.Decided.Time
	}
	return record.Status.Begun.Time
}

// mostWithin returns the highest number of remediations that began within one window. records are sorted by their beginnings.
func mostWithin(records []*mendv1.RemediationRecord) int {
	most, first := 0, 0
	for i, record := range records {
		for since(record).Sub(since(records[first])) > window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// causesOf returns the causes of remediations, the most frequent first.
func causesOf(records []*mendv1.RemediationRecord) []string {
	count := map[string]int{}
	for _, record := range records {
		if cause := record.Spec.Cause; cause != "" {
			count[cause]++
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}
