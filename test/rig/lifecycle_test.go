package rig

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func nothingLeft(g *WithT, folder string, addresses ...string) {
	g.Eventually(folder).ShouldNot(BeADirectory())
	g.Eventually(func() []string { return processesOf(folder) }).Should(BeEmpty())
	for _, address := range addresses {
		g.Expect(dial(address)).NotTo(Succeed(), address)
	}
}

func dial(address string) error {
	connection, err := net.Dial("tcp", address)
	if err == nil {
		_ = connection.Close()
	}
	return err
}

func TestAStoppedRigOrphansNothing(t *testing.T) {
	g := expecting(t)
	r := started(t)
	c, err := r.Workload(t.Context(), "workload", WorkloadOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(dial(c.apiPort.address())).To(Succeed())
	if runtime.GOOS == "linux" {
		g.Expect(processesOf(r.folder)).NotTo(BeEmpty())
	}

	g.Expect(r.Stop()).To(Succeed())
	g.Expect(r.folder).NotTo(BeADirectory(), "Stop returns when all is gone")
	g.Expect(processesOf(r.folder)).To(BeEmpty())
	nothingLeft(g, r.folder, c.apiPort.address(), c.etcdPort.address())

	_, err = r.Workload(t.Context(), "late", WorkloadOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("the rig is stopped")))
	g.Expect(r.Stop()).To(Succeed(), "twice is once too often, but no harm")
}

func TestARigWhoseOwnerIsKilledOrphansNothing(t *testing.T) {
	for name, c := range map[string]struct {
		part string
		end  func(*os.Process) error
	}{
		"killed":      {"wait", func(p *os.Process) error { return p.Kill() }},
		"panics":      {"panic", func(*os.Process) error { return nil }},
		"Ctrl-C":      {"wait", func(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGINT) }},
		"by a signal": {"wait", func(p *os.Process) error { return p.Signal(syscall.SIGTERM) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := expecting(t)
			owner := exec.Command(os.Args[0])
			owner.Env = append(os.Environ(), partEnv+"="+c.part)
			owner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal interrupts a whole group
			out, err := owner.StdoutPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(owner.Start()).To(Succeed())
			line, err := bufio.NewReader(out).ReadString('\n')
			g.Expect(err).NotTo(HaveOccurred())
			words := strings.Fields(line)
			g.Expect(words).To(HaveLen(3))

			g.Expect(c.end(owner.Process)).To(Succeed())
			g.Expect(owner.Wait()).NotTo(Succeed())
			nothingLeft(g, words[0], words[1:]...)
		})
	}
}

func TestAnInterruptedStartOrphansNothing(t *testing.T) {
	g := expecting(t)
	r := started(t)
	failed := make(chan error, 1)
	go func() {
		_, err := r.Management(context.WithoutCancel(t.Context()), ManagementOptions{})
		failed <- err
	}()
	const guard, etcdAndReaper = 1, 2
	g.Eventually(func() int { return len(processesOf(r.folder)) }).Should(BeNumerically(">=", guard+etcdAndReaper))
	_ = r.Stop() // it reports the start that it broke
	g.Eventually(failed).Should(Receive(HaveOccurred()))
	nothingLeft(g, r.folder)
}

func TestARestartedAPIServerKeepsItsObjects(t *testing.T) {
	g := expecting(t)
	ctx := t.Context()
	c, err := started(t).Workload(ctx, "workload", WorkloadOptions{Bare: true})
	g.Expect(err).NotTo(HaveOccurred())
	kept := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kept"},
		Data:       map[string]string{"before": "the stop"},
	}
	g.Expect(clientOf(t, c).Create(ctx, kept)).To(Succeed())
	address, config := c.apiPort.address(), c.Config()

	g.Expect(c.StopAPIServer(ctx)).To(Succeed())
	g.Expect(dial(address)).NotTo(Succeed())
	g.Expect(c.StopAPIServer(ctx)).NotTo(Succeed(), "it does not run")
	if runtime.GOOS == "linux" {
		passerby := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.apiPort.number}}
		_, err := passerby.Dial("tcp", c.etcdPort.address())
		g.Expect(err).To(MatchError(syscall.EADDRINUSE), "the port is kept from passers-by")
	}

	g.Expect(c.StartAPIServer(ctx)).To(Succeed())
	g.Expect(c.StartAPIServer(ctx)).NotTo(Succeed(), "it runs already")
	g.Expect(c.apiPort.address()).To(Equal(address))
	again, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	found := &corev1.ConfigMap{}
	g.Expect(again.Get(ctx, client.ObjectKeyFromObject(kept), found)).To(Succeed())
	g.Expect(found.Data).To(Equal(kept.Data))
}

func TestAProgramThatEndsByItselfIsReported(t *testing.T) {
	g := expecting(t)
	r := started(t)
	c, err := r.Workload(t.Context(), "workload", WorkloadOptions{Bare: true})
	g.Expect(err).NotTo(HaveOccurred())
	p := c.running[etcd]
	g.Expect(p.reaper.Close()).To(Succeed())
	g.Eventually(p.ended).Should(BeClosed())
	g.Expect(r.Stop()).To(MatchError(ContainSubstring("workload-etcd ended by itself")))
}

func TestALogsFolderSurvivesTheRig(t *testing.T) {
	g := expecting(t)
	logs := t.TempDir()
	r, err := Start(t.Context(), Options{Logs: logs})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = r.Workload(t.Context(), "workload", WorkloadOptions{Bare: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Stop()).To(Succeed())
	content, err := os.ReadFile(logs + "/workload-kube-apiserver.log")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).NotTo(BeEmpty())
}
