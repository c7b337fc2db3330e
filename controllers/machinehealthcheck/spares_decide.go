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

// Spares are the hosts that the replacements of machines on bare metal could take. Which host fits which machine is found out by the reader
// of the facts; how many machines may count on the same host is decided here.
type Spares struct {
	// Unread is why the hosts could not be read; empty if they were.
	Unread string
	// Free is how many hosts of the namespace no machine has.
	Free int
	// Fits are the names of the hosts that the replacement of a machine could take, by its UID. Of a machine that is not in it, Failed may
	// say why that is not known.
	Fits   map[types.UID][]string
	Failed map[types.UID]string
	// Expected are the hosts that other machines could take first, a list for each machine: those that wait for a host, and replacements
	// that their owners have still to make.
	Expected [][]string
}

// Spare is what was found for one machine whose remediation needs a spare host.
type Spare struct {
	// Until is how long the remediation waits for one at most.
	Until time.Time
	// Lacks is why it waits, or did until then; empty if there is a host.
	Lacks Reason
	// Late says that the wait is over, so that it starts without a host.
	Late bool
	// Free, Fit and Expected are how many hosts are free, how many of them the replacement could take, and how many other machines could
	// take one of those.
	Free, Fit, Expected int
}

func (s *Spare) blocks() bool { return s != nil && s.Lacks != "" && !s.Late }

// NeedsSpare reports whether the remediation of target waits for a spare host where none fits.
func (facts *Facts) NeedsSpare(target *Target) bool {
	return facts.SpareWait != nil && !facts.Template.External && facts.Mode == Active && OnHost(target.Machine) && owned(target.Machine) &&
		facts.SpareWait(target.Machine) > 0
}

// spareUntil is until when the remediation of the machine of decision waits for a spare host; zero if it needs none: only an owner that
// deletes a machine to replace it needs a host for the new one.
//
// It counts from when the machine became unhealthy, by what is stored of it: the earlier one of when its node's timeout expired and when
// its condition HealthCheckSucceeded turned False. So a restart of the manager does not begin it anew, and neither does a node whose
// condition turns once more.
func (facts *Facts) spareUntil(decision *Decision) time.Time {
	target := decision.Target
	if !facts.NeedsSpare(target) {
		return time.Time{}
	}
	since := health.Earliest(Since(Failed(target.Machine)), decision.Verdict.OverdueSince(facts.Now))
	if since.IsZero() {
		since = facts.Now.Truncate(time.Second) // as it is about to be stored
	}
	return since.Add(facts.SpareWait(target.Machine))
}

// spareFor is what the machine of decision finds while those who expect a host have not taken it; nil if it needs none. CAPM3 picks any
// host that fits, so a machine counts on none as long as others could take all that fit it.
func (facts *Facts) spareFor(decision *Decision, expected [][]string) *Spare {
	until := facts.spareUntil(decision)
	if until.IsZero() {
		return nil
	}
	hosts, known := facts.Spares.Fits[decision.Target.UID]
	// One more machine that may take these hosts could leave another one without any, which has no other host then. One that may find none
	// anyway does not count.
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

// wanting is how many of those who expect a host could take one of these.
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

// spareCondition sets the condition SpareHostAvailable of the machine of decision while its remediation waits, and removes it when that is
// over. One that could not be judged, or that something of its own blocks, may wait again in a moment: its condition stands.
func spareCondition(facts *Facts, decision *Decision) {
	switch {
	case decision.Spare.blocks():
		message := decision.BlockedBy(decision.Spare.Lacks).Text + decision.Spare.deadline()
		decision.set(mendv1.SpareHostAvailable, metav1.ConditionFalse, string(decision.Spare.Lacks), message)
	case ConditionOf(decision.Target, mendv1.SpareHostAvailable) == nil:
	case decision.Spare != nil, decision.InFlight, facts.spareUntil(decision).IsZero(), decision.Verdict.State == health.Healthy:
		decision.remove(mendv1.SpareHostAvailable)
	}
}

// deadline is until when the remediation waits, as a sentence that follows why.
func (s *Spare) deadline() string {
	return fmt.Sprintf(". Its remediation waits until %s at most (waitForSpare of a RemediationPolicy)", stamp(s.Until))
}

// InVain is that a remediation which begins has waited for a spare host in vain, as it follows what begins; empty if it has not.
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

// sparesAwaited is the condition SpareHostAvailable of the check, which there is only while a remediation waits: which machines do, and
// until when at most. Of several reasons the one that names a fact goes first.
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

// firstOf are the first names, and how many more there are.
func firstOf(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Sibling is one of the machines of an owner, and when the owner was asked to replace it; zero if it was not, or does not.
type Sibling struct {
	*clusterv1.Machine
	Asked time.Time
}

// ToCome are those of an owner's machines whose replacement is still to be made: for no new machine was made since the owner was asked.
// Each new one replaces one. Those that were asked for last go first: their replacement is among the newest.
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
