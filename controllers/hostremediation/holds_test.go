package hostremediation

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	reasonRow = regexp.MustCompile(`^\| (` + "`" + `[^|]*) \| ([^|]*) \| ([^|]*) ?\|$`)
	quoted    = regexp.MustCompile("`([A-Za-z]+)`")
)

// documented is what docs/conditions-and-events.md says is to be done about the reasons of remediations of hosts.
func documented(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/conditions-and-events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "## On a remediation of a host")
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]string{}
	for line := range strings.Lines(section) {
		cells := reasonRow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if cells == nil {
			continue
		}
		for _, reason := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if all[reason[1]] = strings.ReplaceAll(strings.TrimSpace(cells[3]), "`", ""); all[reason[1]] == "" {
				delete(all, reason[1])
			}
		}
	}
	for reason, text := range maps.Clone(all) {
		if other, alias := strings.CutPrefix(text, "as with "); alias {
			all[reason] = all[other]
		}
	}
	return all
}

func TestWhatAPersonHasToDoIsDocumented(t *testing.T) {
	if diff := cmp.Diff(documented(t), persons); diff != "" {
		t.Errorf("docs/conditions-and-events.md (-) and the program (+) tell people to do other things:\n%s", diff)
	}
}
