package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Users look up what a condition or an event means by its reason.
func TestReasonsAndEventsAreExplained(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, name := range []string{"conditions.md", "events.md"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = string(content)
	}
	checked := 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		constant, is := n.(*ast.ValueSpec)
		if !is || len(constant.Names) != 1 || len(constant.Values) != 1 {
			return true
		}
		value, is := constant.Values[0].(*ast.BasicLit)
		page := pageOf(constant.Names[0].Name)
		if !is || page == "" {
			return true
		}
		checked++
		if reason := strings.Trim(value.Value, `"`); !strings.Contains(pages[page], "`"+reason+"`") {
			t.Errorf("docs/%s does not explain %s", page, reason)
		}
		return true
	})
	if checked < 30 {
		t.Errorf("only %d constants were found", checked)
	}
}

var ofEvents = regexp.MustCompile(`^Event[A-Z]`)

// pageOf is the page that explains the value of a constant, if it is a reason.
func pageOf(constant string) string {
	switch {
	case ofEvents.MatchString(constant):
		return "events.md"
	case strings.HasSuffix(constant, "Reason"):
		return "conditions.md"
	}
	return ""
}
