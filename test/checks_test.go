package test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// A check that sees nothing would find nothing wrong: each one finds one violation, and nothing in what is right.
func TestTheChecksFindViolations(t *testing.T) {
	none, one := pkg{ImportPath: module + "/api/v1alpha1"}, pkg{ImportPath: module + "/api/v1alpha1", TestImports: []string{module + "/test/rig"}}
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
		"imports":  {forbiddenImports([]pkg{none}, layerOf("api")), forbiddenImports([]pkg{one}, layerOf("api"))},
		"purity":   {decision("import \"time\"\nfunc a(time.Time) {}"), decision("import \"time\"\nvar _ = time.Now()")},
		"types":    {decision("type a struct{ b int }"), decision("import \"os\"\ntype a struct{ os.File }")[1:]},
		"ids":      {unexplained(rulesPage{}, nil), unexplained(rulesPage{}, []testFile{file})},
		"proofs":   {untrue(statement, []testFile{file}, nil), untrue(statement, []testFile{{path: file.path}}, nil)},
		"sizes":    {tooLarge(allowed, map[string]size{production: {lines: 1}}), tooLarge(allowed, map[string]size{production: {lines: 2}})},
		"advice":   {riskyOnes("maxUnhealthy: 40%"), riskyOnes("maxUnhealthy: ${MAX_UNHEALTHY:=100%}")},
		"links":    {nil, {broken(t, "docs/install.md", linksIn("`[x](y)` and [no](none.md)")[0])}},
		"headings": {nil, {broken(t, "docs/install.md", "../README.md#no-such-heading")}},
		"words":    {wordsIn("cmd/p.go", "package p // handed over", avoidedWords(t)), wordsIn("docs/p.md", "It is handed over.", avoidedWords(t))},
		"actions":  {loose("x", pinned, ""), loose("x", "permissions: {}\n- uses: a/b@v1\n", "")},
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
