package machinehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Spares are the hosts that the replacements of machines on bare metal could take. The reader of the facts knows which host fits which
// machine. The decision counts how many machines rely on the same host.
type Spares struct {
	// Unread is why the hosts could not be read; empty if they were.
	Unread string
	// Free is the number of hosts of the namespace that have no machine.
	Free int
	// Fits are the names of the hosts that the replacement of a machine could take, by the UID of the machine.
	Fits map[types.UID][]string
	// Failed says why this is not known for a machine that is not in Fits.
	Failed map[types.UID]string
	// Expected lists, for each other machine that waits for a host or is still to be created as a replacement, the hosts that fit it.
	Expected [][]string
}

// Spare is what was found for one machine whose remediation needs a spare host.
type Spare struct {
	// Until is how long the remediation waits for a host at most.
	Until time.Time
	// Lacks is why the remediation waits, or waited until then; empty if there is a host.
	Lacks Reason
	// Late says that the wait is over, so that the remediation starts without a host.
	Late bool
	// Free is the number of free hosts, Fit how many of them fit the replacement, and Expected how many other machines want one of these.
	Free, Fit, Expected int
}

func (s *Spare) blocks() bool { return s != nil && s.Lacks != "" && !s.Late }

// NeedsSpare reports whether the remediation of target waits while no spare host fits.
func (facts *Facts) NeedsSpare(target *Target) bool {
	return facts.SpareWait != nil && !facts.Template.External && facts.Mode == Active && OnHost(target.Machine) && owned(target.Machine) &&
		facts.SpareWait(target.Machine) > 0
}

// spareUntil returns until when the remediation waits for a spare host; zero if it needs none. Only an owner that deletes a machine to
// replace it needs a host for the new one.
//
// The wait begins when the machine became unhealthy: when its timeout expired, or when its condition HealthCheckSucceeded turned False if
// that was earlier. So it does not begin anew when the manager restarts, or when a condition of the node turns again.
func (facts *Facts) spareUntil(decision *Decision) time.Time {
	target := decision.Target
	if !facts.NeedsSpare(target) {
		return time.Time{}
	}
	since := health.Earliest(Since(Failed(target.Machine)), decision.Verdict.OverdueSince(facts.Now))
	if since.IsZero() {
		since = facts.Now.Truncate(time.Second) // rounded, as it will be stored
	}
	return since.Add(facts.SpareWait(target.Machine))
}

// spareFor returns what was found for a machine, given the hosts that other machines are expected to take; nil if it needs no spare host.
// CAPM3 picks any host that fits, so a machine cannot rely on a host while other machines could take all hosts that fit.
func (facts *Facts) spareFor(decision *Decision, expected [][]string) *Spare {
	until := facts.spareUntil(decision)
	if until.IsZero() {
		return nil
	}
	hosts, known := facts.Spares.Fits[decision.Target.UID]
	// oneTooMany reports whether this machine could leave an expected one without a host: its hosts are as many as the machines that want
	// them. If they are fewer, that machine may find no host anyway, and does not count.
	oneTooMany := func(others []string) bool { return share(others, hosts) && wanting(others, expected) == len(others) }
	spare := &Spare{Until: until, Free: facts.Spares.Free, Fit: len(hosts), Expected: wanting(hosts, expected)}
	switch {
	case !known || facts.Spares.Unread != "" || !facts.Read.Spares:
		spare.Lacks = SpareHostsUnread
	case spare.Fit <= spare.Expected, slices.ContainsFunc(expected, oneTooMany):
		spare.Lacks = NoSpareHost
	}
	spare.Late = spare.Lacks != "" && !facts.Now.Before(until)
	return spare
}

// wanting returns how many expected machines could take one of these hosts.
func wanting(hosts []string, expected [][]string) int {
	n := 0
	for _, others := range expected {
		if share(others, hosts) {
			n++
		}
	}
	return n
}

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(host string) bool { return slices.Contains(b, host) })
}

// spareCondition sets the condition SpareHostAvailable of a machine while its remediation waits, and removes it afterwards. It keeps the
// condition of a machine that is unknown, or that another rule about it blocks.
func spareCondition(facts *Facts, decision *Decision) {
	switch {
	case decision.Spare.blocks():
		message := fmt.Sprintf("%s. Its remediation waits until %s at most (waitForSpare of a RemediationPolicy)",
			decision.BlockedBy(decision.Spare.Lacks).Text, stamp(decision.Spare.Until))
		decision.set(mendv1.SpareHostAvailable, metav1.ConditionFalse, string(decision.Spare.Lacks), message)
	case ConditionOf(decision.Target, mendv1.SpareHostAvailable) == nil:
	case decision.Spare != nil, decision.InFlight, facts.spareUntil(decision).IsZero(), decision.Verdict.State == health.Healthy:
		decision.remove(mendv1.SpareHostAvailable)
	}
}

// InVain returns a text that a remediation starts although no spare host was found; empty if one was found or none is needed.
func (s *Spare) InVain() string {
	if s == nil || !s.Late {
		return ""
	}
	text := ". No spare host fits its replacement"
	if s.Lacks == SpareHostsUnread {
		text = ". Whether a spare host fits its replacement is not known"
	}
	return fmt.Sprintf("%s, and the wait for one ended at %s", text, stamp(s.Until))
}

// sparesAwaited returns the condition SpareHostAvailable of the check, which lists the machines that wait and until when; to be removed if
// none waits. NoSpareHost takes precedence over SpareHostsUnread as its reason.
func sparesAwaited(facts *Facts, plan *Plan) metav1.Condition {
	reason, machines := Reason(""), []string(nil)
	for _, decision := range plan.Open {
		if !decision.Spare.blocks() {
			continue
		}
		machines = append(machines, decision.Target.Name+" until "+stamp(decision.Spare.Until))
		if reason != NoSpareHost {
			reason = decision.Spare.Lacks
		}
	}
	if reason == "" {
		return metav1.Condition{Type: mendv1.SpareHostAvailable}
	}
	message := "Wait for a spare host, at most: " + firstOf(machines)
	if facts.Spares.Unread != "" {
		message += ". Which hosts are free is not known: " + facts.Spares.Unread
	} else {
		message += fmt.Sprintf(". Free hosts: %d", facts.Spares.Free)
	}
	return condition(mendv1.SpareHostAvailable, metav1.ConditionFalse, string(reason), message)
}

// firstOf returns the first names and the number of the others.
func firstOf(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Sibling is a machine of an owner. Asked is when the owner was asked to replace it; zero if it was not, or if it does not replace it.
type Sibling struct {
	*clusterv1.Machine
	Asked time.Time
}

// ToCome returns the machines that the owner was asked to replace and for which no new machine was created since. Each new machine replaces
// one. The machines that were asked for last go first: their replacements are among the newest.
func ToCome(siblings []Sibling) []*clusterv1.Machine {
	var open []*clusterv1.Machine
	made, latest := 0, slices.Clone(siblings)
	slices.SortStableFunc(latest, func(a, b Sibling) int { return b.Asked.Compare(a.Asked) })
	for _, asked := range latest {
		if asked.Asked.IsZero() {
			break
		}
		since, newer := asked.Asked.Truncate(time.Second), 0
		for _, sibling := range siblings {
			if sibling.Asked.IsZero() && !Deleting(sibling.Machine) && !sibling.CreationTimestamp.Time.Before(since) {
				newer++
			}
		}
		if newer > made {
			made++
		} else {
			open = append(open, asked.Machine)
		}
	}
	return open
}
