package seeds

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

func TestEveryManifestHasAnAnswer(t *testing.T) {
	printed, err := fs.Glob(files, "*/*.yaml")
	must.Do(t, err)
	var answered []string
	for _, m := range All {
		answered = append(answered, m.File)
	}
	slices.Sort(answered)
	if !slices.Equal(printed, answered) {
		t.Errorf("there are\n%q\nand answers for\n%q", printed, answered)
	}
}

// kubectl apply stops at this error.
func TestAnAbridgedManifestIsInvalidYAML(t *testing.T) {
	for _, m := range All {
		objects, err := Objects(m.File)
		switch {
		case m.Refused == notYAML && (err == nil || !strings.Contains(err.Error(), notYAML)):
			t.Errorf("%s: %v", m.File, err)
		case m.Refused != notYAML && (err != nil || len(objects) == 0):
			t.Errorf("%s has %d objects: %v", m.File, len(objects), err)
		}
	}
}

func TestThePageHasTheRefusalsOfManifests(t *testing.T) {
	page, err := os.ReadFile("../../docs/differences.md")
	must.Do(t, err)
	for _, m := range All {
		if !strings.Contains(string(page), "`"+m.Refused+"`") && m.Refused != "" {
			t.Errorf("docs/differences.md does not say of %s: %s", m.File, m.Refused)
		}
	}
}
