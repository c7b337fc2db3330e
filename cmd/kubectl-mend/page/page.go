package page

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
)

// page is an explanation that is being laid out.
type page struct {
	text.Page

	subject explain.Ref
	first   explain.Answer // the answer in the first line
	last    []explain.Step // the next steps in the last lines
	said    []string       // blockers and next steps of targets that were printed, to print each once
}

// Print writes e for a person: the answer, the facts, each check and remediation, and the next steps.
func (e *Explanation) Print(out io.Writer, l text.Layout) error {
	p := &page{Page: text.Page{Layout: l}, subject: e.Subject, first: e.Answer, last: []explain.Step{e.Next, e.Todo}}
	p.Now = e.Time.Time
	p.line("", p.answer(e.Answer))
	p.Add("")
	p.facts(e)
	for i := range e.Checks {
		p.check(&e.Checks[i], i == 0)
	}
	for i := range e.Remediations {
		p.remediation(&e.Remediations[i])
	}
	for i := range e.Owners {
		p.owner(&e.Owners[i])
	}
	if len(e.Owners) == 0 {
		for i := range e.Capacity {
			p.capacity(&e.Capacity[i])
		}
	}
	unselected := make([]string, 0, len(e.NotSelectedBy))
	for _, u := range e.NotSelectedBy {
		unselected = append(unselected, u.String()+": "+u.Message)
	}
	p.list("Not selected by", unselected)
	p.list("Notes", e.notes())
	p.Add("")
	if e.Next != explain.NothingNext || e.Todo == (explain.Step{}) {
		p.step("", e.Next)
	}
	p.step("", e.Todo)
	return p.Print(out)
}

func (p *page) answer(a explain.Answer) string {
	line := a.Text(p.moment)
	switch a.State {
	case explain.IsHealthy, explain.CapacityComplete:
		if a.Action == "" {
			return p.Paint.Good(line)
		}
	case explain.IsUnhealthy, explain.CapacityBlocked:
		return p.Paint.Bad(line)
	}
	return p.Paint.Waits(line)
}

// facts prints e.Facts in rows like those of kubectl describe, and the time and zone of the page.
func (p *page) facts(e *Explanation) {
	name := e.Subject.Name
	if e.Subject.Namespace != "" {
		name = e.Subject.Namespace + "/" + name
	}
	rows := []cliv1.Fact{{Name: e.Subject.Kind, Value: name}}
	if len(e.Checks) > 0 && e.Checks[0].Reference == e.Subject {
		rows = append(rows, cliv1.Fact{Name: "controller", Value: e.Checks[0].Mode.Controller()})
	}
	rows = append(append(rows, e.Facts...), cliv1.Fact{Name: "time", Value: e.Time.Format(time.DateTime + " MST")})
	longest := 0
	for _, f := range rows {
		longest = max(longest, len(f.Name))
	}
	for _, f := range rows {
		p.line(fmt.Sprintf("%-*s  ", longest+1, text.Capital(f.Name)+":"), f.Value)
	}
}

func (p *page) list(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.Heading(heading)
	for _, line := range lines {
		p.line("  - ", line)
	}
}

func (p *page) moment(at time.Time) string { return text.Moment(at, p.Now) }

// line prints s after first. A wrapped line continues below the beginning of s or, if first is longer than a bullet, two columns right of
// the beginning of first.
func (p *page) line(first, s string) {
	taken := text.Columns(first)
	hang := taken
	if words := strings.TrimLeft(first, " "); text.Columns(words) > shortest {
		hang = taken - text.Columns(words) + 2
	}
	p.Hang(first, p.local(s), hang)
}

// instant matches a time in RFC 3339 in a stored text.
var instant = regexp.MustCompile(`(^|[ (])(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))`)

// local returns s with its times in the zone and format of the page. It leaves a time alone that is part of a name or a value.
func (p *page) local(s string) string {
	return instant.ReplaceAllStringFunc(s, func(found string) string {
		parts := instant.FindStringSubmatch(found)
		at, err := time.Parse(time.RFC3339, parts[2])
		if err != nil {
			return found
		}
		return parts[1] + text.Clock(at, p.Now)
	})
}

// shortest is the longest prefix of a line that counts as a bullet.
const shortest = 5

func (p *page) step(indent string, s explain.Step) {
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

// check prints a check that selects the subject, or that is the subject. acts is true for the check that acts.
func (p *page) check(c *explain.Check, acts bool) {
	mode := c.Mode.Sentence()
	if c.Mode != cliv1.ModeActing {
		mode = p.Paint.Waits(mode)
	}
	switch {
	case c.Reference == p.subject:
		p.Heading("Targets")
	case !acts && len(c.Targets) == 1 && c.Targets[0].BlockedBy(mendv1.OverlapReason):
		b := c.Targets[0].Blocker(mendv1.OverlapReason)
		p.Heading(c.String() + ": " + p.Paint.Waits("not in charge ("+b.Detail+")"))
		p.fix("  ", b.Fix)
		return
	default:
		p.Heading(c.String() + ": " + mode)
	}
	if c.ModeMessage != "" && !p.blockedFor(c, explain.SameAsMode) && !c.TextHasMode() {
		p.line("  ", c.ModeMessage+".")
	}
	p.arithmetic(c)
	p.restrictions(c)
	if flaw := c.Flaw(); flaw != nil {
		p.line("  ", p.Paint.Waits(explain.FlawText(flaw))+".")
	}
	for _, what := range c.ReadErrors {
		p.line("  ", explain.CouldNotBeRead(what)+".")
	}
	for i := range c.Targets {
		p.target(c, &c.Targets[i])
	}
}

// fix prints what a user has to do to end a blocker, unless the last lines say it.
func (p *page) fix(indent, fix string) {
	if fix == "" || slices.ContainsFunc(p.last, func(s explain.Step) bool { return s.Manual && s.Text == fix }) {
		return
	}
	p.line(indent+"To do: ", text.Capital(fix)+".")
}

// restrictions prints what keeps c from judging or remediating its targets, unless the blocker of its one target says it.
func (p *page) restrictions(c *explain.Check) {
	if c.NodesUnknown != nil && !p.blockedFor(c, explain.SameAsNodesUnknown) {
		p.line("  "+p.Paint.Waits("Nodes unknown")+": ", c.NodesUnknown.Message+".")
	}
	limit := p.blockedFor(c, explain.SameAsLimit)
	if c.Message != "" && !limit && c.Reason != clusterv1.MachineHealthCheckTooManyUnhealthyReason { // arithmetic has printed that
		p.line("  ", c.Reason+": "+c.Message+".")
	}
	if !c.NodesNotReadable() && (c.Message != "" && !limit || c.Message == "" && len(c.Targets) == 0) {
		p.groups("  ", c.NotHealthy)
	}
}

// arithmetic prints how many targets of c are healthy, and how many may be unhealthy. It prints no numbers that are not known.
func (p *page) arithmetic(c *explain.Check) {
	switch n := c.Counts.Total(); {
	case n == 0 && (c.ModeMessage != "" || c.Mode == cliv1.ModeUnknown):
	case c.NodesNotReadable():
		p.line("  ", fmt.Sprintf("It selects %d; %s. How many of them are healthy is not known.", c.Counts.Total(), c.Limits.Spec))
	default:
		p.line("  ", explain.Sum(c.Counts)+"; "+c.Allowance()+".")
	}
	if c.CountedByStatus {
		p.line("  ", "Numbers from the check's status; the other machines were not read.")
	}
}

// blockedFor reports whether the only printed target of c has a blocker that repeats this part of c, so that c need not print it.
func (p *page) blockedFor(c *explain.Check, part explain.Part) bool {
	return c.Reference != p.subject && len(c.Targets) == 1 &&
		slices.ContainsFunc(c.Targets[0].Blockers, func(b explain.Blocker) bool { return c.PartOf(&b) == part })
}

// mostNames limits the names in one line; the JSON has all.
const mostNames = 10

func (p *page) groups(indent string, groups []cliv1.Group) {
	for _, g := range groups {
		p.line(indent+strings.Replace(g.Class, "deleting", string(budget.Deleting), 1)+": ", text.FirstOf(g.Names, mostNames))
	}
}

// target prints the verdict of c on a target: findings, action and blockers. The first line of the page has the answer about the subject.
func (p *page) target(c *explain.Check, t *explain.Target) {
	listed := c.Reference == p.subject
	if listed {
		answer := c.AnswerOn(t)
		if answer.By == "" && answer.Reason == p.first.Reason && answer.Detail == p.first.Detail {
			answer.Detail = "" // the first line has it
		}
		p.Add("")
		p.line("  ", p.Paint.Strong(t.String())+": "+p.answer(answer))
	}
	if t.Skipped != "" {
		return
	}
	p.findings(t)
	p.written(t)
	if t.State == cliv1.StateHealthy && !t.InFlight && len(t.Blockers) == 0 {
		return
	}
	p.action(c, t)
	if t.InFlight {
		p.inFlight(c, t)
	}
	if listed && blocks(c, t) {
		return // the check prints the blockers once for all targets
	}
	p.blockers(c, t.Blockers)
	if listed && !slices.ContainsFunc(p.last, t.Next.Same) && !p.again(t.Next.At.String()+t.Next.Text) {
		p.step("  ", t.Next)
	}
}

// written prints the condition that the manager wrote on t, without its message if the findings or the blockers have it.
func (p *page) written(t *explain.Target) {
	if t.Written == nil {
		return
	}
	cond := *t.Written
	if cond.Type != mendv1.Remediation || len(t.Blockers) > 0 && !t.BlockedBy(explain.WithinTimeout) {
		cond.Message = ""
	}
	p.line("  Written by the manager: ", told(&cond, p.moment)+".")
}

// again reports whether a sentence about a target was printed before.
func (p *page) again(sentence string) bool {
	said := slices.Contains(p.said, sentence)
	p.said = append(p.said, sentence)
	return said
}

func (p *page) findings(t *explain.Target) {
	for i := range t.Findings {
		f := &t.Findings[i]
		p.line("  - ", f.Observed)
		switch {
		case t.Written != nil && f.Expired: // f.Observed has the timeout
		case f.Expires.IsZero():
			p.line("    ", p.Paint.Bad("counts at once"))
		default:
			p.line("    ", p.timing(f))
		}
	}
	for _, d := range t.Ignored {
		p.line("  - ", d.Message)
		p.line("    ", p.Paint.Waits("does not count")+": "+d.Why)
	}
}

// timing returns since when f counts its timeout, and when that expires.
func (p *page) timing(f *explain.Finding) string {
	since, expires := "since "+p.moment(f.Since.Time), p.Paint.Waits("expires "+p.moment(f.Expires.Time))
	if f.SinceMessage != "" {
		since = "counted from " + p.moment(f.Since.Time) + ", " + f.SinceMessage
	}
	if f.Expired {
		expires = p.Paint.Bad("expired " + p.moment(f.Expires.Time))
	}
	timeout := ptr.Deref(f.Timeout, metav1.Duration{}) // documents leave it out if it is 0
	return fmt.Sprintf("%s, timeout %s, %s", since, explain.Brief(timeout.Duration), expires)
}

// blocks reports whether all blockers of t, except its timeout, block all targets of c.
func blocks(c *explain.Check, t *explain.Target) bool {
	return len(t.Blockers) > 0 && !slices.ContainsFunc(t.Blockers, func(b explain.Blocker) bool {
		return b.Reason != explain.WithinTimeout && c.PartOf(&b) == explain.OfTarget
	})
}

// action prints what kubemend does about t, or would do if nothing blocked it.
func (p *page) action(c *explain.Check, t *explain.Target) {
	label := "  If unhealthy: "
	switch {
	case t.Action == nil || t.Action.Message == "" || c.ActsElsewhere() || t.BlockedBy(explain.NoOwner) ||
		t.BlockedBy(explain.MachineBeingDeleted) || t.BlockedBy(explain.NoManager):
		return
	case t.InFlight && !t.StartsNow && c.Kind == "NodeHealthCheck": // a later escalation step
		label = "  Action that follows: "
	case t.StartsNow:
		label = "  Action: "
	case t.InFlight || t.State == cliv1.StateStarting && len(t.Findings) == 0: // the answer has the action, or t never becomes unhealthy
		return
	case t.State == cliv1.StateUnhealthy:
		label = "  If unblocked: "
	}
	p.line(label, "kubemend "+t.Action.Message+".")
}
