package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/suite"
)

// outcome is the state after all steps of a node's ladder, when the node is healthy.
type outcome struct {
	Phase    string
	Counts   []int
	Listed   []string
	Requests []string
	Holder   string
	// Made is how many requests of each kind were ever made.
	Made map[string]int
}

// performance is one telling of the story of a ladder: the writes that were carried out, whether one was befallen by its fate, and what there
// was in the end.
type performance struct {
	done   []string
	struck bool
	outcome
}

// play lets a node go up a ladder of two steps, of which the second one helps, with the nth write befallen by a fate. It has to come out as
// given.
func climb(ctx context.Context, m mode, nth int, f faultproxy.Fate, as types.GomegaMatcher) performance {
	GinkgoHelper()
	s := newEnvironment(ctx, m)
	defer s.end()
	s.wanted.mute = true
	s.workers(ctx, 3)
	s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
	s.begin(nth, f)
	s.start()

	var before []string
	await := func(what string, is func() bool) {
		GinkgoHelper()
		Eventually(func() bool {
			GinkgoHelper()
			done, _ := s.plan.Written()
			if f == faultproxy.Last && before == nil && len(done) == nth {
				s.kill()
				before = done
				s.begin(0, "")
				s.start()
				s.settle("check") // or else the story would go on while no controller runs, and that time does not count
			}
			return is()
		}).Should(BeTrue(), func() string {
			done, _ := s.plan.Written()
			return fmt.Sprintf("%s is waited for; write %d %s; written %q", what, nth, f, slices.Concat(before, done))
		})
	}
	lists := func(all string) func() bool {
		return func() bool { return strings.Join(s.listed(ctx, "check")(), "; ") == all }
	}
	s.fails(ctx, "w1")
	await("the first step", lists("w1: RebootRemediation/soft"))
	s.clock.Step(step)
	await("the second step", lists("w1: RebootRemediation/soft*, ReplaceRemediation/hard"))
	first := s.about(ctx, "w1")[0]
	await("that the first one is timed out", func() bool { return s.timedOut(ctx, first)() != "" })
	s.says(ctx, s.about(ctx, "w1")[1], nhcv1.SucceededCondition, metav1.ConditionTrue)
	s.recovers(ctx, "w1")
	await("the end", func() bool {
		return len(s.about(ctx, "w1")) == 0 && s.lease(ctx, "w1") == nil && s.phase(ctx, "check")() == enabled
	})

	var is performance
	await("its outcome", func() bool {
		done, struck := s.plan.Written()
		is.done, is.struck = slices.Concat(before, done), struck || before != nil
		is.outcome = outcome{
			Phase: s.phase(ctx, "check")(), Counts: s.counts(ctx, "check")(), Listed: s.listed(ctx, "check")(),
			Requests: s.nodesRequested(ctx)(), Holder: s.holder(ctx, "w1")(), Made: map[string]int{},
		}
		for _, w := range is.done {
			if what, made := strings.CutPrefix(w, "POST "); made && strings.HasSuffix(what, "remediations") {
				is.Made[what]++
			}
		}
		matches, err := as.Match(is.outcome)
		return err == nil && matches
	})
	return is
}

// Every write of every ladder is tried in memory, by package test/faults/nodes. Here is one for each fate: the connection that breaks and the
// process that ends are real.
var _ = Describe("Whatever write fails", needsServer, Ordered, ContinueOnFailure, func() {
	var plain performance
	BeforeAll(func(ctx SpecContext) {
		plain = climb(ctx, ladders, 0, "", HaveField("Counts", Equal([]int{3, 3})))
		GinkgoWriter.Printf("%d writes: %q\n%+v\n", len(plain.done), plain.done, plain.outcome)
		Expect(plain.outcome).To(Equal(outcome{
			Phase: enabled, Counts: []int{3, 3}, Listed: []string{}, Requests: []string{},
			Made: map[string]int{"rebootremediations": 1, "replaceremediations": 1},
		}))
	})
	for text, sample := range suite.InOrder(map[string]struct {
		fate  faultproxy.Fate
		write string
	}{
		"before it reaches the API server, the end is the same":          {faultproxy.Refused, "POST rebootremediations"},
		"after it was carried out, the end is the same":                  {faultproxy.Carried, "POST replaceremediations"},
		"because the controller is killed after it, the end is the same": {faultproxy.Last, "POST rebootremediations"},
	}) {
		It(text, func(ctx SpecContext) {
			nth := slices.Index(plain.done, sample.write) + 1
			Expect(nth).To(BeNumerically(">", 0), "there is such a write")
			Expect(climb(ctx, ladders, nth, sample.fate, Equal(plain.outcome)).struck).To(BeTrue())
		})
	}
})

var _ = Describe("Reads that fail", func() {
	atServer.once("delay what needs them, and nothing is deleted or made for what was not read", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.plan.RefuseReads("rebootremediations")
		s.fails(ctx, "w1")
		Eventually(s.events(ctx, "check", "RemediationFailed")).ShouldNot(BeEmpty())
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.plan.Refuse(nil)
		s.clock.Step(time.Minute)
		s.request(ctx, "w1")
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(HaveLen(1))
	})
})
