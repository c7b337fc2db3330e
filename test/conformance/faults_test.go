package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/rig"
)

// An upheaval is an environment in which three things happen at once: a machine recovers whose request is under way, another one
// breaks, and a new check finds a machine to hand to its owner. One write of each fate is tried here, over a real connection that breaks; every
// write of this and of other tales is tried in test/faults/machines.
type upheaval struct {
	*environment
	plan *faultproxy.Plan
}

// calm makes the environment, as it is before.
func calm(ctx context.Context, filter string) *upheaval {
	GinkgoHelper()
	u := &upheaval{environment: newEnvironment(ctx, seenBy(filter))}
	u.template(ctx, "reboot")
	u.workers(ctx, "recovers", "breaks", "wavers")
	u.worker(ctx, "owned", func(m *clusterv1.Machine) { m.Labels["pool"] = "owned" })
	u.fallsSilent(ctx, "recovers", "owned")
	u.check(ctx, "check", by("reboot"))
	return u
}

func (u *upheaval) isCalm(ctx context.Context) {
	GinkgoHelper()
	u.isRequested(ctx, "recovers")
	Eventually(u.health(ctx, "breaks")).Should(Equal(well))
	Eventually(u.health(ctx, "wavers")).Should(Equal(well))
	Eventually(u.counts(ctx, "check")).Should(Equal([]int32{3, 2, 2}))
	Eventually(u.capacity(ctx, "check")).Should(Equal(inProgress)) // or it would be written among what is counted
	Eventually(u.sentEvents(ctx)).Should(ConsistOf("recovers MachineMarkedUnhealthy", "check RemediationStarted"))
}

// strike lets it all happen, under a plan.
func (u *upheaval) strike(ctx context.Context, g passage, nth int, f faultproxy.Fate) {
	GinkgoHelper()
	u.plan = g.Expect(u.cluster.Namespace, nth, f)
	u.comesBack(ctx, "recovers")
	u.fallsSilent(ctx, "breaks")
	u.nodeReports(ctx, "wavers", corev1.NodeReady, corev1.ConditionUnknown, 0) // so the check's own status changes too
	u.check(ctx, "owned", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "owned" })
}

// state is what is to be seen from outside.
func (u *upheaval) state(ctx context.Context) func() map[string]string {
	return func() map[string]string {
		return map[string]string{
			"recovers": u.health(ctx, "recovers")() + " " + u.external(ctx, "recovers")(),
			"breaks":   u.health(ctx, "breaks")() + " " + u.external(ctx, "breaks")(),
			"owned":    u.health(ctx, "owned")() + " " + u.owner(ctx, "owned")(),
			"requests": strings.Join(u.requested(ctx)(), " "),
			"check":    fmt.Sprint(u.counts(ctx, "check")(), u.allowed(ctx, "check")(), u.observed(ctx, "check")),
			"owner":    fmt.Sprint(u.counts(ctx, "owned")(), u.allowed(ctx, "owned")(), u.observed(ctx, "owned")),
			"waits":    u.capacity(ctx, "check")() + " " + u.capacity(ctx, "owned")(),
			"labelled": u.getCheck(ctx, "owned").Labels[clusterv1.ClusterNameLabel],
			"trouble":  u.both(ctx, "check", "ExternalRemediationRequestAvailable")(),
		}
	}
}

// capacity is what a check says of the capacity of the machines under remediation.
func (u *upheaval) capacity(ctx context.Context, check string) func() string {
	return u.of(ctx, check, "CapacityBack")
}

// inProgress is said while a request is under way.
const inProgress = "False/RemediationInProgress"

func (u *upheaval) observed(ctx context.Context, check string) string {
	c := u.getCheck(ctx, check)
	return fmt.Sprintf("observed %t", c.Status.ObservedGeneration == c.Generation)
}

// over is the state in which every upheaval ends.
var over = map[string]string{
	"recovers": well + " -",
	"breaks":   silent + " " + asked,
	"owned":    silent + " " + ownerRequested,
	"requests": "breaks",
	"check":    "[3 1 1]" + remediates + "observed true",
	"owner":    "[1 0 0]" + remediates + "observed true",
	"waits":    inProgress + " False/NoOwner",
	"labelled": "c1",
	"trouble":  nothing,
}

// events that an upheaval raises, besides those of before.
var raised = []string{
	"recovers MachineHealthy", "breaks MachineMarkedUnhealthy", "owned MachineMarkedUnhealthy",
	"check RemediationEnded", "check RemediationStarted", "owned RemediationStarted",
}

func (u *upheaval) title(nth int, f faultproxy.Fate) string {
	return fmt.Sprintf("write %d %s", nth, f)
}

// times is how often a write was done.
func times(done []string, write string) int {
	return len(slices.DeleteFunc(slices.Clone(done), func(w string) bool { return w != write }))
}

// happenedOnce checks that nothing was done twice.
func (u *upheaval) happenedOnce(c *chronicle, done []string, why string) {
	GinkgoHelper()
	for _, once := range []string{"POST metal3remediations", "DELETE metal3remediations/recovers"} {
		Expect(times(done, once)).To(Equal(1), "%s: %s in %q", why, once, done)
	}
	for machine, turns := range map[string][]string{"recovers": {"False", "True"}, "breaks": {"True", "False"}, "owned": {"False"}} {
		Eventually(c.turns).WithArguments(u.cluster.Namespace, machine, clusterv1.MachineHealthCheckSucceededCondition).Should(Equal(turns), "%s: %s", why, machine)
	}
	Eventually(c.turns).WithArguments(u.cluster.Namespace, "owned", clusterv1.MachineOwnerRemediatedCondition).Should(Equal([]string{"False"}), why)
}

var _ = Describe("When writes fail", Ordered, func() {
	const name = "faults"
	args := []string{"--watch-filter=" + name, "--unclaimed-machine-health-checks=act"}
	var (
		g passage
		m *rig.Kubemend
		c *chronicle
	)
	BeforeAll(func(ctx SpecContext) {
		g = newPassage(management)
		c = newChronicle()
		m = startManager(ctx, name, g.kubeconfig(), args...)
	})
	// The writes that are refused, carried out without an answer, and the last before a crash.
	const refused, lost, last = 2, 4, 3

	It("are as many as there is to record, and no more", func(ctx SpecContext) {
		u := calm(ctx, name)
		u.isCalm(ctx)
		u.strike(ctx, g, 0, "")

		Eventually(u.state(ctx)).Should(Equal(over))
		u.settles(ctx, m)
		done, _ := u.plan.Written()
		u.happenedOnce(c, done, "undisturbed")
		Expect(done).To(ContainElements("PATCH machines/recovers/status", "PATCH machines/breaks/status", "PATCH machines/owned/status",
			"PATCH machinehealthchecks/check/status", "PATCH machinehealthchecks/owned", "PATCH machinehealthchecks/owned/status"))
		for _, write := range done {
			most := 1
			switch write {
			case "PATCH machinehealthchecks/check/status":
				most = 5 // three machines change; of one the capacity is back, of another it is missing: each may have a reconcile of its own
			case "PATCH machinehealthchecks/owned/status":
				most = 2 // its counts, and that the capacity is not back
			}
			Expect(times(done, write)).To(BeNumerically("<=", most), "%s in %q", write, done)
		}
	})

	It("ends in the same state, having done nothing twice, when a write is refused, and when its answer is lost", func(ctx SpecContext) {
		all := map[faultproxy.Fate]*upheaval{faultproxy.Refused: calm(ctx, name), faultproxy.Carried: calm(ctx, name)}
		for f, nth := range map[faultproxy.Fate]int{faultproxy.Refused: refused, faultproxy.Carried: lost} {
			all[f].isCalm(ctx)
			all[f].strike(ctx, g, nth, f)
		}

		for f, u := range all {
			why := u.title(u.plan.Nth, f)
			Eventually(u.state(ctx)).Should(Equal(over), why)
			u.settles(ctx, m)
			Expect(u.state(ctx)()).To(Equal(over), why)
			done, struck := u.plan.Written()
			Expect(struck).To(BeTrue(), why)
			u.happenedOnce(c, done, why)
			Expect(number(ctx, m, "kubemend_remediations_started_total", u.labels("check", `kind="Metal3Remediation"`)...)()).To(BeEquivalentTo(2), why)
			Expect(number(ctx, m, "kubemend_remediations_started_total", u.labels("owned", `kind="Owner"`)...)()).To(BeEquivalentTo(1), why)
			Expect(number(ctx, m, "kubemend_remediations_finished_total", u.labels("check", `result="recovered"`)...)()).To(BeEquivalentTo(1), why)
			u.toldOnce(ctx, f == faultproxy.Refused, why)
		}
	})

	It("ends in the same state, having done nothing twice, after a crash between two writes", func(ctx SpecContext) {
		u := calm(ctx, name)
		u.isCalm(ctx)
		u.strike(ctx, g, last, faultproxy.Last)
		before := u.plan
		Eventually(func() int {
			done, _ := before.Written()
			return len(done)
		}).Should(Equal(last))
		m.Kill()
		g.Forget()
		u.plan = g.Expect(u.cluster.Namespace, 0, "")
		m = startManager(ctx, name, g.kubeconfig(), args...)

		why := u.title(before.Nth, before.Fate)
		Eventually(u.state(ctx)).Should(Equal(over), why)
		u.settles(ctx, m)
		done, _ := before.Written()
		after, _ := u.plan.Written()
		u.happenedOnce(c, append(done, after...), why)
		u.toldOnce(ctx, false, why)
	})
})

// toldOnce checks that no event was sent twice, and, if all are wanted, that none is missing.
func (u *upheaval) toldOnce(ctx context.Context, all bool, why string) {
	GinkgoHelper()
	sentEvents := u.sentEvents(ctx)
	before := []string{"recovers MachineMarkedUnhealthy", "check RemediationStarted"}
	if all {
		Eventually(sentEvents).Should(ContainElements(append(before, raised...)), why)
	}
	for _, e := range append(raised, "breaks RemediationFailed", "check RemediationRestricted") {
		object, reason, _ := strings.Cut(e, " ")
		most := 1
		if slices.Contains(before, e) {
			most = 2
		}
		Expect(u.events(ctx, object, reason)()).To(BeNumerically("<=", most), "%s: %s", why, e)
	}
}
