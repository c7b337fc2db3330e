package page

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Layout is how a status is printed.
type Layout struct {
	Width int
	Paint text.Painter
	// Wide says that all columns are printed, also if the lines get longer than Width.
	Wide bool
	// Namespaces says that checks are printed with their namespace.
	Namespaces bool
}

// Print writes s for a person.
func (s *Status) Print(out io.Writer, l Layout) error {
	p := &page{now: s.At, width: l.Width, paint: l.Paint}
	for _, m := range s.Managers {
		sentence, serves, notServed := explain.Manager(m, p.paint, p.moment)
		p.line("", sentence+".")
		if len(serves) > 0 {
			p.line("  serves: ", strings.Join(serves, ", ")+".")
		}
		for _, kind := range notServed {
			p.line("  does not serve: ", kind+".")
		}
	}
	if len(s.Managers) == 0 && s.ManagersUnknown == "" {
		p.line("", p.paint.Waits(explain.NoManagers)+".")
	}
	p.gap()
	p.checks(s, l)
	if len(s.Unreachable) > 0 {
		p.heading(explain.UnreachableClusters)
		for _, c := range s.Unreachable {
			p.line("  - ", fmt.Sprintf("%s/%s since %s", c.Namespace, c.Name, p.moment(c.Since)))
		}
	}
	p.list("To know", s.Notes)
	return p.write(out)
}

// checks is the table: all columns if they fit, else fewer; and below each row what it cannot say.
func (p *page) checks(s *Status, l Layout) {
	if len(s.Unread) > 0 {
		p.line("", p.paint.Waits(explain.ChecksNotListed(s.Unread))+".")
	}
	if len(s.Checks) == 0 {
		if len(s.Unread) == 0 {
			p.line("", explain.NoChecks+".")
		}
		return
	}
	lines := p.table(s.Checks, l, wideColumns)
	if !l.Wide && slices.ContainsFunc(lines, func(line string) bool { return text.Columns(line) > l.Width }) {
		lines = p.table(s.Checks, l, narrowColumns)
	}
	p.lines = append(p.lines, lines[0])
	for i := range s.Checks {
		p.lines = append(p.lines, lines[i+1])
		p.below(&s.Checks[i])
	}
}

// below is what the row of a check cannot show, and what is next.
func (p *page) below(r *Row) {
	for _, remark := range r.Remarks() {
		p.line("  ", remark+".")
	}
	if !r.ActsElsewhere() || !r.Next.At.IsZero() || r.Next.Manual { // else the remarks say who acts
		p.step("  ", r.Next)
	}
}

// column is a heading, and what stands below it.
type column struct {
	heading string
	cell    func(*page, Row) string
}

var (
	narrowColumns = []column{
		{"OWNER", (*page).owner}, {"HEALTHY", func(_ *page, r Row) string { return healthy(&r.Check) }},
		number("REMEDIATING", func(r Row) int { return r.Remediating }), {"LIMIT", func(_ *page, r Row) string { return used(&r.Check) }},
		{"REASON", (*page).reason},
	}
	wideColumns = []column{
		{"OWNER", (*page).owner},
		number("TARGETS", func(r Row) int { return r.Population.Total() }), number("HEALTHY", func(r Row) int { return r.Population.Healthy }),
		number("PENDING", func(r Row) int { return r.Population.Pending + r.Population.Starting }),
		number("UNHEALTHY", func(r Row) int { return r.Population.Unhealthy }), number("UNKNOWN", func(r Row) int { return r.Population.Unknown }),
		number("REMEDIATING", func(r Row) int { return r.Remediating }),
		{"LIMIT", func(_ *page, r Row) string { return r.Limit }}, {"USED", func(_ *page, r Row) string { return used(&r.Check) }},
		{"REASON", (*page).reason}, {"NEXT", (*page).next},
	}
)

func number(heading string, of func(Row) int) column {
	return column{heading, func(_ *page, r Row) string { return strconv.Itoa(of(r)) }}
}

// table is a heading and a line for each row.
func (p *page) table(rows []Row, l Layout, columns []column) []string {
	lines := make([][]string, 1+len(rows))
	lines[0] = []string{"CHECK"}
	for i, r := range rows {
		lines[i+1] = []string{checkName(r, l.Namespaces)}
	}
	for _, c := range columns {
		lines[0] = append(lines[0], c.heading)
		for i, r := range rows {
			lines[i+1] = append(lines[i+1], c.cell(p, r))
		}
	}
	return text.Table(lines)
}

func checkName(r Row, namespaces bool) string {
	short := map[string]string{"MachineHealthCheck": "mhc/", "NodeHealthCheck": "nhc/"}[r.Kind] + r.Name
	if namespaces && r.Namespace != "" {
		return r.Namespace + "/" + short
	}
	return short
}

func (p *page) owner(r Row) string {
	switch s := string(r.Mode); r.Mode {
	case explain.Acting:
		return p.paint.Good(s)
	case explain.Observing, explain.Core, explain.Other, explain.Paused:
		return p.paint.Waits(s)
	default:
		return p.paint.Bad(s)
	}
}

// reason is why no remediation starts: that the nodes are unreachable goes before what the limits make of that.
func (p *page) reason(r Row) string {
	switch {
	case r.Check.NodesNotReadable():
		return p.paint.Waits(explain.MissingPermission)
	case r.NodesUnknown != "":
		if c := meta.FindStatusCondition(r.Conditions, mendv1.WorkloadClusterReachable); c != nil && c.Status != metav1.ConditionTrue {
			return p.paint.Waits(c.Reason)
		}
		return p.paint.Waits(mendv1.UnreachableReason)
	case r.Check.Blocked() == string(budget.AtWork):
		return p.paint.Waits(string(budget.AtWork))
	case r.Reason != "":
		return p.paint.Bad(r.Reason)
	}
	return "-"
}

func (p *page) next(r Row) string {
	switch {
	case r.Next == (explain.Step{}):
		return "-"
	case r.Next.Manual:
		return "to do"
	case r.Next.At.IsZero():
		return "waits"
	}
	return r.Next.At.In(p.now.Location()).Format(time.TimeOnly) + " (" + text.Away(r.Next.At, p.now) + ") " + r.Next.Target
}

// healthy is how many targets are healthy, of how many.
func healthy(c *explain.Check) string {
	if c.NotCounted() {
		return "?"
	}
	return fmt.Sprintf("%d/%d", c.Population.Healthy, c.Population.Total())
}

// used is how many targets are not healthy, of how many may be.
func used(c *explain.Check) string {
	bad, most := strconv.Itoa(c.Population.NotHealthy()), strconv.Itoa(max(c.Limits.AtMost, 0))
	switch {
	case c.NotCounted():
		return "?"
	case c.LimitInvalid():
		most = "?"
	case c.Limits.AtLeast > 0:
		most = fmt.Sprintf("%d-%d", c.Limits.AtLeast, c.Limits.AtMost)
	}
	return bad + " of " + most
}
