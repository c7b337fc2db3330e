package nodes

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// shortRecovery is the recovery, or else one as long as its rule, after which the next failure of a node begins at the first step.
const shortRecovery = time.Minute

// Recovery is that a node with requests of an escalation was healthy, which ends these. A node that fails again at once goes on with the
// step that it was on: one that is Ready for ten seconds after each reboot would never come to the second step.
type Recovery struct {
	// First is when the node was healthy for the first time, Last for the last time. Short says that it failed again soon after Last.
	First, Last time.Time
	Short       bool
	Requests    []Listed
}

// recallRecovery remembers the requests of a node that is healthy, and gives them back when it fails after a short recovery.
func (d *decider) recallRecovery(i int) {
	n, verdict := &d.f.Nodes[i], &d.p.Decisions[i].Verdict
	if !n.Exists() || d.f.Single() {
		return
	}
	recovery, keep := d.f.Memory.Recoveries[n.ID()]
	switch {
	case verdict.State == health.Healthy && !keep:
		recovery = d.recovery(i)
		keep = len(recovery.Requests) > 0
	case verdict.State == health.Healthy && recovery.Short:
		recovery.Last, recovery.Short = d.f.Now, false
	case verdict.State == health.Healthy:
		keep = len(n.Requests) > 0 || d.f.Now.Before(recovery.Last.Add(shortRecovery))
	case verdict.State != health.Unknown:
		keep = keep && recovery.ends(n, verdict, d.f.Now)
	}
	if keep {
		d.p.Memory.Recoveries[n.ID()] = recovery
	}
}

// ends notes that the node fails again, and reports whether that has to be remembered: the recovery was short, and the status does not list
// the requests of the node yet.
func (recovery *Recovery) ends(n *Node, verdict *health.Verdict, now time.Time) bool {
	enough := shortRecovery
	for _, finding := range verdict.Findings {
		enough = min(enough, finding.Limit)
	}
	recovery.Short = recovery.Short || now.Before(recovery.Last.Add(enough))
	return recovery.Short && (verdict.State != health.Unhealthy || recovery.giveBack(n, now))
}

// recovery is that of a node that is healthy now. It has no requests if the last step was given up: there is none to go on with.
func (d *decider) recovery(i int) Recovery {
	n, since := &d.f.Nodes[i], d.f.Now
	if healthy := n.healthySince(); !healthy.IsZero() {
		since = healthy
	}
	recovery := Recovery{First: since, Last: since, Requests: slices.Clone(n.Gone)}
	for j := range n.Requests {
		if r := &n.Requests[j]; r.Step >= 0 {
			entry := r.Entry()
			entry.Started = metav1.NewTime(d.p.Decisions[i].Requests[j].Counted)
			recovery.Requests = append(recovery.Requests, Listed{Remediation: entry, Step: r.Step})
		}
	}
	spent := func(entry Listed) bool { return entry.Step == len(d.steps)-1 && entry.TimedOut != nil }
	if slices.ContainsFunc(recovery.Requests, spent) {
		recovery.Requests = nil
	}
	return recovery
}

// giveBack adds the requests to those of n that are gone, with the time that each had left. It is false if the status lists them already.
func (recovery *Recovery) giveBack(n *Node, now time.Time) bool {
	listed := func(entry Listed) bool {
		return slices.ContainsFunc(n.Gone, func(gone Listed) bool { return gone.Resource.UID == entry.Resource.UID })
	}
	if slices.ContainsFunc(recovery.Requests, listed) {
		return false
	}
	added := false
	for _, entry := range recovery.Requests {
		there := slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Object.GetUID() == entry.Resource.UID })
		if !there {
			entry.Started = metav1.NewTime(entry.Started.Add(now.Sub(recovery.First)))
			n.Gone, added = append(n.Gone, entry), true
		}
	}
	return added
}
