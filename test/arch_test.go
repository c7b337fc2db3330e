// Package test checks the shape of the code itself: which package imports which, and that the build knows every folder.
//
// It looks at the code as `go list` sees it and runs none of it.
package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	root   = ".."
	module = "github.com/kubemend/kubemend"
)

// A layer is a set of folders, and the layers from which alone they may import.
type layer struct {
	name    string
	folders []string
	may     []string
}

// layers are the arrows of the design. A folder in none of them fails the test: give it a layer here.
//
// Tests obey them as well: a test of a controller that needs the rig belongs below test/. What alone they may import besides is forTests.
var layers = []layer{
	{
		name:    "pure",
		folders: []string{"controllers/decide", "baremetal/powercycle"},
		may:     []string{"pure"},
	},
	{
		name:    "api",
		folders: []string{"api"},
		may:     []string{"api"},
	},
	{
		name: "adapter",
		folders: []string{
			"controllers/access", "controllers/capacity", "controllers/consistency", "controllers/console", "controllers/endpoints", "controllers/flags", "controllers/explain", "controllers/machinestatus", "controllers/managerlease", "controllers/nodehealthcheck/openshift", "controllers/recorder", "controllers/records", "controllers/remediationrequest", "controllers/replica", "controllers/shard", "controllers/enqueue", "controllers/workload", "baremetal/host", "baremetal/fence", "baremetal/remediation",
		},
		may: []string{"pure", "api", "adapter"},
	},
	{
		name:    "controller",
		folders: []string{"controllers/claims", "controllers/machinehealthcheck", "controllers/hostremediation", "controllers/teardown", "controllers/migration", "controllers/nodehealthcheck", "controllers/remediationrecord", "controllers/crdgate"},
		may:     []string{"pure", "api", "adapter"},
	},
	{
		name:    "partner",
		folders: []string{"partners"},
		may:     []string{"api", "partner"},
	},
	{
		name:    "cmd",
		folders: []string{"cmd"},
		may:     []string{"pure", "api", "adapter", "controller", "partner", "cmd"},
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
		may:     []string{"pure", "api", "adapter", "controller", "partner", "cmd", "setup", "main", "test"},
	},
}

// forTests are folders that import nothing of ours, and that tests of every layer may import.
var forTests = []string{"test/golden"}

// impure are the parts of the standard library that a decision has no use for: they are I/O, or a way to it.
var impure = []string{"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec"}

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath   string
	Standard     bool
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// folder is where p is, seen from the top of the module; empty when it is not ours.
func (p pkg) folder() string { return folderOf(p.ImportPath) }

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
	t.Run("every folder has a layer", func(t *testing.T) { report(t, withoutLayer(pkgs)) })
	t.Run("pure packages need the standard library alone", func(t *testing.T) { report(t, foreignDependencies(pkgs)) })
	t.Run("pure packages have no context, log or I/O", func(t *testing.T) { report(t, impureImports(pkgs)) })
}

// forbiddenImports also looks at imports by tests, which only reach what their package may reach.
func forbiddenImports(pkgs []pkg, l layer) []string {
	var found []string
	for _, p := range pkgs {
		if p.folder() == "" || layerOf(p.folder()).name != l.name {
			continue
		}
		byTests := slices.DeleteFunc(slices.Concat(p.TestImports, p.XTestImports), func(imported string) bool {
			return slices.Contains(forTests, folderOf(imported))
		})
		for _, imported := range slices.Concat(p.Imports, byTests) {
			folder := folderOf(imported)
			if folder == "" || folder == p.folder() || slices.Contains(l.may, layerOf(folder).name) && !slices.Contains(forTests, p.folder()) {
				continue
			}
			found = append(found, fmt.Sprintf("%s (%s) imports %s (%s)", p.folder(), l.name, folder, layerOf(folder).name))
		}
	}
	return found
}

func withoutLayer(pkgs []pkg) []string {
	var found []string
	for _, p := range pkgs {
		if p.folder() != "" && layerOf(p.folder()).name == "no layer" {
			found = append(found, p.folder()+" has no layer")
		}
	}
	return found
}

// foreignDependencies follows imports to the end: what a dependency drags in is needed too.
func foreignDependencies(pkgs []pkg) []string {
	standard := map[string]bool{}
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	var found []string
	for _, p := range purePackages(pkgs) {
		for _, dep := range p.Deps {
			if !standard[dep] && layerOf(folderOf(dep)).name != "pure" {
				found = append(found, p.folder()+" (pure) depends on "+dep)
			}
		}
	}
	return found
}

func impureImports(pkgs []pkg) []string {
	var found []string
	for _, p := range purePackages(pkgs) {
		for _, imported := range p.Imports {
			if slices.Contains(impure, imported) {
				found = append(found, p.folder()+" (pure) imports "+imported)
			}
		}
	}
	return found
}

func purePackages(pkgs []pkg) []pkg {
	return slices.DeleteFunc(slices.Clone(pkgs), func(p pkg) bool {
		return p.folder() == "" || layerOf(p.folder()).name != "pure"
	})
}

// Without this, a check that sees nothing would find nothing wrong.
func TestTheImportRulesFindViolations(t *testing.T) {
	for name, p := range map[string]pkg{
		"a decision imports the API types":              imports("controllers/decide/health", "api/v1alpha1"),
		"a decision imports an adapter":                 imports("baremetal/powercycle", "baremetal/host"),
		"a decision imports a client library":           imports("controllers/decide/budget", "sigs.k8s.io/controller-runtime"),
		"a decision imports a context":                  imports("controllers/decide/escalation", "context"),
		"an adapter imports a controller":               imports("controllers/remediationrequest", "controllers/machinehealthcheck"),
		"a host adapter imports a controller":           imports("baremetal/host", "controllers/hostremediation"),
		"a fence adapter imports a controller":          imports("baremetal/fence", "controllers/nodehealthcheck"),
		"one controller imports another":                imports("controllers/machinehealthcheck", "controllers/nodehealthcheck"),
		"the API types import a decision":               imports("api/v1alpha1", "controllers/decide/health"),
		"a command imports main":                        imports("cmd/kubectl-mend", "."),
		"a controller imports the model of a partner":   imports("controllers/hostremediation", "partners/bmo"),
		"the model of a partner imports a controller":   imports("partners/bmo", "controllers/hostremediation"),
		"a command imports the test rig":                imports("cmd/kubectl-mend", "test/rig"),
		"main imports the test rig":                     imports(".", "test/rig"),
		"a controller imports test builders":            imports("controllers/machinehealthcheck", "test/builders"),
		"a test of a controller imports test builders":  {ImportPath: pathOf("controllers/remediationrequest"), TestImports: []string{pathOf("test/builders")}},
		"an outside test of a decision imports the rig": {ImportPath: pathOf("controllers/decide/health"), XTestImports: []string{pathOf("test/rig")}},
		"a controller imports a folder without a layer": imports("controllers/machinehealthcheck", "controllers/helper"),
		"a decision imports what is for its tests":      imports("controllers/decide/health", "test/golden"),
		"what is for all tests imports ours":            imports("test/golden", "test/rig"),
		"a folder without a layer":                      imports("baremetal/helper", "fmt"),
	} {
		t.Run(name, func(t *testing.T) {
			all := []pkg{p, {ImportPath: "context", Standard: true}, {ImportPath: "fmt", Standard: true}}
			found := slices.Concat(withoutLayer(all), foreignDependencies(all), impureImports(all))
			for _, l := range layers {
				found = append(found, forbiddenImports(all, l)...)
			}
			if len(found) == 0 {
				t.Error("the checks do not notice")
			}
		})
	}
}

// imports is a package of ours that imports one other, of ours or not.
func imports(folder, imported string) pkg {
	if layerOf(imported).name != "no layer" || imported == "controllers/helper" {
		imported = pathOf(imported)
	}
	return pkg{ImportPath: pathOf(folder), Imports: []string{imported}, Deps: []string{imported}}
}

func pathOf(folder string) string {
	if folder == "." {
		return module
	}
	return module + "/" + folder
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}
