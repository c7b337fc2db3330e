// Package test checks the source code of the project: which package may import which, how large the packages are, that the Dockerfile and
// Tilt list every folder, and that the pages agree with the code. It parses the code and runs none of it.
package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

// A layer is a set of folders. They may import nothing of this project but the folders of the layers in may.
type layer struct {
	name    string
	folders []string
	may     []string
}

// layers are all layers of the project. Every folder must be in a layer; add a new folder to one of them.
//
// The tests of a folder obey the same limits, except that they may import forTests. A controller's test that needs the rig belongs below
// test/.
var layers = []layer{
	{
		name:    "pure",
		folders: []string{"controllers/decide", "baremetal/powercycle", "baremetal/spare"},
		may:     []string{"pure", "api"},
	},
	{
		name:    "api",
		folders: []string{"api"},
		may:     []string{"api"},
	},
	{
		name: "adapter",
		folders: []string{
			"baremetal/fence", "baremetal/host", "baremetal/remediation", "controllers/access", "controllers/begin", "controllers/capacity",
			"controllers/clockerror", "controllers/consistency",
			"controllers/enqueue", "controllers/explain", "controllers/flags",
			"controllers/capi", "controllers/managerlease", "controllers/policy", "controllers/recorder",
			"controllers/remediationrecord", "controllers/process", "controllers/remediationrequest", "controllers/workload",
		},
		may: []string{"pure", "api", "adapter"},
	},
	{
		name: "controller",
		folders: []string{
			"controllers/claims", "controllers/crdgate", "controllers/hostremediation", "controllers/leftovers",
			"controllers/machinehealthcheck", "controllers/migration", "controllers/nodehealthcheck",
		},
		may: []string{"pure", "api", "adapter"},
	},
	{
		name:    "cmd",
		folders: []string{"cmd"},
		may:     []string{"pure", "api", "adapter", "controller", "cmd"},
	},
	{
		name:    "setup",
		folders: []string{"setup"},
		may:     []string{"pure", "api", "adapter", "controller"},
	},
	{
		name:    "main",
		folders: []string{"."},
		may:     []string{"adapter", "setup"},
	},
	{
		name:    "test",
		folders: []string{"test"},
		may:     []string{"pure", "api", "adapter", "controller", "cmd", "setup", "main", "test"},
	},
}

// forTests are folders that the tests of every layer may import. They import nothing of this project but each other.
var forTests = []string{"test/faults", "test/golden", "test/inmemory", "test/must"}

// pkg is one package as `go list` prints it.
type pkg struct {
	ImportPath                                  string
	GoFiles, Imports, TestImports, XTestImports []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := goList()
	must.Do(t, err)
	return pkgs
}

// goList runs `go list` once for all tests, because it takes a second.
var goList = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
})

// folder returns the folder of p, relative to the root of the module.
func (p pkg) folder() string { return folderOf(p.ImportPath) }

// folderOf returns the folder of a package of this module, and "" for any other package.
func folderOf(importPath string) string {
	if importPath == module {
		return "."
	}
	folder, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	return folder
}

func layerOf(folder string) layer {
	for _, l := range layers {
		for _, f := range l.folders {
			if folder == f || strings.HasPrefix(folder, f+"/") {
				return l
			}
		}
	}
	return layer{name: "no layer"}
}

func TestArrows(t *testing.T) {
	pkgs := listPackages(t)
	for _, l := range layers {
		t.Run(fmt.Sprintf("%s imports nothing of ours but %v", l.name, l.may), func(t *testing.T) {
			report(t, forbiddenImports(pkgs, l))
		})
	}
	for _, p := range pkgs {
		if layerOf(p.folder()).name == "no layer" {
			t.Errorf("%s has no layer", p.folder())
		}
	}
}

// forbiddenImports returns the imports that layer l must not have. It checks the imports of tests too.
func forbiddenImports(pkgs []pkg, l layer) []string {
	var found []string
	for _, p := range pkgs {
		if layerOf(p.folder()).name != l.name {
			continue
		}
		byTests := slices.DeleteFunc(slices.Concat(p.TestImports, p.XTestImports), func(imported string) bool {
			return slices.Contains(forTests, folderOf(imported))
		})
		for _, imported := range slices.Concat(p.Imports, byTests) {
			folder := folderOf(imported)
			may := slices.Contains(l.may, layerOf(folder).name)
			if slices.Contains(forTests, p.folder()) {
				may = slices.Contains(forTests, folder)
			}
			if folder == "" || folder == p.folder() || may {
				continue
			}
			found = append(found, fmt.Sprintf("%s (%s) imports %s (%s)", p.folder(), l.name, folder, layerOf(folder).name))
		}
	}
	return found
}

// controllers/workload refuses a tenant's kubeconfig that runs a program or names a file of the manager. No other package of the manager
// may load one. kubectl mend loads the kubeconfig of the user who runs it, so it needs no such check.
func TestOnlyOnePackageLoadsKubeconfigsOfClusters(t *testing.T) {
	var loading []string
	for _, p := range listPackages(t) {
		loads := slices.Contains(p.Imports, "k8s.io/client-go/tools/clientcmd") ||
			slices.Contains(p.Imports, "sigs.k8s.io/cluster-api/controllers/remote")
		if loads && layerOf(p.folder()).name != "test" {
			loading = append(loading, p.folder())
		}
	}
	if want := []string{"cmd/kubectl-mend/command", "controllers/workload"}; !slices.Equal(loading, want) {
		t.Errorf("%q load kubeconfigs, want %q", loading, want)
	}
}

// data are the third-party packages that a deciding file may import: API types, and helpers that compare or print them. It must not import
// client-go, controller-runtime or k8s.io/utils/clock.
var data = []string{
	"github.com/metal3-io/baremetal-operator/apis", "k8s.io/api", "k8s.io/apimachinery/pkg/api", "k8s.io/apimachinery/pkg/apis",
	"k8s.io/apimachinery/pkg/fields", "k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/selection",
	"k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/util/intstr", "k8s.io/apimachinery/pkg/util/sets", "k8s.io/utils/ptr",
	"sigs.k8s.io/cluster-api/api", "sigs.k8s.io/json",
}

// effects are the packages of the standard library that a deciding file must not import: contexts, randomness, logging, I/O and locks.
var effects = []string{"context", "crypto/rand", "log", "math/rand", "net", "os", "sync", "syscall"}

// clocks are, by package, the functions that read the clock or wait.
var clocks = map[string][]string{
	"time":                                 {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now"},
}

// isPure reports whether a file may only decide: all files of the layer "pure", and files of controllers named rules.go, decide.go or
// *_decide.go.
func isPure(folder, file string) bool {
	return layerOf(folder).name == "pure" || layerOf(folder).name != "test" &&
		(file == "rules.go" || file == "decide.go" || strings.HasSuffix(file, "_decide.go"))
}

// A decision is a function of API objects and the current time. It has no context, client, clock or goroutine, so tests need no fakes, and
// kubectl mend can decide what the manager decides.
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

// impurities returns what the files named in pure import, call or refer to although a decision must not.
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

// impureTypes returns the types of a package with a field of a package that a decision must not import, or with a field of such a type.
func impureTypes(files map[string]*ast.File) map[string]bool {
	mentions := map[string][]string{} // type name → names of the types in its fields
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
