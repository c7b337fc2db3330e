// Package controlplane decides whether a member of a control plane may be disrupted: powered off, rebooted, or otherwise remediated. Power
// cycles and NodeHealthChecks use the same rule (docs/control-plane-safety.md).
//
// The rule does not query etcd: whether a member is alive is known from the identity lease of its API server, and from its node.
package controlplane

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Sign is what one object, a node or a lease, says about a member.
type Sign int

const (
	// Unknown means that there is no such object, or it could not be read.
	Unknown Sign = iota
	// Alive means that the node is Ready, or the lease is renewed.
	Alive
	// Silent means that the node is not Ready, or the lease is not renewed.
	Silent
)

// API says whether any API server of the cluster answers.
type API int

const (
	// Connecting means that this is not known yet. It is the zero value, so that a missing value allows no disruption.
	Connecting API = iota
	// Answers means that an API server answers.
	Answers
	// NoAnswer means that no API server answers. Then, as far as can be known, the control plane has lost its majority already.
	NoAnswer
)

// Etcd is what the labels of a member's node say about etcd.
type Etcd int

const (
	// EtcdUnknown means that the node was not read.
	EtcdUnknown Etcd = iota
	// EtcdLabelled means that the node has the label for etcd.
	EtcdLabelled
	// EtcdNotLabelled means that it does not. Then it runs no etcd if another node of the cluster has the label.
	EtcdNotLabelled
)

// Member is one machine of a control plane, or one of its nodes.
type Member struct {
	Name      string
	Node      Sign // whether the node is Ready
	APIServer Sign // whether the API server on the member renews its identity lease (see Servers)
	Joining   bool // the member has no node yet
	Off       bool // its host is powered off, for whatever reason
	Away      bool // somebody has taken the member for maintenance, so it may go down at any moment
	Etcd      Etcd
	// ReplacedBy is the object that shows that the member is being deleted or that its owner was asked to replace it; empty if it is not.
	ReplacedBy    string
	ReplacedSince time.Time
	Remediation   string    // the remediation that disrupts the member now; empty if there is none
	Began         time.Time // when Remediation began; zero if unknown
	Due           time.Time // since when the member waits for a remediation that only the other members block; zero if it does not wait
	// Begun says that its remediation was allowed before, but nothing was done yet. Such a member goes before others like it.
	Begun bool
}

// Alive reports whether the node or the API server shows that m is alive. Then its disruption may cost the majority a vote.
func (m Member) Alive() bool { return m.Node == Alive || m.APIServer == Alive }

// Votes reports whether m counts for the majority. The lease is better evidence than the node: an API server can renew its lease only with
// a working etcd, usually the one on its own host, while a kubelet runs without both.
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
	// BeingRemediated means that another member is being disrupted. Only one member may be disrupted at a time.
	BeingRemediated Reason = "AnotherBeingRemediated"
	// BeingReplaced means that another member is being deleted, or its owner was asked to replace it.
	BeingReplaced Reason = "AnotherBeingReplaced"
	// MajorityAtRisk means that the member is alive, and the other members that are alive are not a majority.
	MajorityAtRisk Reason = "MajorityAtRisk"
	// NotSeen means that it is not known yet whether the API answers and which members are alive.
	NotSeen Reason = "ControlPlaneNotSeen"
	// NotFirst means that another waiting member is ahead in the queue.
	NotFirst Reason = "NotFirstInQueue"
)

// Objection is one reason why a member has to wait, with its arguments.
type Objection struct {
	Reason Reason
	Member string // the other member that is the reason
	By     string // what remediates or replaces Member
	// Votes is how many voters count as alive without the waiting member, Total is the number of voters, and Needed is their majority.
	Votes, Total, Needed int
}

// ReplacementPatience is how long the replacement of a member blocks the others. A replacement takes tens of minutes on bare metal. If it
// takes longer, it may itself depend on the blocked member; then the replaced member only counts as not alive.
const ReplacementPatience = 30 * time.Minute

// Majority returns how many of total members are a majority. It returns 0 for one or two members: etcd needs all of them, so there is no
// member that it could do without.
func Majority(total int) int {
	if total <= 2 {
		return 0
	}
	return total/2 + 1
}

// Against returns why the member called name must not be disrupted at now, the most important reason first; nil if it may be.
//
// At most one of the waiting members may be disrupted. One may be if no member is being remediated or replaced, and either a waiting
// member is not alive or the others are a majority without it.
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

// First returns the first member in the queue that may be disrupted. If none may be, it returns the first of all; empty if none waits.
func (p Plane) First(now time.Time) string {
	all := p.queue()
	if len(all) == 0 {
		return ""
	}
	first := slices.IndexFunc(all, func(m Member) bool { return len(p.obstacles(m, now)) == 0 })
	return all[max(first, 0)].Name
}

// obstacles returns why m must not be disrupted, without regard to the queue.
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

// others returns an objection for each other member that is being remediated, then for each that is being replaced, both ordered by name.
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

// voters returns the members whose majority the cluster needs: the members that run etcd, if any node has a label for etcd, else all.
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

// queue returns the waiting members in the order in which they are disrupted: first members that are not alive, since they cost no vote;
// then members with Begun; then by waiting time; then by name. Unless the API answers, whether a member is alive makes no difference.
func (p Plane) queue() []Member {
	all := slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.Due.IsZero() })
	cost := func(m Member) int { return yes(p.API == Answers && m.Alive()) }
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(yes(b.Begun), yes(a.Begun)),
			a.Due.Compare(b.Due), strings.Compare(a.Name, b.Name))
	})
	return all
}

func yes(is bool) int {
	if is {
		return 1
	}
	return 0
}
