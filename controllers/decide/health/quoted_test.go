package health

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A kubelet writes the reason of a Node's condition, and no limit applies. (Kubernetes validates no condition of a Node.)
func TestAFindingQuotesAKibibyteOfWhatOthersWroteAtMost(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		whole  bool
	}{
		"a usual reason":                {"KubeletNotReady", true},
		"the longest that is quoted":    {strings.Repeat("a", 1024), true},
		"one byte more":                 {strings.Repeat("a", 1025), false},
		"a reason of 64 KiB":            {strings.Repeat("b", 64<<10), false},
		"one that is cut in a letter":   {strings.Repeat("\u00e9", 1000), false},
		"one that ends within a letter": {"x" + strings.Repeat("\u00e9", 1000), false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			v := Judge(Target{
				Node: NodePresent, NodeName: "n", Failure: tc.reason,
				Signals: []Signal{{Source: OnNode, Type: "Ready", Status: "False", Reason: tc.reason, Since: now.Add(-time.Hour)}},
			}, Policy{Rules: []Rule{{Source: OnNode, Type: "Ready", Status: "False"}}}, now)
			if len(v.Findings) != 2 || v.State != Unhealthy {
				t.Fatalf("Judge() = %+v, want unhealthy for the condition and the failure", v)
			}
			for _, f := range v.Findings {
				if text := f.Failure + f.Signal.Reason; len(text) > 1024 || !utf8.ValidString(text) || (text == tc.reason) != tc.whole {
					t.Errorf("a finding of %d bytes, with the whole reason: %v", len(text), text == tc.reason)
				}
			}
		})
	}
}
