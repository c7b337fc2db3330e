// Package test checks the shape of the code itself: which package imports which, how large they are, and that the build knows every folder.
//
// It looks at the code as `go list` sees it and runs none of it.
package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
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
			"controllers/capi", "controllers/managerlease", "controllers/recorder",
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

// forTests are folders that import nothing of ours but each other, and that tests of every layer may import.
var forTests = []string{"test/faults", "test/golden", "test/inmemory"}

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath                                  string
	GoFiles, Imports, TestImports, XTestImports []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := goList()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// goList asks once for all tests: the answer takes a second.
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

// folder is where p is, seen from the top of the module.
func (p pkg) folder() string { return folderOf(p.ImportPath) }

// folderOf is empty for what is not ours.
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

// forbiddenImports also looks at imports by tests, which only reach what their package may reach.
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

// controllers/workload refuses the kubeconfigs of tenants that run a program or name a file of the manager; the one that the command line
// reads is its user's own.
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
