package main

import (
	"strings"
	"testing"
)

func TestTheFiguresOfTheFleetFromAClassAreReported(t *testing.T) {
	f, err := classFiguresOf([]byte(`{"Clusters": 30, "Machines": 2, "Judged": 9500000000, "Slow": 12000000000, "Median": 20000000,
		"OtherLongest": 150000000, "SlowestVerdict": 620000000, "Memory": 104857600, "Processor": 1.5}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &report{classes: f}
	for _, line := range []string{
		"## 30 clusters from a class",
		"| All machines of the other 28 judged, after the start | 9.5 s |",
		"| All machines of the slow one judged, after the start | 12.0 s |",
		"| Verdict late, p50 of the others | 20 ms |", "| Verdict late, highest of the others | 150 ms |", "| Verdict late, in the slow one | 620 ms |",
		"| Processor time for 29 verdicts | 1.50 s |", "| Resident memory | 100 MiB |",
	} {
		if section := r.classesSection(); !strings.Contains(section, line+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", line, section)
		}
	}
	if (&report{}).classesSection() != "" {
		t.Error("there is a part although nothing was measured")
	}
	if _, err := classFiguresOf([]byte(`{"Clusters": 30, "Load": 1}`)); err == nil {
		t.Error("a figure is accepted that the report does not have")
	}
}
