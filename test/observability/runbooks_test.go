package observability

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const runbooks = "https://github.com/kubemend/kubemend/blob/main/docs/runbooks/"

func TestEveryAlertHasAPageThatSaysWhatToDo(t *testing.T) {
	var want []string
	for _, r := range rulesOf(t) {
		want = append(want, r.Alert+".md")
		if !strings.HasPrefix(r.Alert, "Kubemend") || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if got := r.Annotations["runbook_url"]; got != runbooks+r.Alert+".md" {
			t.Errorf("%s sends people to %s", r.Alert, got)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		got = append(got, filepath.Base(file))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the pages are %v, want %v", got, want)
	}
	for _, name := range got {
		page := string(read(t, "docs", "runbooks", name))
		for _, part := range []string{"# " + strings.TrimSuffix(name, ".md") + "\n", "\n## Symptom\n", "\n## Command\n", "\n## Decision\n", "\n## Done\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("%s has no %q", name, strings.TrimSpace(part))
			}
		}
	}
}

// The table in docs/monitoring.md has what users read before they install the alerts.
func TestEveryAlertIsInTheTableOfAlerts(t *testing.T) {
	page := string(read(t, "docs", "monitoring.md"))
	for _, r := range rulesOf(t) {
		after := "at once"
		if r.For > 0 {
			after = r.For.String()
		}
		line := "| [`" + r.Alert + "`](runbooks/" + r.Alert + ".md) | " + r.Labels["severity"] + " | " + after + " | " + r.Annotations["summary"] + " |\n"
		if !strings.Contains(page, line) {
			t.Errorf("docs/monitoring.md lacks this line:\n%s", line)
		}
	}
}
