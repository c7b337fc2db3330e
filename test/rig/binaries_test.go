package rig

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAMissingProgramIsNamedWhenItIsNeeded(t *testing.T) {
	g := expecting(t)
	root, err := moduleRoot()
	g.Expect(err).NotTo(HaveOccurred())
	real, err := binariesOf(root).find(leash)
	g.Expect(err).NotTo(HaveOccurred())
	folder := t.TempDir()
	t.Setenv(BinariesEnv, folder)

	_, err = Start(t.Context(), Options{})
	g.Expect(err).To(MatchError(And(ContainSubstring("leash"), ContainSubstring("run make rig-control-planes"))))

	real, err = filepath.Abs(real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Symlink(real, filepath.Join(folder, "leash"))).To(Succeed())
	r := started(t) // which needs the leash alone
	_, err = r.Workload(t.Context(), "workload", WorkloadOptions{})
	g.Expect(err).To(MatchError(And(MatchRegexp("find (etcd|kube-apiserver)"), ContainSubstring("run make rig-control-planes"))))
	_, err = Clusterctl(t.Context(), "", "version")
	g.Expect(err).To(MatchError(And(ContainSubstring("find clusterctl"), HaveSuffix("run make rig"))))
	_, err = CertManager()
	g.Expect(err).To(MatchError(And(ContainSubstring("find cert-manager.yaml"), HaveSuffix("run make rig"))))
}

func TestALinkToAProgramThatIsGoneIsAMissingProgram(t *testing.T) {
	folder := t.TempDir()
	if err := os.Symlink(filepath.Join(folder, "gone"), filepath.Join(folder, "etcd")); err != nil {
		t.Fatal(err)
	}
	_, err := binaries(folder).find(etcd)
	expecting(t).Expect(err).To(MatchError(os.ErrNotExist))
}
