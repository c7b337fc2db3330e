package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// Document compares the figures of a campaign with its section of docs/reliability.md, which begins and ends with comments that name it;
// with the flag -update it writes them there.
func Document(t *testing.T, section, figures string) {
	t.Helper()
	file := document(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, found := replace(string(content), section, figures)
	if !found {
		t.Fatalf("%s has no section %q", file, section)
	}
	golden.Compare(t, file, text)
}

// replace is text with what is between the two comments of a section replaced.
func replace(text, section, figures string) (string, bool) {
	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	return before + begin + "\n" + strings.TrimSpace(figures) + "\n\n" + end + after, begins && ends
}

// document is where the figures of all campaigns are.
func document(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, "docs", "reliability.md")
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("there is no go.mod above this folder")
		}
		folder = above
	}
}
