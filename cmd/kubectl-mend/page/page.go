package page

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// page is an explanation being laid out.
type page struct {
	now     time.Time
	subject explain.Ref
	last    explain.Step // what comes next on the whole: the last line
	width   int
	paint   text.Painter
	lines   []string
}

// Print writes e for a person, in lines of that many columns.
func (e *Explanation) Print(out io.Writer, width int, paint text.Painter) error {
	p := &page{now: e.At, subject: e.Subject, last: e.Next, width: width, paint: paint}
	p.line("", paint.Strong(e.Subject.String()))
	longest := 0
	for _, f := range e.Is {
		longest = max(longest, len(f.Name))
	}
	for _, f := range e.Is {
		p.line(fmt.Sprintf("  %-*s  ", longest, f.Name), f.Value)
	}
	p.gap()
	p.line("", e.Verdict+".")
	for i := range e.Checks {
		p.check(&e.Checks[i])
	}
	for i := range e.Remediations {
		p.remediation(&e.Remediations[i])
	}
	if len(e.NotSelectedBy) > 0 {
		p.heading("Not selected by")
		for _, u := range e.NotSelectedBy {
			p.line("  - ", u.String()+": "+u.Why)
		}
	}
	if len(e.Notes) > 0 {
		p.heading("To know")
		for _, note := range e.Notes {
			p.line("  - ", note)
		}
	}
	p.gap()
	p.step("", e.Next)
	_, err := io.WriteString(out, strings.Join(p.lines, "\n")+"\n")
	return err
}

// line writes s behind first. Where it is broken it goes on below its beginning, or, behind words, a bit further in than they are.
func (p *page) line(first, s string) {
	taken := text.Columns(first)
	hang := taken
	if words := strings.TrimLeft(first, " "); text.Columns(words) > shortest {
		hang = taken - text.Columns(words) + 2
	}
	p.lines = append(p.lines, strings.Split(text.Hang(first, s, hang, p.width), "\n")...)
}

// shortest is how long a bullet may be.
const shortest = 5

func (p *page) gap() { p.lines = append(p.lines, "") }

func (p *page) heading(s string) {
	p.gap()
	p.line("", p.paint.Strong(s))
}

// step is what happens next.
func (p *page) step(indent string, s explain.Step) {
	switch {
	case s == (explain.Step{}):
	case s.Person:
		p.line(indent+"To do: ", text.Capital(s.Text)+".")
	case s.At.IsZero():
		p.line(indent+"Next: ", text.Capital(s.Text)+".")
	default:
		p.line(indent+"Next: ", text.Moment(s.At, p.now)+": "+s.Text+".")
	}
}

func (p *page) check(c *Check) {
	p.heading(c.String() + ": " + p.mode(c.Mode))
	if c.Because != "" && !c.blockedFor(explain.OfMode) && !c.TextHasMode() {
		p.line("  ", c.Because+".")
	}
	p.arithmetic(&c.Check)
	if c.CountedByStatus {
		p.line("  ", explain.CountedByStatus(p.changed(c.StatusChanged))+".")
	}
	p.restrictions(c)
	for _, trouble := range c.Trouble {
		p.line("  ", "Could not be read: "+trouble+".")
	}
	for i := range c.Targets {
		p.target(c, &c.Targets[i])
	}
}

// restrictions are what keeps c from judging or remediating its targets, unless its one target is blocked by that and says so.
func (p *page) restrictions(c *Check) {
	if c.Unseen != "" && !c.blockedFor(explain.OfNodes) {
		p.line("  "+p.paint.Waits("Out of sight")+": ", c.Unseen+".")
	}
	limit := c.blockedFor(explain.OfLimit)
	if c.Text != "" && !limit {
		p.line("  ", c.Check.Blocked()+": "+c.Text+".")
	}
	if !c.Check.NodesUnread() && (c.Text != "" && !limit || c.Text == "" && len(c.Targets) == 0) {
		p.groups("  ", c.NotHealthy)
	}
}

// arithmetic is how the targets of c stand, and what the limits say to that. Of a check whose targets were not looked at there is none.
func (p *page) arithmetic(c *explain.Check) {
	switch n := c.Population.Total(); {
	case n == 0 && (c.Because != "" || c.Mode == explain.Unknown):
	case c.NodesUnread():
		p.line("  ", c.Uncounted()+".")
	default:
		p.line("  ", explain.Sum(c.Population)+"; "+c.Allowance()+".")
	}
}

// changed is when something last changed; empty if that is not known.
func (p *page) changed(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return text.Moment(at, p.now)
}

// blockedFor reports whether the one target that c is printed with has a blocker that says the same as c, which need not be said twice.
func (c *Check) blockedFor(part explain.Part) bool {
	return len(c.Targets) == 1 && slices.ContainsFunc(c.Targets[0].Blockers, func(b explain.Blocker) bool { return c.PartOf(&b) == part })
}

// mostNames is how many names are printed of one kind of targets; the JSON has all.
const mostNames = 10

func (p *page) groups(indent string, groups []Group) {
	for _, g := range groups {
		names, more := g.Names, ""
		if len(names) > mostNames {
			names, more = names[:mostNames], fmt.Sprintf(" and %d more", len(g.Names)-mostNames)
		}
		p.line(indent+string(g.Class)+": ", strings.Join(names, ", ")+more)
	}
}

func (p *page) mode(m explain.Mode) string {
	if m == explain.Acting {
		return m.Sentence()
	}
	return p.paint.Waits(m.Sentence())
}

func (p *page) target(c *Check, t *explain.Target) {
	p.gap()
	if t.Ref == p.subject {
		p.line("  Verdict: ", p.verdict(t))
	} else {
		p.line("  ", p.paint.Strong(t.String())+": "+p.verdict(t))
	}
	if t.Left != "" {
		p.line("  - ", t.Left+".")
		return
	}
	for _, f := range t.Findings {
		p.line("  - ", f.Text)
		p.line("    ", p.clock(f))
	}
	for _, d := range t.Doubted {
		p.line("  - ", d.Text)
		p.line("    ", p.paint.Waits("does not count")+": "+d.Why)
	}
	for _, s := range t.Starts {
		counts := ""
		if s.Counts {
			counts = p.paint.Strong(" <- counts")
		}
		p.line("  - ", s.What+": "+text.Moment(s.At, p.now)+counts)
	}
	if t.State == health.Healthy && !t.InFlight && len(t.Blockers) == 0 {
		return
	}
	p.would(c, t)
	if t.InFlight {
		p.underway(t)
	}
	p.holds(c, t.Blockers)
	if t.Ref != p.subject {
		p.step("  ", t.Next)
	}
}

// would is what is done about t, if kubemend does it, or would do it.
func (p *page) would(c *Check, t *explain.Target) {
	switch {
	case t.Would == "" || c.Check.ActsElsewhere() || t.BlockedBy(explain.MachineBeingDeleted):
	case t.InFlight && !t.Begins && c.Kind == "NodeHealthCheck": // it is under way, and this is what its ladder has for later
		p.line("  What follows: ", "kubemend "+t.Would+".")
	case t.Begins || t.InFlight:
		p.line("  What is done: ", "kubemend "+t.Would+".")
	default:
		p.line("  What would be done: ", "kubemend "+t.Would+".")
	}
}

func (p *page) verdict(t *explain.Target) string {
	switch {
	case t.Left != "":
		return t.Verdict
	case t.State == health.Healthy:
		return p.paint.Good(t.Verdict)
	case t.State == health.Unhealthy:
		return p.paint.Bad(t.Verdict)
	}
	return p.paint.Waits(t.Verdict)
}

// clock is when a finding counts, and why then.
func (p *page) clock(f explain.Finding) string {
	if f.Due.IsZero() {
		return p.paint.Bad("counts at once")
	}
	word := p.paint.Waits("expires ")
	if f.Counts {
		word = p.paint.Bad("expired ")
	}
	since := "since " + text.Moment(f.Since, p.now)
	if f.Late != "" {
		since = "counted from " + text.Moment(f.Since, p.now) + ", " + f.Late
	}
	return fmt.Sprintf("%s, timeout %s, %s%s", since, f.Limit.Duration, word, text.Moment(f.Due, p.now))
}

func (p *page) underway(t *explain.Target) {
	line := ""
	if !t.UnderwaySince.IsZero() {
		line = "since " + text.Moment(t.UnderwaySince, p.now)
	}
	for _, request := range t.Underway {
		line = strings.TrimPrefix(line+"; "+request.String(), "; ")
	}
	p.line("  Under way: ", line+".")
	if t.Answer != "" {
		p.line("  Conditions: ", t.Answer+".")
	}
}

// holds are what holds something back; c is the check that does, or nil.
func (p *page) holds(c *Check, holds []explain.Blocker) {
	if len(holds) > 0 {
		p.line("  ", "Blocked by:")
	}
	for i, h := range holds {
		until := ""
		if !h.Until.IsZero() {
			until = ", until " + text.Moment(h.Until, p.now)
		}
		if c != nil && len(c.Targets) > 1 && c.PartOf(&h) == explain.OfLimit {
			p.line(fmt.Sprintf("  %d. ", i+1), h.Reason+", as above.")
			continue
		}
		p.line(fmt.Sprintf("  %d. ", i+1), h.Reason+": "+h.Text+until+".")
		if c != nil && h.Reason == c.Check.Blocked() {
			p.groups("     ", c.NotHealthy)
		}
		if h.Person != "" {
			p.line("     To do: ", text.Capital(h.Person)+".")
		}
	}
}

func (p *page) remediation(r *explain.Remediation) {
	p.heading(fmt.Sprintf("%s: %s, attempt %d of %d", r.Ref, r.State, r.Attempt, r.Attempts))
	p.line("  ", r.Reason+": "+r.Text+".")
	if !r.Since.IsZero() {
		p.line("  ", "In this state since "+text.Moment(r.Since, p.now)+deadline(r, p.now)+".")
	}
	for _, e := range r.Evidence {
		p.line("  - ", e)
	}
	if len(r.Blockers) > 0 {
		p.holds(nil, r.Blockers)
	}
	for _, trouble := range r.Trouble {
		p.line("  ", "Could not be read: "+trouble+".")
	}
	if r.Next.Person && r.Next != p.last {
		p.step("  ", r.Next)
	}
}

func deadline(r *explain.Remediation, now time.Time) string {
	if r.Deadline.IsZero() {
		return ""
	}
	return ", deadline " + text.Moment(r.Deadline, now)
}
