package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Records that are stored have steps of whole seconds, and a list with one that cannot be decoded keeps the controller of records from
// starting.
func TestStepsOfWholeSecondsAreRead(t *testing.T) {
	const step = `{"metadata":{"name":"w1"},"status":{"steps":[{"time":"%","reason":"RequestCreated","object":{"kind":"Machine","name":"w1"}}]}}`
	for moment, want := range map[string]time.Time{
		"2026-01-01T12:00:00Z":             time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		"2026-01-01T12:00:00+01:00":        time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC),
		"2026-01-01T12:00:00.5Z":           time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC),
		"2026-01-01T12:00:00.123456Z":      time.Date(2026, 1, 1, 12, 0, 0, 123_456_000, time.UTC),
		"2026-01-01T12:00:00.123456+00:00": time.Date(2026, 1, 1, 12, 0, 0, 123_456_000, time.UTC),
	} {
		list := RemediationRecordList{}
		if err := json.Unmarshal([]byte(`{"items":[`+strings.Replace(step, "%", moment, 1)+`]}`), &list); err != nil {
			t.Fatalf("%s: %v", moment, err)
		}
		if got := list.Items[0].Status.Steps[0]; !got.Time.Time.Equal(want) || got.Reason != "RequestCreated" || got.Object == nil || got.Object.Name != "w1" {
			t.Errorf("%s is read as %+v, want %s", moment, got, want)
		}
	}
}
