package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is for what happens soon on a quiet machine. Only a test that fails takes it.
const patience = 4 * time.Minute

// partEnv makes the test binary start a rig and wait to be killed, instead of running tests.
const partEnv = "RIG_TEST_PART"

var scheme = runtime.NewScheme()

func TestMain(m *testing.M) {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(clusterv1beta1.AddToScheme(scheme))
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
	c, err := r.Workload(context.Background(), "workload", WorkloadOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.folder, c.apiPort.address(), c.etcdPort.address())
	<-time.After(time.Hour)
}

// started is a rig that ends with the test.
func started(t *testing.T) *Rig {
	t.Helper()
	r, err := Start(t.Context(), Options{Log: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

type testLog struct{ *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

func clientOf(t *testing.T, c *ControlPlane) client.Client {
	t.Helper()
	made, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func expecting(t *testing.T) *WithT {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	return g
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
