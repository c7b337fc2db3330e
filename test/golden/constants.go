package golden

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// Constant is a string constant of a Go file, with the comment behind it in its line.
type Constant struct{ Name, Value, Comment string }

// Constants are those of a file, in its order.
func Constants(t *testing.T, file string) []Constant {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []Constant
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, Constant{spec.Names[0].Name, value, strings.TrimSpace(spec.Comment.Text())})
		}
		return true
	})
	return found
}
