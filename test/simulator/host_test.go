package simulator

import (
	"testing"
	"testing/synctest"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubemend/kubemend/test/builders"
)

// slot is a host with a kubelet on it, and the object that is reconciled over and over. What becomes of the power is tested in package bmo.
type slot struct {
	*Host
	kubelet *Kubelet
	bmh     *bmov1alpha1.BareMetalHost
}

// inSlot runs test in a bubble of virtual time, with a host that is on.
func inSlot(t *testing.T, test func(*testing.T, *slot), edits ...func(*bmov1alpha1.BareMetalHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hosts := &Hosts{hall: &hall{known: map[client.ObjectKey]*Host{}}}
		hosts.options.complete()
		s := &slot{bmh: builders.BareMetalHost("ns", "h", append(edits, builders.Deployed)...)}
		s.bmh.Annotations = map[string]string{}
		s.Host = hosts.Host(client.ObjectKeyFromObject(s.bmh))
		defer s.shut()
		s.kubelet = NewKubelet(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), KubeletOptions{Node: "n"})
		s.pass(20 * time.Second)
		s.Carry(s.kubelet)
		s.pass(time.Second)
		test(t, s)
	})
}

// pass lets so much time pass, in which the host is reconciled over and over.
func (s *slot) pass(d time.Duration) {
	for end := time.Now().Add(d); ; time.Sleep(time.Second) {
		is := s.bmh.DeepCopy()
		if !s.reconcile(is).Failed {
			s.bmh = is
		}
		synctest.Wait()
		if !time.Now().Before(end) {
			return
		}
	}
}

func (s *slot) reboot() {
	s.bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix] = `{"mode":"hard"}`
	s.pass(20 * time.Second)
}

func TestAKubeletFollowsThePowerOfItsHost(t *testing.T) {
	inSlot(t, func(t *testing.T, s *slot) {
		if !s.kubelet.Running() {
			t.Fatal("it does not run on a host that is on")
		}
		s.bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix+"/test"] = `{"mode":"hard"}`
		if s.pass(20 * time.Second); s.kubelet.Running() || s.bmh.Status.PoweredOn {
			t.Errorf("it runs (%t) on a host that is reported on: %t", s.kubelet.Running(), s.bmh.Status.PoweredOn)
		}
		delete(s.bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix+"/test")
		if s.pass(20 * time.Second); !s.kubelet.Running() {
			t.Error("it does not run again")
		}
		s.kubelet.Stop()
		if s.pass(20 * time.Second); s.kubelet.Running() || !s.Powered() {
			t.Errorf("one that hangs runs (%t) on a host that is on: %t", s.kubelet.Running(), s.Powered())
		}
		if s.reboot(); !s.kubelet.Running() {
			t.Error("one that hung does not run after a reboot")
		}
	})
}

func TestAHostMayNeedMoreThanOneBoot(t *testing.T) {
	inSlot(t, func(t *testing.T, s *slot) {
		for _, mute := range []struct{ boots, runsAfter int }{{1, 2}, {2, 3}, {-1, 0}} {
			s.Mute(mute.boots)
			for boot := range 4 {
				s.reboot()
				if want := mute.runsAfter > 0 && boot+1 >= mute.runsAfter; s.kubelet.Running() != want {
					t.Errorf("of %d mute boots, after boot %d it runs: %t", mute.boots, boot+1, !want)
				}
			}
		}
		s.Mute(0)
		s.Take(Times{Boot: 10 * time.Minute})
		if s.reboot(); s.kubelet.Running() {
			t.Error("a slow boot is over at once")
		}
		if s.pass(10 * time.Minute); !s.kubelet.Running() {
			t.Error("a slow boot is never over")
		}
	})
}

func TestADeprovisionedHostCarriesNothingAnyMore(t *testing.T) {
	inSlot(t, func(t *testing.T, s *slot) {
		s.bmh.Spec.Image = nil
		s.pass(20 * time.Second)
		if s.Kubelet() != nil || s.kubelet.Running() || !s.Powered() {
			t.Errorf("it carries %v, which runs: %t; it is on: %t", s.Kubelet(), s.kubelet.Running(), s.Powered())
		}
	}, builders.NeverOff)
}
