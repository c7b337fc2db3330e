package conformance

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
)

var _ = Describe("Reconciles", Ordered, func() {
	var m *rig.Kubemend
	BeforeAll(func(ctx SpecContext) { m = ownManager(ctx, "counted") })

	It("W11: a heartbeat causes no reconcile and no write", func(ctx SpecContext) {
		s := newEnvironment(ctx, seenBy("counted"))
		s.workers(ctx, "a", "b")
		s.check(ctx, "check")
		before := s.settles(ctx, m)
		versions := s.versions(ctx)()

		for range 20 {
			s.heartbeat(ctx, "a")
		}
		// This one is no heartbeat. When it has been seen, so have those before it.
		s.nodeReports(ctx, "b", corev1.NodeReady, corev1.ConditionUnknown, 0)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 1}))
		Eventually(reconciles(ctx, m)).Should(BeEquivalentTo(before+1), "one reconcile for the last one")
		Consistently(reconciles(ctx, m)).Should(BeEquivalentTo(before + 1))

		versions["MachineHealthCheck/check"] = s.getCheck(ctx, "check").ResourceVersion
		Expect(s.versions(ctx)()).To(Equal(versions))
	})

	It("W12: a burst of changes causes one or two reconciles, not one per machine", func(ctx SpecContext) {
		s := newEnvironment(ctx, seenBy("counted"))
		names := make([]string, 30)
		for i := range names {
			names[i] = fmt.Sprintf("m%02d", i)
		}
		s.workers(ctx, names...)
		s.check(ctx, "check")
		before := s.settles(ctx, m)

		began := time.Now()
		s.fallsSilent(ctx, names...)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{30, 0, 0}))
		after := s.settles(ctx, m)
		windows := float64((time.Since(began)-settled)/(100*time.Millisecond)) + 1
		Expect(after-before).To(BeNumerically("<=", windows+1), "one for each tenth of a second in which something changes")
		Expect(after-before).To(BeNumerically("<", len(names)), "not one for each machine")
	})

	It("W12: one change causes one reconcile, and kubemend's own writes cause none", func(ctx SpecContext) {
		s := newEnvironment(ctx, seenBy("counted"))
		s.workers(ctx, "a", "b", "c", "d")
		s.check(ctx, "check")
		before := s.settles(ctx, m)

		for i, name := range []string{"a", "b", "c"} {
			s.fallsSilent(ctx, name)
			Eventually(s.owner(ctx, name)).Should(Equal(ownerRequested))
			Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, int32(3 - i), int32(3 - i)}))
			// A second one says on the check what its record says that the capacity waits for.
			Expect(s.settles(ctx, m)).To(BeNumerically("~", before+1.5*float64(i+1), 0.5*float64(i+1)), name)
		}
		last := s.settles(ctx, m)
		s.change(ctx, "a", annotated("example.org/news", "")) // what others write on top of it does
		Eventually(reconciles(ctx, m)).Should(Equal(last + 1))
	})

	It("W12: a reconcile without changes reads only caches and writes nothing", func(ctx SpecContext) {
		s := newEnvironment(ctx, seenBy("counted"))
		s.template(ctx, "reboot")
		s.workers(ctx, "good", "bad", "handed", "gone")
		s.change(ctx, "handed", func(m *clusterv1.Machine) { m.Labels["pool"] = "owned" })
		s.machine(ctx, "starting")
		s.check(ctx, "check", by("reboot"))
		s.check(ctx, "owned", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "owned" })
		s.fallsSilent(ctx, "bad", "handed")
		s.losesNode(ctx, "gone")
		s.isRequested(ctx, "gone")
		s.isRequested(ctx, "bad")
		Eventually(s.owner(ctx, "handed")).Should(Equal(ownerRequested))
		// Probes of the workload cluster go on; what is asked of the management cluster does not.
		host := `host="` + hostOf(management) + `"`
		asked := number(ctx, m, "rest_client_requests_total", `method="GET"`, host)
		value := 0
		// Watches may be made again meanwhile. A reconcile that reads or writes does so each time.
		Eventually(func(g Gomega) {
			before := s.settles(ctx, m)
			read, written := asked(), writes(ctx, m)()
			for range 3 {
				for _, check := range []string{"check", "owned"} {
					s.changeCheck(ctx, check, func(c *clusterv1.MachineHealthCheck) {
						value++
						c.Annotations = map[string]string{"irrelevant": strconv.Itoa(value)}
					})
				}
			}
			Eventually(reconciles(ctx, m)).Should(BeNumerically(">", before))
			s.settles(ctx, m)
			g.Expect(writes(ctx, m)()).To(Equal(written))
			g.Expect(asked()).To(BeNumerically("<=", read+2), "watches may be renewed")
		}).Should(Succeed())
	})
})

// settled is for how long there must be no reconcile, to say that there will be none.
const settled = time.Second

// settles returns the number of reconciles when the records say what has begun, as that has their checks reconciled, and there have been no more for a second.
func (s *environment) settles(ctx context.Context, m *rig.Kubemend) float64 {
	GinkgoHelper()
	Eventually(s.counts(ctx, "check")).ShouldNot(ContainElement(int32(-1)))
	Eventually(s.unbegun(ctx)).Should(BeEmpty())
	return still(reconciles(ctx, m), settled)
}

// still returns what is read once that has stayed the same for so long. Of a read that took long no more than a moment counts: while a server does not answer,
// nothing can change.
func still[T any](read func() T, long time.Duration) T {
	GinkgoHelper()
	const moment = 200 * time.Millisecond
	last, at, quiet := read(), time.Now(), time.Duration(0)
	Eventually(func() time.Duration {
		now := read()
		if quiet += min(time.Since(at), moment); !reflect.DeepEqual(now, last) {
			last, quiet = now, 0
		}
		at = time.Now()
		return quiet
	}).Should(BeNumerically(">", long))
	return last
}

// heartbeat reports a node's conditions again, as a kubelet does.
func (s *environment) heartbeat(ctx context.Context, machine string) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(there.Get(ctx, client.ObjectKey{Name: s.node(machine)}, node)).To(Succeed())
	before := node.DeepCopy()
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		c.LastHeartbeatTime = metav1.NewTime(c.LastHeartbeatTime.Add(time.Second))
	}
	Expect(there.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}
