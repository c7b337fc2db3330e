package health

import (
	"strings"
	"time"
)

// Judge returns the verdict on t at now.
//
// The order of the rules is Cluster API's: a mark by hand counts before anything
// else, then a failure that is final, then the gates, then the machine's conditions
// together with one of: the deleted node, the awaited node, the node's conditions.
//
// It differs in five places. A gate and an unreachable workload cluster make a
// machine Unknown, never Healthy. Without the workload cluster the machine's own
// conditions still count, unless somebody wrote them who looked into that cluster,
// while its node is neither late nor deleted. A condition is evidence only if it is
// known to be true still: see since and doubted. A failure that is final counts, as
// it did until Cluster API v1.11. And a mark by hand does not end
// the judging, so that a verdict holds all there is to say; the message of
// a condition names the mark alone, as Cluster API's does.
func Judge(t Target, p Policy, now time.Time) Verdict {
	v := Verdict{State: undisputed(t)}
	if t.Marked {
		v.Findings = append(v.Findings, Finding{Reason: MarkedByHand})
	}
	if t.Failure != "" {
		v.hold(t, Finding{Reason: MachineFailed, Failure: Quoted(t.Failure)})
	}
	if t.Gate != Open {
		v.Gate = t.Gate
	} else {
		v.holdAll(t, p)
	}
	for _, f := range v.Findings {
		if f.DueAt(now) {
			v.State = Unhealthy
			continue
		}
		v.Recheck = Earliest(v.Recheck, f.Due)
		if v.State == Healthy {
			v.State = Pending
		}
	}
	if v.State == Healthy && v.Doubted(NotSincePause) {
		v.State = Unknown
	}
	return v
}

// undisputed is the state of t as long as nothing is held against it.
func undisputed(t Target) State {
	switch {
	case t.Gate != Open, t.Node == NodeUnseen, t.Node == NodeOther:
		return Unknown
	case t.Node == NodeAwaited:
		return Starting
	default:
		return Healthy
	}
}

// holdAll holds against t what could be, whether due yet or not. It knows no clock:
// time enters only where a finding is compared with now.
func (v *Verdict) holdAll(t Target, p Policy) {
	v.holdMatches(OnMachine, t, p)
	switch t.Node {
	case NodeGone:
		v.Findings = append(v.Findings, Finding{Reason: NodeDeleted, Node: t.NodeName})
	case NodeAwaited, NodeOther:
		if p.NodeStartup > 0 {
			v.hold(t, Finding{
				Reason: NodeStartup,
				Other:  t.Other,
				Limit:  p.NodeStartup,
				Due:    t.AwaitedSince.Add(p.NodeStartup),
			})
		}
	case NodePresent:
		v.holdMatches(OnNode, t, p)
	case NodeUnseen:
	}
}

// hold holds f, which rests on what Cluster API has written, against t; what was written before a pause waits for Cluster API to look
// again.
func (v *Verdict) hold(t Target, f Finding) {
	if t.Paused {
		v.Void = append(v.Void, Void{Doubt: NotSincePause, Finding: f})
		return
	}
	v.Findings = append(v.Findings, f)
}

// holdMatches holds a finding against t for each rule about source that a signal of t matches.
func (v *Verdict) holdMatches(source Source, t Target, p Policy) {
	for _, r := range p.Rules {
		if r.Source != source {
			continue
		}
		for _, s := range t.Signals {
			if !r.matches(s) || blind(s, t.Node) {
				continue
			}
			from, late := since(s, t)
			f := Finding{Reason: reasonOf(source), Limit: r.For, Due: from.Add(r.For), Signal: s, Late: late}
			f.Signal.Reason = Quoted(s.Reason)
			switch {
			case source == OnNode:
				v.Findings = append(v.Findings, f)
			case repeatsNode(s) && !agrees(s, t):
				v.Void = append(v.Void, Void{Doubt: NodeDiffers, Finding: f})
			default:
				v.hold(t, f)
			}
		}
	}
}

func (r Rule) matches(s Signal) bool {
	return s.Source == r.Source && s.Type == r.Type && s.Status == r.Status
}

// blind reports whether s says that its writer could not look, or was seen in a workload cluster that cannot be read now. Neither says
// anything about the machine.
func blind(s Signal, node Node) bool {
	switch {
	case s.Source != OnMachine:
		return false
	case s.Reason == ConnectionDown:
		return true
	case node == NodeUnseen, node == NodeOther:
		return repeatsNode(s) || remote[s.Type] || s.Reason == InspectionFailed || s.Reason == InternalError
	case node == NodeAwaited: // there is no node to look at yet; how long it may take to come is a rule of its own
		return repeatsNode(s) || s.Reason == InspectionFailed
	}
	return false
}

// repeatsNode reports whether s is Cluster API's copy of what we see ourselves.
func repeatsNode(s Signal) bool {
	return s.Source == OnMachine && (s.Type == NodeReady || s.Type == NodeHealthy)
}

// since is from when on s counts, and why that is later than its last transition, if it is for a doubt. What is older than the end of a
// pause may have been otherwise meanwhile, as its writer did not look: it counts from when its writer has surely looked again. So does
// what is older than the end of an outage and may have been written by who was blind too. What Cluster API has seen of a node counts from
// when it is true of the node.
func since(s Signal, t Target) (from time.Time, late Doubt) {
	from, late = s.Since, s.Late
	if repeatsNode(s) {
		_, own := nodeSays(s.Type, t)
		from = Latest(from, own)
	} else if s.Source == OnMachine && from.Before(t.Resumed) {
		from, late = t.Resumed.Add(Settling), NotSincePause
	}
	if writtenBlind(s) && from.Before(t.Reached) {
		from, late = t.Reached.Add(Settling), NotSinceOutage
	}
	return from, late
}

// writtenBlind reports whether s may have been written in an outage by who had lost the workload cluster as well.
func writtenBlind(s Signal) bool {
	return repeatsNode(s) || s.Source == OnMachine && s.Status == "Unknown"
}

// Latest returns the later of two moments.
func Latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// longestQuote is how many bytes of what others wrote are in a finding. Kubernetes allows a reason 1024 bytes in its own conditions, and
// does not ask that of a Node's: with a longer message than a condition may have, nothing could be written of the machine at all.
const longestQuote = 1024

// Quoted is text, cut where it is longer than a finding may quote.
func Quoted(text string) string { return Short(text, longestQuote) }

// Short is text, cut where it has more bytes than that.
func Short(text string, most int) string {
	const more = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

func reasonOf(s Source) Reason {
	if s == OnMachine {
		return MachineCondition
	}
	return NodeCondition
}
