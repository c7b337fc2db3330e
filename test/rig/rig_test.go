package rig

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// patience is for what happens soon on a quiet machine. Only a test that fails takes it.
const patience = 4 * time.Minute

// partEnv makes the test binary start a rig and wait to be killed, instead of running tests.
const partEnv = "RIG_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(partEnv) != "" {
		playOwner()
	}
	os.Exit(m.Run())
}

// playOwner starts a rig, and prints where it is.
func playOwner() {
	r, err := Start(context.Background(), Options{})
	if err != nil {
		panic(err)
	}
	c, err := r.Management(context.Background(), ManagementOptions{Core: true, ControllerManager: true})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.folder, c.apiPort.address(), c.etcdPort.address())
	<-time.After(time.Hour)
}

// What else a rig does is held by the suites that use it.
func TestARigIsOnLoopbackAloneAndItsKilledOwnerOrphansNothing(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), partEnv+"=owner")
	out, err := owner.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(owner.Start()).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	words := strings.Fields(line)
	g.Expect(words).To(HaveLen(3))
	if runtime.GOOS == "linux" { // which alone reports which process listens where
		listensOnLoopback(g, words[0])
	}

	g.Expect(owner.Process.Kill()).To(Succeed())
	g.Expect(owner.Wait()).NotTo(Succeed())
	g.Eventually(words[0]).ShouldNot(BeADirectory())
	g.Eventually(func() []string { return processesOf(words[0]) }).Should(BeEmpty())
	for _, address := range words[1:] {
		_, err := net.Dial("tcp", address)
		g.Expect(err).To(HaveOccurred(), address)
	}
}

// listensOnLoopback looks up the sockets of every process of the rig, etcd's ports for peers and core's webhooks among
// them.
func listensOnLoopback(g *WithT, folder string) {
	ours := map[string]bool{}
	for _, process := range processesOf(folder) {
		handles, err := filepath.Glob("/proc/" + process + "/fd/*")
		g.Expect(err).NotTo(HaveOccurred())
		for _, handle := range handles {
			to, _ := os.Readlink(handle) // a connection may be closed meanwhile
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	listeners := 0
	for table, loopback := range map[string]string{"/proc/net/tcp": "0100007F", "/proc/net/tcp6": strings.Repeat("0", 24) + "01000000"} {
		content, err := os.ReadFile(table)
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range bytes.Split(content, []byte("\n")) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			words := strings.Fields(string(line))
			if len(words) <= inode || words[state] != listening || !ours[words[inode]] {
				continue
			}
			listeners++
			g.Expect(words[address]).To(HavePrefix(loopback+":"), table)
		}
	}
	g.Expect(listeners).To(BeNumerically(">=", 6), "etcd twice, kube-apiserver, kube-controller-manager, core twice")
}

// processesOf are the numbers of the processes that were started with the folder on their command line: everything that
// a rig runs is. Only Linux reports that.
func processesOf(folder string) []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // only a bad pattern is an error
	var found []string
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err == nil && bytes.Contains(content, []byte(folder)) {
			found = append(found, filepath.Base(filepath.Dir(line)))
		}
	}
	return found
}
