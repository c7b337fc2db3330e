package fences

import (
	"strings"
	"testing"
)

// suiteOfPages runs the commands of the pages that it names.
const suiteOfPages = "test/e2e/docs/pages_test.go"

// Every command that readers are shown is run by a test, or says that it is not: a page that is not named in the suite of pages has no commands but
// those that other suites run as well.
func TestTheCommandsInThePagesAreRun(t *testing.T) {
	suite := content(t, suiteOfPages)
	for _, page := range everyPage(t) {
		if strings.Contains(suite, `"`+page) {
			continue
		}
		for _, b := range blocks(t, page, "sh") {
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
	"kubectl mend status":                      "test/e2e/cli",
	"kubectl mend explain":                     "test/e2e/cli",
	"kubectl mend simulate":                    "test/e2e/cli",
	"kubectl mend history":                     "test/e2e/cli",
	"kubectl mend record":                      "test/e2e/cli",
	"kubectl mend claim":                       "test/e2e/cli",
	"kubectl mend remediate":                   "cmd/kubectl-mend/command",
	"kubectl mend reset":                       "cmd/kubectl-mend/command",
	"kubectl mend release":                     "test/e2e/cli",
	"kubectl apply --server-side -k ":          "test/packages builds what is applied, test/e2e/release applies it",
	"kubectl apply --server-side -f kubemend-": "test/e2e/release applies the files of a release",
	"clusterctl generate yaml --from ":         "test/packages",
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

func TestTheCheckOfRunsTellsCommandsApart(t *testing.T) {
	for line, run := range map[string]bool{"make demo SCENE=x": true, "make release": false, "kubectl mend status -A": true, "kubectl get nodes": false} {
		if got := runBy(Command{Words: strings.Fields(line)}); (got != "") != run {
			t.Errorf("%s: run by %q", line, got)
		}
	}
	if len(blocks(t, "README.md", "sh")) < 2 {
		t.Error("README.md has no commands")
	}
}
