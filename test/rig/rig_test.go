package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// patience is the timeout of what takes seconds on an idle machine.
const patience = 4 * time.Minute

// partEnv is a variable that makes the test binary start a rig and wait to be killed, instead of running tests.
const partEnv = "RIG_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(partEnv) != "" {
		playOwner()
	}
	os.Exit(m.Run())
}

// playOwner starts a rig with an etcd, and prints the rig's folder and etcd's address.
func playOwner() {
	r, err := Start(context.Background(), Options{})
	if err != nil {
		panic(err)
	}
	c, err := r.newControlPlane("orphaned", false)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(c.reservePorts(), c.startEtcd(context.Background())); err != nil {
		panic(err)
	}
	fmt.Println(r.folder, c.etcdPort.address())
	fmt.Println(r.Listening())
	<-time.After(time.Hour)
}

// etcd stands for all programs here, because each one has a reaper. The suites that use a rig test its other parts.
func TestAKilledOwnerOrphansNothing(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), partEnv+"=owner")
	out, err := owner.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(owner.Start()).To(Succeed())
	lines := bufio.NewScanner(out)
	g.Expect(lines.Scan()).To(BeTrue())
	folder, address, _ := strings.Cut(lines.Text(), " ")
	g.Expect(lines.Scan()).To(BeTrue())
	if runtime.GOOS == "linux" { // which alone reports which process listens where
		g.Expect(lines.Text()).To(Equal("2 [] <nil>"), "for clients and for peers, on loopback alone")
	}

	g.Expect(owner.Process.Kill()).To(Succeed())
	g.Expect(owner.Wait()).NotTo(Succeed())
	g.Eventually(folder).ShouldNot(BeADirectory())
	g.Eventually(func() []string { return processesOf(folder) }).Should(BeEmpty())
	_, err = net.Dial("tcp", address)
	g.Expect(err).To(HaveOccurred())
}
