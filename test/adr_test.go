package test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

const decisionsIntroduction = `# Decisions

Each file records a decision that a reader would question, as it was made then. They are not rewritten, and none is added:
[decisions](../decisions.md) has what was decided since, and says which of these it replaces. ` + "`make generate-docs`" + ` writes this list.

| | |
|---|---|
`

var (
	decisionFile  = regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)
	decisionTitle = regexp.MustCompile(`^# (\d+)\. (.+)\n`)
)

// lastRecord is the last decision that has a file of its own.
const lastRecord = "0098"

// The index of docs/adr is made of the titles of its records. New decisions are entries of docs/decisions.md.
func TestDecisionRecordsAreDocumented(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "adr", "[0-9]*.md"))
	if err != nil || len(files) < 60 {
		t.Fatalf("only %d records were found: %v", len(files), err)
	}
	var list strings.Builder
	taken := map[string]string{}
	for _, path := range files {
		file := filepath.Base(path)
		name, title := decisionFile.FindStringSubmatch(file), decisionTitle.FindStringSubmatch(content(t, "docs/adr/"+file))
		if name == nil || title == nil || strings.TrimLeft(name[1], "0") != title[1] {
			t.Errorf("%s: it has to be called NNNN-title.md and begin with \"# N. Title\"", file)
			continue
		}
		if other := taken[name[1]]; other != "" {
			t.Errorf("%s has the number of %s", file, other)
		}
		taken[name[1]] = file
		if name[1] > lastRecord {
			t.Errorf("%s is new: write an entry of docs/decisions.md instead", file)
		}
		fmt.Fprintf(&list, "| [%s](%s) | %s |\n", name[1], file, title[2])
	}
	golden.Compare(t, filepath.Join(root, "docs", "adr", "README.md"), decisionsIntroduction+list.String())
}
