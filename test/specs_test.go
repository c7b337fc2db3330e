package test

import (
	"fmt"
	"go/ast"
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
		function, is := declared.(*ast.FuncDecl)
		if is && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && takesT(function) {
			found = append(found, function.Name.Name)
		}
		found = append(found, specsBelow(declared, "")...)
	}
	return found
}

// takesT reports whether a function is a test, and no helper of that name.
func takesT(function *ast.FuncDecl) bool {
	params := function.Type.Params.List
	if len(params) != 1 {
		return false
	}
	pointer, is := params[0].Type.(*ast.StarExpr)
	if !is {
		return false
	}
	of, is := pointer.X.(*ast.SelectorExpr)
	return is && of.Sel.Name == "T"
}

func specsBelow(n ast.Node, around string) []string {
	var found []string
	ast.Inspect(n, func(child ast.Node) bool {
		call, is := child.(*ast.CallExpr)
		if !is || child == n || len(call.Args) == 0 {
			return true
		}
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		text, is := textOf(call.Args[0])
		switch {
		case is && slices.Contains(containers, name):
			found = append(found, specsBelow(call, around+text+" › ")...)
			return false
		case is && slices.Contains(specs, name):
			found = append(found, around+text)
		}
		return true
	})
	return found
}

// textOf is a text, of which what is computed is left out.
func textOf(n ast.Expr) (string, bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, a := textOf(n.X)
		right, b := textOf(n.Y)
		if !a {
			left = "…"
		}
		if !b {
			right = "…"
		}
		return left + right, a || b
	}
	return "", false
}
