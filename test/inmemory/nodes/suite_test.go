// Package nodes tests the NodeHealthCheck controller in memory, on virtual time: what of the cases of medik8s' own tests, of the rows of
// the three seeds and of the weaknesses of medik8s that it does not share needs a controller. A spec is named after the case that it shows;
// the other ids are those of tables beside the code. Package test/faults/nodes tries every write of every ladder, and package
// test/e2e/nodes runs the built manager with the rights that it ships with.
//
// Nodes are objects whose status the tests write, the tests play the remediators, and no other controller runs: nothing is
// garbage-collected here.
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
