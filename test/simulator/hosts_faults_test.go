package simulator_test

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

func TestADeadBMCIgnoresRequests(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "dead", quick).add("host", builders.Deployed)
	s.Die(true)
	orders := s.Orders()
	s.annotate(suffixed, hard)
	s.Eventually(s.Orders).Should(BeNumerically(">", orders+1), "it is asked again")
	s.Expect(s.Powered()).To(BeTrue())
	s.Expect(s.bmh(s).Status.PoweredOn).To(BeTrue())
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Status.ErrorType).To(Equal(bmov1alpha1.PowerManagementError), "Ironic has waited for it in vain")
	})
	s.Die(false)
	s.told(false)
}

func TestAFailureIsReportedAndCountedAndClearedBySuccess(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "failing", quick).add("host", builders.Deployed)
	s.FailPower("no power for you")
	s.annotate(suffixed, hard)
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Status.OperationalStatus).To(Equal(bmov1alpha1.OperationalStatusError))
		g.Expect(bmh.Status.ErrorType).To(Equal(bmov1alpha1.PowerManagementError))
		g.Expect(bmh.Status.ErrorMessage).To(Equal("no power for you"))
		g.Expect(bmh.Status.ErrorCount).To(BeNumerically(">=", 3))
		g.Expect(bmh.Status.PoweredOn).To(BeTrue())
	})
	s.Eventually(func(g Gomega) {
		list := &eventsv1.EventList{}
		g.Expect(s.c.List(s.ctx, list, client.InNamespace(s.fixture.name))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(SatisfyAll(
			HaveField("Reason", "PowerManagementError"), HaveField("Note", "no power for you"), HaveField("Regarding.Name", "host"))))
	}).Should(Succeed())

	s.FailPower("")
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Status.PoweredOn).To(BeFalse())
		g.Expect(bmh.Status.OperationalStatus).To(Equal(bmov1alpha1.OperationalStatusOK))
		g.Expect(bmh.Status.ErrorType).To(BeEmpty())
		g.Expect(bmh.Status.ErrorMessage).To(BeEmpty())
		g.Expect(bmh.Status.ErrorCount).NotTo(BeZero(), "it is not counted back: from now on the host is switched off the hard way")
	})
}

func TestABackOffEndsWhenAnnotationsChange(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "backoff", simulator.HostsOptions{Waits: waits(time.Hour)}).add("host", builders.Deployed)
	s.FailPower("not now")
	s.annotate(suffixed, hard)
	counted := func(n int) {
		s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) { g.Expect(bmh.Status.ErrorCount).To(Equal(n)) })
	}
	counted(1)
	s.annotate("example.com/any", "")
	counted(2)
}

func TestStalePowerIsReportedAsItWas(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "stale", quick)
	s := r.add("host", builders.Deployed)
	s.HidePower(true)
	s.annotate(suffixed, hard)
	s.Eventually(s.Powered).Should(BeFalse())
	s.isReconciled(r.add("witness", builders.Deployed))
	s.Expect(s.bmh(s).Status.PoweredOn).To(BeTrue(), "BMO has read nothing else")
	s.HidePower(false)
	s.told(false)
}

func TestAHangingHostIsPoweredOffHardAfterASoftAttempt(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "soft", quick).add("host", builders.Deployed)
	s.IgnoreSoft(true)
	s.annotate(suffixed, "not JSON")
	s.told(false)
	s.Expect(s.History()[1].Hard).To(BeTrue())
}

func TestAHostWithDisablePowerOffIsRebooted(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "never-off", quick)
	s := r.add("host", builders.Deployed, builders.NeverOff)
	s.annotate(bare, hard)
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) { g.Expect(bmh.Annotations).NotTo(HaveKey(bare)) })
	s.isReconciled(r.add("witness", builders.Deployed))
	s.Eventually(s.History).Should(HaveLen(2), "on at first, and one reset")
	s.Expect(s.History()[1].To).To(Equal(simulator.Reset))

	s.annotate(suffixed, hard)
	s.Eventually(func() int { return s.History().Cycles() }).Should(BeNumerically(">", 5), "again and again")
	s.Expect(s.bmh(s).Status.PoweredOn).To(BeTrue())
	s.Expect(s.bmh(s).Annotations).To(HaveKey(suffixed))
	s.strip(suffixed)
	for _, change := range s.History()[1:] {
		s.Expect(change.To).To(Equal(simulator.Reset), "it is never off")
	}
}

func TestWhichAnnotationsOutliveAChangeOfTheProvisioningState(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		clearsAll bool
		stays     bool
	}{
		"bmo-0-13": {true, false},
		"bmo-0-14": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := quick
			o.ClearsAllReboots = tc.clearsAll
			s := newFixture(t, name, o).add("host", builders.Deployed)
			s.annotate(suffixed, hard)
			s.told(false)
			s.edit(func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.Online, bmh.Spec.Image = false, nil })
			s.in(bmov1alpha1.StateAvailable)
			if tc.stays {
				s.Expect(s.bmh(s).Annotations).To(HaveKey(suffixed))
			} else {
				s.Expect(s.bmh(s).Annotations).NotTo(HaveKey(suffixed))
			}
			s.edit(builders.Deployed)
			s.in(bmov1alpha1.StateProvisioned)
			if !tc.stays {
				s.told(true)
				return
			}
			s.annotate("example.com/any", "")
			s.isReconciled(s.add("witness", builders.Deployed))
			s.Expect(s.Powered()).To(BeFalse(), "an annotation that was forgotten keeps the next machine off")
			s.strip(suffixed)
			s.told(true)
		})
	}
}

func TestAForcedRebootRestartsProvisioningStates(t *testing.T) {
	t.Parallel()
	const takes = 500 * time.Millisecond
	o := quick
	o.Times = simulator.Times{Inspecting: takes, Provisioning: takes, Deprovisioning: takes}
	r := newFixture(t, "timed", o)
	s := r.bring("host", builders.Deployed)
	s.in(bmov1alpha1.StateInspecting)
	s.in(bmov1alpha1.StateProvisioning)
	began := time.Now()
	s.annotate(bare, forced)
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) { g.Expect(bmh.Annotations).NotTo(HaveKey(bare)) })
	s.in(bmov1alpha1.StateProvisioned)
	s.Expect(time.Since(began)).To(BeNumerically(">=", takes))
	s.told(true)
	s.edit(func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.Image = nil })
	s.in(bmov1alpha1.StateDeprovisioning)
	s.in(bmov1alpha1.StateAvailable)
}
