package hostremediation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/workload"
)

// plane is a fixture whose machine m (node "node") is a member of a control plane. The hosts and nodes of the others have their names.
type plane struct {
	*fixture
	others map[string]*bmov1alpha1.BareMetalHost
	nodes  map[string]*corev1.Node
}

func planeOf(t *testing.T, others ...string) *plane {
	t.Helper()
	p := &plane{fixture: fixtureOf(t), others: map[string]*bmov1alpha1.BareMetalHost{}, nodes: map[string]*corev1.Node{}}
	p.r.Hosts = planeHosts{p.hosts, p}
	p.obeys()
	p.edits("m", func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "c"}
	})
	p.node("node", corev1.ConditionUnknown)
	for _, name := range others {
		p.joins(name)
	}
	return p
}

// planeHosts are the hosts of all members.
type planeHosts struct {
	Hosts
	p *plane
}

func (h planeHosts) Of(_ context.Context, m *clusterv1.Machine) (host.Found, error) {
	if m.Name == "m" {
		return h.p.finds(), nil
	}
	return host.Found{Host: host.From(h.p.others[m.Name]), Is: powercycle.HostOurs}, nil
}

// joins adds a healthy member.
func (p *plane) joins(name string) {
	p.t.Helper()
	m := p.machine(p.t.Context())
	m.Name, m.UID, m.ResourceVersion, m.Finalizers = name, types.UID(name+"-uid"), "", []string{"machine.cluster.x-k8s.io"}
	m.Status.NodeRef.Name = name
	p.creates(m)
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	p.others[name] = h
	p.node(name, corev1.ConditionTrue)
}

func (p *plane) node(name string, ready corev1.ConditionStatus) {
	n := readyNode("boot-" + name)
	n.Name, n.Status.Conditions[0].Status = name, ready
	p.nodes[name] = n
}

func (p *plane) member(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// answers makes the API of the cluster answer, with the current nodes.
func (p *plane) answers() {
	var a answering
	for _, n := range p.nodes {
		a.nodes = append(a.nodes, n)
	}
	p.r.Clusters = a
}

// maintenanceOf returns the lease that the Node Maintenance Operator takes on a node.
func maintenanceOf(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + node},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("node-maintenance"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: &metav1.MicroTime{Time: noon},
		},
	}
}

// renewed makes the API servers' leases this old, by node, and adds other leases.
func (p *plane) renewed(ago map[string]time.Duration, leases ...client.Object) {
	for node, d := range ago {
		leases = append(leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "apiserver-" + node, Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: node,
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: p.clock.Now().Add(-d)}},
		})
	}
	reader := fake.NewClientBuilder().WithObjects(leases...).Build()
	p.r.Reader = func(context.Context, client.ObjectKey) (client.Reader, error) { return reader, nil }
}

// other adds a remediation of another member, with this record.
func (p *plane) other(name, remembers string) {
	p.t.Helper()
	rem := aRemediation(types.UID("other-"+name), remembers).Unwrapped()
	rem.SetNamespace("ns")
	rem.SetCreationTimestamp(metav1.NewTime(noon.Add(-time.Hour)))
	rem.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name + "-uid")}})
	p.creates(rem)
}

func (p *plane) waitsFor(name, reason string) {
	p.t.Helper()
	rem := &mendv1.HostRemediation{}
	rem.Namespace, rem.Name = "ns", "other-"+name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+mendv1.WaitsForAnnotation+`":"`+reason+`"}}}`))
	must.Do(p.t, p.client.Patch(p.t.Context(), rem, patch))
}

func (p *plane) held() bool {
	_, held := p.host.Annotations[holdOff+string(fixtureUID)]
	return held
}

func TestWhetherAControlPlaneHostIsSwitchedOff(t *testing.T) {
	const (
		cycling  = `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z"}`
		cycled   = "b is being remediated (HostRemediation other-b)"
		majority = "without it 1 of 3 control-plane nodes are healthy, and 2 are needed"
	)
	cases := map[string]struct {
		happen func(*plane)
		waits  string // what is said of the wait; empty if the host is switched off
	}{
		"H-B5: one that hangs is while another one is switched off on purpose, and the API with them": {
			func(p *plane) { p.others["b"].Spec.Online, p.others["b"].Status.PoweredOn = false, false }, "",
		},
		"H-B6: one is not while another one is being deleted and the next has not joined": {func(p *plane) {
			p.deletes(p.member("b"))
			p.edits("c", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
		}, "b is being remediated (Machine b)"},
		"a live one is not while another one is lost": {func(p *plane) {
			p.node("node", corev1.ConditionTrue)
			p.node("b", corev1.ConditionUnknown)
			p.answers()
		}, majority},
		"nor one that has lost the label of its Cluster": {func(p *plane) {
			p.edits("m", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.ClusterNameLabel) })
			p.node("node", corev1.ConditionTrue)
			p.node("b", corev1.ConditionUnknown)
			p.answers()
		}, majority},
		"a live one is not while another one is in maintenance": {func(p *plane) {
			p.node("node", corev1.ConditionTrue)
			p.nodes["b"].Spec.Taints = []corev1.Taint{{Key: "medik8s.io/drain"}}
			p.answers()
		}, majority},
		"nor while somebody holds the lease on the node of another one": {func(p *plane) {
			p.node("node", corev1.ConditionTrue)
			p.answers()
			p.renewed(map[string]time.Duration{"node": time.Second, "b": time.Second, "c": time.Second}, maintenanceOf("b"))
		}, majority},
		"also where the leases of API servers cannot be read": {func(p *plane) {
			p.node("node", corev1.ConditionTrue)
			p.answers()
			reader := interceptor.NewClient(fake.NewClientBuilder().WithObjects(maintenanceOf("b")).Build(), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return errors.New("forbidden")
				},
			})
			p.r.Reader = func(context.Context, client.ObjectKey) (client.Reader, error) { return reader, nil }
		}, majority},
		"one without etcd is, although one with it is lost": {func(p *plane) {
			p.joins("d")
			p.node("node", corev1.ConditionTrue)
			for _, name := range []string{"b", "c", "d"} {
				p.nodes[name].Labels = map[string]string{"node-role.kubernetes.io/etcd": "true"}
			}
			p.nodes["b"].Status.Conditions[0].Status, p.nodes["c"].Status.Conditions[0].Status = corev1.ConditionUnknown, corev1.ConditionUnknown
			p.answers()
		}, ""},
		"one whose API server is alive is not, although its node is not ready, while another one is lost": {func(p *plane) {
			p.node("b", corev1.ConditionUnknown)
			p.answers()
			p.renewed(map[string]time.Duration{"node": time.Second, "b": 10 * time.Minute, "c": time.Second})
		}, majority},
		"where leases cannot be read the nodes decide": {func(p *plane) {
			p.node("b", corev1.ConditionUnknown)
			p.answers()
			p.r.Reader = func(context.Context, client.ObjectKey) (client.Reader, error) { return nil, errors.New("forbidden") }
		}, ""},
		"none is while another one is being power-cycled": {func(p *plane) { p.answers(); p.other("b", cycling) }, cycled},
		"nor while one is that has no label of Cluster API's": {func(p *plane) {
			for _, name := range []string{"m", "b"} {
				p.edits(name, func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineControlPlaneLabel) })
			}
			for _, node := range p.nodes {
				node.Labels = map[string]string{"node-role.kubernetes.io/etcd": "true"}
			}
			p.answers()
			p.other("b", cycling)
		}, cycled},
		"which its remediation remembers while the API does not answer": {func(p *plane) {
			p.edits("b", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineControlPlaneLabel) })
			p.other("b", `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z","controlPlane":true}`)
		}, cycled},
		"nor while another one's host is held off, by whomever": {func(p *plane) {
			p.answers()
			p.others["b"].Annotations = map[string]string{holdOff + "capm3": ""}
		}, "b is being remediated (BareMetalHost b is kept powered off)"},
		"one is while another one waits that fails again and again": {func(p *plane) {
			p.node("b", corev1.ConditionUnknown)
			p.answers()
			p.other("b", `{"state":"Pending","since":"2026-01-01T11:00:00Z"}`)
			p.waitsFor("b", "RemediationLoop")
		}, ""},
		"one is while another one waits for a policy": {func(p *plane) {
			p.node("b", corev1.ConditionUnknown)
			p.answers()
			p.other("b", `{"state":"Pending","since":"2026-01-01T11:00:00Z"}`)
			p.waitsFor("b", "WaitingForPolicy")
		}, ""},
		"nor while what another remediation remembers cannot be read": {func(p *plane) { p.answers(); p.other("b", "{") }, cycled},
		"one is although one that waits for longer waits for a person to reset its host": {func(p *plane) {
			p.node("b", corev1.ConditionUnknown)
			p.other("b", `{"state":"Pending","since":"2026-01-01T11:00:00Z","person":"PowerOffDisproved"}`)
			p.others["b"].Annotations = map[string]string{mendv1.PowerOffDisprovedAnnotation: "2026-01-01T10:00:00Z"}
			p.answers()
		}, ""},
		"none is before it is known whether the API answers": {
			func(p *plane) { p.r.Clusters = connecting{} }, "it is not known yet which members of the control plane are alive",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := planeOf(t, "b", "c")
			tc.happen(p)
			s := p.pass()
			if held := p.held(); held != (tc.waits == "") || !strings.Contains(s.Message, tc.waits) {
				t.Errorf("held off: %t, %s: %q; want it to wait for %q", held, s.Step, s.Message, tc.waits)
			}
		})
	}
}

// connecting are workload clusters that kubemend is still connecting to.
type connecting struct{}

func (connecting) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.View{Link: workload.Unsure, Recheck: time.Second}, nil
}

func TestWhoWaitsForItsTurnIsNotCondemnedForIt(t *testing.T) {
	p := planeOf(t, "b")
	p.other("b", `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z"}`)
	told := events.NewFakeRecorder(1000)
	p.r.Recorder = told
	p.pass()
	for range 3 {
		if s := p.wait(2*time.Hour + time.Minute); s.Step != string(powercycle.Pending) || p.held() {
			t.Fatalf("it is in %s, held off: %t, want it to wait: %q", s.Step, p.held(), s.Message)
		}
	}
	warnings := 0
	for range len(told.Events) {
		if e := <-told.Events; strings.HasPrefix(e, "Warning QueueTimedOut") {
			warnings++
			if !strings.Contains(e, "b is being remediated (HostRemediation other-b)") {
				t.Errorf("it does not say what it waits for: %s", e)
			}
		}
	}
	if warnings != 2 { // on the remediation, and on the machine
		t.Errorf("a person was asked %d times, want once on the remediation and once on the machine", warnings)
	}
	p.deletes(&mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other-b"}})
	if s := p.wait(time.Minute); !p.held() {
		t.Errorf("it waits although its turn has come: %s %q", s.Step, s.Message)
	}
}

func TestTheHostThatTheManagerRunsOn(t *testing.T) {
	for name, tc := range map[string]struct {
		self      Self
		worker    bool
		elsewhere bool
		asks      error
		off, ends bool
	}{
		"is not switched off":                                                   {self: Self{Node: "node", BootID: "boot-node"}},
		"is left to another replica that is ready":                              {self: Self{Node: "node", BootID: "boot-node"}, elsewhere: true, ends: true},
		"is not switched off if no other replica is known":                      {self: Self{Node: "node", BootID: "boot-node"}, elsewhere: true, asks: errors.New("forbidden")},
		"is another one than that of a node of its name":                        {self: Self{Node: "node", BootID: "boot-elsewhere"}, off: true},
		"is another one than that of a node of another name":                    {self: Self{Node: "another", BootID: "boot-node"}, off: true},
		"is none outside of a cluster":                                          {off: true},
		"is not switched off if it is a worker either, and nobody can be asked": {self: Self{Node: "node", BootID: "boot-node"}, worker: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, ended := planeOf(t), false
			p.answers()
			p.r.Self = tc.self
			p.r.Self.StandDown = func() { ended = true }
			p.r.Self.Elsewhere = func(context.Context) (bool, error) { return tc.elsewhere, tc.asks }
			if tc.worker {
				p.edits("m", func(m *clusterv1.Machine) { m.Labels = nil })
				p.r.Self.Elsewhere = nil
			}
			s := p.pass()
			if p.held() != tc.off || ended != tc.ends {
				t.Errorf("held off: %t, ended: %t, want %t and %t: %q", p.held(), ended, tc.off, tc.ends, s.Message)
			}
			if !tc.off && !strings.HasPrefix(s.Message, "kubemend itself runs on this host") {
				t.Errorf("it says %q", s.Message)
			}
		})
	}
}

func TestWhichHostsWouldGoOff(t *testing.T) {
	for name, tc := range map[string]struct {
		power powercycle.Power
		want  bool
	}{
		"one that is wanted on":        {powercycle.Power{Wanted: true}, true},
		"not one that is switched off": {powercycle.Power{}, false},
		"nor one that others hold":     {powercycle.Power{Wanted: true, KeptOffBy: "somebody"}, false},
		"nor one that is paused":       {powercycle.Power{Wanted: true, Unmanaged: "the host is paused"}, false},
	} {
		must.Is(t, tc.want, obeys(tc.power), "%s:", name)
	}
}

func TestAMemberIsOffIfItsHostIs(t *testing.T) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "u"}}
	for name, tc := range map[string]struct {
		found host.Found
		off   bool
	}{
		"its host is on":  {host.Found{Host: &host.Host{Power: powercycle.Power{PoweredOn: true}}}, false},
		"its host is off": {host.Found{Host: &host.Host{}}, true},
		"there is none":   {host.Found{}, false},
	} {
		is, err := (&Reconciler{}).memberOf(t.Context(), &observed{machine: m, rem: aRemediation("a", ""), found: tc.found}, m)
		if err != nil || is.Off != tc.off {
			t.Errorf("%s: %+v (%v)", name, is, err)
		}
	}
}

func readyNode(boot string) *corev1.Node {
	n := &corev1.Node{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.NodeInfo.BootID = boot
	return n
}
