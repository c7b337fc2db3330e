package schemas

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/crd"
)

// moments are records as JSON with a %s in place of each moment that a record has, by its path.
var moments = map[string]string{
	"spec.decided":           `{"spec":{"mode":"Active","remediator":"Owner","target":{},"decided":%s}}`,
	"spec.due":               ofSpec(`"due":%s`),
	"spec.unhealthySince":    ofSpec(`"unhealthySince":%s`),
	"spec.evidence[0].since": ofSpec(`"evidence":[{"type":"Ready","since":%s}]`),
	"status.attempted":       ofStatus(`"attempted":%s`),
	"status.begun":           ofStatus(`"begun":%s`),
	"status.capacityBack":    ofStatus(`"capacityBack":%s`),
	"status.ended":           ofStatus(`"ended":%s`),
	"status.steps[0].time":   ofStatus(`"steps":[{"time":%s,"reason":"RequestCreated"}]`),
	"status.waits[0].since":  ofStatus(`"waits":[{"reason":"DrainingNode","seconds":1,"since":%s}]`),
	"status.conditions":      ofStatus(`"conditions":[{"type":"Begun","status":"True","reason":"OwnerAsked","message":"","lastTransitionTime":%s}]`),
}

func ofSpec(more string) string {
	return `{"spec":{"mode":"Active","remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z",` + more + `}}`
}

func ofStatus(is string) string {
	return `{"spec":{"mode":"Active","remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z"},"status":{` + is + `}}`
}

// The manager lists records, and a list with one that it cannot decode is none: it would stop, and not start again.
func TestTheAPIServerTakesNoTimeOfARecordThatGoDoesNotRead(t *testing.T) {
	server, err := crd.FromFolder("../../config/crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
			for path, record := range moments {
				content := fmt.Sprintf(record, `"`+row.moment+`"`)
				o := &unstructured.Unstructured{Object: JSON(content)}
				o.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecord"))
				o.SetNamespace("ns")
				o.SetName("r")
				_, err := server.Create(t.Context(), o)
				switch {
				case row.taken && err != nil:
					t.Errorf("%s: want it taken, got: %v", path, err)
				case !row.taken && (err == nil || !strings.Contains(err.Error(), path)):
					t.Errorf("%s: want it refused, got: %v", path, err)
				}
				if unread := json.Unmarshal([]byte(content), &mendv1.RemediationRecord{}); unread != nil && err == nil {
					t.Errorf("%s: it is taken, and cannot be read: %v", path, unread)
				}
			}
		})
	}
}
