package simulator_test

import (
	"context"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// The annotations that hosts are asked with.
const (
	bare     = bmov1alpha1.RebootAnnotationPrefix
	suffixed = bmov1alpha1.RebootAnnotationPrefix + "/test"
	hard     = `{"mode":"hard","force":false}`
	forced   = `{"mode":"hard","force":true}`
)

// quick makes every wait of BMO short.
var quick = simulator.HostsOptions{Waits: waits(10 * time.Millisecond)}

// waits are short ones, but for those after an error.
func waits(afterErrors time.Duration) simulator.Waits {
	w := simulator.Hurried()
	w.Short, w.Error, w.Sync, w.Change, w.Soft = 10*time.Millisecond, afterErrors, 50*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	return w
}

// fixture is a namespace with hosts.
type fixture struct {
	*WithT
	t     *testing.T
	ctx   context.Context
	c     client.Client
	name  string
	hosts *simulator.Hosts
}

func newFixture(t *testing.T, name string, o simulator.HostsOptions) *fixture {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	r := &fixture{WithT: g, t: t, ctx: t.Context(), c: clientOf(t, management), name: name}
	g.Expect(builders.Apply(r.ctx, r.c, builders.Namespace(name))).To(Succeed())
	r.hosts = startHosts(t, name, o)
	return r
}

// startHosts plays the hosts of a namespace until the test ends.
func startHosts(t *testing.T, namespace string, o simulator.HostsOptions) *simulator.Hosts {
	t.Helper()
	o.Namespace = namespace
	hosts, err := simulator.NewHosts(management.Config(), o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	play(t, "hosts", hosts.Start)
	return hosts
}

// play runs a player until the test ends.
func play(t *testing.T, what string, start func(context.Context) error) {
	t.Helper()
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the simulated %s failed: %v", what, err)
		}
	})
}

// slot is one host of a fixture, as it is and as BMO reports it.
type slot struct {
	*simulator.Host
	*fixture
	name string
}

// add makes a host, and waits until it is as the object asks.
func (r *fixture) add(name string, edits ...func(*bmov1alpha1.BareMetalHost)) *slot {
	r.t.Helper()
	s := r.bring(name, edits...)
	s.Eventually(func(g Gomega) {
		bmh := s.bmh(g)
		g.Expect(bmh.Status.Provisioning.State).To(BeElementOf(
			bmov1alpha1.StateAvailable, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned))
		g.Expect(bmh.Status.PoweredOn).To(Equal(bmh.Spec.Online))
	}).Should(Succeed())
	return s
}

// bring makes a host.
func (r *fixture) bring(name string, edits ...func(*bmov1alpha1.BareMetalHost)) *slot {
	r.t.Helper()
	s := &slot{fixture: r, name: name, Host: r.hosts.Host(client.ObjectKey{Namespace: r.name, Name: name})}
	r.Expect(builders.Apply(r.ctx, r.c, builders.BareMetalHost(r.name, name, edits...))).To(Succeed())
	return s
}

func (s *slot) bmh(g Gomega) *bmov1alpha1.BareMetalHost {
	bmh := &bmov1alpha1.BareMetalHost{}
	g.Expect(s.c.Get(s.ctx, s.Key(), bmh)).To(Succeed())
	return bmh
}

// edit changes the object by a patch.
func (s *slot) edit(change func(*bmov1alpha1.BareMetalHost)) {
	s.t.Helper()
	bmh := s.bmh(s)
	before := bmh.DeepCopy()
	change(bmh)
	s.Expect(s.c.Patch(s.ctx, bmh, client.MergeFrom(before))).To(Succeed())
}

func (s *slot) annotate(key, value string) {
	s.t.Helper()
	s.edit(builders.Annotated[*bmov1alpha1.BareMetalHost](key, value))
}

func (s *slot) strip(key string) {
	s.t.Helper()
	s.edit(func(bmh *bmov1alpha1.BareMetalHost) { delete(bmh.Annotations, key) })
}

func (s *slot) becomes(check func(g Gomega, bmh *bmov1alpha1.BareMetalHost)) {
	s.t.Helper()
	s.Eventually(func(g Gomega) { check(g, s.bmh(g)) }).Should(Succeed())
}

func (s *slot) told(on bool) {
	s.t.Helper()
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) { g.Expect(bmh.Status.PoweredOn).To(Equal(on)) })
}

func (s *slot) in(state bmov1alpha1.ProvisioningState) {
	s.t.Helper()
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Status.Provisioning.State).To(Equal(state))
	})
}

// isReconciled waits until BMO has reconciled the host again: a second host, whose reconcile is requested later, has gone off and on.
func (s *slot) isReconciled(witness *slot) {
	s.t.Helper()
	cycles := witness.History().Cycles()
	witness.annotate(bare, hard)
	witness.Eventually(func() int { return witness.History().Cycles() }).Should(Equal(cycles + 1))
	witness.told(true)
}

func TestAHostStaysOffWhileItHasARebootAnnotation(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "held", quick)
	for name, edits := range map[string][]func(*bmov1alpha1.BareMetalHost){
		"provisioned":            {builders.Deployed},
		"externally-provisioned": {builders.ExternallyDeployed},
	} {
		t.Run(name, func(t *testing.T) {
			s := r.add(name, edits...)
			before := len(s.History())
			began := time.Now()
			s.annotate(suffixed, hard)
			s.told(false)
			t.Logf("off after %s", time.Since(began))
			s.Expect(s.Powered()).To(BeFalse())
			s.Expect(s.bmh(s).Annotations).To(HaveKeyWithValue(suffixed, hard), "only who set it takes it away")
			s.annotate(suffixed+"-too", "")
			s.strip(suffixed)
			s.isReconciled(r.add(name+"-witness", builders.Deployed))
			s.Expect(s.Powered()).To(BeFalse(), "another client still asks")
			began = time.Now()
			s.strip(suffixed + "-too")
			s.told(true)
			t.Logf("on after %s", time.Since(began))
			changes := s.History()[before:]
			s.Expect(changes).To(HaveLen(2))
			s.Expect(changes[0].To).To(Equal(simulator.Off))
			s.Expect(changes[0].Hard).To(BeTrue())
			s.Expect(changes[1].To).To(Equal(simulator.On))
			s.Expect(changes.Cycles()).To(Equal(1))
		})
	}
}

func TestThePlainRebootAnnotationIsRemovedWhenTheHostWasOff(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "once", quick).add("host", builders.Deployed)
	s.annotate(bare, "")
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Annotations).NotTo(HaveKey(bare))
		g.Expect(bmh.Status.PoweredOn).To(BeTrue())
		g.Expect(s.History().Cycles()).To(Equal(1))
	})
	s.Expect(s.History()[1].Hard).To(BeFalse(), "an empty value asks for a soft one")
}

func TestPowerTakesItsTime(t *testing.T) {
	t.Parallel()
	const takes = 300 * time.Millisecond
	s := newFixture(t, "slow-power", quick).add("host", builders.Deployed)
	s.Take(simulator.Times{PowerOff: takes, PowerOn: takes})
	began := time.Now()
	s.annotate(suffixed, hard)
	s.told(false)
	s.Expect(time.Since(began)).To(BeNumerically(">=", takes))
	began = time.Now()
	s.strip(suffixed)
	s.told(true)
	s.Expect(time.Since(began)).To(BeNumerically(">=", takes))
}

func TestAPowerChangeWithoutAnEventIsFoundByPolling(t *testing.T) {
	t.Parallel()
	o := quick
	o.Waits.Poll = 50 * time.Millisecond
	s := newFixture(t, "unplugged", o).add("host", builders.Deployed)
	s.Unplug()
	s.Eventually(s.Powered).Should(BeTrue(), "it is asked to be online")
	s.Expect(s.History().Cycles()).To(Equal(1))
}

func TestThePowerFollowsSpecOnline(t *testing.T) {
	t.Parallel()
	s := newFixture(t, "online", quick).add("host", builders.Deployed)
	s.edit(func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.Online = false })
	s.told(false)
	s.annotate(bare, "")
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) { g.Expect(bmh.Annotations).NotTo(HaveKey(bare)) })
	s.Expect(s.Powered()).To(BeFalse(), "it was off, so nothing is to do")
	s.edit(func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.Online = true })
	s.told(true)
}

func TestAHostIsLeftAloneWhilePausedOrDetached(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "alone", quick)
	witness := r.add("witness", builders.Deployed)
	for name, tc := range map[string]struct {
		annotation string
		status     bmov1alpha1.OperationalStatus
	}{
		"paused":   {bmov1alpha1.PausedAnnotation, bmov1alpha1.OperationalStatusOK},
		"detached": {bmov1alpha1.DetachedAnnotation, bmov1alpha1.OperationalStatusDetached},
	} {
		t.Run(name, func(*testing.T) {
			s := r.add(name, builders.Deployed)
			s.annotate(tc.annotation, "")
			s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
				g.Expect(bmh.Status.OperationalStatus).To(Equal(tc.status))
			})
			orders := s.Orders()
			s.annotate(suffixed, hard)
			s.isReconciled(witness)
			s.Expect(s.Orders()).To(Equal(orders))
			s.Expect(s.bmh(s).Status.PoweredOn).To(BeTrue())
			s.strip(tc.annotation)
			s.told(false)
			s.Expect(s.bmh(s).Status.OperationalStatus).To(Equal(bmov1alpha1.OperationalStatusOK))
		})
	}
}

func TestTheEffectOfAnAnnotationDependsOnTheProvisioningState(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "states", quick)
	witness := r.add("witness", builders.Deployed)
	for name, tc := range map[string]struct {
		state bmov1alpha1.ProvisioningState
		value string
		acts  bool
	}{
		"provisioned":             {bmov1alpha1.StateProvisioned, hard, true},
		"externally-provisioned":  {bmov1alpha1.StateExternallyProvisioned, hard, true},
		"available":               {bmov1alpha1.StateAvailable, hard, false},
		"available-with-force":    {bmov1alpha1.StateAvailable, forced, true},
		"unmanaged":               {bmov1alpha1.StateUnmanaged, forced, false},
		"registering":             {bmov1alpha1.StateRegistering, hard, false},
		"inspecting":              {bmov1alpha1.StateInspecting, hard, false},
		"preparing":               {bmov1alpha1.StatePreparing, hard, false},
		"ready":                   {bmov1alpha1.StateReady, hard, false},
		"provisioning":            {bmov1alpha1.StateProvisioning, hard, false},
		"provisioning-with-force": {bmov1alpha1.StateProvisioning, forced, false},
		"deprovisioning":          {bmov1alpha1.StateDeprovisioning, hard, false},
		"deleting":                {bmov1alpha1.StateDeleting, hard, false},
	} {
		t.Run(name, func(*testing.T) {
			s := r.add(name, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.Online = true })
			s.Pin(tc.state)
			s.in(tc.state)
			s.annotate(suffixed, tc.value)
			if tc.acts {
				s.told(false)
			} else {
				s.isReconciled(witness)
				s.Expect(s.Powered()).To(BeTrue())
				s.Expect(s.bmh(s).Status.PoweredOn).To(BeTrue())
			}
			s.Unpin()
		})
	}
}

func TestADeletedHostIsPoweredOffAndRemoved(t *testing.T) {
	t.Parallel()
	r := newFixture(t, "deleted-hosts", quick)
	for name, tc := range map[string]struct {
		detached string
		dead     bool
		stays    bool
		powered  bool
	}{
		"in-service":                       {},
		"with-a-dead-bmc":                  {dead: true, powered: true},
		"detached":                         {detached: "true", powered: true},
		"detached-and-to-be-kept":          {detached: `{"deleteAction":"delay"}`, stays: true, powered: true},
		"detached-and-to-be-deleted-as-is": {detached: `{"deleteAction":"delete"}`, powered: true},
	} {
		t.Run(name, func(*testing.T) {
			s := r.add(name, builders.Deployed)
			s.Die(tc.dead)
			if tc.detached != "" {
				s.annotate(bmov1alpha1.DetachedAnnotation, tc.detached)
			}
			gone := func() error { return s.c.Get(s.ctx, s.Key(), &bmov1alpha1.BareMetalHost{}) }
			s.Expect(s.c.Delete(s.ctx, s.bmh(s))).To(Succeed())
			if tc.stays {
				s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
					g.Expect(bmh.Status.OperationalStatus).To(Equal(bmov1alpha1.OperationalStatusDetached))
				})
				s.Expect(s.Powered()).To(BeTrue(), "it is switched off when it is attached again")
				s.strip(bmov1alpha1.DetachedAnnotation)
				tc.powered = false
			}
			s.Eventually(gone).Should(Satisfy(apierrors.IsNotFound))
			s.Expect(s.Powered()).To(Equal(tc.powered))
		})
	}
}
