package health

import (
	"fmt"
	"time"
)

// Judge returns the verdict on t at now.
//
// The order of the rules is Cluster API's: a mark by hand counts before anything
// else, then the gates, then the machine's conditions together with one of: the
// deleted node, the awaited node, the node's conditions.
//
// It differs in four places. A gate and an unreachable workload cluster make a
// machine Unjudged, never Healthy. Without the workload cluster the machine's own
// conditions still count, while its node is neither late nor deleted. A condition
// that only mirrors a lost connection never counts. And a mark by hand does not end
// the judging, so that a verdict holds all there is to say; whoever puts it into
// words for a condition speaks of the mark alone, as Cluster API does.
func Judge(t Target, p Policy, now time.Time) Verdict {
	v := Verdict{State: undisputed(t)}
	if t.Marked {
		v.Findings = append(v.Findings, markedByHand)
	}
	if t.Gate != Open {
		v.Gate = t.Gate
	} else {
		v.Findings = appendFindings(v.Findings, t, p)
	}
	for _, f := range v.Findings {
		if f.DueAt(now) {
			v.State = Unhealthy
			continue
		}
		v.Recheck = Earliest(v.Recheck, f.Due)
		if v.State == Healthy {
			v.State = Suspect
		}
	}
	return v
}

// undisputed is the state of t as long as nothing is held against it.
func undisputed(t Target) State {
	switch {
	case t.Gate != Open, t.Node == NodeUnseen:
		return Unjudged
	case t.Node == NodeAwaited:
		return Starting
	default:
		return Healthy
	}
}

var markedByHand = Finding{
	Reason: MarkedByHand,
	Detail: "marked for remediation via cluster.x-k8s.io/remediate-machine annotation",
}

// appendFindings appends what could be held against t, whether due yet or not. It knows no clock:
// time enters only where a finding is compared with now.
func appendFindings(fs []Finding, t Target, p Policy) []Finding {
	fs = appendMatches(fs, OnMachine, t, p)
	switch t.Node {
	case NodeGone:
		fs = append(fs, Finding{
			Reason: NodeDeleted,
			Detail: NodeDeletedDetail(t.NodeName),
		})
	case NodeAwaited:
		if p.NodeStartup > 0 {
			fs = append(fs, Finding{
				Reason: NodeStartup,
				Detail: fmt.Sprintf("Node failed to report startup in %s", p.NodeStartup),
				Limit:  p.NodeStartup,
				Due:    t.AwaitedSince.Add(p.NodeStartup),
			})
		}
	case NodePresent:
		fs = appendMatches(fs, OnNode, t, p)
	case NodeUnseen:
	}
	return fs
}

// NodeDeletedDetail is the detail of a finding of NodeDeleted.
func NodeDeletedDetail(node string) string { return "Node " + node + " has been deleted" }

// appendMatches appends a finding for each rule about source that a signal of t matches.
func appendMatches(fs []Finding, source Source, t Target, p Policy) []Finding {
	for _, r := range p.Rules {
		if r.Source != source {
			continue
		}
		for _, s := range t.Signals {
			if r.matches(s) && !mirrorsConnection(s, t.Node) {
				fs = append(fs, Finding{Reason: reasonOf(source), Detail: r.detail(s), Limit: r.For, Due: s.Since.Add(r.For), Signal: s})
			}
		}
	}
	return fs
}

func (r Rule) matches(s Signal) bool {
	return s.Source == r.Source && s.Type == r.Type && s.Status == r.Status
}

// mirrorsConnection reports whether s tells of the connection to the workload cluster and not of the machine.
func mirrorsConnection(s Signal, node Node) bool {
	if s.Source != OnMachine {
		return false
	}
	return s.Reason == ConnectionDown || node == NodeUnseen && (s.Reason == InspectionFailed || s.Reason == InternalError)
}

func (r Rule) detail(s Signal) string {
	return fmt.Sprintf("Condition %s on %s is reporting status %s with reason %s for more than %s",
		s.Type, s.Source, s.Status, s.Reason, r.For)
}

func reasonOf(s Source) Reason {
	if s == OnMachine {
		return MachineCondition
	}
	return NodeCondition
}
