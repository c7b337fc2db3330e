package baremetal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// outcome is all that is to be seen when a tale is over.
type outcome struct {
	Said       builders.RemediationReport
	Host       []string // the keys of its annotations
	Node       map[string]string
	Taints     []string
	Conditions map[string]string // of the machine
	Power      []simulator.Power
	Traces     []string
}

func (m *member) outcome(ctx context.Context) outcome {
	GinkgoHelper()
	o := outcome{Said: m.says(ctx), Power: m.power(), Traces: m.traces(ctx), Conditions: map[string]string{}, Node: map[string]string{}}
	o.Host = slices.Sorted(maps.Keys(m.bmh(ctx).Annotations))
	node := m.theNode(ctx)
	maps.Copy(o.Node, node.Labels)
	maps.Copy(o.Node, node.Annotations)
	delete(o.Node, "kubernetes.io/hostname") // it is another one in each environment
	for _, t := range node.Spec.Taints {
		o.Taints = append(o.Taints, t.Key)
	}
	machine := m.machine(ctx)
	for _, c := range machine.Status.Conditions {
		o.Conditions[c.Type] = string(c.Status) + "/" + c.Reason
	}
	for _, c := range machine.GetV1Beta1Conditions() {
		o.Conditions["v1beta1 "+string(c.Type)] = string(c.Status) + "/" + c.Reason
	}
	return o
}

// performance is one power cycle as it went: the writes that were carried out, whether one was befallen by its fate, and the outcome.
type performance struct {
	done   []string
	struck bool
	outcome
}

// nth is the number of the first write of a resource.
func (p performance) nth(resource string) int {
	GinkgoHelper()
	i := slices.IndexFunc(p.done, func(w string) bool { return strings.Contains(w, " "+resource+"/") })
	Expect(i).To(BeNumerically(">=", 0), "%q", p.done)
	return i + 1
}

// play plays a power cycle, with the nth write befallen by a fate. It has to come out as given.
func play(ctx context.Context, nth int, f faultproxy.Fate, as types.GomegaMatcher) performance {
	GinkgoHelper()
	s := newEnvironment(ctx, kinds[0])
	defer s.end()
	s.wanted.mute = true
	m := s.worker(ctx, "w")
	// What takes its time is waited for, and that it is waited for is written: so there are as many writes each time.
	m.host.Take(simulator.Times{PowerOff: 150 * time.Millisecond, PowerOn: 150 * time.Millisecond, Boot: 150 * time.Millisecond})
	m.fails(ctx)
	s.begin(nth, f)
	s.start()
	m.remediate(ctx)

	var is performance
	var before []string
	Eventually(func() bool {
		GinkgoHelper()
		done, _ := s.plan.Written()
		if f == faultproxy.Last && before == nil && len(done) == nth {
			s.kill()
			before = done
			s.begin(0, "")
			s.start()
		}
		return m.isOver(ctx, "Succeeded")
	}).WithPolling(100 * time.Millisecond).Should(BeTrue())
	m.settles(ctx)
	Eventually(m.outcome).WithArguments(ctx).Should(as)
	is.outcome = m.outcome(ctx)
	done, struck := s.plan.Written()
	is.done, is.struck = slices.Concat(before, done), struck || before != nil
	return is
}

// test/faults/hosts tries all writes of all remediations in memory. Here are those for which only a real API server and a
// broken connection show which error the controllers get.
var _ = Describe("Whatever write fails", Ordered, func() {
	var plain performance
	BeforeAll(func(ctx SpecContext) {
		plain = play(ctx, 0, "", Not(BeZero()))
		Expect(plain.Power).To(Equal(cycled(1)))
		Expect(plain.Traces).To(BeEmpty())
	})
	for fate, resource := range suite.InOrder(map[string]string{
		string(faultproxy.Refused): "baremetalhosts", string(faultproxy.Carried): "nodes", string(faultproxy.Last): "nodes",
	}) {
		It(fmt.Sprintf("of a power cycle, the end is the same if one of %s %s", resource, fate), func(ctx SpecContext) {
			Expect(play(ctx, plain.nth(resource), faultproxy.Fate(fate), Equal(plain.outcome)).struck).To(BeTrue())
		})
	}
})
