package bmo_test

import (
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

// An annotation and its value that ask BMO for a reboot.
const (
	suffixed = bmov1alpha1.RebootAnnotationPrefix + "/test"
	hard     = `{"mode":"hard","force":false}`
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// deployed makes BMO provision the host and power it on.
func deployed(h *bmov1alpha1.BareMetalHost) {
	h.Spec.Online, h.Spec.Image = true, &bmov1alpha1.Image{URL: "http://simulated/image"}
}

// player is a host with its BareMetalHost and a clock.
type player struct {
	bmo.Host
	t     *testing.T
	bmh   *bmov1alpha1.BareMetalHost
	looks bmo.Looks
	now   time.Time
	// power has the power changes since the host was ready for the test.
	power []bmo.Power
}

// play returns a host that takes no time, after it has reached the state that its object asks for.
func play(t *testing.T, edits ...func(*bmov1alpha1.BareMetalHost)) *player {
	t.Helper()
	p := &player{Host: bmo.Host{Waits: bmo.Real()}, t: t, now: noon, bmh: &bmov1alpha1.BareMetalHost{}}
	p.bmh.Annotations = map[string]string{}
	p.bmh.Spec.BMC = bmov1alpha1.BMCDetails{Address: "simulated://h", CredentialsName: "h"}
	for _, edit := range edits {
		edit(p.bmh)
	}
	p.pass(time.Hour)
	p.power = nil
	return p
}

func (p *player) pass(d time.Duration) {
	p.t.Helper()
	for end := p.now.Add(d); ; {
		for n := 0; p.step(); n++ {
			if n > 100 {
				p.t.Fatalf("it does not come to rest: %+v", p.bmh.Status)
			}
		}
		next := end
		for _, at := range []time.Time{p.looks.Next(), p.Next()} {
			if at.After(p.now) && at.Before(next) {
				next = at
			}
		}
		if p.now = next; !next.Before(end) {
			return
		}
	}
}

func (p *player) step() bool {
	p.Advance(p.now)
	for _, c := range p.Changes() {
		p.power = append(p.power, c.To)
	}
	if !p.looks.Due(p.bmh, p.now) {
		return false
	}
	is := p.bmh.DeepCopy()
	done := p.Reconcile(is, p.now)
	p.looks.Note(done, p.now)
	if done.Object {
		p.bmh.ObjectMeta, p.bmh.Spec = is.ObjectMeta, is.Spec
	}
	if done.Status {
		p.bmh.Status = is.Status
	}
	return true
}

// is fails the test unless these were the power changes and BMO reports this power.
func (p *player) is(on bool, power ...bmo.Power) {
	p.t.Helper()
	if p.bmh.Status.PoweredOn != on || !slices.Equal(p.power, power) {
		p.t.Errorf("it is on: %t, want %t; its power went %q, want %q (%+v)", p.bmh.Status.PoweredOn, on, p.power, power, p.bmh.Status)
	}
}

func (p *player) annotate(key, value string) { p.bmh.Annotations[key] = value }

func (p *player) strip(key string) { delete(p.bmh.Annotations, key) }

func TestAHostIsLeftAloneWhilePausedOrDetached(t *testing.T) {
	for annotation, status := range map[string]bmov1alpha1.OperationalStatus{
		bmov1alpha1.PausedAnnotation:   bmov1alpha1.OperationalStatusOK,
		bmov1alpha1.DetachedAnnotation: bmov1alpha1.OperationalStatusDetached,
	} {
		p := play(t, deployed)
		p.annotate(annotation, "")
		p.pass(time.Minute)
		if got := p.bmh.Status.OperationalStatus; got != status {
			t.Errorf("%s: it is %q, want %q", annotation, got, status)
		}
		p.annotate(suffixed, hard)
		p.pass(24 * time.Hour)
		p.is(true)
		p.strip(annotation)
		p.pass(time.Hour)
		p.is(false, bmo.Off)
	}
}

func TestTheEffectOfAnAnnotationDependsOnTheProvisioningState(t *testing.T) {
	for state, acts := range map[bmov1alpha1.ProvisioningState]bool{
		bmov1alpha1.StateProvisioned: true, bmov1alpha1.StateExternallyProvisioned: true, bmov1alpha1.StateAvailable: false,
		bmov1alpha1.StateUnmanaged: false, bmov1alpha1.StateRegistering: false, bmov1alpha1.StateInspecting: false,
		bmov1alpha1.StatePreparing: false, bmov1alpha1.StateReady: false, bmov1alpha1.StateProvisioning: false,
		bmov1alpha1.StateDeprovisioning: false,
	} {
		t.Run(string(state), func(t *testing.T) {
			p := play(t, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true })
			p.Pinned = &state
			p.looks.Now(p.now)
			p.pass(time.Hour)
			p.annotate(suffixed, hard)
			p.pass(time.Hour)
			if got := !p.Powered(); got != acts {
				t.Errorf("it is off: %t, want %t", got, acts)
			}
		})
	}
}

func TestADeletedHostIsPoweredOffAndRemoved(t *testing.T) {
	for name, tc := range map[string]struct{ detached, dead, powered bool }{
		"in service": {}, "detached": {detached: true, powered: true}, "with a dead BMC": {dead: true, powered: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, deployed)
			p.Faults.NotReady, p.Faults.IgnoresOff = true, tc.dead
			if tc.detached {
				p.bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusDetached
			}
			p.bmh.DeletionTimestamp = &metav1.Time{Time: p.now}
			p.pass(time.Hour)
			if len(p.bmh.Finalizers) == 0 || !p.Powered() {
				t.Error("it is powered off, or deleted, while Ironic does not answer")
			}
			p.Faults.NotReady = false
			p.pass(48 * time.Hour)
			if len(p.bmh.Finalizers) > 0 || p.Powered() != tc.powered {
				t.Errorf("it stays: %q; it is on: %t, want %t", p.bmh.Finalizers, p.Powered(), tc.powered)
			}
		})
	}
}

func TestAFailureIsReportedAndCountedAndClearedBySuccess(t *testing.T) {
	p := play(t, deployed)
	p.Faults.Refuses = "no power for you"
	p.annotate(suffixed, hard)
	p.pass(time.Minute)
	p.is(true)
	s := p.bmh.Status
	if s.OperationalStatus != bmov1alpha1.OperationalStatusError || s.ErrorType != bmov1alpha1.PowerManagementError {
		t.Errorf("it reports %s %s", s.OperationalStatus, s.ErrorType)
	}
	if s.ErrorMessage != "no power for you" {
		t.Errorf("it says %q", s.ErrorMessage)
	}
	// The wait before the next try doubles, and a change of annotations ends it.
	counted := s.ErrorCount
	p.pass(24 * time.Hour)
	if got := p.bmh.Status.ErrorCount; got <= counted || got > counted+24 {
		t.Errorf("after a day it has failed %d times, before %d", got, counted)
	}
	counted = p.bmh.Status.ErrorCount
	p.annotate("example.com/any", "")
	p.pass(time.Second)
	if got := p.bmh.Status.ErrorCount; got != counted+1 {
		t.Errorf("after a change of annotations it has failed %d times, before %d", got, counted)
	}
	p.Faults.Refuses = ""
	p.pass(24 * time.Hour)
	p.is(false, bmo.Off)
	s = p.bmh.Status
	if s.OperationalStatus != bmov1alpha1.OperationalStatusOK || s.ErrorType != "" || s.ErrorMessage != "" || s.ErrorCount == 0 {
		t.Errorf("it reports %+v; the count stays: from now on the host is switched off the hard way", s)
	}
}

func TestStalePowerIsReportedAsItWas(t *testing.T) {
	p := play(t, deployed)
	p.Faults.Stale = true
	p.annotate(suffixed, hard)
	p.pass(10 * time.Second)
	p.is(true, bmo.Off)
	p.Faults.Stale = false
	p.pass(24 * time.Hour)
	p.is(false, p.power...)
}
