package test

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// data are what a decision may import besides the standard library and the layers of its own: API types, which are data, and what compares
// and prints them. client-go, controller-runtime and k8s.io/utils/clock are not among them.
var data = []string{
	"github.com/metal3-io/baremetal-operator/apis", "k8s.io/api", "k8s.io/apimachinery/pkg/api", "k8s.io/apimachinery/pkg/apis",
	"k8s.io/apimachinery/pkg/fields", "k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/selection",
	"k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/util/intstr", "k8s.io/apimachinery/pkg/util/sets", "k8s.io/utils/ptr",
	"sigs.k8s.io/cluster-api/api", "sigs.k8s.io/json",
}

// effects are the parts of the standard library that a decision has no use for: a context, or I/O and a way to it.
var effects = []string{"context", "crypto/rand", "log", "math/rand", "net", "os", "sync", "syscall"}

// clocks are the functions that ask what time it is, or wait; by the package that has them.
var clocks = map[string][]string{
	"time":                                 {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now"},
}

// isPure says which files decide: those of the packages that do nothing else, and those of a controller that are named after it.
func isPure(folder, file string) bool {
	return layerOf(folder).name == "pure" || layerOf(folder).name != "test" &&
		(file == "rules.go" || file == "decide.go" || strings.HasSuffix(file, "_decide.go"))
}

// A decision is a function of API objects and now: it has no context, no client, no clock and no goroutine, so that tests need none, and
// that the command line decides what the manager decides.
func TestDecisionsArePure(t *testing.T) {
	decisions := 0
	for _, p := range listPackages(t) {
		pure := slices.DeleteFunc(slices.Clone(p.GoFiles), func(file string) bool { return !isPure(p.folder(), file) })
		if len(pure) == 0 {
			continue
		}
		decisions += len(pure)
		files := map[string]*ast.File{}
		for _, file := range p.GoFiles {
			files[file] = parse(t, filepath.Join(root, p.folder(), file), nil)
		}
		for _, what := range impurities(files, pure) {
			t.Errorf("%s/%s", p.folder(), what)
		}
	}
	if decisions < 50 {
		t.Errorf("only %d files were found that decide", decisions)
	}
}

// impurities are what the pure ones among the files of a package import, call or take that a decision must not have.
func impurities(files map[string]*ast.File, pure []string) []string {
	impure := impureTypes(files)
	var found []string
	for _, name := range pure {
		imports := importsOf(files[name])
		for _, path := range imports {
			if !mayDecide(path) {
				found = append(found, name+" imports "+path)
			}
		}
		ast.Inspect(files[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = append(found, name+" starts a goroutine")
			case *ast.ChanType:
				found = append(found, name+" has a channel")
			case *ast.Ident:
				if impure[n.Name] {
					found = append(found, fmt.Sprintf("%s has a %s, which holds a client, a context or a clock", name, n.Name))
				}
			case *ast.SelectorExpr:
				if from, ok := n.X.(*ast.Ident); ok && slices.Contains(clocks[imports[from.Name]], n.Sel.Name) {
					found = append(found, fmt.Sprintf("%s asks %s.%s", name, from.Name, n.Sel.Name))
				}
				return false
			}
			return true
		})
	}
	return found
}

// impureTypes are the types of a package whose fields, or those of another one of them, are of a package that a decision must not import.
func impureTypes(files map[string]*ast.File) map[string]bool {
	mentions := map[string][]string{} // by type, what it is made of
	impure := map[string]bool{}
	for _, file := range files {
		imports := importsOf(file)
		ast.Inspect(file, func(n ast.Node) bool {
			declared, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			ast.Inspect(declared.Type, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if from, ok := n.X.(*ast.Ident); ok && !mayDecide(imports[from.Name]) {
						impure[declared.Name.Name] = true
					}
				case *ast.Ident:
					mentions[declared.Name.Name] = append(mentions[declared.Name.Name], n.Name)
				}
				return true
			})
			return true
		})
	}
	for before := -1; before != len(impure); {
		before = len(impure)
		for name, mentioned := range mentions {
			if slices.ContainsFunc(mentioned, func(other string) bool { return impure[other] }) {
				impure[name] = true
			}
		}
	}
	return impure
}

func importsOf(file *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = path
	}
	return imports
}

func mayDecide(path string) bool {
	below := func(parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }
	switch top, _, _ := strings.Cut(path, "/"); {
	case below(module):
		return slices.Contains([]string{"pure", "api"}, layerOf(folderOf(path)).name)
	case strings.Contains(top, "."):
		return slices.ContainsFunc(data, below)
	default:
		return !slices.ContainsFunc(effects, below)
	}
}
