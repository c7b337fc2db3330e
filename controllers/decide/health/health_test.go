package health

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/must"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }
func in(d time.Duration) time.Time  { return noon.Add(d) }

func TestDueFindingsAreThoseWhoseMomentHasCome(t *testing.T) {
	atOnce := Finding{Node: "at once"}
	past := Finding{Node: "past", Due: ago(time.Nanosecond)}
	present := Finding{Node: "present", Due: noon}
	future := Finding{Node: "future", Due: in(time.Nanosecond)}

	v := Verdict{Findings: []Finding{future, present, atOnce, past}}
	must.Equal(t, []Finding{present, atOnce, past}, v.Due(noon), "Due()")
	must.Equal(t, []Finding{future, present, atOnce, past}, v.Due(future.Due), "Due() a moment later")
}

func TestOverdueSince(t *testing.T) {
	at := func(due ...time.Time) (fs []Finding) {
		for _, d := range due {
			fs = append(fs, Finding{Due: d})
		}
		return fs
	}
	var unknown time.Time

	cases := map[string]struct {
		given []Finding
		want  time.Time
	}{
		"nothing was ever due":                        {given: nil, want: unknown},
		"what is not due yet does not count":          {given: at(in(time.Minute)), want: unknown},
		"what is due just now counts":                 {given: at(noon), want: noon},
		"the first that was due counts":               {given: at(ago(2*time.Minute), ago(3*time.Minute), ago(1*time.Minute)), want: ago(3 * time.Minute)},
		"a finding without a moment tells nothing":    {given: at(unknown), want: unknown},
		"a known moment is better than an unknown":    {given: at(unknown, ago(time.Minute)), want: ago(time.Minute)},
		"an unknown moment does not hide a known one": {given: at(ago(time.Minute), unknown, in(time.Minute)), want: ago(time.Minute)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (Verdict{Findings: tc.given}).OverdueSince(noon); !got.Equal(tc.want) {
				t.Errorf("OverdueSince() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestEarliest(t *testing.T) {
	var never time.Time
	cases := map[string]struct{ a, b, want time.Time }{
		"the first comes first":          {noon, in(1), noon},
		"the second comes first":         {in(1), noon, noon},
		"both come at once":              {noon, noon, noon},
		"the first never comes":          {never, noon, noon},
		"the second never comes":         {noon, never, noon},
		"two that never come stay never": {never, never, never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Earliest(tc.a, tc.b); !got.Equal(tc.want) {
				t.Errorf("Earliest(%v, %v) = %v, want %v", tc.a, tc.b, got, tc.want)
			}
		})
	}
}

// The names are values of a metric's label, so a change would break dashboards.
func TestStatesAreSpelledInLowerCase(t *testing.T) {
	var got []string
	for _, s := range []State{Healthy, Starting, Pending, Unknown, Unhealthy} {
		got = append(got, s.String())
	}
	must.Equal(t, []string{"healthy", "starting", "pending", "unknown", "unhealthy"}, got)
}

func TestCapitalsInAProviderIDMakeNoOtherNode(t *testing.T) {
	machine, node := &clusterv1.Machine{}, &corev1.Node{}
	machine.Spec.ProviderID, node.Spec.ProviderID = "azure://m/1", "azure://M/1"
	if !IsNodeOf(machine, node) {
		t.Error("the node of Azure is not that of its machine")
	}
}

// The reason of a Node's condition may have any length: Kubernetes does not validate conditions of Nodes.
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

// The Machine's condition NodeHealthy combines four conditions of the Node. (Cluster API)
func TestWhatClusterAPIMakesOfFourConditionsOfANode(t *testing.T) {
	const m = time.Minute
	four := func(changed ...Signal) Target {
		is := Target{Node: NodePresent, Signals: changed}
		for kind, good := range map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"} {
			is.Signals = append(is.Signals, onNode(kind, good, ago(9*m)))
		}
		return is // if two signals have the same type, the first one counts
	}
	says := func(kind, status string, since time.Duration) Signal {
		return onNode(kind, status, ago(since))
	}
	for name, tc := range map[string]struct {
		given  Target
		status string
		since  time.Time
	}{
		"all four are good":                                 {four(), "True", time.Time{}},
		"one that is not known":                             {four(says("Ready", "Unknown", m)), "Unknown", ago(m)},
		"of two that are not known the older one counts":    {four(says("Ready", "Unknown", m), says("DiskPressure", "Unknown", 2*m)), "Unknown", ago(2 * m)},
		"whichever comes first":                             {four(says("Ready", "Unknown", 2*m), says("DiskPressure", "Unknown", m)), "Unknown", ago(2 * m)},
		"one that is bad goes before one that is not known": {four(says("Ready", "Unknown", 2*m), says("PIDPressure", "True", m)), "False", ago(m)},
		"also if that is older":                             {four(says("Ready", "False", m), says("MemoryPressure", "Unknown", 2*m)), "False", ago(m)},
		"of two that are bad the older one counts":          {four(says("Ready", "False", m), says("MemoryPressure", "True", 2*m)), "False", ago(2 * m)},
		"of a node that is gone it is not true":             {Target{Node: NodeGone}, "False", time.Time{}},
		"of one that cannot be seen nothing is known of it": {Target{Node: NodeUnseen}, "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			if status, since := nodeSays(NodeHealthy, tc.given); status != tc.status || !since.Equal(tc.since) {
				t.Errorf("%s since %v, want %s since %v", status, since, tc.status, tc.since)
			}
		})
	}
}
