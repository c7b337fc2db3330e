package rig

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv(BinariesEnv, t.TempDir())
	_, err := Start(t.Context(), Options{})
	expecting(t).Expect(err).To(MatchError(And(ContainSubstring("kube-controller-manager"), ContainSubstring("run make rig"))))
}

func TestAssetsOfEnvtestAreTaken(t *testing.T) {
	g := expecting(t)
	root, err := moduleRoot()
	g.Expect(err).NotTo(HaveOccurred())
	assets := t.TempDir()
	t.Setenv(assetsEnv, assets)
	_, err = findBinaries(root)
	g.Expect(err).To(MatchError(ContainSubstring(filepath.Join(assets, "kube-apiserver"))), "set, but empty")

	for _, name := range []program{etcd, apiServer} {
		g.Expect(os.WriteFile(filepath.Join(assets, string(name)), nil, 0o600)).To(Succeed())
	}
	found, err := findBinaries(root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found[etcd]).To(Equal(filepath.Join(assets, "etcd")))
	g.Expect(found[controllerManager]).To(Equal(filepath.Join(root, ".rig", "bin", "kube-controller-manager")))
}
