package baremetal

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// standstill is a state in which a remediation waits for something that does not come.
type standstill struct {
	state string
	// add adds the machine, on a host that will make its remediation wait; there brings the remediation to the state.
	add   func(ctx context.Context, s *environment) *member
	there func(ctx context.Context, m *member)
	// resume lets happen what is waited for. The remediation then ends in this state.
	resume func(ctx context.Context, m *member)
	ends   string
	cycles int
}

// standstills are two of the states in which a remediation of a worker can wait, by their names. All of them, for both kinds and for all that
// happens there, are tried in memory, in test/faults/hosts.
var standstills = map[string]standstill{
	"PoweringOff": {
		state: "PoweringOff",
		add: func(ctx context.Context, s *environment) *member {
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
	"MovingWorkload": {
		state:  "MovingWorkload",
		add:    workerWithPod,
		there:  func(ctx context.Context, m *member) { m.comesToMove(ctx) },
		resume: func(ctx context.Context, m *member) { m.evict(ctx) },
		ends:   "Succeeded", cycles: 1,
	},
}

// workerWithPod adds a worker with a pod that has to move.
func workerWithPod(ctx context.Context, s *environment) *member {
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

// at plays something at a standstill of a remediation of one kind.
func at(state string, k kind, text string, play func(ctx context.Context, st standstill, m *member)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		s, st := newEnvironment(ctx, k), standstills[state]
		defer s.end()
		s.start()
		m := st.add(ctx, s)
		m.fails(ctx)
		m.remediate(ctx)
		st.there(ctx, m)
		play(ctx, st, m)
	})
}
