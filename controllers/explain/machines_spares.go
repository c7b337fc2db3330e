package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// noSpareHost is a remediation that waits for a spare host, or for knowing of one.
func noSpareHost(f *machines.Facts, d *machines.Decision, b machines.Blocker) Blocker {
	is := Blocker{Reason: string(b.Reason), Text: spareArithmetic(f, d), Until: b.Until, EndsWhen: "a free host fits its replacement"}
	if b.Reason == machines.SpareHostsUnread {
		is.EndsWhen = "the hosts can be read and one fits its replacement"
	}
	return is
}

// spareArithmetic says why no spare host is counted on for the machine of d.
func spareArithmetic(f *machines.Facts, d *machines.Decision) string {
	s := d.Spare
	switch {
	case f.Counted != nil || f.Spares.Reported: // the manager has counted what was not read; the deadline is said beside it
		return strings.TrimSuffix(d.Target.SpareReport.Message, spareDeadline(d))
	case s.Lacks == machines.SpareHostsUnread:
		return "Whether a spare host fits its replacement is not known: " + cmp.Or(f.Spares.Unread, f.Spares.Failed[d.Target.ID])
	case s.Free == 0:
		return "No spare host fits its replacement: no host is free"
	case s.Fit == 0:
		return fmt.Sprintf("No spare host fits its replacement: of %d free none has the labels that its hostSelector asks for", s.Free)
	}
	others := "machines that wait for a host may need them"
	if s.Expected == 1 {
		others = "machine that waits for a host may need it"
	}
	return fmt.Sprintf("No spare host is left for its replacement: of %d free %d %s, and %d other %s", s.Free, s.Fit, fits(s.Fit), s.Expected, others)
}

func fits(n int) string {
	if n == 1 {
		return "fits"
	}
	return "fit"
}

// waitsForSpare is the message of the condition SpareHostAvailable of the Machine of d.
func waitsForSpare(f *machines.Facts, d *machines.Decision) string {
	return spareArithmetic(f, d) + spareDeadline(d)
}

// spareDeadline is until when the remediation of d waits for a spare host.
func spareDeadline(d *machines.Decision) string {
	return fmt.Sprintf(". Its remediation waits until %s at most (%s)", d.Spare.Until.UTC().Format(time.RFC3339), mendv1.WaitForSpareAnnotation)
}

// waitForSpare is the message of the condition SpareHostAvailable of the check: which machines wait, and until when at most.
func waitForSpare(f *machines.Facts, p *machines.Plan) string {
	var waiting []string
	for _, i := range p.Open {
		d := p.Decisions[i]
		if d.Blocked(machines.NoSpareHost) || d.Blocked(machines.SpareHostsUnread) {
			waiting = append(waiting, fmt.Sprintf("%s until %s", d.Target.Name, d.Spare.Until.UTC().Format(time.RFC3339)))
		}
	}
	n, more := len(waiting), ""
	if n > maxNames {
		waiting, more = waiting[:maxNames], fmt.Sprintf(" and %d more", n-maxNames)
	}
	message := fmt.Sprintf("Wait for a spare host, at most: %s%s", strings.Join(waiting, ", "), more)
	switch {
	case f.Counted != nil || f.Spares.Reported:
		return message
	case f.Spares.Unread != "":
		return message + ". Which hosts are free is not known: " + f.Spares.Unread
	}
	return fmt.Sprintf("%s. Free hosts: %d", message, f.Spares.Free)
}

// awaitedSpares are the reason and the message of the condition SpareHostAvailable of the check; none if it has no such condition.
func awaitedSpares(f *machines.Facts, p *machines.Plan) (reason, message string) {
	for _, c := range p.Conditions {
		if c.Type == machines.SpareHostAvailable && !c.Remove {
			return c.Reason, waitForSpare(f, p)
		}
	}
	return "", ""
}

// withoutSpare says of a remediation that begins that it has waited for a spare host in vain; empty if it has not.
func withoutSpare(s *machines.Spare) string {
	if s == nil || !s.Late {
		return ""
	}
	text := ". No spare host fits its replacement"
	if s.Lacks == machines.SpareHostsUnread {
		text = ". Whether a spare host fits its replacement is not known"
	}
	return fmt.Sprintf("%s, and the wait for one ended at %s", text, s.Until.UTC().Format(time.RFC3339))
}
