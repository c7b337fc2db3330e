package baremetal

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/spec"
)

// standstill is a state in which a remediation waits for something that does not come.
type standstill struct {
	state string
	// add adds the machine, on a host that will make its remediation wait; there brings the remediation to the state.
	add   func(ctx context.Context, s *scene) *member
	there func(ctx context.Context, m *member)
	// resume lets happen what is waited for. The remediation then ends in this state.
	resume func(ctx context.Context, m *member)
	ends   string
	cycles int
}

// standstills are all states in which a remediation of a worker can wait, and the one in which it has handed over.
var standstills = []standstill{
	{
		state: "Preparing",
		add: func(ctx context.Context, s *scene) *member {
			GinkgoHelper()
			m := s.worker(ctx, "w")
			m.annotateHost(ctx, bmov1alpha1.PausedAnnotation, "test")
			return m
		},
		there:  func(ctx context.Context, m *member) { m.comesTo(ctx, "Preparing") },
		resume: func(ctx context.Context, m *member) { m.strip(ctx, bmov1alpha1.PausedAnnotation) },
		ends:   "Succeeded", cycles: 1,
	},
	{
		state: "PoweringOff",
		add: func(ctx context.Context, s *scene) *member {
			GinkgoHelper()
			m := s.worker(ctx, "w")
			m.host.Die(true)
			return m
		},
		there: func(ctx context.Context, m *member) {
			m.comesTo(ctx, "PoweringOff")
			Eventually(m.holds).WithArguments(ctx).Should(BeTrue())
		},
		resume: func(_ context.Context, m *member) { m.host.Die(false) },
		ends:   "Succeeded", cycles: 1,
	},
	{
		state:  "MovingWorkload",
		add:    workerWithPod,
		there:  func(ctx context.Context, m *member) { m.comesToMove(ctx) },
		resume: func(ctx context.Context, m *member) { m.evict(ctx) },
		ends:   "Succeeded", cycles: 1,
	},
	{
		state: "PoweringOn",
		add:   workerWithPod,
		there: func(ctx context.Context, m *member) {
			m.comesToMove(ctx)
			m.host.Die(true)
			m.evict(ctx)
			m.comesTo(ctx, "PoweringOn")
			Eventually(m.holds).WithArguments(ctx).Should(BeFalse())
		},
		resume: func(_ context.Context, m *member) { m.host.Die(false) },
		ends:   "Succeeded", cycles: 1,
	},
	{
		state: "Rebooting",
		add: func(ctx context.Context, s *scene) *member {
			GinkgoHelper()
			m := s.worker(ctx, "w", func(o *origin) { o.host = append(o.host, builders.NeverOff) })
			m.host.FailPower("no route to the BMC")
			return m
		},
		there: func(ctx context.Context, m *member) {
			m.comesTo(ctx, "Rebooting")
			Eventually(m.holds).WithArguments(ctx).Should(BeTrue())
		},
		resume: func(_ context.Context, m *member) { m.host.FailPower("") },
		ends:   "Succeeded",
	},
	{
		state: "Booting",
		add: func(ctx context.Context, s *scene) *member {
			GinkgoHelper()
			m := s.worker(ctx, "w")
			m.host.Mute(-1)
			return m
		},
		there:  func(ctx context.Context, m *member) { m.comesTo(ctx, "Booting") },
		resume: func(_ context.Context, m *member) { m.kubelet.Start() },
		ends:   "Succeeded", cycles: 1,
	},
	{
		state: "HandedOver",
		add: func(ctx context.Context, s *scene) *member {
			GinkgoHelper()
			m := s.worker(ctx, "w")
			m.host.Mute(-1)
			return m
		},
		there: func(ctx context.Context, m *member) {
			m.inVain(ctx, 1)
			m.inVain(ctx, 2)
			m.ends(ctx, "HandedOver")
		},
		resume: func(context.Context, *member) {},
		ends:   "HandedOver", cycles: 2,
	},
}

// workerWithPod adds a worker with a pod that has to move.
func workerWithPod(ctx context.Context, s *scene) *member {
	GinkgoHelper()
	m := s.worker(ctx, "w")
	m.pod(ctx)
	return m
}

// comesToMove waits until the workload of a node that is fenced has to move.
func (m *member) comesToMove(ctx context.Context) {
	GinkgoHelper()
	m.comesTo(ctx, "MovingWorkload")
	Eventually(m.isFenced).WithArguments(ctx).Should(BeTrue())
}

// holds reports whether a remediation acts on the power of the host.
func (m *member) holds(ctx context.Context) bool { return held(m.bmh(ctx)) }

func (m *member) isFenced(ctx context.Context) bool {
	n := m.theNode(ctx)
	return n != nil && fenced(n)
}

// atEvery plays something at every standstill, for both kinds.
func atEvery(text string, play func(ctx context.Context, st standstill, m *member)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		spec.AtOnce(crowd, len(kinds)*len(standstills), func(i int) {
			s, st := newScene(ctx, kinds[i%len(kinds)]), standstills[i/len(kinds)]
			defer s.end()
			By(s.Kind.Kind + " at " + st.state + " in " + s.namespace)
			s.start()
			m := st.add(ctx, s)
			m.fails(ctx)
			m.remediate(ctx)
			st.there(ctx, m)
			play(ctx, st, m)
		})
	})
}
