package page

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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
}

// Print writes s for a person.
func (s *Status) Print(out io.Writer, l Layout) error {
	p := &page{now: s.At, width: l.Width, paint: l.Paint}
	for _, m := range s.Managers {
		p.manager(m)
	}
	if len(s.Managers) == 0 && s.Unknown == "" {
		p.line("", p.paint.Waits("No manager of kubemend has announced itself: what follows is what one would do")+".")
	}
	p.gap()
	p.checks(s, l)
	if len(s.Unseen) > 0 {
		p.heading("Workload clusters that the manager cannot see")
		for _, c := range s.Unseen {
			p.line("  - ", fmt.Sprintf("%s/%s since %s", c.Namespace, c.Name, text.Moment(c.Since, p.now)))
		}
	}
	if len(s.Notes) > 0 {
		p.heading("To know")
		for _, note := range s.Notes {
			p.line("  - ", note)
		}
	}
	_, err := io.WriteString(out, strings.Join(p.lines, "\n")+"\n")
	return err
}

// manager is whether a manager runs, what it was told, and which kinds it serves.
func (p *page) manager(m managerlease.Manager) {
	switch {
	case m.Unbound:
		p.line("", fmt.Sprintf("Lease of a manager in namespace %s: %s, since %s.",
			m.Namespace, p.paint.Bad("not believed"), managerlease.OfKubemend.Disbelief()))
		return
	case !m.Alive:
		p.line("", fmt.Sprintf("Manager in namespace %s: %s since %s.", m.Namespace, p.paint.Bad("does not run"), text.Moment(m.Gone, p.now)))
		return
	case m.Announcement == nil:
		p.line("", fmt.Sprintf("Manager %s in namespace %s: %s, and says nothing of itself.", m.Holder, m.Namespace, p.paint.Good("runs")))
		return
	}
	a := m.Announcement
	line := fmt.Sprintf("Manager %s in namespace %s: %s, version %s; MachineHealthChecks that are not claimed: %s",
		m.Holder, m.Namespace, p.paint.Good("runs"), a.Version, a.Unclaimed)
	if a.Namespace != "" {
		line += "; only namespace " + a.Namespace
	}
	if a.WatchFilter != "" {
		line += "; only what has the label " + clusterv1.WatchLabel + ": " + a.WatchFilter
	}
	if len(m.Within) > 0 {
		line += "; it has rights in namespace " + strings.Join(m.Within, ", ") + " alone"
	}
	if m.Unverified != "" {
		line += "; " + p.paint.Waits("whether it is one cannot be seen: "+m.Unverified)
	}
	if a.Teardown {
		line += "; " + p.paint.Waits("it is in teardown, and starts nothing")
	}
	p.line("", line+".")
	var serves []string
	for _, k := range a.Kinds {
		if k.Reason == "" {
			serves = append(serves, k.CRD)
		}
	}
	if len(serves) > 0 {
		p.line("  serves: ", strings.Join(serves, ", ")+".")
	}
	for _, k := range a.Kinds {
		if k.Reason != "" {
			p.line("  does not serve: ", k.CRD+": "+k.Because+".")
		}
	}
}

// checks is the table: all columns if they fit, else fewer; and below each row what it cannot say.
func (p *page) checks(s *Status, l Layout) {
	if len(s.Unread) > 0 {
		p.line("", p.paint.Waits(strings.Join(s.Unread, " and ")+" could not be read: there may be some")+".")
	}
	if len(s.Checks) == 0 {
		if len(s.Unread) == 0 {
			p.line("", "There are no checks here.")
		}
		return
	}
	lines := p.table(s.Checks, l, wideColumns)
	if !l.Wide && widest(lines) > l.Width {
		lines = p.table(s.Checks, l, narrowColumns)
	}
	p.lines = append(p.lines, lines[0])
	for i := range s.Checks {
		p.lines = append(p.lines, lines[i+1])
		p.below(&s.Checks[i])
	}
}

// below is what there is to say of a check that is not in its row: who is not well, why nobody acts, why nothing is started, and what is next.
func (p *page) below(r *Row) {
	tooMany := r.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && r.Unseen == ""
	switch bad := r.Population.NotHealthy(); {
	case bad == 0 || r.Check.NodesUnread():
	case tooMany:
		p.line("  ", "Nothing is remediated: "+explain.NotHealthy(r.Population)+", and "+r.Check.Allows()+".")
	default:
		p.line("  ", explain.NotHealthy(r.Population)+".")
	}
	if r.Because != "" && !r.TextHasMode() {
		p.line("  ", r.Because+".")
	}
	if r.Unseen != "" {
		p.line("  ", r.Unseen+".")
	} else if r.Text != "" && !tooMany {
		p.line("  ", r.Text+".")
	}
	if r.Check.ActsElsewhere() && r.Next.At.IsZero() && !r.Next.Person {
		return // who acts has been said
	}
	p.step("  ", r.Next)
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

// reason is why nothing is started: that the nodes are out of sight goes before what the limits make of that.
func (p *page) reason(r Row) string {
	switch {
	case r.Check.NodesUnread():
		return p.paint.Waits(explain.NotSeenByYou)
	case r.Unseen != "":
		return p.paint.Waits(unreached(&r.Check))
	case r.Check.Blocked() == string(budget.AtWork):
		return p.paint.Waits(string(budget.AtWork))
	case r.Reason != "":
		return p.paint.Bad(r.Reason)
	}
	return "-"
}

// unreached is the reason of the condition that says so, if the check has it.
func unreached(c *explain.Check) string {
	for i := range c.Conditions {
		if is := &c.Conditions[i]; is.Type == mendv1.WorkloadClusterReachable && is.Status != metav1.ConditionTrue {
			return is.Reason
		}
	}
	return "Unseen"
}

func (p *page) next(r Row) string {
	switch {
	case r.Next == (explain.Step{}):
		return "-"
	case r.Next.Person:
		return "to do"
	case r.Next.At.IsZero():
		return "waits"
	}
	return r.Next.At.In(p.now.Location()).Format(time.TimeOnly) + " (" + text.Away(r.Next.At, p.now) + ") " + r.Next.Target
}

// uncounted reports whether it is not known how the targets of c stand: they cannot be seen by the user, or were not looked at.
func uncounted(c *explain.Check) bool {
	return c.NodesUnread() || c.Mode == explain.Unknown || c.Population.Total() == 0 && c.Because != ""
}

// healthy is how many targets are healthy, of how many.
func healthy(c *explain.Check) string {
	if uncounted(c) {
		return "?"
	}
	return fmt.Sprintf("%d/%d", c.Population.Healthy, c.Population.Total())
}

// used is how many targets are not healthy, of how many may be.
func used(c *explain.Check) string {
	bad, most := strconv.Itoa(c.Population.NotHealthy()), strconv.Itoa(max(c.Limits.AtMost, 0))
	switch {
	case uncounted(c):
		return "?"
	case c.LimitInvalid():
		most = "?"
	case c.Limits.AtLeast > 0:
		most = fmt.Sprintf("%d-%d", c.Limits.AtLeast, c.Limits.AtMost)
	}
	return bad + " of " + most
}

func widest(lines []string) int {
	most := 0
	for _, line := range lines {
		most = max(most, text.Columns(line))
	}
	return most
}
