package inspect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// hostsView are the hosts as both read them: with an error while it is set.
type hostsView struct {
	*snapshot.Kinds[*bmov1alpha1.BareMetalHost]
	unread error
}

var errHostsOutOfOrder = errors.New("the webhook of BareMetalHosts does not answer")

// Ready implements machinehealthcheck.Hosts.
func (h *hostsView) Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	if h.unread != nil {
		return false, h.unread
	}
	return h.Kinds.Ready(ctx, kind)
}

func waitsForSpare(reason string) bool {
	return reason == mendv1.NoSpareHostReason || reason == mendv1.SpareHostsUnreadReason
}

// waitsForSpares reports whether machines of a check wait for spare hosts.
func (s *machineScene) waitsForSpares(said *explain.Check) bool {
	return slices.ContainsFunc(s.checks, func(c *clusterv1.MachineHealthCheck) bool {
		return c.Name == said.Name && c.Annotations[mendv1.WaitForSpareAnnotation] == "true"
	})
}

// spareBlocker is that a machine waits for a spare host; nil if it does not.
func spareBlocker(t *explain.Target) *explain.Blocker {
	for i := range t.Blockers {
		if waitsForSpare(t.Blockers[i].Reason) {
			return &t.Blockers[i]
		}
	}
	return nil
}

// compareSpare compares what a machine is said to wait for with what it says after the pass.
func (p *machinePlay) compareSpare(t *explain.Target, is *clusterv1.Machine) {
	p.Helper()
	c, waits := conditions.Get(is, mendv1.SpareHostAvailable), spareBlocker(t)
	switch {
	case waits == nil && c != nil && t.State == health.Healthy:
		p.Errorf("%s is said to be healthy, and the pass says %+v", t.Name, c)
	case waits == nil && c != nil && len(t.Blockers) == 0:
		p.Errorf("%s is said to wait for nothing, and the pass says %+v", t.Name, c)
	case waits != nil && (c == nil || c.Status != metav1.ConditionFalse || c.Reason != waits.Reason || !strings.HasPrefix(c.Message, waits.Text+". ")):
		p.Errorf("%s is said to be blocked by %+v, and the pass says %+v", t.Name, waits, c)
	}
}

// wait reconciles a check until the first of its machines that wait for a spare host waits no longer: with hosts that can be read then, or not.
func (p *machinePlay) wait(check string, unread bool, seen map[string]int) {
	p.Helper()
	p.pass(check)
	said := p.pass(check)
	var first *explain.Target
	for i := range said.Targets {
		t := &said.Targets[i]
		b := spareBlocker(t)
		switch {
		case b == nil:
			seen[t.State.String()]++
			continue
		case first == nil || b.Until.Before(spareBlocker(first).Until):
			first = t
		}
		seen[b.Reason]++
	}
	if first == nil || said.Mode != explain.Acting {
		return
	}
	until := spareBlocker(first).Until
	targetOf := func(c *explain.Check) *explain.Target {
		return &c.Targets[slices.IndexFunc(c.Targets, func(t explain.Target) bool { return t.Name == first.Name })]
	}
	if unread {
		p.hosts.unread = errHostsOutOfOrder
	}
	p.at(until.Add(-time.Second))
	if t := targetOf(p.pass(check)); spareBlocker(t) == nil {
		p.Errorf("%s waits for no spare host a second before %s: %+v", t.Name, until, t.Blockers)
	}
	p.at(until)
	if t := targetOf(p.pass(check)); spareBlocker(t) != nil {
		p.Errorf("%s still waits for a spare host at %s: %+v", t.Name, until, t.Blockers)
	}
	seen["over"]++
}

func TestWaitsForSpareHostsAreSeenAsTheControllerActs(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := aRandomWait(t)
		p := s.play(t)
		for _, check := range s.checks {
			p.wait(check.Name, odds(t, "hosts that cannot be read any more", 4), seen)
			p.hosts.unread = nil
		}
	})
	for _, what := range []string{mendv1.NoSpareHostReason, mendv1.SpareHostsUnreadReason, health.Healthy.String(), "over"} {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("no scene shows %q: %v", what, seen)
		}
	}
}
