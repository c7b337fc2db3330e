package test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unlimited is a limit that lets everything that is due be remediated.
var unlimited = regexp.MustCompile(`(?i)((max[_ ]?unhealthy|unhealthyLessThanOrEqualTo)[^|\n]{0,40}100 ?%)|\b(raise|limit|set)\b[^.|\n]{0,60} (to|be) 100 ?%`)

// inFlight is a limit on how many are remediated at once.
var inFlight = regexp.MustCompile(`kubemend\.io/max-in-flight|\bmaxInFlight\b`)

// harmless are the places that speak of an unlimited check without advising one, and what they say.
var harmless = map[string]string{
	"docs/nodehealthcheck-api.md":                               "limits nothing: nodes are remediated however many are unhealthy",
	"templates/machine-health-check-control-plane.yaml":         "KubeadmControlPlane replaces one machine at a time",
	"templates/machine-health-check-control-plane-v1beta2.yaml": "KubeadmControlPlane replaces one machine at a time",
}

// If a limit is raised in an outage, everything that is due is remediated in the moment in which the outage ends. So what users read, be
// it a page, an example or a message, advises that only together with a limit in flight.
func TestNothingAdvisesToRemediateEverythingAtOnce(t *testing.T) {
	read := 0
	walk(t, func(file string) {
		texts := adviceIn(t, file)
		read += len(texts)
		for _, text := range texts {
			if risky(text) && (harmless[file] == "" || !strings.Contains(text, harmless[file])) {
				t.Errorf("%s lets everything be remediated, and names no limit in flight:\n%s", file, text)
			}
		}
	})
	if read < 1000 {
		t.Errorf("only %d texts were read", read)
	}
}

func risky(text string) bool { return unlimited.MatchString(text) && !inFlight.MatchString(text) }

// adviceIn are the texts of a file that users read: the paragraphs of a page, a manifest, and the strings of programs. What a test or a
// golden file has was written by a user.
func adviceIn(t *testing.T, file string) []string {
	t.Helper()
	top, _, below := strings.Cut(file, "/")
	if below && !slices.Contains([]string{"docs", "templates", "config", "charts", "api", "baremetal", "controllers", "cmd"}, top) ||
		strings.Contains(file, "/testdata/") || strings.HasSuffix(file, "_test.go") {
		return nil
	}
	switch filepath.Ext(file) {
	case ".md":
		return strings.Split(strings.ReplaceAll(content(t, file), "\n|", "\n\n|"), "\n\n")
	case ".yaml", ".yml", ".tpl", ".txt":
		return []string{content(t, file)}
	case ".go":
		return textsOf(content(t, file), false)
	}
	return nil
}
