package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/must"
)

// If the Dockerfile or tilt-provider.json misses a folder, only builds with Docker or Tilt fail. The manager does not need test/ and cmd/.
func TestTheBuildKnowsEveryFolder(t *testing.T) {
	sources := map[string]bool{"go.mod": true, "go.sum": true}
	for _, p := range listPackages(t) {
		switch top, _, _ := strings.Cut(p.folder(), "/"); top {
		case "", "test", "cmd":
		case ".":
			for _, file := range p.GoFiles {
				sources[file] = true
			}
		default:
			sources[top] = true
		}
	}
	var copied []string
	for line := range strings.Lines(content(t, "Dockerfile")) {
		if strings.HasPrefix(line, "COPY ") && !strings.HasPrefix(line, "COPY --from=") {
			copied = append(copied, strings.Fields(strings.ReplaceAll(line, "/ ", " "))...)
		}
	}
	inImage, watched := " "+strings.Join(copied, " ")+" ", content(t, "tilt-provider.json")
	for source := range sources {
		if !strings.Contains(inImage, " "+source+" ") {
			t.Errorf("the Dockerfile does not copy %s", source)
		}
		if !strings.Contains(watched, `"`+source+`"`) {
			t.Errorf("live_reload_deps in tilt-provider.json does not list %s", source)
		}
	}
}

// The owner of an action can move its tags, so actions are pinned by commit. A workflow has no rights but those that its jobs ask for.
func TestWorkflowsRunPinnedActionsWithMinimalRights(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(root, ".github", "workflows"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	for _, file := range files {
		report(t, loose(file.Name(), content(t, ".github/workflows/"+file.Name()), content(t, "Makefile")))
	}
}

var (
	used   = regexp.MustCompile(`(?m)^\s*-? *uses: (.*)$`)
	pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d`)
	made   = regexp.MustCompile(`(?m)run: make ([a-z-]+)`)
)

// loose returns what is wrong with a workflow.
func loose(name, workflow, makefile string) []string {
	var found []string
	if !strings.Contains(workflow, "\npermissions: {}\n") && !strings.HasPrefix(workflow, "permissions: {}\n") {
		found = append(found, name+": jobs have rights that they do not name")
	}
	for _, action := range used.FindAllStringSubmatch(workflow, -1) {
		if !pinned.MatchString(action[1]) {
			found = append(found, fmt.Sprintf("%s: %s is not named by its commit, with the version behind it", name, action[1]))
		}
	}
	for _, target := range made.FindAllStringSubmatch(workflow, -1) {
		if !regexp.MustCompile(`(?m)^` + target[1] + `:`).MatchString(makefile) {
			found = append(found, fmt.Sprintf("%s: there is no make %s", name, target[1]))
		}
	}
	return found
}

// Dependabot only updates modules in its configuration. Without a toolchain line, any installed Go would build a module.
func TestEveryModuleIsUpdatedAndBuiltByTheSameToolchain(t *testing.T) {
	var bot struct {
		Updates []struct{ Directories []string }
	}
	must.Do(t, yaml.Unmarshal([]byte(content(t, ".github/dependabot.yml")), &bot))
	var folders []string
	for _, update := range bot.Updates {
		folders = append(folders, update.Directories...)
	}
	toolchains := map[string][]string{}
	walk(t, func(file string) {
		folder, ok := strings.CutSuffix("/"+file, "/go.mod")
		if !ok {
			return
		}
		known := slices.ContainsFunc(folders, func(pattern string) bool {
			matches, _ := path.Match(pattern, "/"+strings.TrimPrefix(folder, "/"))
			return matches
		})
		if !known {
			t.Errorf("dependabot does not know module %s", file)
		}
		line := regexp.MustCompile(`(?m)^toolchain .*$`).FindString(content(t, file))
		toolchains[line] = append(toolchains[line], file)
	})
	if len(toolchains) != 1 || toolchains[""] != nil {
		t.Errorf("the modules have these toolchains: %q", toolchains)
	}
}

// A manager on a developer's machine must not be reachable from other machines.
func TestMakeRunListensOnLoopbackAlone(t *testing.T) {
	local := regexp.MustCompile(`(?m)^LOCAL = (.*)$`).FindStringSubmatch(content(t, "Makefile"))
	want := "--health-addr=127.0.0.1:9440 --diagnostics-address=127.0.0.1:8443 --webhook-host=127.0.0.1"
	if len(local) < 2 || local[1] != want || !strings.Contains(content(t, "Makefile"), "exec bin/manager $(LOCAL) ") {
		t.Errorf("make run has %q, want %q", local, want)
	}
}

// hack/mutate replaces the text of a fault in the code; it cannot try a fault whose text is no longer there.
func TestTheFaultsThatMutateTriesAreOfTheCode(t *testing.T) {
	for _, fault := range strings.Split(content(t, "hack/mutate/faults.txt"), "\n= ")[1:] {
		title, rest, _ := strings.Cut(fault, "\n")
		file, rest, _ := strings.Cut(rest, "\n-")
		old, _, found := strings.Cut(rest, "\n+")
		code, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !found || strings.Count(string(code), old) != 1 {
			t.Errorf("hack/mutate/faults.txt: %s: its text is not in %s once (%v): write it anew", title, file, err)
		}
	}
}

const (
	root   = ".."
	module = "github.com/kubemend/kubemend"
)

// walk calls visit for all files of the project except those in hidden folders, bin and out.
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
	must.Do(t, err)
}

// content returns the text of a file. The name is relative to the root of the project.
func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must.Do(t, err)
	return string(text)
}

// parse parses source, or the file with that name if source is nil.
func parse(t *testing.T, name string, source any) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	must.Do(t, err)
	return file
}

// textsOf returns the string literals of a Go file, with quotes, and its comments if documented is true.
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

// A check that never fails is worthless: each check must accept the first example of its row and find one violation in the second.
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

// alike are modules that share compiled packages with the project. If a single dependency has another version in one of them, the compiler
// has to compile Kubernetes again.
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

// versionsIn returns the versions in a go.mod by module, replacements included.
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
