package suite

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Patience has the defaults of Gomega's assertions in a suite; Gomega's own where a value is zero.
type Patience struct{ Eventually, Consistently, Polling time.Duration }

// Run runs the specs of a suite, after it has compared them with test/RULES.md. It is for a suite's only Go test; args are Ginkgo's.
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
	inRules(t)
	ginkgo.RunSpecs(t, name, args...)
}
