package controlplane

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/test/must"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// members returns n healthy members called a, b, c and so on, with changes.
func members(n int, changes ...func([]Member)) []Member {
	all := make([]Member, 0, n)
	for i := range n {
		all = append(all, Member{Name: string(rune('a' + i)), Node: Alive, APIServer: Alive})
	}
	for _, change := range changes {
		change(all)
	}
	return all
}

// to applies edits to the member called name.
func to(name string, edits ...func(*Member)) func([]Member) {
	return func(all []Member) {
		for _, edit := range edits {
			edit(&all[name[0]-'a'])
		}
	}
}

func dead(m *Member)        { m.Node, m.APIServer = Silent, Silent }
func notReady(m *Member)    { m.Node = Silent }
func noServer(m *Member)    { m.APIServer = Silent }
func leaseless(m *Member)   { m.APIServer = Unknown }
func switchedOff(m *Member) { m.Off, m.Node, m.APIServer = true, Silent, Silent }
func joining(m *Member)     { m.Joining, m.Node, m.APIServer = true, Unknown, Unknown }
func unseen(m *Member)      { m.Node, m.APIServer = Unknown, Unknown }

func away(m *Member)        { m.Away = true }
func withEtcd(m *Member)    { m.Etcd = EtcdLabelled }
func withoutEtcd(m *Member) { m.Etcd = EtcdNotLabelled }

func deleted(d time.Duration) func(*Member) {
	return func(m *Member) { m.ReplacedBy, m.ReplacedSince = "Machine", ago(d) }
}

func cycled(d time.Duration) func(*Member) {
	return func(m *Member) { m.Remediation, m.Began = "HostRemediation "+m.Name, ago(d) }
}

func begun(m *Member) { m.Begun = true }

func due(d time.Duration) func(*Member) { return func(m *Member) { m.Due = ago(d) } }

// Each row is about member a. docs/control-plane-safety.md has the same examples.
func TestWhoMayGo(t *testing.T) {
	cases := map[string]struct {
		api     API
		members []Member
		want    []Objection
	}{
		"the only member goes, dead":                   {Answers, members(1, to("a", dead)), nil},
		"or alive":                                     {Answers, members(1), nil},
		"also while no server answers":                 {NoAnswer, members(1, to("a", unseen)), nil},
		"nor does it wait to be seen":                  {Connecting, members(1, to("a", unseen)), nil},
		"of two the dead one goes":                     {Answers, members(2, to("a", dead)), nil},
		"and the live one, for both are needed anyhow": {Answers, members(2), nil},
		"of two one goes at a time": {
			Answers, members(2, to("b", cycled(time.Minute))), []Objection{{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"}},
		},

		"of three the dead one goes":                                                   {Answers, members(3, to("a", dead)), nil},
		"a live one goes while the other two are alive":                                {Answers, members(3), nil},
		"a live one does not while another is dead":                                    {Answers, members(3, to("b", dead)), atRisk(1, 3, 2)},
		"a dead one goes although another is dead":                                     {Answers, members(3, to("a", dead), to("b", dead)), nil},
		"a dead one goes although another is switched off":                             {Answers, members(3, to("a", dead), to("b", switchedOff)), nil},
		"a live one does not while another is switched off":                            {Answers, members(3, to("b", switchedOff)), atRisk(1, 3, 2)},
		"a live one does not while another has not joined":                             {Answers, members(3, to("b", joining)), atRisk(1, 3, 2)},
		"a live one of three does not while a fourth joins":                            {Answers, members(4, to("d", joining)), atRisk(2, 4, 3)},
		"none goes while another is being power-cycled":                                {Answers, members(3, to("a", dead), to("b", cycled(time.Minute))), []Objection{{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"}}},
		"an API server that renews its lease is alive, although its node is not ready": {Answers, members(3, to("a", notReady), to("b", dead)), atRisk(1, 3, 2)},
		"and counts for the others":                                                    {Answers, members(3, to("b", notReady)), nil},
		"one that does not renew it counts for nothing, although its node is ready":    {Answers, members(3, to("b", noServer)), atRisk(1, 3, 2)},
		"but is not taken for dead itself":                                             {Answers, members(3, to("a", noServer), to("b", dead)), atRisk(1, 3, 2)},
		"without leases the nodes decide":                                              {Answers, members(3, to("a", leaseless), to("b", leaseless), to("c", leaseless, notReady)), atRisk(1, 3, 2)},
		"and all of them that are ready count":                                         {Answers, members(3, to("a", leaseless), to("b", leaseless), to("c", leaseless)), nil},
		"one in maintenance may go down at any moment":                                 {Answers, members(3, to("b", away)), atRisk(1, 3, 2)},
		"and may be remediated itself":                                                 {Answers, members(3, to("a", away)), nil},
		"of servers with etcd, one is dead: no live one of them": {
			Answers, members(5, to("a", withEtcd), to("b", withEtcd, dead), to("c", withEtcd), to("d", withoutEtcd), to("e", withoutEtcd)), atRisk(1, 3, 2),
		},
		"a server without etcd goes whatever becomes of them": {
			Answers, members(5, to("a", withoutEtcd), to("b", withEtcd, dead), to("c", withEtcd, dead), to("d", withEtcd)), nil,
		},
		"but no two at a time": {
			Answers, members(4, to("a", withoutEtcd), to("b", withEtcd, cycled(time.Minute)), to("c", withEtcd), to("d", withEtcd)),
			[]Objection{{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"}},
		},
		"what was not seen may run etcd":                   {Answers, members(4, to("b", withEtcd), to("c", withEtcd), to("d", withoutEtcd)), nil},
		"and its vote is missed":                           {Answers, members(4, to("b", joining), to("a", withEtcd), to("c", withEtcd), to("d", withoutEtcd)), atRisk(1, 3, 2)},
		"where none is labelled all of them count":         {Answers, members(3, to("a", withoutEtcd), to("b", withoutEtcd, dead), to("c", withoutEtcd)), atRisk(1, 3, 2)},
		"while no API server answers there is no majority": {NoAnswer, members(3, to("a", unseen), to("b", unseen), to("c", unseen)), nil},
		"but one goes at a time": {
			NoAnswer, members(3, to("a", unseen), to("b", cycled(time.Hour))), []Objection{{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"}},
		},
		"no member goes before it is known whether one answers": {Connecting, members(3, to("a", unseen)), []Objection{{Reason: NotSeen}}},

		"none goes while another is being replaced": {
			Answers, members(3, to("a", dead), to("b", deleted(time.Minute))),
			[]Objection{{Reason: BeingReplaced, Member: "b", By: "Machine"}},
		},
		"also while no API server answers": {
			NoAnswer, members(3, to("a", unseen), to("b", deleted(time.Minute))),
			[]Objection{{Reason: BeingReplaced, Member: "b", By: "Machine"}},
		},
		"a replacement that does not end keeps no dead one waiting": {Answers, members(3, to("a", dead), to("b", deleted(30*time.Minute))), nil},
		"and is not alive": {Answers, members(3, to("b", deleted(30*time.Minute))), atRisk(1, 3, 2)},
		"all that is in the way is said": {
			Answers, members(3, to("b", cycled(0)), to("c", deleted(0))),
			[]Objection{
				{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"},
				{Reason: BeingReplaced, Member: "c", By: "Machine"},
				{Reason: MajorityAtRisk, Votes: 0, Total: 3, Needed: 2},
			},
		},

		"of five a live one goes while one is dead":       {Answers, members(5, to("b", dead)), nil},
		"also with one switched off":                      {Answers, members(5, to("b", switchedOff)), nil},
		"but not while two are":                           {Answers, members(5, to("b", dead), to("c", dead)), atRisk(2, 5, 3)},
		"of five a dead one goes whatever the others are": {Answers, members(5, to("a", dead), to("b", dead), to("c", dead)), nil},

		"who has begun goes before who began later": {Answers, members(3, to("a", dead, cycled(2*time.Minute)), to("b", cycled(time.Minute))), nil},
		"and that one waits": {
			Answers, members(3, to("a", dead, cycled(time.Minute)), to("b", cycled(2*time.Minute))),
			[]Objection{{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"}},
		},
		"a dead one goes before a live one that has waited longer":   {Answers, members(5, to("a", dead, due(time.Minute)), to("b", due(time.Hour))), nil},
		"a live one lets a dead one go first":                        {Answers, members(5, to("a", due(time.Hour)), to("b", dead, due(time.Minute))), first("b")},
		"of two dead ones that goes which has waited longest":        {Answers, members(3, to("a", dead, due(time.Minute)), to("b", dead, due(time.Hour))), first("b")},
		"of two that have waited as long one goes, by name":          {Answers, members(3, to("a", dead, due(time.Hour)), to("b", dead, due(time.Hour))), nil},
		"while no API server answers, that which has waited longest": {NoAnswer, members(3, to("a", unseen, due(time.Minute)), to("b", unseen, due(time.Hour))), first("b")},
		"one whose turn had come already goes before":                {Answers, members(3, to("a", dead, due(time.Hour)), to("b", dead, begun, due(time.Minute))), first("b")},
		"a member that may not go keeps no other one waiting":        {Answers, members(3, to("a", noServer, due(time.Minute)), to("b", due(time.Hour))), nil},
		"nor does who does not wait":                                 {Answers, members(3, to("a", dead, due(time.Minute)), to("b", dead)), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, Plane{tc.api, tc.members}.Against("a", noon))
		})
	}
}

func atRisk(votes, total, needed int) []Objection {
	return []Objection{{Reason: MajorityAtRisk, Votes: votes, Total: total, Needed: needed}}
}

func first(name string) []Objection { return []Objection{{Reason: NotFirst, Member: name}} }

func TestWhatLeasesSay(t *testing.T) {
	cases := map[string]struct {
		renewed map[string]time.Time
		want    map[string]Sign
	}{
		"none say nothing":                                 {nil, nil},
		"one that is renewed is alive":                     {map[string]time.Time{"a": ago(9 * time.Second)}, map[string]Sign{"a": Alive}},
		"one that stays a minute behind is silent":         {map[string]time.Time{"a": ago(time.Second), "b": ago(62 * time.Second)}, map[string]Sign{"a": Alive, "b": Silent}},
		"one that has expired says nothing":                {map[string]time.Time{"a": noon, "b": ago(time.Hour)}, map[string]Sign{"a": Alive}},
		"a clock here that is fast makes no member silent": {map[string]time.Time{"a": ago(10 * time.Minute), "b": ago(11 * time.Minute)}, map[string]Sign{"a": Alive, "b": Alive}},
		"nor does one that is slow":                        {map[string]time.Time{"a": ago(-10 * time.Minute), "b": ago(-5 * time.Minute)}, map[string]Sign{"a": Alive, "b": Silent}},
		"where none is renewed any more they say nothing":  {map[string]time.Time{"a": ago(time.Hour), "b": ago(2 * time.Hour)}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, Servers(tc.renewed, noon))
		})
	}
}

func labelled(labels ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, label := range labels {
		node.Labels[label] = "true"
	}
	return node
}

func TestWhoIsAMember(t *testing.T) {
	const role = "node-role.kubernetes.io/"
	for name, tc := range map[string]struct {
		node   *corev1.Node
		member bool
		etcd   Etcd
	}{
		"kubeadm, Talos":                     {labelled(role + "control-plane"), true, EtcdNotLabelled},
		"kubeadm before 1.24":                {labelled(role + "master"), true, EtcdNotLabelled},
		"RKE2 and k3s, a server with etcd":   {labelled(role+"control-plane", role+"master", role+"etcd"), true, EtcdLabelled},
		"RKE2 and k3s, etcd alone":           {labelled(role + "etcd"), true, EtcdLabelled},
		"RKE2 and k3s, a server without":     {labelled(role+"control-plane", role+"master"), true, EtcdNotLabelled},
		"RKE1":                               {labelled(role + "controlplane"), true, EtcdNotLabelled},
		"Harvester's witness":                {labelled(role+"etcd", "node-role.harvesterhci.io/witness"), true, EtcdLabelled},
		"OpenShift's arbiter":                {labelled(role + "arbiter"), true, EtcdNotLabelled},
		"MicroK8s":                           {labelled("microk8s.io/cluster", "node.kubernetes.io/microk8s-controlplane"), true, EtcdNotLabelled},
		"MicroK8s, a worker":                 {labelled("microk8s.io/cluster", "node.kubernetes.io/microk8s-worker"), false, EtcdNotLabelled},
		"a worker":                           {labelled(role + "worker"), false, EtcdNotLabelled},
		"a node that was not seen":           {nil, false, EtcdUnknown},
		"compact: control plane and worker":  {labelled(role+"control-plane", role+"worker"), true, EtcdNotLabelled},
		"infrastructure, ingress and others": {labelled(role+"infra", "kubernetes.io/role"), false, EtcdNotLabelled},
	} {
		t.Run(name, func(t *testing.T) {
			if member, etcd := IsMember(tc.node), EtcdOf(tc.node); member != tc.member || etcd != tc.etcd {
				t.Errorf("a member: %t, etcd: %d; want %t, %d", member, etcd, tc.member, tc.etcd)
			}
		})
	}
}

func TestALeaseOfAnotherHolderTakesItsNode(t *testing.T) {
	lease := func(holder string, renewed time.Duration, owners ...string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &metav1.MicroTime{Time: noon.Add(renewed)},
		}}
		for i := 0; i < len(owners); i += 2 {
			l.OwnerReferences = append(l.OwnerReferences, metav1.OwnerReference{Kind: owners[i], UID: types.UID(owners[i+1])})
		}
		return l
	}
	never := lease("other", 0)
	never.Spec.RenewTime = nil
	node := labelled()
	node.UID = "new"
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		node  *corev1.Node
		want  bool
	}{
		"renewed within its minute":            {lease("other", -time.Minute+1), node, true},
		"a minute ago":                         {lease("other", -time.Minute), node, false},
		"never":                                {never, node, false},
		"by the holder that asks":              {lease("self", 0), node, false},
		"by no one":                            {lease("", 0), node, false},
		"by a clock that is half a minute off": {lease("other", 30*time.Second), node, true},
		"by one that is more off":              {lease("other", 30*time.Second+1), node, false},
		"and owned by the node":                {lease("other", 0, "Node", "old", "Node", "new"), node, true},
		"and owned by a former node":           {lease("other", 0, "Node", "old", "ConfigMap", "new"), node, false},
		"and owned by another object":          {lease("other", 0, "ConfigMap", "old"), node, true},
		"of a node that is gone":               {lease("other", 0, "Node", "old"), nil, true},
	} {
		must.Is(t, tc.want, Leased(tc.lease, tc.node, "self", noon), "%s: got", name)
	}
}

// environment simulates a control plane in which each running member has a vote. A member is power-cycled only if Against allows it, and
// then comes back or dies.
type environment struct {
	plane Plane
	now   time.Time
}

func anyEnvironment(t *rapid.T) *environment {
	return &environment{now: noon, plane: Plane{API: Answers, Members: members(rapid.IntRange(1, 7).Draw(t, "members"))}}
}

// happens changes a member at random, or ends its remediation.
func (w *environment) happens(t *rapid.T) {
	m := &w.plane.Members[rapid.IntRange(0, len(w.plane.Members)-1).Draw(t, "member")]
	switch rapid.SampledFrom([]string{"dies", "is switched off", "recovers", "is asked for", "is replaced", "has joined", "API"}).Draw(t, "event") {
	case "dies":
		dead(m)
	case "is switched off":
		switchedOff(m)
	case "recovers":
		if m.ReplacedBy == "" {
			*m = Member{Name: m.Name, Node: Alive, APIServer: rapid.SampledFrom([]Sign{Unknown, Alive}).Draw(t, "lease"), Due: m.Due}
		}
	case "is asked for":
		if m.Remediation == "" && m.Due.IsZero() {
			m.Due = w.now
		}
	case "is replaced":
		m.ReplacedBy, m.ReplacedSince = "Machine", w.now
	case "has joined":
		*m = Member{Name: m.Name, Node: Alive, APIServer: Alive}
	case "API":
		w.plane.API = rapid.SampledFrom([]API{Connecting, Answers, NoAnswer}).Draw(t, "api")
	}
}

// goes power-cycles the waiting members that Against allows. All answers are collected before the first power cycle.
func (w *environment) goes(t *rapid.T) {
	var gone []int
	for i, m := range w.plane.Members {
		if !m.Due.IsZero() && len(w.plane.Against(m.Name, w.now)) == 0 {
			gone = append(gone, i)
		}
	}
	if len(gone) > 1 {
		t.Fatalf("members %v may go at once: %+v", gone, w.plane)
	}
	for _, i := range gone {
		if first := w.plane.First(w.now); first != w.plane.Members[i].Name {
			t.Fatalf("%q goes first, and another one may go: %+v", first, w.plane)
		}
		m, before := &w.plane.Members[i], w.votes()
		alive := m.Alive()
		m.Remediation, m.Began, m.Due = "power cycle", w.now, time.Time{}
		dead(m)
		needed := Majority(len(w.plane.Members))
		if w.plane.API == Answers && before >= needed && w.votes() < needed {
			t.Fatalf("%s may go, and of %d votes %d are left: %+v", m.Name, before, w.votes(), w.plane)
		}
		if needed > 0 && w.plane.API == Answers && alive && w.votes() < needed {
			t.Fatalf("%s was alive, and may go without a majority: %+v", m.Name, w.plane)
		}
	}
}

func (w *environment) votes() int {
	n := 0
	for _, m := range w.plane.Members {
		if m.Votes() {
			n++
		}
	}
	return n
}

func (w *environment) underway() (busy int) {
	for _, m := range w.plane.Members {
		if m.Remediation != "" {
			busy++
		}
	}
	return busy
}

func TestNeverTwoAtOnceAndNeverAMajorityLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyEnvironment(t)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			w.happens(t)
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 45).Draw(t, "minutes")) * time.Minute)
			w.goes(t)
			if n := w.underway(); n > 1 {
				t.Fatalf("%d members are being remediated: %+v", n, w.plane)
			}
		}
	})
}

// When no remediation is under way and ReplacementPatience has passed, one of the waiting members may be disrupted, unless all of them are
// alive and needed for the majority.
func TestSomebodyMayGoInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyEnvironment(t)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			w.happens(t)
		}
		w.now = w.now.Add(ReplacementPatience)
		if w.plane.API == Connecting {
			w.plane.API = NoAnswer // known after a minute
		}
		waits, needless := 0, 0
		for _, m := range w.plane.Members {
			if m.Due.IsZero() {
				continue
			}
			waits++
			if needed := Majority(len(w.plane.Members)); m.Alive() && w.plane.API == Answers && votesWithout(w.plane.Members, m) < needed {
				needless++
			}
			if len(w.plane.Against(m.Name, w.now)) == 0 {
				return
			}
		}
		if waits > needless {
			t.Fatalf("%d wait, and none may go: %+v", waits, w.plane)
		}
	})
}
