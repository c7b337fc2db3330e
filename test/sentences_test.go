package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rendered are the layers that leave their sentences to controllers/explain. Partners have the words of other projects, and the packages of api have none.
var rendered = []string{"pure", "adapter", "controller", "cmd", "main"}

// unrendered are the files that have texts of their own, and why.
var unrendered = map[string]string{
	"baremetal/host/marks.go":                           "parts of errors: what was tried",
	"baremetal/powercycle/diagram.go":                   "the source of a diagram",
	"baremetal/powercycle/guards.go":                    "names of guards, in the diagram and in tests",
	"baremetal/powercycle/powercycle.go":                "names of steps, in the diagram and in logs",
	"cmd/kubectl-mend/command/claim.go":                 "usage of two commands, and the line in which a plan is printed",
	"cmd/kubectl-mend/command/claim_label.go":           "the lines in which a plan is printed",
	"cmd/kubectl-mend/command/command.go":               "errors of the command line",
	"cmd/kubectl-mend/command/complete.go":              "examples of the commands that cobra adds",
	"cmd/kubectl-mend/simulate/condition.go":            "the words of the kubelet",
	"cmd/kubectl-mend/simulate/faults.go":               "part of an error",
	"cmd/kubectl-mend/simulate/refusals.go":             "errors of the API server that is imitated",
	"cmd/kubectl-mend/snapshot/reader.go":               "an error",
	"controllers/crdgate/gate.go":                       "the name of another controller",
	"controllers/decide/budget/budget.go":               "the name of a class of targets",
	"controllers/decide/capacity/quoted.go":             "the words of the API server, as Cluster API quotes them",
	"controllers/decide/nodes/facts.go":                 "the name of a template",
	"controllers/nodehealthcheck/admission/refusals.go": "the words of medik8s, with which requests are refused",
	"controllers/teardown/observe.go":                   "the name of an object",
	"controllers/teardown/plan.go":                      "names of actions, in logs",
	"controllers/workload/kubeconfig.go":                "parts of an error",
}

// What is no sentence about a decision: errors, log lines, and what a program prints about itself; and the fields that hold the help of flags,
// commands and metrics.
var (
	otherCalls  = []string{"Errorf", "New", "Info", "Error", "Fprint", "Fprintf", "Fprintln", "NewDesc", "panic"}
	otherFields = []string{"Help", "Use", "Short", "Long", "Example"}
)

// A change of a sentence is a change of one line in controllers/explain: a text of four words or more stands nowhere else.
func TestSentencesAreRenderedInOnePlace(t *testing.T) {
	found := map[string][]string{}
	for _, p := range listPackages(t) {
		folder := p.folder()
		if folder == "" || folder == "controllers/explain" || !slices.Contains(rendered, layerOf(folder).name) {
			continue
		}
		for _, name := range p.GoFiles {
			if name == "metrics.go" || strings.HasPrefix(name, "zz_generated") {
				continue
			}
			path := filepath.ToSlash(filepath.Join(folder, name))
			if texts := textsIn(t, path); len(texts) > 0 {
				found[path] = texts
			}
		}
	}
	for path, texts := range found {
		if unrendered[path] == "" {
			t.Errorf("%s has texts that belong to controllers/explain:\n  %s", path, strings.Join(texts, "\n  "))
		}
	}
	for path, why := range unrendered {
		if found[path] == nil {
			t.Errorf("%s has no texts of its own any more (%s): remove its line", path, why)
		}
	}
}

// textsIn are the literals of four words or more in a file, each with its line, but for those of otherCalls and otherFields.
func textsIn(t *testing.T, path string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !isOtherCall(n)
		case *ast.KeyValueExpr:
			key, named := n.Key.(*ast.Ident)
			return !named || !slices.Contains(otherFields, key.Name)
		case *ast.Field, *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && strings.Count(strings.TrimSpace(text), " ") >= 3 {
				texts = append(texts, fmt.Sprintf("%d: %s", files.Position(n.Pos()).Line, n.Value))
			}
		}
		return true
	})
	return texts
}

// isOtherCall reports whether the arguments of a call are no sentences about a decision.
func isOtherCall(call *ast.CallExpr) bool {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	return slices.Contains(otherCalls, name) || strings.HasSuffix(name, "Var") || strings.HasSuffix(name, "VarP")
}
