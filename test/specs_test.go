package test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

const specsIntroduction = `# Specs

The tests and specs below ` + "`test/`" + `, by folder; the rest is beside the code. ` + "`make generate`" + ` writes this page.
`

// The list of specs is read from the code, so that nobody keeps it.
func TestSpecsAreDocumented(t *testing.T) {
	folders := map[string][]string{}
	walk(t, func(file string) {
		if path.Ext(file) == ".go" && strings.HasPrefix(file, "test/") && path.Dir(file) != "test" {
			folders[path.Dir(file)] = append(folders[path.Dir(file)], specsIn(parse(t, filepath.Join(root, file), nil))...)
		}
	})
	var page strings.Builder
	page.WriteString(specsIntroduction)
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if specs := folders[folder]; len(specs) > 0 {
			slices.Sort(specs)
			fmt.Fprintf(&page, "\n## %s: %d\n\n- %s\n", folder, len(specs), strings.Join(specs, "\n- "))
		}
	}
	golden.Compare(t, "SPECS.md", page.String())
}

// containers and specs are the functions of Ginkgo that have a text and are, or hold, specs.
var (
	containers = []string{"Describe", "Context", "When", "DescribeTable"}
	specs      = []string{"It", "Specify", "Entry"}
)

// specsIn are the names of the tests and of Ginkgo's specs in a file, these with the containers around them.
func specsIn(file *ast.File) []string {
	var found []string
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && isTest(function) {
			found = append(found, function.Name.Name)
		}
		found = append(found, specsBelow(declared, "")...)
	}
	return found
}

// isTest leaves out TestMain and helpers, which take something else than a *testing.T.
func isTest(function *ast.FuncDecl) bool {
	params := function.Type.Params.List
	return function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && len(params) == 1 &&
		types.ExprString(params[0].Type) == "*testing.T"
}

func specsBelow(n ast.Node, around string) []string {
	var found []string
	ast.Inspect(n, func(child ast.Node) bool {
		call, ok := child.(*ast.CallExpr)
		if !ok || child == n || len(call.Args) == 0 {
			return true
		}
		_, name, qualified := strings.Cut(types.ExprString(call.Fun), ".")
		if !qualified {
			name = types.ExprString(call.Fun)
		}
		text, ok := textOf(call.Args[0])
		switch {
		case ok && slices.Contains(containers, name):
			found = append(found, specsBelow(call, around+text+joint)...)
			return false
		case ok && slices.Contains(specs, name):
			found = append(found, around+text)
		}
		return true
	})
	return found
}

// textOf is a text, of which what is computed is left out.
func textOf(n ast.Expr) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, a := textOf(n.X)
		right, b := textOf(n.Y)
		return cmp.Or(left, "…") + cmp.Or(right, "…"), a || b
	}
	return "", false
}
