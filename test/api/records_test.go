package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/schemas"
	"github.com/kubemend/kubemend/test/suite"
)

// mostOfRecord is the largest size of a record as JSON, far more than nodes and hosts really report. etcd's limit is 1.5 MiB.
const mostOfRecord = 600 << 10

// hugeRecord returns a record whose quoted texts are all far too long, in characters of four bytes.
func hugeRecord() *mendv1.RemediationRecord {
	long, now := strings.Repeat("🖥", 40000), metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	ref := func() *mendv1.RecordRef {
		return &mendv1.RecordRef{APIVersion: long, Kind: long, Namespace: long, Name: long, UID: long}
	}
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByOwner, Cause: long, Decided: now,
		Target: mendv1.RecordTarget{
			ClusterName: long, ClusterUID: long, Machine: ref(), Owner: ref(), Node: ref(), Host: ref(), HostModel: long,
			FailureDomain: long,
		},
		Requester: mendv1.RecordRequester{Check: ref(), User: long, Reason: long}, Counts: &mendv1.RecordCounts{Limit: long},
	}
	r.Status = mendv1.RemediationRecordStatus{
		EndedBy: long, Replacement: &mendv1.RecordReplacement{Machine: *ref(), Node: ref(), Host: ref()},
	}
	for range 100 {
		r.Spec.Evidence = append(r.Spec.Evidence, mendv1.RecordEvidence{Type: long, Status: long, Message: long, Since: &now})
	}
	for range mendv1.MaxRecordSteps {
		r.Status.Steps = append(r.Status.Steps,
			mendv1.RecordStep{Time: metav1.NewMicroTime(now.Time), Reason: strings.Repeat("R", 64), Message: long, Object: ref()})
	}
	for i := range 16 {
		r.Status.Requests = append(r.Status.Requests, *ref())
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{
			Type: fmt.Sprintf("Type%d", i), Status: metav1.ConditionTrue, Reason: "Reason", Message: long, LastTransitionTime: now,
		})
	}
	return r
}

func recordsAreTaken(management *cluster) {
	// If the API server refuses a record, the record is missing or stays open forever.
	It("accept a record however long the texts are that it quotes", func(ctx SpecContext) {
		written := func(r *mendv1.RemediationRecord) *unstructured.Unstructured {
			content := suite.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(r))
			return record("long", content)
		}
		r := hugeRecord()
		Expect(management.Create(ctx, written(r), client.DryRunAll)).NotTo(Succeed(), "something in it is too long for the API server")
		records.Bound(r)
		stored := written(r)
		Expect(management.Create(ctx, stored)).To(Succeed())
		Expect(management.Delete(ctx, stored)).To(Succeed())
		stored.SetManagedFields(nil)
		content := suite.Must(stored.MarshalJSON())
		Expect(len(content)).To(BeNumerically("<=", mostOfRecord))
	}, SpecTimeout(specPatience))

	// Reports and the search for lemons count how remediations have ended, so no user may overwrite the outcome.
	It("allow changes of a record's status until it has ended, and never afterwards", func(ctx SpecContext) {
		for name, row := range suite.InOrder(statuses) {
			o := ofStatusOf(row.from)
			Expect(management.Create(ctx, o)).To(Succeed(), name)
			is := ofStatusOf(row.to)
			is.SetLabels(row.labels)
			is.SetResourceVersion(o.GetResourceVersion())
			err := management.Update(ctx, is, client.DryRunAll)
			if row.refused {
				Expect(err).To(MatchError(SatisfyAll(ContainSubstring("status: Invalid value"), ContainSubstring("cannot be changed"))), name)
			} else {
				Expect(err).NotTo(HaveOccurred(), name)
			}
			Expect(management.Delete(ctx, o)).To(Succeed(), name)
		}
	}, SpecTimeout(specPatience))

	// If the manager cannot decode one record, its list of records fails, and it stops and cannot start again.
	It("refuse a time in a record that Go cannot parse", func(ctx SpecContext) {
		for name, row := range suite.InOrder(times) {
			for path, of := range moments {
				content := fmt.Sprintf(of, `"`+row.moment+`"`)
				err := management.Create(ctx, record("timed", schemas.JSON(content)), client.DryRunAll)
				if row.taken {
					Expect(err).NotTo(HaveOccurred(), "%s: %s", path, name)
					Expect(json.Unmarshal([]byte(content), &mendv1.RemediationRecord{})).
						To(Succeed(), "%s: %s is taken, and cannot be read", path, name)
				} else {
					Expect(err).To(MatchError(ContainSubstring(path)), name)
				}
			}
		}
	}, SpecTimeout(specPatience))
}

func record(name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecord"))
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetName(name)
	return o
}

// ofStatusOf returns a record with that status, or without one.
func ofStatusOf(status string) *unstructured.Unstructured {
	o := record("ending", schemas.JSON(`{"spec":{"remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z"}}`))
	if status != none {
		o.Object["status"] = schemas.JSON(status)
	}
	return o
}

// The statuses of a record while it is open, while it waits, and after it has ended.
const (
	none  = ""
	open  = `{"begun":"2026-01-01T12:00:00Z"}`
	waits = `{"begun":"2026-01-01T12:00:00Z","steps":[{"time":"2026-01-01T12:00:00.123000Z","reason":"DrainingNode"}]}`
	ended = `{"begun":"2026-01-01T12:00:00Z","ended":"2026-01-01T12:10:00Z","outcome":"GivenUp"}`
	other = `{"begun":"2026-01-01T12:00:00Z","ended":"2026-01-01T12:10:00Z","outcome":"Healed"}`
	later = `{"begun":"2026-01-01T12:00:00Z","ended":"2026-01-01T12:11:00Z","outcome":"GivenUp"}`
)

// statuses are changes from one status to another.
var statuses = map[string]struct {
	from, to string
	labels   map[string]string
	refused  bool
}{
	"a record without a status begins":                      {from: none, to: open},
	"an open one changes":                                   {from: open, to: waits},
	"an open one ends":                                      {from: waits, to: ended},
	"one that has ended gets another label":                 {from: ended, to: ended, labels: map[string]string{"a": "b"}},
	"one that has ended does not end otherwise":             {from: ended, to: other, refused: true},
	"one that has ended does not end at another time":       {from: ended, to: later, refused: true},
	"one that has ended does not open again":                {from: ended, to: open, refused: true},
	"one that has ended keeps its status":                   {from: ended, to: none, refused: true},
	"one that has ended does not change beside a new label": {from: ended, to: other, labels: map[string]string{"a": "b"}, refused: true},
}

// moments are records as JSON with %s in place of one time, by the path of the time.
var moments = map[string]string{
	"spec.decided":           `{"spec":{"remediator":"Owner","target":{},"decided":%s}}`,
	"spec.due":               ofSpec(`"due":%s`),
	"spec.unhealthySince":    ofSpec(`"unhealthySince":%s`),
	"spec.evidence[0].since": ofSpec(`"evidence":[{"type":"Ready","since":%s}]`),
	"status.attempted":       ofStatus(`"attempted":%s`),
	"status.begun":           ofStatus(`"begun":%s`),
	"status.capacityBack":    ofStatus(`"capacityBack":%s`),
	"status.ended":           ofStatus(`"ended":%s`),
	"status.steps[0].time":   ofStatus(`"steps":[{"time":%s,"reason":"RequestCreated"}]`),
	"status.conditions":      ofStatus(`"conditions":[{"type":"Begun","status":"True","reason":"R","message":"","lastTransitionTime":%s}]`),
}

func ofSpec(more string) string {
	return `{"spec":{"remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z",` + more + `}}`
}

func ofStatus(is string) string {
	return `{"spec":{"remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z"},"status":{` + is + `}}`
}

// times are ways to write a time, and whether the API server accepts them.
var times = map[string]struct {
	moment string
	taken  bool
}{
	"a time as the manager writes it":            {moment: "2026-01-01T12:00:00Z", taken: true},
	"a time with an offset":                      {moment: "2026-01-01T12:00:00+05:30", taken: true},
	"a time with one to the west":                {moment: "2026-01-01T12:00:00-11:00", taken: true},
	"a time with microseconds":                   {moment: "2026-01-01T12:00:00.123456Z", taken: true},
	"a time with one digit after the point":      {moment: "2026-01-01T12:00:00.5+00:00", taken: true},
	"the last second of a day":                   {moment: "2026-12-31T23:59:59Z", taken: true},
	"the 29th of February of a leap year":        {moment: "2028-02-29T00:00:00Z", taken: true},
	"that day of another year":                   {moment: "2026-02-29T00:00:00Z"},
	"a t in lower case":                          {moment: "2026-01-01t00:00:00Z"},
	"a z in lower case":                          {moment: "2026-01-01T00:00:00z"},
	"both in lower case":                         {moment: "2026-01-01t00:00:00z"},
	"a space for the T":                          {moment: "2026-01-01 00:00:00Z"},
	"something else for the point":               {moment: "2026-01-01T00:00:00x5Z"},
	"another time behind it":                     {moment: "2026-01-01T00:00:00ZT00:00:00Z"},
	"a line behind it":                           {moment: `2026-01-01T00:00:00Z\n`},
	"a leap second":                              {moment: "2026-12-31T23:59:60Z"},
	"the hour 24":                                {moment: "2026-01-01T24:00:00Z"},
	"the minute 60":                              {moment: "2026-01-01T00:60:00Z"},
	"an hour of one digit":                       {moment: "2026-01-01T1:00:00Z"},
	"an offset of more than a day":               {moment: "2026-01-01T00:00:00+99:00"},
	"an offset of more minutes than an hour has": {moment: "2026-01-01T00:00:00+00:61"},
	"an offset without a colon":                  {moment: "2026-01-01T00:00:00+0100"},
	"no offset":                                  {moment: "2026-01-01T00:00:00"},
	"a date":                                     {moment: "2026-01-01"},
	"nothing":                                    {moment: ""},
}
