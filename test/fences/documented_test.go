package fences

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"golang.org/x/tools/txtar"

	"github.com/kubemend/kubemend/test/golden"
)

// taken marks an output that is copied from a golden file of kubectl mend:
// golden=page/a-machine-within-its-timeout
const taken = "golden="

// written are pages whose outputs other tests write.
var written = map[string]string{
	"docs/cli/claim.md":     "cmd/kubectl-mend/command/claim_test.go",
	"docs/cli/remediate.md": "cmd/kubectl-mend/command/byhand_test.go",
}

// This test writes the outputs that name their golden file, so that the pages follow changes of the layout. An empty block gets the whole
// output in the narrow layout. Another block keeps its first and last line and gets all lines between them; a line "..." leaves lines out.
// Output of other programs must be marked as a sample.
func TestOutputsAreDocumented(t *testing.T) {
	for _, page := range everyPage(t) {
		all, err := Read(root, page)
		must.Do(t, err)
		text := strings.SplitAfter(content(t, page), "\n")
		for _, b := range slices.Backward(all) {
			at := slices.IndexFunc(b.Words, func(w string) bool { return strings.HasPrefix(w, taken) })
			if b.Language == "" {
				t.Errorf("%s: what is it? Write sh, yaml or text behind the fence", b.At())
			}
			if b.Language != "text" || at < 0 {
				if b.Language == "text" && !b.Has(Sample) && written[page] == "" {
					t.Errorf("%s: write text %sFILE/STORY behind the fence, or text %s", b.At(), taken, Sample)
				}
				continue
			}
			output, err := excerpt(layout(t, strings.TrimPrefix(b.Words[at], taken)), b.Text)
			if err != nil {
				t.Errorf("%s: %v", b.At(), err)
				continue
			}
			text = slices.Replace(text, b.Line, b.Line+strings.Count(b.Text, "\n"), output)
		}
		golden.Compare(t, filepath.Join(root, page), strings.Join(text, ""))
	}
}

// excerpt returns the part of an output that a block shows, with the present text.
func excerpt(output, shown string) (string, error) {
	if shown == "" {
		return output, nil
	}
	lines := slices.Collect(strings.Lines(output))
	var b strings.Builder
	for i, part := range strings.Split(shown, "...\n") {
		if i > 0 {
			b.WriteString("...\n")
		}
		wanted := slices.Collect(strings.Lines(part))
		for len(wanted) > 0 && strings.HasPrefix(wanted[0], "$ ") {
			b.WriteString(wanted[0])
			wanted = wanted[1:]
		}
		if len(wanted) == 0 {
			continue
		}
		from := slices.Index(lines, wanted[0])
		if from < 0 {
			return "", fmt.Errorf("the golden file has no line %q", wanted[0])
		}
		to := slices.Index(lines[from:], wanted[len(wanted)-1])
		if to < 0 {
			return "", fmt.Errorf("the golden file has no line %q behind that", wanted[len(wanted)-1])
		}
		b.WriteString(strings.Join(lines[from:from+to+1], ""))
		lines = lines[from+to+1:]
	}
	return b.String(), nil
}

// layout returns the first section of a golden page, which is the narrow layout if it has several.
func layout(t *testing.T, name string) string {
	t.Helper()
	folder, story := path.Split(name)
	folder = strings.TrimSuffix(folder, "/")
	if !strings.Contains(folder, "/") {
		folder += "/stories"
	}
	archive, err := txtar.ParseFile(filepath.Join(root, "cmd", "kubectl-mend", strings.Replace(folder, "/", "/testdata/", 1)+".txt"))
	must.Do(t, err)
	at := slices.IndexFunc(archive.Files, func(file txtar.File) bool { return strings.ReplaceAll(file.Name, " ", "-") == story })
	if at < 0 {
		t.Fatalf("no golden page is called %s", name)
	}
	text := string(archive.Files[at].Data)
	sections := strings.Split("\n"+text, "\n==== ")
	if len(sections) == 1 {
		return text
	}
	_, first, _ := strings.Cut(sections[1], "\n")
	return strings.TrimRight(first, "\n") + "\n"
}

// suiteOfPages is the folder of the tests that run the commands of pages and sections.
const suiteOfPages = "test/e2e"

// A test runs every command that a page shows, or the block is marked as not run. The commands of a page or section that suiteOfPages does
// not name must be in runElsewhere.
func TestTheCommandsInThePagesAreRun(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, suiteOfPages, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no suite of pages: %v", err)
	}
	var suite strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Do(t, err)
		suite.Write(text)
	}
	for _, page := range everyPage(t) {
		if strings.Contains(suite.String(), `"`+page+`"`) {
			continue
		}
		for _, b := range blocks(t, page, "sh") {
			if strings.Contains(suite.String(), `"`+Ref(page, b.Section)+`"`) {
				continue
			}
			all, err := b.Commands()
			must.Do(t, err)
			for _, c := range all {
				if !b.Has(NotRun) && runBy(c) == "" {
					t.Errorf("%s:%d: no test runs %s: name the page in %s, or write sh %s behind the fence", page, c.Line,
						strings.Join(c.Words, " "), suiteOfPages, NotRun)
				}
			}
		}
	}
}

// runElsewhere are prefixes of commands that other tests run, with the place of these tests.
var runElsewhere = map[string]string{
	"make demo":                                "test/demo",
	"make test":                                "the pipeline",
	"kubectl mend status":                      "test/e2e",
	"kubectl mend explain":                     "test/e2e",
	"kubectl mend simulate":                    "test/e2e",
	"kubectl mend history":                     "test/e2e",
	"kubectl mend record":                      "test/e2e",
	"kubectl mend claim":                       "test/e2e",
	"kubectl mend remediate":                   "cmd/kubectl-mend/command",
	"kubectl mend reset":                       "cmd/kubectl-mend/command",
	"kubectl mend release":                     "test/e2e",
	"kubectl apply --server-side -k ":          "test/packages builds what is applied, test/api applies it",
	"kubectl apply --server-side -f kubemend-": "test/api applies the files of a release",
	"clusterctl generate yaml --from ":         "test/packages",
	"clusterctl init --addon kubemend":         "test/api",
	"clusterctl upgrade plan":                  "test/api",
	"clusterctl upgrade apply --addon ":        "test/api",
	"go test ":                                 "the pipeline",
}

func runBy(c Command) string {
	line := strings.Join(c.Words, " ")
	for begins, by := range runElsewhere {
		if strings.HasPrefix(line, begins) {
			return by
		}
	}
	return ""
}
