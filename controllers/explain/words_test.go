package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A message names who acts: kubemend, another client, a user, the owner.
func TestMessagesNameWhoActs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, is := n.(*ast.BasicLit)
			if is && (strings.Contains(strings.ToLower(text.Value), "somebody") || strings.Contains(strings.ToLower(text.Value), "someone")) {
				t.Errorf("%s: %s", fset.Position(text.Pos()), text.Value)
			}
			return true
		})
	}
}

func TestASentenceGoesOnInAnotherOne(t *testing.T) {
	for sentence, want := range map[string]string{
		"":                            "",
		"The check is being deleted":  "the check is being deleted",
		"No request can be made":      "no request can be made",
		"Cluster c1 is being deleted": "Cluster c1 is being deleted",
		"Metal3Remediation w1 exists": "Metal3Remediation w1 exists",
		"the workload did not move":   "the workload did not move",
	} {
		if got := Clause(sentence); got != want {
			t.Errorf("%q goes on as %q, want %q", sentence, got, want)
		}
	}
}
