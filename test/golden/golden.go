// Package golden compares the output of a test with a reviewed file. It imports no package of the project, so every layer can use it.
package golden

import (
	"cmp"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Compare fails the test if the file differs from got. With the flag -update it writes the file.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale; if the change is meant, run go test . -update in the folder of this test\ngot:\n%s\nwant:\n%s",
			file, got, want)
	}
}

// Section compares got with the text between the comments "begin NAME" and "end NAME" of a page. With the flag -update it writes the text.
// Packages that write sections of the same page must not run at the same time: use go test -p 1.
func Section(t *testing.T, page, name, got string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, found := strings.Cut(string(content), begin)
	want, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Fatalf("%s has no section %q", page, name)
	case got == want:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("section %q of %s is stale, run make generate\ngot:\n%s\nwant:\n%s", name, page, got, want)
	}
}

// Stories plays each story as a sub-test, and compares its output with the section of that name in testdata/NAME.txt, a txtar archive. A
// section without a story fails the test. With the flag -update it rewrites the sections of the stories that run.
func Stories[S any](t *testing.T, name string, stories map[string]S, play func(*testing.T, S) string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	archive, err := txtar.ParseFile(file)
	switch {
	case *update && errors.Is(err, fs.ErrNotExist):
		archive = &txtar.Archive{}
	case err != nil:
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, section := range archive.Files {
		if _, told := stories[section.Name]; told {
			want[section.Name] = string(section.Data)
		} else if !*update {
			t.Errorf("%s: no story is called %q any more, delete the section", file, section.Name)
		}
	}
	for story, input := range stories {
		t.Run(story, func(t *testing.T) {
			got := play(t, input)
			if *update {
				want[story] = got
			}
			if got != want[story] {
				t.Errorf("%s: %q is stale; if the change is meant, run go test . -update in the folder of this test\ngot:\n%s\nwant:\n%s",
					file, story, got, want[story])
			}
		})
	}
	if !*update {
		return
	}
	archive.Files = nil
	for story, text := range want {
		archive.Files = append(archive.Files, txtar.File{Name: story, Data: []byte(text)})
	}
	slices.SortFunc(archive.Files, func(a, b txtar.File) int { return cmp.Compare(a.Name, b.Name) })
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Story compares got with one section of testdata/NAME.txt, which Stories writes.
func Story(t *testing.T, name, story, got string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(archive.Files, func(section txtar.File) bool { return section.Name == story })
	if at < 0 || string(archive.Files[at].Data) != got {
		t.Errorf("testdata/%s.txt has another text for %q than\n%s", name, story, got)
	}
}

// Constant is a string constant of a Go file, with the comment at the end of its line.
type Constant struct{ Name, Value, Comment string }

// Constants returns the string constants of a file in its order.
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
