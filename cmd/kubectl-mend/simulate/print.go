package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// page is an answer being laid out.
type report struct {
	*Answer

	width int
	paint text.Painter
	lines []string
}

// Print writes a for a person, in lines of that many columns.
func (a *Answer) Print(out io.Writer, width int, paint text.Painter) error {
	p := &report{Answer: a, width: width, paint: paint}
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
	if c.Because != "" {
		p.line("  ", c.Because+".")
	}
	p.line("  ", fmt.Sprintf("It selects %d; %s.", c.Population.Total(), c.Allowance()))
	said := map[string]bool{}
	say := func(s string) {
		if s != "" && !said[s] {
			said[s] = true
			p.line("  ", s+".")
		}
	}
	if c.Text != "" {
		say(c.Reason + ": " + c.Text)
	}
	for _, kind := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable} {
		if is := conditionOf(c, kind); is != nil && is.Status == metav1.ConditionFalse {
			say(is.Reason + ": " + is.Message)
		}
	}
	if c.Unseen != "" {
		say(c.Unseen)
	}
	for _, trouble := range c.Trouble {
		say("Could not be read: " + trouble)
	}
	p.targets(c)
}

func conditionOf(c *explain.Check, kind string) *metav1.Condition {
	for i := range c.Conditions {
		if c.Conditions[i].Type == kind {
			return &c.Conditions[i]
		}
	}
	return nil
}

// mostNames is how many of those that are healthy are named; the JSON has all.
const mostNames = 20

// targets are a line each for those of which there is something to say, and the names of the others.
func (p *report) targets(c *explain.Check) {
	var healthy []string
	var rows [][]string
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.State == health.Healthy && t.Left == "" && !t.InFlight && len(t.Blockers) == 0 {
			healthy = append(healthy, t.Name)
			continue
		}
		rows = append(rows, []string{short(t.Ref), cmp.Or(t.Node, "-"), t.Verdict, p.would(c, t)})
	}
	p.rows("  ", rows)
	if len(healthy) > 0 {
		more := ""
		if n := len(healthy) - mostNames; n > 0 {
			healthy, more = healthy[:mostNames], fmt.Sprintf(" and %d more", n)
		}
		p.line("  ", p.paint.Good(string(budget.Healthy))+": "+strings.Join(healthy, ", ")+more+".")
	}
}

// would is what would happen to a target of c, and when.
func (p *report) would(c *explain.Check, t *explain.Target) string {
	var parts []string
	if t.Left != "" {
		parts = append(parts, t.Left)
	}
	for _, f := range t.Findings {
		parts = append(parts, f.Text+p.counts(f))
	}
	for _, d := range t.Doubted {
		parts = append(parts, d.Text+", which does not count: "+d.Why)
	}
	switch {
	case t.Begins:
		parts = append(parts, p.paint.Strong("It begins at once: kubemend "+t.Would))
	case t.InFlight:
		parts = append(parts, "Its remediation is under way"+cmp.Or(since(t.UnderwaySince, p.At), ""))
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
		case slices.ContainsFunc(t.Findings, func(f explain.Finding) bool { return !f.Counts && strings.Contains(h.Text, f.Text) }):
		case h.Text == c.Text || h.Text == c.Because:
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
	case f.Due.IsZero():
		return ""
	case f.Counts:
		return ", which expired " + text.Moment(f.Due, p.At)
	}
	return ", which expires " + text.Moment(f.Due, p.At)
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
		cells := make([]string, 0, len(row))
		for i, cell := range row[:len(row)-1] {
			cells = append(cells, text.Pad(cell, widths[i])+"  ")
		}
		lead := indent + strings.Join(cells, "")
		hang := text.Columns(lead)
		if hang <= p.width/2 {
			p.lines = append(p.lines, strings.Split(text.Hang(lead, row[len(row)-1], hang, p.width), "\n")...)
			continue
		}
		p.lines = append(p.lines, strings.TrimRight(lead, " "))
		p.line(indent+"    ", row[len(row)-1])
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

// called is how the timeline calls an object: with its namespace only if there are several.
func (p *report) called() func(explain.Ref) string {
	var namespaces []string
	for _, e := range p.Timeline {
		if n := e.Object.Namespace; n != "" && !slices.Contains(namespaces, n) {
			namespaces = append(namespaces, n)
		}
	}
	return func(r explain.Ref) string {
		if len(namespaces) > 1 && r.Namespace != "" {
			return r.Namespace + "/" + short(r)
		}
		return short(r)
	}
}

// timeline is what happens.
func (p *report) timeline() {
	p.heading(fmt.Sprintf("From %s on, for %s", p.At.Format(time.DateTime), brief(parsed(p.Summary.Horizon))))
	if len(p.Timeline) == 0 {
		p.line("  ", "Nothing happens.")
		return
	}
	called := p.called()
	rows := make([][]string, 0, len(p.Timeline))
	for _, e := range p.Timeline {
		reason := e.Reason
		switch {
		case e.Assumed:
			reason = p.paint.Faint(reason)
		case e.Warning:
			reason = p.paint.Bad(reason)
		}
		rows = append(rows, []string{stamp(parsed(e.After)), called(e.Object), reason, e.Text})
	}
	p.rows("", rows)
}

// parsed is a duration that was written by this package.
func parsed(s string) time.Duration {
	d, _ := time.ParseDuration(s) // it is one, or empty
	return d
}

// stamp is a time after the beginning, such as T+00:05:00.
func stamp(d time.Duration) string {
	d = d.Truncate(time.Second)
	return fmt.Sprintf("T+%02d:%02d:%02d", d/time.Hour, d/time.Minute%60, d/time.Second%60)
}

// summary is what it all comes to.
func (p *report) summary() {
	s := p.Summary
	p.heading("All in all")
	if s.Begun == 0 {
		p.line("  ", "No remediation begins.")
	} else {
		p.line("  ", fmt.Sprintf("%s, at most %d at once.", counted(s.Begun, "remediation begins", "remediations begin"), s.AtOnce))
	}
	called := p.called()
	for _, group := range p.moments() {
		p.line("  "+group.at+"  ", names(group.of, called)+".")
	}
	for _, h := range s.Blocked {
		until := "to the end"
		if h.Until != "" {
			until = "to " + stamp(parsed(h.Until))
		}
		p.line("  ", fmt.Sprintf("%s allows no %s from %s %s: %s.", short(h.Check), p.blockedSince(h), stamp(parsed(h.From)), until, p.paint.Waits(h.Reason)))
	}
	if len(s.Unhealthy) == 0 {
		p.line("  ", p.paint.Good("All are healthy at the end")+".")
		return
	}
	var verdicts []string
	of := map[string][]explain.Ref{}
	for _, u := range s.Unhealthy {
		if of[u.Verdict] == nil {
			verdicts = append(verdicts, u.Verdict)
		}
		of[u.Verdict] = append(of[u.Verdict], u.Ref)
	}
	for _, verdict := range verdicts {
		p.line("  ", p.paint.Bad(verdict)+" at the end: "+names(of[verdict], called)+".")
	}
}

// blockedSince is what is not allowed while h lasts: what has begun by then goes on.
func (p *report) blockedSince(h Blocked) string {
	if slices.ContainsFunc(p.Remediations, func(r Remediation) bool { return parsed(r.After) <= parsed(h.From) }) {
		return "further remediation"
	}
	return "remediation"
}

// moment is what begins at one moment.
type moment struct {
	at string
	of []explain.Ref
}

// moments are the remediations by the moments at which they begin.
func (p *report) moments() []moment {
	var all []moment
	for _, r := range p.Remediations {
		at := stamp(parsed(r.After))
		if n := len(all); n == 0 || all[n-1].at != at {
			all = append(all, moment{at: at})
		}
		all[len(all)-1].of = append(all[len(all)-1].of, r.Target)
	}
	return all
}

// names are the first few, and how many more there are.
func names(of []explain.Ref, called func(explain.Ref) string) string {
	all := make([]string, 0, min(len(of), mostNames))
	for _, r := range of[:min(len(of), mostNames)] {
		all = append(all, called(r))
	}
	more := ""
	if n := len(of) - mostNames; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(all, ", ") + more
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
