package page

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Layout is how a status is printed.
type Layout struct {
	Width int
	Paint text.Painter
	// Wide says that all columns are printed, also if the lines get longer than Width.
	Wide bool
	// Namespaces says that checks are printed with their namespace.
	Namespaces bool
	// NotOK says that only checks that are not OK are printed.
	NotOK bool
	// Sort is the order of the checks.
	Sort Order
}

// Order is an order of checks.
type Order string

const (
	// ByName is the order in which the checks were read: by kind, namespace and name.
	ByName Order = "name"
	// ByUnhealthy puts first the check with the most targets that are not healthy.
	ByUnhealthy Order = "unhealthy"
	// ByNext puts first the check to which something happens first.
	ByNext Order = "next"
)

// Orders are all orders of checks.
var Orders = []string{string(ByName), string(ByUnhealthy), string(ByNext)}

// OK reports whether there is no trouble with a check: a controller acts on it, all of its targets are healthy, nothing blocks remediation, and the capacity of
// all that it has begun is back.
func (r *Row) OK() bool {
	acted := r.Mode == explain.Acting || r.ActsElsewhere()
	return acted && !r.NotCounted() && r.NodesUnknown == nil && r.Counts.NotHealthy() == 0 && (r.Reason == "" || r.Blocked() == string(budget.AtWork)) &&
		!r.Next.Manual && r.Remediating == 0 && len(r.Missing.All) == 0 && len(r.ReadErrors) == 0
}

// Print writes s for a person.
func (s *Status) Print(out io.Writer, l Layout) error {
	p := &page{now: s.At, width: l.Width, paint: l.Paint}
	p.checks(s, l)
	p.besides(s)
	p.list("Not covered by checks", s.Uncovered)
	if len(s.OutOfService) > 0 {
		p.list("Hosts out of service", s.OutOfService)
		p.line("  To do: ", "Repair each, then remove its marks: kubectl mend reset host/NAME -n NAMESPACE.")
	}
	if len(s.Unreachable) > 0 {
		p.heading("Workload clusters that the manager cannot reach")
		for _, c := range s.Unreachable {
			p.line("  - ", fmt.Sprintf("%s/%s since %s", c.Namespace, c.Name, p.moment(c.Since.Time)))
		}
	}
	p.list("Notes", s.Notes)
	if len(s.Managers) > 0 {
		p.gap()
	}
	for _, m := range s.Managers {
		p.manager(m, l.Wide)
	}
	return p.write(out)
}

// manager is one line, and what it does not serve; with what it serves if that is asked for.
func (p *page) manager(m managerlease.Manager, wide bool) {
	sentence, serves, notServed := explain.Manager(m, p.paint, p.moment)
	p.line("", sentence+".")
	if wide && len(serves) > 0 {
		p.line("  Serves: ", strings.Join(serves, ", ")+".")
	}
	for _, kind := range notServed {
		p.line("  Does not serve: ", kind+".")
	}
}

// checks is the table: all columns if they fit, else fewer; and below each row what it cannot say.
func (p *page) checks(s *Status, l Layout) {
	if len(s.Unread) > 0 {
		p.line("", p.paint.Waits(strings.Join(s.Unread, " and ")+" could not be read: there may be some")+".")
	}
	if len(s.Checks) == 0 {
		if len(s.Unread) == 0 {
			p.line("", s.troubles()+"There are no checks here.")
		}
		return
	}
	rows := ordered(s.Checks, l)
	summary := s.troubles() + fmt.Sprintf("%d of %d checks OK at %s.", len(s.Checks)-notOK(s.Checks), len(s.Checks),
		s.At.Format(time.TimeOnly+" MST"))
	if missing := len(s.Missing.All); missing == 1 {
		summary += " The capacity of 1 remediation is not back."
	} else if missing > 1 {
		summary += fmt.Sprintf(" The capacity of %d remediations is not back.", missing)
	}
	p.line("", summary)
	if len(rows) > 0 {
		p.gap()
		p.rows(rows, l, s.Recorded)
	}
	if left := len(s.Checks) - len(rows); left > 0 {
		p.gap()
		p.line("", notListed(left))
	}
}

// notListed counts the checks that are OK and not listed.
func notListed(n int) string {
	if n == 1 {
		return "1 check that is OK is not listed: --all lists it."
	}
	return fmt.Sprintf("%d checks that are OK are not listed: --all lists them.", n)
}

// rows is the table of these rows, and below each what it cannot say: the reason too, where the lines would be longer than a terminal's. Where
// there are no records there is no column of what is missing by them.
func (p *page) rows(rows []Row, l Layout, recorded bool) {
	all := wideColumns
	if !recorded {
		all = slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.heading == notBack.heading })
	}
	lines := text.Table(p.cells(rows, l, all))
	if !l.Wide && text.Widest(lines) > l.Width {
		lines = text.Table(p.cells(rows, l, narrowColumns))
	}
	reasonBelow := !l.Wide && text.Widest(lines) > l.Width
	if reasonBelow {
		lines = text.Fit(p.cells(rows, l, narrowestColumns), l.Width)
	}
	p.lines = append(p.lines, lines[0])
	for i := range rows {
		p.lines = append(p.lines, lines[i+1])
		if reason := p.reason(rows[i]); reasonBelow && reason != none {
			p.line("  Reason: ", reason+".")
		}
		p.below(&rows[i])
	}
}

// ordered are the rows that are printed, in their order.
func ordered(all []Row, l Layout) []Row {
	rows := slices.DeleteFunc(slices.Clone(all), func(r Row) bool { return l.NotOK && r.OK() })
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch l.Sort {
		case ByUnhealthy:
			return cmp.Compare(b.Counts.NotHealthy(), a.Counts.NotHealthy())
		case ByNext:
			return cmp.Or(cmp.Compare(rankOf(a.Next), rankOf(b.Next)), a.Next.At.Compare(b.Next.At))
		case ByName:
		}
		return 0
	})
	return rows
}

// rankOf orders next steps: first what a person has to do, then what has a time.
func rankOf(s explain.Step) int {
	switch {
	case s.Manual:
		return 0
	case !s.At.IsZero():
		return 1
	case s != explain.Step{}:
		return 2
	}
	return 3
}

func notOK(all []Row) int {
	n := 0
	for i := range all {
		if !all[i].OK() {
			n++
		}
	}
	return n
}

// below is what the row of a check cannot show, and what is next.
func (p *page) below(r *Row) {
	if r.OK() {
		return
	}
	for _, remark := range r.Remarks() {
		p.line("  ", remark+".")
	}
	p.notBack("  ", "Not back", r.Missing)
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
	healthyOfAll = column{"HEALTHY", func(_ *page, r Row) string { return healthy(&r.Check) }}
	allowed      = column{"ALLOWED", func(_ *page, r Row) string { return allowance(&r.Check) }}
	remediating  = column{"REMEDIATING", func(_ *page, r Row) string { return remediatingOf(r) }}
	notBack      = column{"MISSING", func(_ *page, r Row) string { return r.Missing.count() }}

	narrowestColumns = []column{{"CONTROLLER", (*page).controller}, healthyOfAll, allowed, remediating}
	narrowColumns    = append(slices.Clip(narrowestColumns), column{"REASON", (*page).reason})
	wideColumns      = []column{
		{"CONTROLLER", (*page).controller}, healthyOfAll,
		number("PENDING", func(r Row) int { return r.Counts.Pending + r.Counts.Starting }),
		number("UNHEALTHY", func(r Row) int { return r.Counts.Unhealthy }), number("UNKNOWN", func(r Row) int { return r.Counts.Unknown }),
		allowed, remediating, notBack, {"LIMIT", func(_ *page, r Row) string { return r.Limits.Spec }},
		{"REASON", (*page).reason}, {"NEXT", (*page).next},
	}
)

func number(heading string, of func(Row) int) column {
	return column{heading, func(_ *page, r Row) string {
		if r.NotCounted() {
			return unknown
		}
		return strconv.Itoa(of(r))
	}}
}

const (
	// unknown is in the cell of what is not known.
	unknown = "?"
	// none is in the cell of what there is nothing of.
	none = "-"
)

// remediatingOf is how many targets are being remediated: that is known by the machines, also of nodes that the user may not read.
func remediatingOf(r Row) string {
	if r.NotCounted() && !r.NodesNotReadable() {
		return unknown
	}
	return strconv.Itoa(r.Remediating)
}

// cells are a heading and a line for each row.
func (p *page) cells(rows []Row, l Layout, columns []column) [][]string {
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
	return lines
}

func checkName(r Row, namespaces bool) string {
	short := map[string]string{"MachineHealthCheck": "mhc/", "NodeHealthCheck": "nhc/"}[r.Kind] + r.Name
	if namespaces && r.Namespace != "" {
		return r.Namespace + "/" + short
	}
	return short
}

// controller is which controller acts on a check.
func (p *page) controller(r Row) string {
	switch s := r.Mode.Controller(); r.Mode {
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
	case r.NodesUnknown != nil:
		return p.paint.Waits(r.NodesUnknown.Reason)
	case r.Check.Blocked() == string(budget.AtWork):
		return p.paint.Waits(string(budget.AtWork))
	case r.Reason != "":
		return p.paint.Bad(r.Reason)
	}
	return none
}

func (p *page) next(r Row) string {
	switch {
	case r.Next == (explain.Step{}):
		return none
	case r.Next.Manual:
		return "to do"
	case r.Next.At.IsZero():
		return "waits"
	}
	return r.Next.At.In(p.now.Location()).Format(time.TimeOnly) + " (" + text.Away(r.Next.At, p.now) + ") " + r.Next.Target
}

// healthy is how many targets are healthy, of how many.
func healthy(c *explain.Check) string {
	if c.NotCounted() || c.NodesUnknown != nil && c.Counts.Unknown > 0 {
		return unknown
	}
	return fmt.Sprintf("%d/%d", c.Counts.Healthy, c.Counts.Total())
}

// allowance is how many targets may be not healthy before no remediation starts any more; with a range, how many have to be.
func allowance(c *explain.Check) string {
	switch {
	case c.Limits.AtMost == nil || c.NotCounted() && !c.NodesNotReadable():
		return unknown
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%d-%d", c.Limits.AtLeast, *c.Limits.AtMost)
	}
	return strconv.Itoa(*c.Limits.AtMost)
}
