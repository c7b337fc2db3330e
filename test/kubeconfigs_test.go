package test

import (
	"slices"
	"strings"
	"testing"
)

// ofKubeconfigs make of a kubeconfig what connects, whatever it names.
var ofKubeconfigs = []string{"k8s.io/client-go/tools/clientcmd", "sigs.k8s.io/cluster-api/controllers/remote"}

// obeyingKubeconfigs are packages besides controllers/workload, which refuses what a tenant may not have obeyed. The kubeconfig that the command line
// reads is its user's own.
func obeyingKubeconfigs(pkgs []pkg) []string {
	var found []string
	for _, p := range pkgs {
		folder := p.folder()
		if folder == "" || strings.HasPrefix(folder, "test") || folder == "controllers/workload" || folder == "cmd/kubectl-mend/command" {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(ofKubeconfigs, imported) {
				found = append(found, folder+" imports "+imported)
			}
		}
	}
	return found
}

func TestOnlyOnePackageLoadsKubeconfigsOfClusters(t *testing.T) {
	report(t, obeyingKubeconfigs(listPackages(t)))
	for _, folder := range []string{".", "baremetal/fence", "controllers/nodehealthcheck", "cmd/kubectl-mend/snapshot"} {
		if len(obeyingKubeconfigs([]pkg{imports(folder, ofKubeconfigs[0])})) == 0 {
			t.Errorf("the check does not notice one in %s", folder)
		}
	}
}
