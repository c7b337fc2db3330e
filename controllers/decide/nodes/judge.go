package nodes

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Streak is a time for which a condition has been in one bad status or the other.
type Streak struct {
	Began  time.Time
	Status string
	// Turned is when it turned to that.
	Turned time.Time
	// Longest is the longest timeout of the statuses since then.
	Longest time.Duration
	// Effective is from when on the present status counts.
	Effective time.Time
}

// Streaks are those of one node, by the type of the condition.
//
// A kubelet that dies halfway turns Ready from Unknown to False and back, and each turn starts the condition's clock anew: 299 s of one
// and 299 s of the other are ten minutes without a node, and no rule is ever met. So as long as a node is not being remediated its
// statuses count together, for the longest of their timeouts. While it is, they do not: on its way back a node is Unknown, then False,
// then True, and that must not make its remediation a failure. (Seed 002, "Special cases".)
type Streaks map[string]Streak

// after is what s is with a node of which those conditions are seen now, judged by rules. A process that was blind since has not
// seen whether a node that has
// turned was healthy in between.
func (s Streaks) after(conditions []health.Signal, rules []health.Rule, blind bool) Streaks {
	var next Streaks
	for i := range conditions {
		c := &conditions[i]
		rule := ruleFor(rules, c)
		if rule == nil {
			continue
		}
		is, known := s[c.Type]
		if unseen := blind && !c.Since.Equal(is.Turned); !known || unseen || c.Since.Before(is.Began) {
			is = Streak{Began: c.Since}
		}
		is.Status, is.Turned, is.Longest = c.Status, c.Since, max(is.Longest, rule.For)
		is.Effective = c.Since
		if together := is.Began.Add(is.Longest - rule.For); together.Before(c.Since) {
			is.Effective = together
		}
		if next == nil {
			next = Streaks{}
		}
		next[c.Type] = is
	}
	return next
}

// since is from when on the status of c counts.
func (s Streaks) since(c *health.Signal) time.Time {
	if is, known := s[c.Type]; known && is.Status == c.Status && is.Turned.Equal(c.Since) {
		return is.Effective
	}
	return c.Since
}

func ruleFor(rules []health.Rule, c *health.Signal) *health.Rule {
	for i := range rules {
		if rules[i].Type == c.Type && rules[i].Status == c.Status {
			return &rules[i]
		}
	}
	return nil
}

// Concerns reports whether a condition of that type and status meets a rule of the policy.
func Concerns(p health.Policy, kind, status string) bool {
	return ruleFor(p.Rules, &health.Signal{Type: kind, Status: status}) != nil
}

// neverReported is the reason given for the Ready condition of a node that has none. The node-lifecycle controller of Kubernetes sets one
// like it when it gets to the node.
const neverReported = "NodeStatusNeverUpdated"

// look is a look at n, which f.Memory may know.
func (f *Facts) look(n *Node, blind bool) health.Look {
	look := health.Look{Now: f.Now, Created: n.Created, Blind: blind}
	if seen, known := f.Memory.Seen[n.ID]; known {
		look.Before, look.Rules, look.Was = f.Memory.Judged, f.Memory.Rules, seen
	}
	return look
}

// sees are the conditions of n that meet a rule, each since when its status counts.
//
// A node that has no Ready condition is taken as Ready=Unknown: since it was created if it never reported anything to this
// process, else since that is
// missing. Somebody may have replaced the list of conditions, and the node be as healthy as before. The other conditions say
// nothing as long as they are
// missing. (medik8s ignores such a node for ever.)
func (f *Facts) sees(n *Node, look health.Look) []health.Signal {
	conditions := n.Conditions
	if !n.Reported {
		missing := health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: neverReported}
		if !n.Created.Before(f.Since) {
			missing.Since = n.Created
		}
		conditions = append(slices.Clip(conditions), missing)
	}
	if len(conditions) == 0 {
		return nil
	}
	return look.Dated(conditions)
}

// judged is the verdict on n, of which that was seen, and whose conditions count with those streaks.
func judged(f *Facts, n *Node, seen []health.Signal, streaks Streaks) health.Verdict {
	target := health.Target{Node: health.NodePresent, NodeName: n.Name, Signals: seen}
	if len(streaks) > 0 {
		target.Signals = slices.Clone(seen)
		for i := range target.Signals {
			if s := &target.Signals[i]; !streaks.since(s).Equal(s.Since) {
				s.Since, s.Undated = streaks.since(s), false
			}
		}
	}
	return health.Judge(target, f.Policy, f.Now)
}

// Doubt is why the API server does not confirm the facts by which a remediation starts; the zero Doubt if it does.
type Doubt struct {
	Reason DoubtReason
	// Arg is the state of the node, or the request that appeared.
	Arg string
}

// DoubtReason names a doubt.
type DoubtReason string

// What the API server may say otherwise than the cache.
const (
	NodeVanished    DoubtReason = "NodeVanished"
	NodeReplaced    DoubtReason = "NodeReplaced" // by one of the same name
	NodeChanged     DoubtReason = "NodeChanged"
	ExcludedNow     DoubtReason = "NodeExcluded"
	RequestAppeared DoubtReason = "RequestAppeared" // for a node of the control plane
)

// Confirm compares n, for which d was made, with the node as the API server has it now; nil if there is none.
func (d *Decision) Confirm(f *Facts, n, now *Node) Doubt {
	if now == nil {
		return Doubt{Reason: NodeVanished}
	}
	look := health.Look{Now: f.Now, Created: now.Created, Before: f.Now, Rules: f.Policy.Rules}
	same := func(a, b health.Signal) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Since.Equal(b.Since)
	}
	if slices.EqualFunc(n.Conditions, now.Conditions, same) { // else the cache is behind, and they count from now
		look.Was = d.seen
	}
	switch state := judged(f, now, f.sees(now, look), d.streaks).State; {
	case now.ID != n.ID:
		return Doubt{Reason: NodeReplaced}
	case state != health.Unhealthy:
		return Doubt{NodeChanged, state.String()}
	case now.Excluded:
		return Doubt{Reason: ExcludedNow}
	}
	return Doubt{}
}

// unseenFor is by how much a reconcile may be late after which each node that is bad is judged again: when a rule's timeout expires, or by resync.
const unseenFor = time.Minute

// judge gives every node its verdict.
func (d *decider) judge() {
	f := d.f
	longest := f.Resync
	for _, rule := range f.Policy.Rules {
		longest = max(longest, rule.For)
	}
	blind := f.Memory.Missed || f.Now.Sub(f.Memory.Judged) > longest+unseenFor
	memory := &d.p.Memory
	memory.Seen, memory.Streaks = make(map[string][]health.Signal, len(f.Nodes)), map[string]Streaks{}
	memory.Rules, memory.Judged = f.Policy.Rules, f.Now
	for i := range f.Nodes {
		n, is := &f.Nodes[i], &d.p.Decisions[i]
		if !n.Exists {
			continue
		}
		is.seen = f.sees(n, f.look(n, blind))
		memory.Seen[n.ID] = is.seen
		if !n.remediated() {
			if is.streaks = f.Memory.Streaks[n.ID].after(is.seen, f.Policy.Rules, blind); is.streaks != nil {
				memory.Streaks[n.ID] = is.streaks
			}
		}
		is.Verdict = judged(f, n, is.seen, is.streaks)
		if f.TerminatingLeft && n.Terminating { // it is no longer ours to say how it is: neither a reason to act, nor one to end what is done
			is.Left, is.Verdict.State = true, health.Unknown
		}
		d.p.NextDeadline = health.Earliest(d.p.NextDeadline, is.Verdict.Recheck)
	}
}

// remediated reports whether there are requests for n.
func (n *Node) remediated() bool { return len(n.Requests)+len(n.Unseen) > 0 }

// healthyOrGone reports whether nothing is to be remediated of the node.
func (d *decider) healthyOrGone(i int) bool {
	return !d.f.Nodes[i].Exists || d.p.Decisions[i].Verdict.State == health.Healthy
}
