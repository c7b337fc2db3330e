package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// report is an answer being laid out.
type report struct {
	*Answer

	width int
	paint text.Painter
	lines []string
	// namespaces says that the timeline is about objects of several namespaces.
	namespaces bool
}

// Print writes a for a person, in lines of that many columns.
func (a *Answer) Print(out io.Writer, width int, paint text.Painter) error {
	p := &report{Answer: a, width: width, paint: paint}
	in := ""
	for _, e := range a.Timeline {
		p.namespaces = p.namespaces || in != "" && e.Object.Namespace != "" && e.Object.Namespace != in
		in = cmp.Or(e.Object.Namespace, in)
	}
	p.list("Assumed", a.Assumptions)
	p.list("The manifest", a.Manifest)
	p.list(paint.Bad("The API server would refuse it"), a.Refused)
	for i := range a.Now {
		p.check(&a.Now[i])
	}
	p.timeline()
	p.summary()
	_, err := io.WriteString(out, strings.Join(p.lines, "\n")+"\n")
	return err
}

// line writes s behind lead, and goes on below the beginning of s.
func (p *report) line(lead, s string) {
	p.lines = append(p.lines, strings.Split(text.Hang(lead, s, text.Columns(lead), p.width), "\n")...)
}

// heading begins a part of the page.
func (p *report) heading(s string) {
	if len(p.lines) > 0 {
		p.lines = append(p.lines, "")
	}
	p.line("", p.paint.Strong(s))
}

func (p *report) list(heading string, sentences []string) {
	if len(sentences) == 0 {
		return
	}
	p.heading(heading)
	for _, s := range sentences {
		p.line("  - ", s+".")
	}
}

// check is how a check stands here and now.
func (p *report) check(c *explain.Check) {
	mode := string(c.Mode)
	if c.Mode == explain.Acting {
		mode = p.paint.Good(mode)
	} else {
		mode = p.paint.Waits(mode)
	}
	p.heading(fmt.Sprintf("Now, %s: %s", c.String(), mode))
	if c.ModeText != "" {
		p.line("  ", c.ModeText+".")
	}
	p.line("  ", fmt.Sprintf("It selects %d; %s", c.Population.Total(), c.Allowance())+".")
	var notes []string
	add := func(s string) {
		if s != "" && !slices.Contains(notes, s) {
			notes = append(notes, s)
			p.line("  ", s+".")
		}
	}
	if c.Text != "" {
		add(c.Reason + ": " + c.Text)
	}
	for _, kind := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable} {
		if is := meta.FindStatusCondition(c.Conditions, kind); is != nil && is.Status == metav1.ConditionFalse {
			add(is.Reason + ": " + is.Message)
		}
	}
	add(c.NodesUnknown)
	for _, trouble := range c.ReadErrors {
		add(explain.CouldNotBeRead(trouble))
	}
	p.targets(c)
}

// targets are a line each for those of which there is something to say, and the names of the others.
func (p *report) targets(c *explain.Check) {
	var healthy []string
	var rows [][]string
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.State == health.Healthy && t.Skipped == "" && !t.InFlight && len(t.Blockers) == 0 {
			healthy = append(healthy, t.Name)
			continue
		}
		rows = append(rows, []string{short(t.Ref), cmp.Or(t.Node, "-"), t.Verdict, p.would(c, t)})
	}
	p.rows("  ", rows)
	if len(healthy) > 0 {
		p.line("  ", p.paint.Good(string(budget.Healthy))+": "+explain.FirstOf(healthy)+".")
	}
}

// would is what would happen to a target of c, and when.
func (p *report) would(c *explain.Check, t *explain.Target) string {
	var parts []string
	if t.Skipped != "" {
		parts = append(parts, t.Skipped)
	}
	for _, f := range t.Findings {
		parts = append(parts, f.Text+p.counts(f))
	}
	for _, d := range t.Ignored {
		parts = append(parts, d.Text+", which does not count: "+d.Why)
	}
	switch {
	case t.StartsNow:
		parts = append(parts, p.paint.Strong("It begins at once: kubemend "+t.Action))
	case t.InFlight:
		parts = append(parts, "Its remediation is under way"+since(t.InFlightSince, p.At))
	case len(t.Blockers) > 0:
		parts = append(parts, blockers(c, t)...)
	case !t.Next.At.IsZero():
		parts = append(parts, text.Moment(t.Next.At, p.At)+": "+t.Next.Text)
	case t.Next.Text != "":
		parts = append(parts, t.Next.Text)
	}
	return strings.Join(parts, ". ") + "."
}

// blockers are the sentences about what blocks a target, but for those that stand on the page already: as a finding, or of the whole check.
func blockers(c *explain.Check, t *explain.Target) []string {
	var parts []string
	for _, h := range t.Blockers {
		switch {
		case slices.ContainsFunc(t.Findings, func(f explain.Finding) bool { return !f.Expired && strings.Contains(h.Text, f.Text) }):
		case h.Text == c.Text || h.Text == c.ModeText:
			parts = append(parts, "Blocked by "+h.Reason)
		default:
			parts = append(parts, "Blocked: "+h.Text)
		}
	}
	return parts
}

func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " since " + text.Moment(at, now)
}

// counts is when a finding counts.
func (p *report) counts(f explain.Finding) string {
	switch {
	case f.Expires.IsZero():
		return ""
	case f.Expired:
		return ", which expired " + text.Moment(f.Expires, p.At)
	}
	return ", which expires " + text.Moment(f.Expires, p.At)
}

// rows writes rows of which the last cell is a text: behind the others where there is room, else below them.
func (p *report) rows(indent string, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], text.Columns(cell))
		}
	}
	for _, row := range rows {
		last := len(row) - 1
		padded := make([]string, last)
		for i, cell := range row[:last] {
			padded[i] = text.Pad(cell, widths[i]) + "  "
		}
		lead := indent + strings.Join(padded, "")
		if text.Columns(lead) <= p.width/2 {
			p.line(lead, row[last])
			continue
		}
		p.lines = append(p.lines, strings.TrimRight(lead, " "))
		p.line(indent+"    ", row[last])
	}
}

// shorts are the short names of kinds.
var shorts = map[string]string{
	"Machine": "machine", "Node": "node", "MachineHealthCheck": "mhc", "NodeHealthCheck": "nhc", "BareMetalHost": "bmh",
	"Metal3Remediation": "m3r", "HostRemediation": "hrem",
}

// short is an object as it is called on the command line.
func short(r explain.Ref) string {
	return cmp.Or(shorts[r.Kind], strings.ToLower(r.Kind)) + "/" + r.Name
}

// called is how the page calls an object: with its namespace only if there are several.
func (p *report) called(r explain.Ref) string {
	if r.Namespace != "" && p.namespaces {
		return r.Namespace + "/" + short(r)
	}
	return short(r)
}

// timeline is what happens.
func (p *report) timeline() {
	p.heading(fmt.Sprintf("From %s on, for %s", p.At.Format(time.DateTime), explain.Brief(parsed(p.Summary.Horizon))))
	if len(p.Timeline) == 0 {
		p.line("  ", "Nothing happens"+".")
		return
	}
	rows := make([][]string, 0, len(p.Timeline))
	for _, e := range p.Timeline {
		reason := e.Reason
		switch {
		case e.Assumed:
			reason = p.paint.Faint(reason)
		case e.Warning:
			reason = p.paint.Bad(reason)
		}
		rows = append(rows, []string{stamp(e.After), p.called(e.Object), reason, e.Text})
	}
	p.rows("", rows)
}

// parsed is a duration that was written by this package.
func parsed(s string) time.Duration {
	d, _ := time.ParseDuration(s) // it is one, or empty
	return d
}

// stamp is a time after the beginning, such as T+00:05:00.
func stamp(after string) string {
	d := parsed(after).Truncate(time.Second)
	return fmt.Sprintf("T+%02d:%02d:%02d", d/time.Hour, d/time.Minute%60, d/time.Second%60)
}

// summary is what it all comes to.
func (p *report) summary() {
	s := p.Summary
	p.heading("All in all")
	p.line("  ", explain.RemediationsBegun(s.Begun, s.AtOnce)+".")
	var begun groups
	for _, r := range p.Remediations {
		begun.add(stamp(r.After), p.called(r.Target))
	}
	for _, g := range begun {
		p.line("  "+g.of+"  ", explain.FirstOf(g.names)+".")
	}
	for _, b := range s.Blocked {
		until := ""
		if b.Until != "" {
			until = stamp(b.Until)
		}
		further := slices.ContainsFunc(p.Remediations, func(r Remediation) bool { return parsed(r.After) <= parsed(b.From) }) // those go on
		p.line("  ", explain.NothingAllowed(short(b.Check), further, stamp(b.From), until, p.paint.Waits(b.Reason))+".")
	}
	if len(s.Unhealthy) == 0 {
		p.line("  ", p.paint.Good("All are healthy at the end")+".")
	}
	var unhealthy groups
	for _, u := range s.Unhealthy {
		unhealthy.add(u.Verdict, p.called(u.Ref))
	}
	for _, g := range unhealthy {
		p.line("  ", p.paint.Bad(g.of)+" at the end: "+explain.FirstOf(g.names)+".")
	}
}

// groups are names that belong together, in the order in which their groups were added.
type groups []group

type group struct {
	of    string
	names []string
}

func (g *groups) add(of, name string) {
	at := slices.IndexFunc(*g, func(is group) bool { return is.of == of })
	if at < 0 {
		at = len(*g)
		*g = append(*g, group{of: of})
	}
	(*g)[at].names = append((*g)[at].names, name)
}
