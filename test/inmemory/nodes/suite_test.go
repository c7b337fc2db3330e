// Package nodes tests the NodeHealthCheck controller in memory, on virtual time: the cases of medik8s' own tests (C30 to C71), the rows
// of the three seeds, and the weaknesses of medik8s that it does not share (W1 to W32). A spec is named after the case that it shows.
// Package test/faults/nodes tries every write of every ladder, and package test/e2e/nodes runs the built manager with the rights that it
// ships with.
//
// Nodes are objects whose status the tests write, the tests play the remediators, and no other controller runs: nothing is
// garbage-collected here.
//
// Not here, because it is shown elsewhere: C01 to C21 and what else is refused when it is written (admission and the CRD's own rules);
// C80 to C84 (tables of packages nodehealthcheck and budget), and seed 0.11 to 0.13, 1.10 in numbers; what cannot be stored (both
// thresholds, no template, a kind that is none of templates, W21, two steps of one order); seed 1.1, the default check (its flag);
// seed 1.12, which is a slip; seed 2.1, starting. C85 is about MachineHealthChecks of OpenShift, which no controller reconciles here.
package nodes

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kubemend/kubemend/test/suite"
)

func TestNodes(t *testing.T) {
	// An environment answers when its controller has done all that it has to do, so that waiting helps nothing.
	suite.Run(t, "NodeHealthChecks in memory", suite.Patience{
		Eventually: time.Millisecond, Consistently: time.Millisecond, Polling: time.Millisecond,
	})
}

// in is a spec that runs in one mode.
func in(m mode, text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inModes(text, []mode{m}, body)
}

// once is a spec about a check with one template.
func once(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	in(mode{}, text, body)
}

// inEveryMode is a spec that runs in all modes.
func inEveryMode(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inModes(text, modes, body)
}

func inModes(text string, modes []mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		for _, m := range modes {
			play(ctx, newEnvironment(ctx, m), body)
		}
	})
}

// play runs a spec in an environment.
func play(ctx context.Context, s *environment, body func(context.Context, *environment)) {
	GinkgoHelper()
	defer s.end()
	s.start()
	body(ctx, s)
}
