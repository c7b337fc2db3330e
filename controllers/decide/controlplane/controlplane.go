// Package controlplane decides whether a member of a control plane may be disrupted: powered off, rebooted, or otherwise remediated. It is
// the one rule for power cycles and NodeHealthChecks (docs/control-plane-safety.md).
//
// It does not ask etcd: a member counts as alive by its API server's identity lease, and by its node.
package controlplane

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Sign is what one piece of evidence says of a member.
type Sign int

const (
	// Unknown means that there is no such evidence, or it could not be read.
	Unknown Sign = iota
	// Alive shows that the member is alive.
	Alive
	// Silent is what would show that, and does not.
	Silent
)

// API is what is known of the API of the cluster, wherever it is answered.
type API int

const (
	// Connecting means that it is not known yet whether an API server answers. It is the zero value, so that nothing is ever concluded from
	// it.
	Connecting API = iota
	// Answers means that an API server does.
	Answers
	// NoAnswer means that none does. There is no majority to lose then, as far as can be known.
	NoAnswer
)

// Etcd is what the labels of a member's node say of etcd.
type Etcd int

const (
	// EtcdUnknown is a member whose node was not seen.
	EtcdUnknown Etcd = iota
	// EtcdLabelled means that it runs etcd.
	EtcdLabelled
	// EtcdNotLabelled means that it does not, if any node of its cluster is labelled to.
	EtcdNotLabelled
)

// Member is one machine of a control plane, or one of its nodes.
type Member struct {
	Name string
	// Node says whether its node is Ready, APIServer whether the API server on it renews its identity lease (see Servers).
	Node, APIServer Sign
	// Joining says that it has no node yet. Off, that its host is powered off, for whatever reason. Away, that somebody else
	// has taken it for maintenance, and that it may go down at any moment.
	Joining, Off, Away bool
	Etcd               Etcd
	// ReplacedBy is what shows that it is being deleted, or that its owner was asked to replace it; empty if it is not. ReplacedSince is
	// since when.
	ReplacedBy    string
	ReplacedSince time.Time
	// Remediation is what disrupts it now; empty if nothing does. Began is when that began: zero if that is not known.
	Remediation string
	Began       time.Time
	// Due is since when it waits to be disrupted, and could be, were it not for the others; zero if it does not. Begun says that its turn
	// had come already, and nothing was done to it yet: of two that wait for the same reason it goes first.
	Due   time.Time
	Begun bool
}

// Alive reports whether anything shows that it is alive: then its loss may cost the majority a vote.
func (m Member) Alive() bool { return m.Node == Alive || m.APIServer == Alive }

// Votes reports whether it counts among those who are the majority. The lease says more than the node: an API server that renews it has an
// etcd, as a rule that on its own host, and the kubelet needs neither.
func (m Member) Votes() bool {
	switch {
	case m.Joining || m.Off || m.Away || m.ReplacedBy != "" || m.Remediation != "":
		return false
	case m.APIServer != Unknown:
		return m.APIServer == Alive
	}
	return m.Node == Alive
}

// Plane is a control plane.
type Plane struct {
	API     API
	Members []Member
}

// Reason is why a member has to wait.
type Reason string

const (
	// BeingRemediated means that another member is being disrupted. One at a time, always.
	BeingRemediated Reason = "AnotherBeingRemediated"
	// BeingReplaced means that another member is being deleted, or its owner was asked to replace it.
	BeingReplaced Reason = "AnotherBeingReplaced"
	// MajorityAtRisk means that it is alive, and those that are alive without it are not the majority of all members.
	MajorityAtRisk Reason = "MajorityAtRisk"
	// NotSeen means that it is not known yet whether the API answers, nor which members are alive.
	NotSeen Reason = "ControlPlaneNotSeen"
	// NotFirst means that another member that waits is ahead in the queue.
	NotFirst Reason = "NotFirstInQueue"
)

// Objection is one reason why a member has to wait, with its arguments.
type Objection struct {
	Reason Reason
	// Member is the other one, By what remediates or replaces it.
	Member, By string
	// Votes is how many voters count as alive without the member that asks, Total how many there are, Needed how many are their majority.
	Votes, Total, Needed int
}

// ReplacementPatience is how long the replacement of a member keeps the others waiting. It takes tens of minutes on bare metal; one that
// takes longer may wait for the very member that it keeps waiting, and from then on is only a member that is not alive.
const ReplacementPatience = 30 * time.Minute

// Majority returns how many of total members are their majority. Control planes of one or two have none that could be protected: etcd needs
// all of them. It is 0 for these.
func Majority(total int) int {
	if total <= 2 {
		return 0
	}
	return total/2 + 1
}

// Against returns all that keeps the member called name from being disrupted at now, the first thing first; nothing if it may be. Of
// several that wait at most one may, and one may whenever none is being remediated or replaced and one of them is not alive, or the others
// are the majority.
func (p Plane) Against(name string, now time.Time) []Objection {
	i := slices.IndexFunc(p.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return []Objection{{Reason: NotSeen}}
	}
	if why := p.obstacles(p.Members[i], now); len(why) > 0 {
		return why
	}
	for _, m := range p.queue() {
		if m.Name == name {
			break
		}
		if len(p.obstacles(m, now)) == 0 {
			return []Objection{{Reason: NotFirst, Member: m.Name}}
		}
	}
	return nil
}

// First returns the name of the member that goes first of those that wait: of those that may go, or, if none may, of all; empty if none
// waits.
func (p Plane) First(now time.Time) string {
	all := p.queue()
	if len(all) == 0 {
		return ""
	}
	first := slices.IndexFunc(all, func(m Member) bool { return len(p.obstacles(m, now)) == 0 })
	return all[max(first, 0)].Name
}

// obstacles is all that keeps m from being disrupted but those that wait as well.
func (p Plane) obstacles(m Member, now time.Time) []Objection {
	why := p.others(m, now)
	voters := p.voters()
	needed := Majority(len(voters))
	switch {
	case needed == 0 || p.API == NoAnswer || !slices.ContainsFunc(voters, func(v Member) bool { return v.Name == m.Name }):
	case p.API == Connecting:
		why = append(why, Objection{Reason: NotSeen})
	case m.Alive():
		if votes := votesWithout(voters, m); votes < needed {
			why = append(why, Objection{Reason: MajorityAtRisk, Votes: votes, Total: len(voters), Needed: needed})
		}
	}
	return why
}

// others are the members that are being disrupted, by the order of their names: those that are being remediated, before those that are
// being replaced.
func (p Plane) others(m Member, now time.Time) []Objection {
	var why []Objection
	for _, o := range p.byName() {
		if o.Name != m.Name && o.Remediation != "" && (m.Remediation == "" || beganBefore(o, m)) {
			why = append(why, Objection{Reason: BeingRemediated, Member: o.Name, By: o.Remediation})
		}
	}
	for _, o := range p.byName() {
		if o.Name != m.Name && o.ReplacedBy != "" && now.Before(o.ReplacedSince.Add(ReplacementPatience)) {
			why = append(why, Objection{Reason: BeingReplaced, Member: o.Name, By: o.ReplacedBy})
		}
	}
	return why
}

func (p Plane) byName() []Member {
	return slices.SortedFunc(slices.Values(p.Members), func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
}

func beganBefore(a, b Member) bool {
	return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Name, b.Name)) < 0
}

// voters are the members whose majority the cluster needs: those that run etcd, where any node says that it does, else all.
func (p Plane) voters() []Member {
	if !slices.ContainsFunc(p.Members, func(m Member) bool { return m.Etcd == EtcdLabelled }) {
		return p.Members
	}
	return slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.Etcd == EtcdNotLabelled })
}

func votesWithout(voters []Member, m Member) int {
	votes := 0
	for _, o := range voters {
		if o.Name != m.Name && o.Votes() {
			votes++
		}
	}
	return votes
}

// queue are the members that wait, in the order in which they go: those that are not alive first, since it costs nothing; then those whose
// turn had come already; then those that have waited longest; then by name. While it is not known which are alive, that plays no part.
func (p Plane) queue() []Member {
	all := slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.Due.IsZero() })
	cost := func(m Member) int { return yes(p.API == Answers && m.Alive()) }
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(yes(b.Begun), yes(a.Begun)), a.Due.Compare(b.Due), strings.Compare(a.Name, b.Name))
	})
	return all
}

func yes(is bool) int {
	if is {
		return 1
	}
	return 0
}
