package controlplane

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// members are those of a control plane: a, b, c and so on, of which each is healthy but for what is done to it.
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

// to does this to the member called name.
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

// Each row asks for member a. docs/control-plane-safety.md has the same examples.
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
			[]Objection{{Reason: BeingReplaced, Member: "b", By: "Machine", Until: noon.Add(29 * time.Minute)}},
		},
		"also while no API server answers": {
			NoAnswer, members(3, to("a", unseen), to("b", deleted(time.Minute))),
			[]Objection{{Reason: BeingReplaced, Member: "b", By: "Machine", Until: noon.Add(29 * time.Minute)}},
		},
		"a replacement that does not end keeps no dead one waiting": {Answers, members(3, to("a", dead), to("b", deleted(30*time.Minute))), nil},
		"and is not alive": {Answers, members(3, to("b", deleted(30*time.Minute))), atRisk(1, 3, 2)},
		"all that is in the way is said": {
			Answers, members(3, to("b", cycled(0)), to("c", deleted(0))),
			[]Objection{
				{Reason: BeingRemediated, Member: "b", By: "HostRemediation b"},
				{Reason: BeingReplaced, Member: "c", By: "Machine", Until: noon.Add(30 * time.Minute)},
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
			if diff := cmp.Diff(tc.want, Plane{tc.api, tc.members}.Against("a", noon)); diff != "" {
				t.Error(diff)
			}
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
			if diff := cmp.Diff(tc.want, Servers(tc.renewed, noon)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
