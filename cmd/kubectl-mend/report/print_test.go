package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// fleet is two clusters in a week: a worker whose host fails again and again, and a check that is short-circuited.
func fleet() []Remediation {
	var all []Remediation
	add := func(machine string, d time.Duration, edits ...func(*Remediation)) {
		r := one(machine, append([]func(*Remediation){later(d)}, edits...)...)
		r.Record.Name = fmt.Sprintf("%s-%d", machine, len(all))
		all = append(all, r)
	}
	on := func(host, model string) func(*Remediation) {
		return func(r *Remediation) { r.Host.Name, r.HostModel = host, model }
	}
	for i := range 4 {
		add(fmt.Sprintf("workers-%c", 'a'+i), time.Duration(i)*day, on("rack1-07", "ACME R640"))
	}
	add("workers-x", day, on("rack1-08", "ACME R640"), func(r *Remediation) { r.Cause = "KernelDeadlock=True" })
	add("workers-y", 2*day, on("rack1-09", "ACME R650"), func(r *Remediation) { r.CapacityBack = r.CapacityBack.Add(3 * time.Hour) })
	add("workers-z", 6*day, on("rack1-10", "ACME R650"), open)
	add("gpu-a", 3*day, on("rack2-01", "Initech H100"), ended("GivenUp"), func(r *Remediation) { r.Cluster.Name, r.Check.Name = "training-cluster-3", "gpu" })
	add("gpu-b", 3*day, on("rack2-02", "Initech H100"), notBegun, func(r *Remediation) { r.Cluster.Name, r.Check.Name = "training-cluster-3", "gpu" })
	for i, edit := range []func(*Remediation){
		both(90), both(-45), both(20), others("Pending"), others("TooManyUnhealthy"), alone, alone, healed(200), func(r *Remediation) { healed(200)(r); r.Due = r.Ended },
	} {
		add(fmt.Sprintf("edge-%d", i), time.Duration(i)*time.Hour, func(r *Remediation) { r.Mode, r.Cluster.Name = mendv1.RecordObserved, "edge" }, edit)
	}
	return all
}

// both is that others began so many seconds after kubemend would have.
func both(seconds int) func(*Remediation) {
	return func(r *Remediation) {
		r.Begun, r.BegunBy = r.Decided.Add(time.Duration(seconds)*time.Second), "manager"
	}
}

// others is that others began, and why kubemend would not have.
func others(why string) func(*Remediation) {
	return func(r *Remediation) { r.BegunBy, r.BlockedBy = "manager", why }
}

// alone is that only kubemend would have begun.
func alone(r *Remediation) {
	open(r)
	r.Begun = time.Time{}
}

// healed is that the target healed by itself so many seconds after the decision.
func healed(seconds int) func(*Remediation) {
	return func(r *Remediation) {
		r.Begun, r.CapacityBack, r.Outcome = time.Time{}, r.Decided.Add(time.Duration(seconds)*time.Second), mendv1.RecordHealed
		r.Ended = r.CapacityBack
	}
}

// weekOn is when the fleet is reported.
var weekOn = noon.Add(7 * day)

// shortCircuited are a check that is, one that was, and one that never was.
func shortCircuited() ([]Check, []eventsv1.Event) {
	check := func(name string, status metav1.ConditionStatus, reason string, at time.Time) Check {
		return Check{Ref: explain.Ref{Kind: "MachineHealthCheck", Namespace: "metal", Name: name}, Cluster: "prod",
			Allowed: &metav1.Condition{Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)}}
	}
	return []Check{
			check("workers", metav1.ConditionTrue, "RemediationAllowed", weekOn.Add(-20*time.Minute)),
			check("gpu", metav1.ConditionFalse, "TooManyUnhealthy", weekOn.Add(-3*time.Hour)),
			check("control-plane", metav1.ConditionTrue, "RemediationAllowed", noon),
		}, []eventsv1.Event{
			restricted("workers", weekOn.Add(-50*time.Minute)), allowed("workers", weekOn.Add(-20*time.Minute)),
		}
}

func TestReportsArePrinted(t *testing.T) {
	type story struct {
		by     []Dimension
		width  int
		wide   bool
		all    []Remediation
		shadow bool
	}
	fleet := fleet()
	golden.Stories(t, map[string]story{
		"all at 80 columns":                      {nil, 80, false, fleet, false},
		"by cluster at 80 columns":               {[]Dimension{ByCluster}, 80, false, fleet, false},
		"by cluster at 200 columns":              {[]Dimension{ByCluster}, 200, false, fleet, false},
		"by check and host model at 80 columns":  {[]Dimension{ByCheck, ByHostModel}, 80, false, fleet, false},
		"nothing":                                {[]Dimension{ByCluster}, 80, false, nil, false},
		"shadow at 80 columns":                   {nil, 80, false, fleet, true},
		"shadow at 200 columns and all failures": {nil, 200, true, fleet, true},
		"no shadow":                              {nil, 80, false, nil, true},
	}, func(t *testing.T, s story) string {
		var out strings.Builder
		q := Question{Now: weekOn, Since: weekOn.Add(-14 * day), By: s.by, AtLeast: 3, Within: 7 * day}
		l := Layout{Width: s.width, Wide: s.wide, Namespaces: s.width > 80}
		var err error
		if s.shadow {
			err = ShadowOf(s.all, q).Print(&out, l)
		} else {
			r := Of(s.all, q)
			if s.all != nil {
				checks, events := shortCircuited()
				r.ShortCircuits = ShortCircuitsOf(checks, events, q)
			}
			err = r.Print(&out, l)
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); !s.wide && len([]rune(line)) > s.width || strings.TrimRight(line, " ") != line {
				t.Errorf("%d columns, or blanks at the end: %q", len([]rune(line)), line)
			}
		}
		return out.String()
	})
}

func TestReportsForPrograms(t *testing.T) {
	q := Question{Now: weekOn, Since: weekOn.Add(-14 * day), By: []Dimension{ByCluster, ByCause}, AtLeast: 3, Within: 7 * day}
	r, shadow := Of(fleet(), q), ShadowOf(fleet(), q)
	checks, events := shortCircuited()
	r.ShortCircuits, r.ReadErrors = ShortCircuitsOf(checks, events, q), []string{"NodeHealthChecks: forbidden"}
	total := Of(fleet(), Question{Now: weekOn})
	asJSON := func(document any) string {
		content, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(content) + "\n"
	}
	asCSV := func(write func(*strings.Builder) error) string {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	golden.StoriesIn(t, "testdata/programs", map[string]string{
		"a report":                   asJSON(r.Document()),
		"a report of nothing":        asJSON(Of(nil, Question{Now: weekOn}).Document()),
		"a shadow report":            asJSON(shadow.Document()),
		"a report as a table":        asCSV(func(out *strings.Builder) error { return r.WriteCSV(out) }),
		"a total as a table":         asCSV(func(out *strings.Builder) error { return total.WriteCSV(out) }),
		"a shadow report as a table": asCSV(func(out *strings.Builder) error { return shadow.WriteCSV(out) }),
	}, func(_ *testing.T, printed string) string { return printed })
}

func TestASpreadsheetTakesNothingForAFormula(t *testing.T) {
	r := Of([]Remediation{one("a", func(r *Remediation) { r.HostModel = `=HYPERLINK("http://evil")` })}, Question{By: []Dimension{ByHostModel}})
	var out strings.Builder
	if err := r.WriteCSV(&out); err != nil || !strings.Contains(out.String(), "\n\"'=HYPERLINK(") {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
}
