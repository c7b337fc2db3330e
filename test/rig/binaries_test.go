package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAMissingProgramIsNamedWhenItIsNeeded(t *testing.T) {
	g := expecting(t)
	root, err := moduleRoot()
	g.Expect(err).NotTo(HaveOccurred())
	provided, err := binariesOf(root).find(reaper)
	g.Expect(err).NotTo(HaveOccurred())
	folder := t.TempDir()
	t.Setenv(BinariesEnv, folder)

	_, err = Start(t.Context(), Options{})
	g.Expect(err).To(MatchError(And(ContainSubstring("reaper"), ContainSubstring("run make rig-control-planes"))))

	provided, err = filepath.Abs(provided)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Symlink(provided, filepath.Join(folder, "reaper"))).To(Succeed())
	r := started(t) // which needs the reaper alone
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

func TestABuildInAnotherProcessIsWaitedFor(t *testing.T) {
	g := expecting(t)
	builder := exec.Command("cat")
	input, err := builder.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(builder.Start()).To(Succeed())
	t.Setenv(BuilderEnv, strconv.Itoa(builder.Process.Pid))
	folder := t.TempDir()
	looked := func(p program) <-chan error {
		result := make(chan error, 1)
		go func() {
			_, err := binaries(folder).find(p)
			result <- err
		}()
		return result
	}

	built, failed := looked(core), looked(etcd)
	g.Consistently(built, "100ms").ShouldNot(Receive())
	g.Expect(os.WriteFile(filepath.Join(folder, "capi-core"), nil, 0o600)).To(Succeed())
	g.Eventually(built).Should(Receive(BeNil()))
	g.Expect(input.Close()).To(Succeed())
	g.Expect(builder.Wait()).To(Succeed())
	g.Eventually(failed).Should(Receive(MatchError(os.ErrNotExist)), "the build has ended without it")
}

func TestAnOldManagerIsNotUsedWhileANewOneIsBuilt(t *testing.T) {
	g := expecting(t)
	builder := exec.Command("cat")
	input, err := builder.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(builder.Start()).To(Succeed())
	t.Setenv(BuilderEnv, strconv.Itoa(builder.Process.Pid))
	waited := make(chan error, 1)
	go func() { waited <- built(t.Context()) }()
	g.Consistently(waited, "100ms").ShouldNot(Receive())
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(built(ctx)).To(MatchError(context.Canceled))

	g.Expect(input.Close()).To(Succeed())
	g.Expect(builder.Wait()).To(Succeed())
	g.Eventually(waited).Should(Receive(BeNil()))
}
