package fences

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// What a page shows as output is what a test has seen: each part of it, between lines of three dots, is in a golden file, wherever lines break.
// What kubemend does not print is marked as a sample.
func TestTheOutputInThePagesIsWhatIsPrinted(t *testing.T) {
	printed := outputs(t)
	blocksSeen := 0
	for _, page := range everyPage(t) {
		all, err := Read(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			switch {
			case b.Language == "":
				t.Errorf("%s: what is it? Write sh, yaml or text behind the fence", b.At())
			case b.Language == "text" && !b.Has(Sample) && written[page] == "":
				blocksSeen++
				if part := unseen(b.Text, printed); part != "" {
					t.Errorf("%s: no golden file has\n%s", b.At(), part)
				}
			}
		}
	}
	if blocksSeen == 0 {
		t.Error("no output was found")
	}
}

// unseen is the first part of a text that follows on the others in none of the outputs; empty if all do in one of them.
func unseen(text string, printed []string) string {
	var parts []string
	part := ""
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "..." {
			parts, part = append(parts, flat(part)), ""
			continue
		}
		if !strings.HasPrefix(line, "$ ") {
			part += line
		}
	}
	parts = append(parts, flat(part))
	most := 0
	for _, p := range printed {
		n := 0
		for n < len(parts) {
			_, after, found := strings.Cut(p, parts[n])
			if !found {
				break
			}
			p = after
			n++
		}
		if n == len(parts) {
			return ""
		}
		most = max(most, n)
	}
	return parts[most]
}

// flat is a text with one blank in place of all that is between words.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// outputs are all golden files, flat.
func outputs(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) == ".txt" && strings.Contains(filepath.ToSlash(path), "/testdata/"):
			archive, err := txtar.ParseFile(path)
			if err != nil {
				return err
			}
			all = append(all, flat(string(archive.Comment)))
			for _, page := range archive.Files {
				all = append(all, flat(string(page.Data)))
			}
		}
		return nil
	})
	if err != nil || len(all) < 200 {
		t.Fatalf("%d golden files: %v", len(all), err)
	}
	return all
}

// written are pages whose outputs another test writes.
var written = map[string]string{
	"docs/cli/claim.md":     "cmd/kubectl-mend/command/claim_docs_test.go",
	"docs/cli/remediate.md": "cmd/kubectl-mend/command/byhand_docs_test.go",
}
