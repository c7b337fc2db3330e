package hosts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// plane is a control plane of three hosts with common clusters, clock and controllers. A member of etcd and an API server run on each host:
// the workload cluster answers while a majority of them runs.
type plane struct {
	members []*environment
	// hangs has the members whose kubelet is silent although the host runs.
	hangs map[*environment]bool
	// offByUs has the hosts that kubemend powered off and that have not been on since.
	offByUs map[*environment]bool
	unsafe  []string
	down    time.Time
}

// knowable is after how long kubemend can know that a member is dead: the lease of its API server, renewed every ten seconds, may be a
// minute older than the newest one (package controlplane). Its node is not Ready before that.
const knowable = time.Minute + renewsLease + time.Second

func newPlane(t reporter, k kind, downtime time.Duration) *plane {
	t.Helper()
	p := &plane{hangs: map[*environment]bool{}, offByUs: map[*environment]bool{}}
	as := settings{controlPlane: true, empty: true, healthy: true, mayRecycle: true, downtime: downtime}
	first := newBare(t, k, as)
	cluster := builders.Cluster(clusterKey.Namespace, clusterKey.Name)
	objects := []client.Object{first.named(cluster)}
	for i, name := range []string{"a", "b", "c"} {
		m := first
		if i > 0 {
			m = newBare(t, k, as)
			m.clock, m.writes = first.clock, first.writes
		}
		m.at.Name, m.nodeName, m.uids = name, "node-"+name, 100*(i+1)
		p.members = append(p.members, m)
		objects = append(objects, m.objects(cluster)...)
	}
	management, work := newServer(first.clock, kindsOfManagement, objects...), newServer(first.clock, kindsOfWorkload)
	for _, m := range p.members {
		m.management, m.work, m.plane = management, work, p
		m.furnish()
		m.box.up = true
	}
	for _, m := range p.members {
		m.box.serve()
	}
	management.after, work.after = p.check, p.check
	p.start()
	return p
}

// start starts the controllers without any memory.
func (p *plane) start() {
	first := p.members[0]
	first.start()
	for _, m := range p.members[1:] {
		if m.Kind.Kind != first.Kind.Kind {
			m.start()
			m.controller.Gate = first.controller.Gate
			continue
		}
		m.controller = first.controller
		m.seen, m.due, m.tries = -1, time.Time{}, 0
	}
}

// serving returns how many API servers run.
func (p *plane) serving() int {
	n := 0
	for _, m := range p.members {
		if m.box.up {
			n++
		}
	}
	return n
}

func (p *plane) answers() bool { return p.serving() > len(p.members)/2 }

// renewed returns when the kubelet of a node last renewed its lease; false if there is none.
func (p *plane) renewed(node string, now time.Time) (time.Time, bool) {
	for _, m := range p.members {
		if m.nodeName == node {
			return m.box.renewed(now)
		}
	}
	return time.Time{}, false
}

// identities returns the leases of the API servers, which each of them renews every ten seconds.
func (p *plane) identities(now time.Time, into *coordinationv1.LeaseList) {
	for _, m := range p.members {
		at := metav1.NewMicroTime(m.box.lastUp(now).Truncate(renewsLease))
		into.Items = append(into.Items, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "apiserver-" + m.nodeName, Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: m.nodeName,
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &at},
		})
	}
}

// check fails the test if a safety rule does not hold. It is called after every change of an object.
func (p *plane) check(at place) {
	for _, m := range p.members {
		m.check(at)
	}
	for _, m := range p.members {
		h := m.host()
		holds := h != nil && held(h)
		if holds && !m.safety.holds {
			p.checkHold(m)
		}
		m.safety.lostPower = m.safety.lostPower && !m.box.model.Powered()
		if m.safety.holds = holds; holds {
			p.offByUs[m] = true
		} else if m.box.model.Powered() || m.safety.lostPower {
			delete(p.offByUs, m)
		}
	}
}

// checkHold is called when kubemend begins to keep m powered off, or asks for its reboot.
func (p *plane) checkHold(m *environment) {
	now, alive := m.clock.Now(), 0
	for _, other := range p.members {
		if other == m {
			continue
		}
		// If the remediation of a host is gone and the host did not power on when asked, only its node shows that it is off.
		if p.offByUs[other] && (held(other.host()) || p.answers()) {
			p.fault(m, "%s is kept powered off while %s is off because of us", m.at.Name, other.at.Name)
		}
		if other.box.up || now.Sub(other.box.lastUp(now)) < knowable {
			alive++
		}
	}
	if m.box.up && p.answers() && alive <= len(p.members)/2 { // otherwise there is no majority to lose
		p.fault(m, "%s, which is alive, is kept powered off while %d others are: the majority breaks", m.at.Name, alive)
	}
}

func (p *plane) fault(m *environment, text string, of ...any) {
	p.unsafe = append(p.unsafe, fmt.Sprintf("after %s: %s", m.clock.Now().Sub(noon), fmt.Sprintf(text, of...)))
}

// step lets all actors act once.
func (p *plane) step() bool {
	first := p.members[0]
	now, changed := first.clock.Now(), false
	for _, m := range p.members {
		changed = m.box.step(now) || changed
		changed = p.reports(m, now) || changed
		changed = m.pods.step(now) || changed
	}
	if first.writes.Crashed() {
		if now.Before(p.down) {
			return changed
		}
		first.writes.Restart()
		p.start()
	}
	for _, m := range p.members {
		changed = m.reconcile(now) || changed
		if first.writes.Crashed() {
			p.down = m.down
			return true
		}
	}
	return changed
}

// reports makes the kubelet of m report or stop reporting: it reports if it runs, is not silent, and the API server answers.
func (p *plane) reports(m *environment, now time.Time) bool {
	switch may := m.box.up && !p.hangs[m] && p.answers(); {
	case m.box.runs && !may:
		m.box.runs, m.box.silent = false, now
		return true
	case may && !m.box.runs:
		m.box.serve()
		return true
	}
	return false
}

// until lets all actors act for a time.
func (p *plane) until(d time.Duration) {
	clock := p.members[0].clock
	end := clock.Now().Add(d)
	for {
		for n := 0; p.step(); n++ {
			if n > 20*manySteps {
				p.members[0].t.Fatalf("it does not come to rest\n%s", p.story())
			}
		}
		next := end
		for _, m := range p.members {
			for _, at := range []time.Time{m.due, m.box.next(), m.pods.next(), p.down} {
				if at.After(clock.Now()) && at.Before(next) {
					next = at
				}
			}
		}
		if !clock.Now().Before(end) {
			return
		}
		clock.SetTime(next)
	}
}

func (p *plane) story() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%q\n", p.unsafe)
	for _, m := range p.members {
		text.WriteString(m.story())
	}
	return text.String()
}

// whims are what may happen to a member of a control plane.
var whims = []struct {
	name string
	do   func(*plane, *environment)
}{
	{"its kubelet hangs", func(p *plane, m *environment) { p.hangs[m] = true }},
	{"its kubelet reports", func(p *plane, m *environment) { p.hangs[m] = false }},
	{"a user requests its remediation", func(_ *plane, m *environment) {
		if m.remediation() == nil {
			m.request()
		}
	}},
	{"C4: its remediation is deleted", func(_ *plane, m *environment) {
		if rem := m.remediation(); rem != nil {
			m.do(client.IgnoreNotFound(m.management.Delete(m.t.Context(), rem)))
		}
	}},
	{"it loses its power", func(_ *plane, m *environment) {
		if m.box.model.Powered() {
			m.box.model.Press(bmo.Off, m.clock.Now())
			m.safety.lostPower = true // the host is off because of this, not because of kubemend
		}
	}},
	{"BMO stops for it", func(_ *plane, m *environment) { m.box.model.Faults.Stopped = true }},
	{"its BMC does not switch off", func(_ *plane, m *environment) { m.box.model.Faults.IgnoresOff = true }},
	{"its BMC does not switch on", func(_ *plane, m *environment) { m.box.model.Faults.IgnoresOn = true }},
	{"its host cannot be kept powered off", func(_ *plane, m *environment) {
		m.editHost(func(h *bmov1alpha1.BareMetalHost) { h.Spec.DisablePowerOff = true })
	}},
	{"its faults are over", func(_ *plane, m *environment) { m.box.revive(); m.box.looks.Restart() }},
	{"the caches lag", func(_ *plane, m *environment) { m.lag(true) }},
	{"the caches catch up", func(_ *plane, m *environment) { m.catchUp() }},
	{"the manager restarts", func(p *plane, m *environment) { m.writes.Restart(); p.start() }},
}

// TestAControlPlaneKeepsItsMajority plays random remediations of the three hosts of a control plane, while hosts, kubelets, the manager and
// its caches fail at random. It checks the real power: kubemend never has two hosts off, never powers off a live host that the majority
// needs, as far as it can know, and in the end all hosts are on.
func TestAControlPlaneKeepsItsMajority(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.Kind.Kind, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { playWithAPlane(rt, k) })
		})
	}
}

func playWithAPlane(rt *rapid.T, k kind) {
	p := newPlane(rt, k, time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds of downtime"))*time.Second)
	var story []string
	for range rapid.IntRange(1, 12).Draw(rt, "how many things happen") {
		p.until(time.Duration(rapid.IntRange(0, 150).Draw(rt, "seconds before")) * time.Second)
		m := rapid.SampledFrom(p.members).Draw(rt, "member")
		if nth := rapid.IntRange(-20, 6).Draw(rt, "a write that fails"); nth > 0 {
			m.writes.Choose(nth, rapid.SampledFrom(faults.Fates).Draw(rt, "how"))
		}
		w := rapid.SampledFrom(whims).Draw(rt, "what happens")
		story = append(story, fmt.Sprintf("after %s, %s (%s): %s", m.clock.Now().Sub(noon), m.at.Name, m.memory(), w.name))
		w.do(p, m)
	}
	p.heal()
	for _, m := range p.members {
		m.label = fmt.Sprintf("%q", story)
	}
	p.until(longEnough)
	if len(p.unsafe) > 0 {
		rt.Fatalf("it was unsafe\n%s", p.story())
	}
	for _, m := range p.members {
		switch h := m.host(); {
		case len(m.unsafe) > 0:
			rt.Fatalf("%s was unsafe\n%s", m.at.Name, p.story())
		case held(h) || !m.box.up:
			rt.Fatalf("%s stays off, or is held\n%s", m.at.Name, p.story())
		case m.remediation() != nil && !memoryOf(m.remediation()).State.Final():
			rt.Fatalf("the remediation of %s does not end\n%s", m.at.Name, p.story())
		case outOfService(m.node()):
			rt.Fatalf("the node of %s stays fenced\n%s", m.at.Name, p.story())
		}
	}
}

// heal ends all faults.
func (p *plane) heal() {
	first := p.members[0]
	first.writes.Choose(0, "")
	first.catchUp()
	for _, m := range p.members {
		p.hangs[m] = false
		m.box.revive()
		m.box.looks.Restart()
	}
}

// catchUp makes the caches current.
func (e *environment) catchUp() {
	e.lag(false)
	e.management.enqueues++
}

// List returns the leases of the API servers if they are asked for.
func (l leases) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if all, is := into.(*coordinationv1.LeaseList); is && l.e.plane != nil {
		l.e.plane.identities(l.e.clock.Now(), all)
		return nil
	}
	return l.Client.List(ctx, into, opts...)
}

func TestControlPlaneHostsThatFailTogetherAreOffOneAfterAnother(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.Kind.Kind, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, k, 0)
			p.members[2].kind = kinds[1-i] // a remediation of the other kind has to count too
			p.start()
			for _, m := range p.members {
				p.hangs[m] = true
			}
			p.until(2 * time.Minute)
			for _, m := range p.members {
				m.request()
			}
			p.until(time.Second)
			waiting := 0
			for _, m := range p.members {
				if strings.Contains(m.says().Message, "Waiting in its queue (") {
					waiting++
				}
			}
			equal(t, "the number of those that say for which one they wait", waiting, 2)
			for range 60 {
				p.until(5 * time.Second)
				for _, m := range p.members {
					p.hangs[m] = p.hangs[m] && m.box.up
				}
			}
			for _, m := range p.members {
				m.power(bmo.Off, bmo.On)
				equal(t, "the state", m.memory(), "Succeeded")
				equal(t, "the number of orphans", len(m.orphans()), 0)
			}
			if len(p.unsafe) > 0 {
				t.Error(p.story())
			}
		})
	}
}
