package explain

import (
	"fmt"
	"strings"
	"time"
)

// What happens in a simulation.
const (
	HostOff = "The host is off"
)

// SimulatedManagers is which managers are simulated: those of some namespaces with their settings, and those that announce none with the default ones.
// Where there are neither, teardown is the namespace of one in teardown, if there is one. Unknown is why there may be others.
func SimulatedManagers(settled, silent []string, teardown, unknown string, others bool) string {
	var all []string
	switch len(settled) {
	case 0:
	case 1:
		all = append(all, "The manager has the settings of the one in namespace "+settled[0])
	default:
		all = append(all, "The managers have the settings of those in the namespaces "+strings.Join(settled, ", "))
	}
	if len(silent) > 0 {
		all = append(all, fmt.Sprintf("The manager in namespace %s does not announce its settings: default ones are assumed", strings.Join(silent, ", ")))
	}
	switch {
	case len(all) > 0:
	case unknown != "":
		all = append(all, "Which manager runs there is not known, one with default settings is assumed: "+unknown)
	case teardown != "":
		all = append(all, fmt.Sprintf("The manager in namespace %s is in teardown: another one with default settings is assumed", teardown))
	default:
		all = append(all, "No manager of kubemend runs there: one with default settings is assumed")
	}
	if others {
		all = append(all, "There may be another one, which is assumed to reconcile all else: "+unknown)
	}
	return strings.Join(all, ". ")
}

// FaultAssumed is what fails, how, when, and for how long; without end if that is zero.
func FaultAssumed(fails, condition string, at, lasts time.Duration) string {
	back := "do not come back by themselves (--for)"
	if lasts > 0 {
		back = fmt.Sprintf("come back after %s (--for)", Brief(lasts))
	}
	return fmt.Sprintf("The nodes of what --fail %s selects turn %s (--fail-condition) %s after the beginning (--fail-at), and %s",
		fails, condition, Brief(at), back)
}

// HostsAssumed is how hosts are switched, and when their nodes come back from that; of hard faults they do not.
func HostsAssumed(off, on, boot time.Duration, hard bool) string {
	boots := fmt.Sprintf("its node is Ready %s later (--boot-takes)", Brief(boot))
	if hard {
		boots = "its node does not come back from that if it has failed (--hard)"
	}
	return fmt.Sprintf("A BareMetalHost is off %s after it is asked to power off, and on again %s after it is released; %s", Brief(off), Brief(on), boots)
}

// RemediatorsAssumed is within which time remediators of other projects bring a node back; never if that is zero.
func RemediatorsAssumed(kinds []string, takes time.Duration) string {
	effect := "never bring a node back"
	if takes > 0 {
		effect = "bring the node back within " + Brief(takes)
	}
	return fmt.Sprintf("The remediators of %s %s (--remediation-takes)", strings.Join(kinds, ", "), effect)
}

// RemediationsBegun is how many remediations begin, and how many are under way at once.
func RemediationsBegun(n, atOnce int) string {
	switch n {
	case 0:
		return "No remediation begins"
	case 1:
		return fmt.Sprintf("1 remediation begins, at most %d at once", atOnce)
	}
	return fmt.Sprintf("%d remediations begin, at most %d at once", n, atOnce)
}

// NothingAllowed is from when until when a check allows no remediation; none has begun before, unless further ones are meant.
func NothingAllowed(check string, further bool, from, until, reason string) string {
	what := "remediation"
	if further {
		what = "further remediation"
	}
	if until == "" {
		until = "the end"
	}
	return fmt.Sprintf("%s allows no %s from %s to %s: %s", check, what, from, until, reason)
}

// mostNames is how many names stand in one sentence; the JSON has all.
const mostNames = 20

// FirstOf are the first names, and how many more there are.
func FirstOf(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Brief is a duration as people write it: 10m, not 10m0s.
func Brief(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
