package test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root   = ".."
	module = "github.com/kubemend/kubemend"
)

// walk names all files of the project to visit, but for hidden folders and what is built.
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case file != "." && strings.HasPrefix(entry.Name(), ".") || file == "bin" || file == "out":
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir():
			visit(filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// content is the text of a file, which is named by its path from the top of the project.
func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parse reads a Go file: the source, or what is at the path if that is nil.
func parse(t *testing.T, path string, source any) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// textsOf are the strings of a Go file, and its comments if they are documentation, as they are written.
func textsOf(source string, documented bool) []string {
	var texts []string
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), []byte(source), nil, scanner.ScanComments)
	for {
		_, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return texts
		case kind == token.STRING || kind == token.COMMENT && documented:
			texts = append(texts, text)
		}
	}
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// A check that sees nothing would find nothing wrong: each one finds one violation, and nothing in what is right.
func TestTheChecksFindViolations(t *testing.T) {
	none, one := pkg{ImportPath: module + "/api/v1alpha1"},
		pkg{ImportPath: module + "/api/v1alpha1", TestImports: []string{module + "/test/rig"}}
	decision := func(text string) []string {
		return impurities(map[string]*ast.File{"rules.go": parse(t, "rules.go", "package p\n"+text)}, []string{"rules.go"})
	}
	pinned := "permissions: {}\n- uses: a/c@0123456789012345678901234567890123456789 # v1\n"
	statement := rulesPage{statements: []statement{{id: "seed 0.1", held: []proof{{"a", "TestIt/two/three"}}}}}
	file := testFile{path: "a/b_test.go", funcs: []string{"TestIt"}, texts: []string{"two/three", "W1"}}
	long := "package p\n\nfunc f() {\n\tif true {\n\t\treturn\n\t}\n}\n// " + strings.Repeat("x", wide) + "\n"
	if s := sizeOf(parse(t, "p.go", long), long); s != (size{lines: 8, wide: 1, statements: 2}) {
		t.Errorf("a file is %+v", s)
	}
	allowed := budget{"lines": {production: 1}}
	for name, found := range map[string][2][]string{
		"imports": {forbiddenImports([]pkg{none}, layerOf("api")), forbiddenImports([]pkg{one}, layerOf("api"))},
		"purity":  {decision("import \"time\"\nfunc a(time.Time) {}"), decision("import \"time\"\nvar _ = time.Now()")},
		"types":   {decision("type a struct{ b int }"), decision("import \"os\"\ntype a struct{ os.File }")[1:]},
		"ids":     {unexplained(rulesPage{}, nil), unexplained(rulesPage{}, []testFile{file})},
		"proofs":  {untrue(statement, []testFile{file}, nil), untrue(statement, []testFile{{path: file.path}}, nil)},
		"sizes": {tooLarge(allowed, map[string]size{production: {lines: 1}}),
			tooLarge(allowed, map[string]size{production: {lines: 2}})},
		"advice":   {riskyOnes("maxUnhealthy: 40%"), riskyOnes("maxUnhealthy: ${MAX_UNHEALTHY:=100%}")},
		"links":    {nil, {broken(t, "docs/install.md", linksIn("`[x](y)` and [no](none.md)")[0])}},
		"headings": {nil, {broken(t, "docs/install.md", "../README.md#no-such-heading")}},
		"words": {wordsIn("cmd/p.go", "package p // handed over", avoidedWords(t)),
			wordsIn("docs/p.md", "It is handed over.", avoidedWords(t))},
		"actions": {loose("x", pinned, ""), loose("x", "permissions: {}\n- uses: a/b@v1\n", "")},
		"specs": {specsIn(parse(t, "p.go", "package p\nfunc TestMain(m *testing.M) {}")),
			specsIn(parse(t, "p.go", "package p\nvar _ = Describe(\"A\", func() { It(\"b\"+x, func() {}) })"))},
	} {
		if right, wrong := found[0], found[1]; len(right) != 0 || len(wrong) != 1 || slices.Contains(wrong, "") {
			t.Errorf("%s: found %q and %q", name, right, wrong)
		}
	}
}

func riskyOnes(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return !risky(text) })
}

// alike are the modules that share compiled packages with the project. A package is compiled once for each set of versions below it: one
// version that differs, of a module far below, makes Kubernetes compile again.
var alike = []string{"test/rig/kube", "test/rig/capi", "test/gitops", "hack/release"}

func TestModulesUseTheSameVersionsOfSharedDependencies(t *testing.T) {
	ours := versionsIn(content(t, "go.mod"))
	for _, folder := range alike {
		shared := 0
		for path, version := range versionsIn(content(t, folder+"/go.mod")) {
			own, both := ours[path]
			if both {
				shared++
			}
			if both && own != version {
				t.Errorf("%s needs %s %s, the project %s: raise the older one, with go -C %s get PATH@VERSION "+
					"or go get PATH@VERSION, and run make tidy", folder, path, version, own, folder)
			}
		}
		if shared < 20 {
			t.Errorf("%s shares only %d dependencies with the project", folder, shared)
		}
	}
}

var (
	required = regexp.MustCompile(`^(?:require )?\s*([a-z][\w./~-]*\.[\w./~-]+) (v\S+)`)
	replaced = regexp.MustCompile(`^(?:replace )?\s*(\S+)(?: v\S+)? => \S+ (v\S+)`)
)

// versionsIn are the versions that a go.mod builds with, by module.
func versionsIn(text string) map[string]string {
	versions := map[string]string{}
	for _, kind := range []*regexp.Regexp{required, replaced} {
		for line := range strings.Lines(text) {
			if found := kind.FindStringSubmatch(line); len(found) == 3 && (kind == required || versions[found[1]] != "") {
				versions[found[1]] = found[2]
			}
		}
	}
	return versions
}
