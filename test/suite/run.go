package suite

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
)

// What suites on a rig wait for at most. That a machine is busy is no reason for more: what depends on time is tested in memory. Only a spec that fails takes
// this long.
const (
	// Wait bounds one thing that a spec waits for. It is shorter than the manager's --sync-period, which would make good what a watch has missed.
	Wait = 3 * time.Minute
	// SpecPatience bounds a spec in which one thing happens after another.
	SpecPatience = 4 * Wait
)

// Patience has the defaults of Gomega's assertions in a suite; Gomega's own where a value is zero.
type Patience struct{ Eventually, Consistently, Polling time.Duration }

// Run runs the specs of a suite. It is for a suite's only Go test; args are Ginkgo's.
func Run(t *testing.T, name string, p Patience, args ...any) {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // the logs of libraries are no result
	gomega.RegisterFailHandler(ginkgo.Fail)
	if p.Eventually > 0 {
		gomega.SetDefaultEventuallyTimeout(p.Eventually)
	}
	if p.Consistently > 0 {
		gomega.SetDefaultConsistentlyDuration(p.Consistently)
	}
	if p.Polling > 0 {
		gomega.SetDefaultEventuallyPollingInterval(p.Polling)
		gomega.SetDefaultConsistentlyPollingInterval(p.Polling)
	}
	ginkgo.RunSpecs(t, name, args...)
}
