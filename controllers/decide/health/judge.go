package health

import (
	"strings"
	"time"
)

// Judge returns the verdict on t at now.
//
// The order of the rules is Cluster API's: first the annotation that requests remediation, then a terminal failure, then the gates, then
// the machine's conditions together with one of: a deleted Node, a missing first Node, the Node's conditions.
//
// The verdict differs from Cluster API's in five places:
//   - A gate or an unreachable workload cluster makes a machine Unknown, never Healthy.
//   - Without the workload cluster the Node counts as neither late nor deleted, but the Machine's conditions still count, except those that
//     their writers read from the workload cluster.
//   - A condition counts only if it is known to be true still: see since.
//   - A terminal failure counts, as it did until Cluster API v1.11.
//   - The annotation does not end the judging, so the verdict has all findings. The message of a condition names the annotation alone, as
//     Cluster API's does.
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

// undisputed returns the state of t if there is no finding.
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

// holdAll adds all findings about conditions and the Node of t, whether due or not.
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

// hold adds f, a finding about something that Cluster API wrote. If Cluster API has not reconciled the Machine since a pause, f is void.
func (v *Verdict) hold(t Target, f Finding) {
	if t.Paused {
		f.Late = NotSincePause
		v.Void = append(v.Void, f)
		return
	}
	v.Findings = append(v.Findings, f)
}

// holdMatches adds a finding for each rule about source and each signal of t that matches the rule.
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
				f.Late = NodeDiffers
				v.Void = append(v.Void, f)
			default:
				v.hold(t, f)
			}
		}
	}
}

func (r Rule) matches(s Signal) bool {
	return s.Source == r.Source && s.Type == r.Type && s.Status == r.Status
}

// blind reports whether s says nothing about the machine: its writer could not read the workload cluster, or kubemend cannot read it now
// to check s.
func blind(s Signal, node Node) bool {
	switch {
	case s.Source != OnMachine:
		return false
	case s.Reason == ConnectionDown:
		return true
	case node == NodeUnseen, node == NodeOther:
		return repeatsNode(s) || remote[s.Type] || s.Reason == InspectionFailed || s.Reason == InternalError
	case node == NodeAwaited: // there is no Node yet, and the startup timeout covers that
		return repeatsNode(s) || s.Reason == InspectionFailed
	}
	return false
}

// repeatsNode reports whether s is Cluster API's copy of conditions of the Node.
func repeatsNode(s Signal) bool {
	return s.Source == OnMachine && (s.Type == NodeReady || s.Type == NodeHealthy)
}

// since returns when the timeout for s begins, and the doubt because of which that is later than the last transition of s.
//
// If s is older than the end of a pause, its status may have changed meanwhile unnoticed, so s counts only from when its writer has surely
// checked it again. The same holds for the end of an outage, if the writer of s may have lost the workload cluster too. A copy of a Node's
// condition counts at the earliest from when the Node itself has that condition.
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

// writtenBlind reports whether the writer of s may have lost the workload cluster in the same outage as kubemend.
func writtenBlind(s Signal) bool {
	return repeatsNode(s) || s.Source == OnMachine && s.Status == "Unknown"
}

// Latest returns the later of two times.
func Latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// longestQuote is the most bytes of another program's text that a finding quotes. Kubernetes limits the reason of a metav1.Condition to
// 1024 bytes, but not that of a Node's condition. If our condition's message became too long, the API server would refuse the status.
const longestQuote = 1024

// Quoted returns text, shortened to what a finding may quote.
func Quoted(text string) string { return Short(text, longestQuote) }

// Short returns text, shortened to most bytes.
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
