package baremetal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/gateway"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/spec"
)

// tale is a remediation from start to end, on which the writes of the controllers are tried.
type tale struct {
	name    string
	fencing fence.Mode
	muted   bool // the kubelet never comes back
	kinds   []kind
	ends    string
	cycles  int
}

var tales = []tale{
	{name: "a power cycle", kinds: kinds, ends: "Succeeded", cycles: 1},
	{name: "a power cycle that is tried again and handed over", kinds: kinds, muted: true, ends: "HandedOver", cycles: 2},
	// The kinds differ in their status alone, of which nothing is new here.
	{name: "a power cycle with the node deleted", kinds: kinds[1:], fencing: fence.Delete, ends: "Succeeded", cycles: 1},
}

// outcome is all that is to be seen when a tale is over.
type outcome struct {
	Said       said
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
	delete(o.Node, "kubernetes.io/hostname") // it is another one in each scene
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

// performance is one telling of a tale: the writes that were carried out, whether one was befallen by its fate, and the outcome.
type performance struct {
	done   []string
	struck bool
	// first is how many writes there were before anything timed out; 0 if nothing did.
	first int
	outcome
}

// steps are the writes that the tale was tried on, without those that say how it goes.
func (p performance) steps() []string {
	return slices.DeleteFunc(slices.Clone(p.done[p.first:]), func(w string) bool { return strings.HasSuffix(w, "/status") })
}

// play tells the tale, with the nth write befallen by a fate. It has to come out as given.
func (t tale) play(ctx context.Context, k kind, nth int, f gateway.Fate, as types.GomegaMatcher) performance {
	GinkgoHelper()
	s := newScene(ctx, k)
	defer s.end()
	s.wanted.fencing, s.wanted.mute = t.fencing, true
	m := s.worker(ctx, "w")
	// What takes its time is waited for, and that it is waited for is written: so there are as many writes each time.
	m.host.Take(simulator.Times{PowerOff: 150 * time.Millisecond, PowerOn: 150 * time.Millisecond, Boot: 150 * time.Millisecond})
	node := m.theNode(ctx)
	unlabelled := node.DeepCopy()
	node.Labels["example.org/rack"] = "7"
	Expect(here.Patch(ctx, node, client.MergeFrom(unlabelled))).To(Succeed())
	if t.muted {
		m.host.Mute(-1)
	}
	m.fails(ctx)
	s.begin(nth, f)
	s.start()
	m.remediate(ctx)

	var (
		is      performance
		before  []string
		settled bool
		vain    int
	)
	// The write befallen may also be one of the last, after which the remediation is at its end already: so it is asked after each look.
	killed := func() int {
		GinkgoHelper()
		done, _ := s.plan.Written()
		if f == gateway.Last && before == nil && len(done) == nth {
			s.kill()
			before = done
			s.begin(0, "")
			s.start()
		}
		return len(done)
	}
	Eventually(func() bool {
		GinkgoHelper()
		rem := m.remediation(ctx)
		done := killed()
		at := memoryOf(rem)
		if !settled && saidBy(rem).Conditions[infrav1.PoweredOffCondition] == "False/PowerSettling" {
			settled = true // that it was asked was not noted in time, and now nobody knows what it was before
			s.clock.Step(settle)
		}
		// Time passes when it was said that the host is on: of what is over, nothing more is said of how it went.
		if on := saidBy(rem).Conditions[infrav1.PoweredOnCondition] == "True/Done"; t.muted && on && at.State == "Booting" && at.Attempt > vain {
			is.first, vain = max(is.first, done*(2-at.Attempt)), at.Attempt
			s.clock.Step(timeout)
		}
		return at.State == t.ends && len(rem.GetFinalizers()) == 0
	}).WithPolling(100*time.Millisecond).Should(BeTrue(), "the end is to be %s", t.ends)
	if f != gateway.Last { // which may have struck only now
		m.settles(ctx)
	}
	why := func() string {
		done, _ := s.plan.Written()
		return fmt.Sprintf("write %d %s; written %q", nth, f, slices.Concat(before, done))
	}
	Eventually(func() outcome {
		is.outcome = m.outcome(ctx)
		killed()
		return is.outcome
	}).Should(as, why)
	done, struck := s.plan.Written()
	is.done, is.struck = slices.Concat(before, done), struck || before != nil
	return is
}

// settle is how long a host has to stay off that was off when it was asked.
const settle = 90 * time.Second

var _ = Describe("Whatever write fails", func() {
	for _, t := range tales {
		for turn, k := range t.kinds {
			Context(fmt.Sprintf("of %s by a %s,", t.name, k.Kind.Kind), Ordered, ContinueOnFailure, func() {
				var plain performance
				BeforeAll(func(ctx SpecContext) {
					plain = t.play(ctx, k, 0, "", Not(BeZero()))
					GinkgoWriter.Printf("%d writes, %d before a time-out: %q\n%+v\n", len(plain.done), plain.first, plain.done, plain.outcome)
					Expect(plain.Power).To(Equal(cycled(t.cycles)))
					Expect(plain.Traces).To(BeEmpty())
					Expect(plain.Node).To(HaveKeyWithValue("example.org/rack", "7"))
					_, asked := plain.Conditions[clusterv1.MachineOwnerRemediatedCondition]
					Expect(asked).To(Equal(t.muted))
				})
				for text, fate := range spec.InOrder(map[string]func(nth int) gateway.Fate{
					// A write that is refused for one kind is carried out for the other, and the next one the other way round.
					"before it reaches the API server or after, the end is the same": func(nth int) gateway.Fate {
						return []gateway.Fate{gateway.Refused, gateway.Carried}[(nth+turn)%2]
					},
					"because the controllers are killed after it, the end is the same": func(int) gateway.Fate { return gateway.Last },
				}) {
					It(text, func(ctx SpecContext) {
						// Until the first time-out all is as it is in a power cycle that succeeds.
						tries := len(plain.done) - plain.first
						var struck atomic.Int32
						spec.AtOnce(crowd, tries, func(i int) {
							nth := plain.first + i + 1
							if t.play(ctx, k, nth, fate(nth), Equal(plain.outcome)).struck {
								struck.Add(1)
							}
						})
						// Two writes of a status may become one, and then the last ones never come.
						Expect(struck.Load()).To(BeNumerically(">=", len(plain.steps())))
					})
				}
			})
		}
	}
})
