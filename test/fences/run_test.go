package fences

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// suiteOfPages runs the commands of the pages, and of the sections, that its files name.
const suiteOfPages = "test/e2e"

// Every command that readers are shown is run by a test, or says that it is not: a page or section that is not named in the suite of pages has no
// commands but those that other suites run as well.
func TestTheCommandsInThePagesAreRun(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, suiteOfPages, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no suite of pages: %v", err)
	}
	var suite strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				if !b.Has(NotRun) && runBy(c) == "" {
					t.Errorf("%s:%d: no test runs %s: name the page in %s, or write sh %s behind the fence", page, c.Line, strings.Join(c.Words, " "), suiteOfPages, NotRun)
				}
			}
		}
	}
}

// runElsewhere are commands that other tests run, by how they begin.
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
