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
	for _, f := range e.Facts {
		longest = max(longest, len(f.Name))
	}
	for _, f := range e.Facts {
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
	unselected := make([]string, 0, len(e.NotSelectedBy))
	for _, u := range e.NotSelectedBy {
		unselected = append(unselected, u.String()+": "+u.Why)
	}
	p.list("Not selected by", unselected)
	p.list("To know", e.Notes)
	p.gap()
	p.step("", e.Next)
	return p.write(out)
}

func (p *page) write(out io.Writer) error {
	_, err := io.WriteString(out, strings.Join(p.lines, "\n")+"\n")
	return err
}

// list is a heading with lines below it; nothing if there are none.
func (p *page) list(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.heading(heading)
	for _, line := range lines {
		p.line("  - ", line)
	}
}

// moment is at as a person reads it.
func (p *page) moment(at time.Time) string { return text.Moment(at, p.now) }

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
	if !s.NotBefore.IsZero() {
		s.Text += " not before " + p.moment(s.NotBefore)
	}
	switch {
	case s == (explain.Step{}):
	case s.Manual:
		p.line(indent+"To do: ", text.Capital(s.Text)+".")
	case s.At.IsZero():
		p.line(indent+"Next: ", text.Capital(s.Text)+".")
	default:
		p.line(indent+"Next: ", p.moment(s.At)+": "+s.Text+".")
	}
}

func (p *page) check(c *Check) {
	mode := c.Mode.Sentence()
	if c.Mode != explain.Acting {
		mode = p.paint.Waits(mode)
	}
	p.heading(c.String() + ": " + mode)
	if c.ModeText != "" && !c.blockedFor(explain.SameAsMode) && !c.TextHasMode() {
		p.line("  ", c.ModeText+".")
	}
	p.arithmetic(&c.Check)
	p.restrictions(c)
	p.readErrors(c.ReadErrors)
	for i := range c.Targets {
		p.target(c, &c.Targets[i])
	}
}

// restrictions are what keeps c from judging or remediating its targets, unless its one target is blocked by that and says so.
func (p *page) restrictions(c *Check) {
	if c.NodesUnknown != "" && !c.blockedFor(explain.SameAsNodesUnknown) {
		p.line("  "+p.paint.Waits("Nodes unknown")+": ", c.NodesUnknown+".")
	}
	limit := c.blockedFor(explain.SameAsLimit)
	if c.Text != "" && !limit {
		p.line("  ", c.Check.Blocked()+": "+c.Text+".")
	}
	if !c.Check.NodesNotReadable() && (c.Text != "" && !limit || c.Text == "" && len(c.Targets) == 0) {
		p.groups("  ", c.NotHealthy)
	}
}

func (p *page) readErrors(all []string) {
	for _, what := range all {
		p.line("  ", explain.CouldNotBeRead(what)+".")
	}
}

// arithmetic is how many targets of c are healthy, and how many may be unhealthy. There is none of a check whose targets were not read.
func (p *page) arithmetic(c *explain.Check) {
	switch n := c.Population.Total(); {
	case n == 0 && (c.ModeText != "" || c.Mode == explain.Unknown):
	case c.NodesNotReadable():
		p.line("  ", c.Uncounted()+".")
	default:
		p.line("  ", explain.Sum(c.Population)+"; "+c.Allowance()+".")
	}
	if c.CountedByStatus {
		changed := ""
		if !c.StatusChanged.IsZero() {
			changed = p.moment(c.StatusChanged)
		}
		p.line("  ", explain.CountedByStatus(changed)+".")
	}
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

func (p *page) target(c *Check, t *explain.Target) {
	p.gap()
	if t.Ref == p.subject {
		p.line("  Verdict: ", p.verdict(t))
	} else {
		p.line("  ", p.paint.Strong(t.String())+": "+p.verdict(t))
	}
	if t.Skipped != "" {
		p.line("  - ", t.Skipped+".")
		return
	}
	for _, f := range t.Findings {
		p.line("  - ", f.Text)
		p.line("    ", p.timing(&f))
	}
	for _, d := range t.Ignored {
		p.line("  - ", d.Text)
		p.line("    ", p.paint.Waits("does not count")+": "+d.Why)
	}
	for _, s := range t.Startup {
		counts := ""
		if s.Latest {
			counts = p.paint.Strong(" <- counts")
		}
		p.line("  - ", s.Text+": "+p.moment(s.At)+counts)
	}
	if t.State == health.Healthy && !t.InFlight && len(t.Blockers) == 0 {
		return
	}
	p.action(c, t)
	if t.InFlight {
		p.inFlight(t)
	}
	p.blockers(c, t.Blockers)
	if t.Ref != p.subject {
		p.step("  ", t.Next)
	}
}

// action is what kubemend does about t, or would do if nothing blocked it.
func (p *page) action(c *Check, t *explain.Target) {
	label := "  Action if unblocked: "
	switch {
	case t.Action == "" || c.ActsElsewhere() || t.BlockedBy(explain.MachineBeingDeleted):
		return
	case t.InFlight && !t.StartsNow && c.Kind == "NodeHealthCheck": // this is what the escalation has for later
		label = "  Action that follows: "
	case t.StartsNow || t.InFlight:
		label = "  Action: "
	}
	p.line(label, "kubemend "+t.Action+".")
}

func (p *page) verdict(t *explain.Target) string {
	switch {
	case t.Skipped != "":
		return t.Verdict
	case t.State == health.Healthy:
		return p.paint.Good(t.Verdict)
	case t.State == health.Unhealthy:
		return p.paint.Bad(t.Verdict)
	}
	return p.paint.Waits(t.Verdict)
}

func (p *page) timing(f *explain.Finding) string {
	since, expires := f.Timing(p.moment)
	if f.Expired || f.Expires.IsZero() {
		return since + p.paint.Bad(expires)
	}
	return since + p.paint.Waits(expires)
}

func (p *page) inFlight(t *explain.Target) {
	var parts []string
	if !t.InFlightSince.IsZero() {
		parts = append(parts, "since "+p.moment(t.InFlightSince))
	}
	for _, request := range t.Requests {
		parts = append(parts, request.String())
	}
	p.line("  In flight: ", strings.Join(parts, "; ")+".")
	if t.Report != "" {
		p.line("  Conditions: ", t.Report+".")
	}
}

// blockers are numbered in the order in which the controller asks; c is the check that is blocked, or nil.
func (p *page) blockers(c *Check, blockers []explain.Blocker) {
	if len(blockers) > 0 {
		p.line("  ", "Blocked by:")
	}
	for i := range blockers {
		b, number := &blockers[i], fmt.Sprintf("  %d. ", i+1)
		if c != nil && len(c.Targets) > 1 && c.PartOf(b) == explain.SameAsLimit {
			p.line(number, b.Reason+", as above.")
			continue
		}
		until := ""
		if !b.Until.IsZero() {
			until = ", until " + p.moment(b.Until)
		}
		p.line(number, b.Reason+": "+b.Text+until+".")
		if c != nil && b.Reason == c.Check.Blocked() {
			p.groups("     ", c.NotHealthy)
		}
		if b.Fix != "" {
			p.line("     To do: ", text.Capital(b.Fix)+".")
		}
	}
}

func (p *page) remediation(r *explain.Remediation) {
	p.heading(r.Heading())
	p.line("  ", r.Reason+": "+r.Text+".")
	if !r.StateSince.IsZero() {
		p.line("  ", r.Since(p.moment)+".")
	}
	for _, e := range r.Evidence {
		p.line("  - ", e)
	}
	p.blockers(nil, r.Blockers)
	p.readErrors(r.ReadErrors)
	if r.Next.Manual && r.Next != p.last {
		p.step("  ", r.Next)
	}
}
